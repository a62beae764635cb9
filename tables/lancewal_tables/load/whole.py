"""Load whole files into a table, part by part.  ``part`` has the guarantees, and the protocol of one part.

Steps
 1. Find the files and check the columns of each.
 2. Begin: record the name and what is merged now, unless a load of this name began before.
 3. With ``duplicates`` ``error``, check that no key is in the files twice.  The keys are read once for every
    ``keys_at_once`` of them.
 4. Read the rows in parts, and load each part.  A part ends once it has ``part_rows`` rows or about ``part_bytes``.
    With ``duplicates`` ``last``, read from the last row to the first.  The last row of a key is then loaded first, and
    its other rows are left out.
 5. Maintain the key index, so that the next part need not scan this part.

With ``look_only`` nothing is written.  The rows that would be loaded into the present version are counted, part by part.
A key in two parts then counts twice as inserted.

After a stop between two parts, or a kill at any point, rows that were inserted stay.  The same load, run again, continues.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa

from lancewal_core.errors import DuplicateKeys
from lancewal_core.process.progress import step
from lancewal_core.rows.column_types import storage_rows
from lancewal_core.rows.projection import rows_as
from lancewal_core.rows.schema import RowSchema
from lancewal_core.settings.load import Settings
from lancewal_core.table.load_record import LoadRecord, begin_load
from lancewal_flusher.context import FlusherContext, by_newest_contract
from lancewal_flusher.open import open_context
from lancewal_flusher.upkeep.key_runs import UpkeepState, keep_up
from lancewal_tables.define.unique_keys import KEYS_AT_ONCE, check_unique_rows
from lancewal_tables.load.deletes import DeletesSince
from lancewal_tables.load.duplicates import Duplicates
from lancewal_tables.load.files import LoadFile, find_files
from lancewal_tables.load.part import PartLoaded, load_part, look_at_part

PART_ROWS = 1_048_576
"""Number of rows of a part: as many as one data file takes."""
PART_BYTES = 128 << 20
"""Bytes of a part.  In memory a part is held up to three times: as it is read, joined, and without the rows that are
left out."""


@dataclass(frozen=True, slots=True)
class LoadBounds:
    """Bounds of what a load may hold in memory at a time."""

    part_rows: int = PART_ROWS
    part_bytes: int = PART_BYTES
    keys_at_once: int = KEYS_AT_ONCE


@dataclass(frozen=True, slots=True)
class LoadSummary:
    """Counts of a load.  ``rows`` = inserted + present + deleted + doubled + appended, unless it was stopped."""

    name: str
    files: int
    rows: int
    inserted: int
    present: int
    """Rows left out because their key had a row."""
    deleted: int
    """Rows left out because Kafka has deleted their key since the load began."""
    doubled: int
    """Rows left out because the same part has a later row of their key (``duplicates`` ``last``)."""
    appended: int
    """Rows inserted and hidden again because another program appended their key at the same time."""
    commits: int
    finished: bool
    """False if the load was stopped; the same load, run again, continues."""


@dataclass(frozen=True, slots=True)
class LoadAsked:
    """Options of a load, without the rows."""

    name: str
    duplicates: Duplicates = Duplicates.ERROR
    bounds: LoadBounds = field(default_factory=LoadBounds)
    look_only: bool = False
    """Count what would be loaded, and write nothing."""


def load_files(
    settings: Settings,
    addresses: Sequence[str],
    *,
    name: str | None = None,
    duplicates: Duplicates = Duplicates.ERROR,
    bounds: LoadBounds | None = None,
    look_only: bool = False,
    landed: Callable[[PartLoaded], None] = lambda _: None,
    stopping: Callable[[], bool] = lambda: False,
) -> LoadSummary:
    """Load Parquet and Arrow IPC files, or folders of them, into the table at ``table.uri``.

    ``name``: name of the load, by default derived from the names and sizes of the files, so that a repeated load
    continues.  ``look_only``: count what would be loaded, and write nothing.  ``landed`` is called after each part.
    ``stopping`` is asked before each part.

    Raises ``InvalidSchema`` and ``DuplicateKeys`` before anything is loaded.  Raises ``OutsideHistoryWindow`` if the
    load began too long ago.  Raises ``PlanRetriesExhausted`` if merges come too fast.  Errors of the store and the
    table are raised as they are.
    """
    with open_context(settings, on_threads=True) as context:
        files = find_files(addresses, settings.storage.options)
        asked = LoadAsked(name or name_of(files), duplicates, bounds or LoadBounds(), look_only)
        return load(context, files, asked, landed, stopping)


def begin(settings: Settings, name: str, *, look_only: bool = False) -> LoadRecord:
    """Record the beginning of the load ``name`` (step 2), and return the record.

    Keys that are deleted from now on do not come back by a load of this name."""
    with open_context(settings, on_threads=True) as context:
        return _begin(context, name, look_only=look_only)


def load(
    context: FlusherContext,
    files: Sequence[LoadFile],
    asked: LoadAsked,
    landed: Callable[[PartLoaded], None] = lambda _: None,
    stopping: Callable[[], bool] = lambda: False,
) -> LoadSummary:
    """Load ``files`` into an opened table (steps 1 to 5), and return the counts.  Errors: see ``load_files``.

    ``landed`` is called after each part, and ``stopping`` is asked before each part."""
    name, duplicates, bounds = asked.name, asked.duplicates, asked.bounds
    rows = context.contract.loaded_rows
    # Step 1
    with step("looking at files", len(files), "files") as told:
        for file in told.counting(files):
            file.check(rows)
    # Step 2
    deletes = DeletesSince(context, name, _begin(context, name, look_only=asked.look_only))
    # Step 3
    total = _check_keys(files, rows, bounds) if duplicates is Duplicates.ERROR else None
    # Step 4
    done: list[PartLoaded] = []
    read = doubled = 0
    upkeep = UpkeepState()
    finished = True
    parts = _parts(files, rows, bounds, backwards=duplicates is Duplicates.LAST)
    with step("looking for keys" if asked.look_only else "loading", total, "rows") as told:
        for part in told.counting(parts, len):
            if stopping():
                finished = False
                break
            distinct = _last_of_each(part, rows)
            if duplicates is Duplicates.ERROR and distinct.num_rows < part.num_rows:
                raise DuplicateKeys("the files have changed while they were loaded: a key is there twice now")
            read += part.num_rows
            doubled += part.num_rows - distinct.num_rows
            act = look_at_part if asked.look_only else load_part
            done.append(by_newest_contract(context, partial(_act_on, act, distinct, rows, deletes)))
            if asked.look_only:
                continue
            landed(done[-1])
            # Step 5
            if done[-1].version is not None:
                by_newest_contract(context, partial(keep_up, state=upkeep))
    return LoadSummary(
        name,
        len(files),
        read,
        sum(part.inserted for part in done),
        sum(part.present for part in done),
        sum(part.deleted for part in done),
        doubled,
        sum(part.appended for part in done),
        sum(part.inserted + part.appended > 0 for part in done),
        finished,
    )


def _act_on(
    act: Callable[[FlusherContext, pa.Table, DeletesSince], PartLoaded],
    part: pa.Table,
    written: RowSchema,
    deletes: DeletesSince,
    context: FlusherContext,
) -> PartLoaded:
    """Call ``act`` for a part of the load: ``act`` loads the part, or only counts its rows.

    The rows first get the columns of the contract in ``context``.
    """
    rows = rows_as(part, written, context.contract.rows, lambda: f"the load {deletes.name}")
    return act(context, rows, replace(deletes, context=context))


def name_of(files: Sequence[LoadFile]) -> str:
    """Return a name that follows from the names and sizes of the files, so the same files give the same name.

    Other content of the same size does no harm: its load then has an earlier beginning."""
    text = "\n".join(f"{file.shown.rpartition('/')[2]} {file.size}" for file in files)
    return f"files-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _begin(context: FlusherContext, name: str, *, look_only: bool = False) -> LoadRecord:
    """Record the beginning of a load unless it is recorded already, and return the record (step 2)."""
    _, in_force = context.watermarks.newest()
    merged = {region.name: int(mark.generation) for region, mark in sorted(in_force.regions.items())}
    here = LoadRecord(began_at_ms=context.clock.now_ms(), topic_id=context.contract.topic_id, merged=merged)
    return begin_load(context.store, name, context.contract, here, look_only=look_only)


def _check_keys(files: Sequence[LoadFile], rows: RowSchema, bounds: LoadBounds) -> int:
    """Raise ``DuplicateKeys`` if a key is in the files twice; return the number of rows (step 3)."""

    total = sum(file.rows() for file in files)

    def scan() -> Iterator[pa.RecordBatch]:
        with step("looking for keys that come twice", total, "rows") as told:
            for file in files:
                yield from told.counting(file.batches(rows.primary_key, rows), len)

    check_unique_rows(scan, total, rows, bounds.keys_at_once)
    return total


def _parts(files: Sequence[LoadFile], rows: RowSchema, bounds: LoadBounds, *, backwards: bool) -> Iterator[pa.Table]:
    """Yield the rows in parts, in their order; ``backwards``: the last part first, with the rows of a part in order."""
    gathered: list[pa.RecordBatch] = []
    count = size = 0
    for file in reversed(files) if backwards else files:
        for batch in file.batches(rows.table.names, rows, backwards=backwards):
            starts = range(0, batch.num_rows, bounds.part_rows)
            for start in reversed(starts) if backwards else starts:
                gathered.append(batch.slice(start, bounds.part_rows))
                count += gathered[-1].num_rows
                size += gathered[-1].nbytes
                if count >= bounds.part_rows or size >= bounds.part_bytes:
                    yield pa.Table.from_batches(gathered[::-1] if backwards else gathered)
                    gathered, count, size = [], 0, 0
    if count:
        yield pa.Table.from_batches(gathered[::-1] if backwards else gathered)


def _last_of_each(part: pa.Table, rows: RowSchema) -> pa.Table:
    """Return the last row of each key of the part, in the part's order."""
    names = list(rows.primary_key)
    keys = part.select(names).append_column("_place", pa.array(np.arange(part.num_rows)))
    last = storage_rows(keys).group_by(names).aggregate([("_place", "max")])["_place_max"]
    return part if len(last) == part.num_rows else part.take(last.sort())
