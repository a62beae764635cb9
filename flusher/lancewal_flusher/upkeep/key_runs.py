"""Maintain the key index: write runs for data files that have none, merge runs, and drop runs of files that the table
no longer has.

Guarantees
 1. Upkeep only makes lookups faster: whatever it does or leaves undone, ``KeyIndex.find`` stays right.
 2. Memory is bounded: at any time it holds the keys of one file, those collected for one run, or one part of each run
    of a group that is merged.
 3. Any number of flushers may do it at the same time and stop anywhere: the catalog changes by compare-and-swap.
    Garbage collection deletes parts that no catalog names.  In this process it leaves parts alone until the call that
    writes them has ended, because writing runs may take longer than the grace period.

It does not matter who wrote a file: merges, users, bulk loads and compactions all leave files that no run covers.  If
rows do not tell their region, an entry also has the region through which its key came, as far as it is known
(``origins``).

Steps of ``keep_up``
 1. Return if an earlier call left nothing to do for the newest version, or if a newer release keeps the catalog.  Raise
    an error if the table's columns are not the contract's.
 2. For data files in use that no sound run covers, write runs, up to ``rows_max`` rows in all.  Keys are read from
    the files, except those that a merge has read when it adopted the file (``adopted_keys``).
 3. Compare-and-swap: add the new runs.  Of the runs read in step 2, remove those of which the table has no file any
    more, and broken ones.  If step 2 leaves files for the next call, runs that may be the only record of keys'
    regions stay, and step 4 is left out.
 4. Merge runs that were read before, or are new, where ``to_merge`` says so; each group by a compare-and-swap of its
    own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import google_crc32c
import numpy as np
import pyarrow as pa

from lancewal_core.errors import Corrupt, FormatUnknown, VersionGone
from lancewal_core.keys.catalog import CoveredFile, KeyCatalog, KeyPart, KeyRun
from lancewal_core.keys.code import CodedKeys, code_keys, join_keys
from lancewal_core.keys.index import KeyIndex, covered_files, fragments_by_file
from lancewal_core.keys.run import Entries, Regions, cut, encode_part, sorted_entries
from lancewal_core.names import paths
from lancewal_core.names.ids import TableVersion
from lancewal_core.names.words import is_word
from lancewal_core.process.failpoints import point
from lancewal_core.store.object_store import put_own
from lancewal_core.table.columns.restored import check_fit
from lancewal_core.table.protocol import Fragment, PinnedTable
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.origins import Origins, origins_of
from lancewal_flusher.upkeep.adopted_keys import AdoptedKeys
from lancewal_flusher.upkeep.key_tiers import in_use, merge_runs, run_regions, to_merge

RUN_ROWS = 1_000_000
RUN_KEY_BYTES = 64 << 20
"""Files share a run until their keys have this many bytes, or they have ``RUN_ROWS`` rows.  Sorting takes some 60
bytes of memory a row, and four times the bytes of text keys."""
FILE_ROWS_MAX = 8_000_000
FILE_KEY_BYTES_MAX = 128 << 20
"""Files with more bytes of keys, or more than ``FILE_ROWS_MAX`` rows, get no run; merges scan them.  Lancewal writes
no such files, except perhaps by a bulk load."""
UPKEEP_ROWS = 8_000_000
"""A call writes no further run for new files after this many rows, so that merges can run in between."""


_CodedFile = tuple[str, CodedKeys, Regions | None]
"""Data file that is to get a run: its name, keys, and the regions of its rows (None if the keys determine them)."""


@dataclass(slots=True)
class UpkeepState:
    """State that one flusher keeps between calls."""

    done_for: TableVersion | None = None
    unfit: set[str] = field(default_factory=set)
    """Names of data files that get no run: a key is null, the file is too large, or its name is not a plain word."""
    adopted: AdoptedKeys = field(default_factory=AdoptedKeys)
    """Keys of files that merges have adopted since the previous call.  A call that maintains the index clears them."""


@dataclass(frozen=True, slots=True)
class UpkeepReport:
    """Result of a call.  ``indexed``: number of entries written for files without a run.  ``merged``: number of
    entries written again by merging runs.
    """

    indexed: int = 0
    merged: int = 0


def keep_up(
    context: FlusherContext, state: UpkeepState, rows_max: int = UPKEEP_ROWS, pinned: PinnedTable | None = None
) -> UpkeepReport:
    """Maintain the key index (module steps).  ``pinned``: the version that was just the newest; None: read it.

    Raises ``ContractMismatch`` or ``TableReplaced`` if the table no longer belongs to the contract.  If rows do not tell
    their partition, ``ContractMismatch`` also means that a newer contract may change which regions count for a key.
    """
    pinned = pinned or context.table.newest()
    # Step 1
    if state.done_for == pinned.version:
        return UpkeepReport()
    check_fit(context.store, pinned, context.contract)  # keys are read by the names of their columns
    try:
        return _keep_up(context, pinned, state, rows_max)
    except VersionGone:
        return UpkeepReport()  # cleaned up meanwhile: the next call looks at a newer one
    finally:
        state.adopted.clear()
        context.key_parts_begun.clear()


def _keep_up(context: FlusherContext, pinned: PinnedTable, state: UpkeepState, rows_max: int) -> UpkeepReport:
    """Write runs for new files, swap the catalog, and merge runs (steps 2 to 4)."""
    fragments = fragments_by_file(pinned, context.contract.primary_key)
    origins = origins_of(context)
    # A compaction waits for the runs of its files.  So a catalog read after the version was pinned has them, and both
    # regions of a key that had two.  A catalog read before may have one.
    catalogs = context.keys.catalogs
    catalog = catalogs.read() if origins.in_old_runs else catalogs.recent()
    if isinstance(catalogs.problem, FormatUnknown):
        return UpkeepReport()
    origins.check()  # after the reading: nothing in it was merged under a newer one
    broken = len(context.keys.broken)
    # Step 2
    sound = context.keys.sound(catalog)
    covered = covered_files(sound, fragments)
    missing = {name: found[0] for name, found in fragments.items() if name not in covered | state.unfit}
    new: list[KeyRun] = []
    left = False
    for run in _runs(context, pinned, origins.begin(pinned, missing, sound), state, origins):
        new.append(run)
        left = sum(run.entries for run in new) >= rows_max
        if left:
            break
    # Step 3
    rows_of_files = {name: found[0].physical_rows for name, found in fragments.items()}
    # Runs out of use may be all that knows through which regions the keys of files without a run came.
    needed = left and origins.in_old_runs
    seen = {run.name for run in (*catalog.runs, *new)}

    def kept(run: KeyRun) -> bool:
        if run.name not in seen:
            return True  # of another flusher, perhaps for files that are newer than the version pinned
        return run.name not in context.keys.broken and bool(needed or in_use(run, rows_of_files).files)

    stale = not all(kept(run) for run in catalog.runs)
    if new or stale or context.keys.catalogs.problem is not None:
        with point("keys.cas", runs=len(new)):
            swapped = context.keys.catalogs.swap(lambda now: (*filter(kept, now.runs), *new), context.new_id)
            catalog = swapped or context.keys.catalogs.read()
    # Step 4
    merged = 0 if needed else _merge(context, catalog, rows_of_files, seen, origins)
    if not left and len(context.keys.broken) == broken:
        state.done_for = pinned.version
    return UpkeepReport(sum(run.entries for run in new), merged)


def _runs(
    context: FlusherContext,
    pinned: PinnedTable,
    missing: Mapping[str, Fragment],
    state: UpkeepState,
    origins: Origins,
) -> Iterator[KeyRun]:
    """Write and yield runs for these files; several small files share one."""
    batch: list[_CodedFile] = []
    for name, fragment in missing.items():
        # A file that others brought may have any name: a catalog takes no such one.
        coded = (
            _keys_of(context.contract.rows.key, pinned, fragment, state.adopted.take(name)) if is_word(name) else None
        )
        if coded is None:
            state.unfit.add(name)
            continue
        batch.append((name, coded, origins.find(name, coded)))
        keys = [coded for _, coded, _ in batch]
        if sum(map(len, keys)) >= RUN_ROWS or sum(k.nbytes for k in keys) >= RUN_KEY_BYTES:
            yield _run(context, batch, origins)
            batch = []
    if batch:
        yield _run(context, batch, origins)


def _run(context: FlusherContext, batch: Sequence[_CodedFile], origins: Origins) -> KeyRun:
    counts = [len(coded) for _, coded, _ in batch]
    rows = np.concatenate([np.arange(count, dtype=np.uint32) for count in counts])
    at = np.repeat(np.arange(len(batch), dtype=np.uint32), counts)
    through = [found for _, _, found in batch if found is not None]
    keys = join_keys([coded for _, coded, _ in batch])
    entries = sorted_entries(keys, rows, at, np.concatenate(through) if through else None)
    files = tuple(CoveredFile(name=name, rows=len(coded)) for name, coded, _ in batch)
    parts = tuple(_write(context, part) for part in cut(entries))
    return KeyRun(name=context.new_id(), files=files, parts=parts, regions=run_regions(origins.regions))


def _keys_of(schema: pa.Schema, pinned: PinnedTable, fragment: Fragment, known: pa.Table | None) -> CodedKeys | None:
    """Return the keys of all physical rows of a fragment's file, in their order.  Return None if a key is null, or if
    the file is too large.  ``known``: keys that a merge has read.
    """
    if fragment.physical_rows > FILE_ROWS_MAX:
        return None
    if known is not None and known.num_rows == fragment.physical_rows:
        return code_keys(known)
    batches: list[pa.RecordBatch] = []
    nbytes = 0
    for batch in pinned.all_rows(fragment.fragment_id, schema.names):
        nbytes += batch.nbytes
        if nbytes > FILE_KEY_BYTES_MAX:
            return None
        batches.append(batch)
    table = pa.Table.from_batches(batches, batches[0].schema) if batches else schema.empty_table()
    if table.num_rows != fragment.physical_rows or any(column.null_count for column in table.columns):
        return None
    return code_keys(table)


def _merge(
    context: FlusherContext,
    catalog: KeyCatalog,
    rows_of_files: Mapping[str, int],
    seen: Collection[str],
    origins: Origins,
) -> int:
    """Merge runs whose names are in ``seen`` (step 4).  Return the number of entries written."""
    written = 0
    runs = [in_use(run, rows_of_files) for run in catalog.runs if run.name in seen]
    origins.check()
    for group in to_merge(runs):
        try:
            counts = origins.regions.counts
            run = merge_runs(group, context.keys.parts, lambda part: _write(context, part), context.new_id(), counts)
        except Corrupt:
            for member in group:
                _find_broken(context.keys, member.run)
            continue
        written += run.entries
        gone = {member.run.name for member in group}
        with point("keys.cas", merged=len(gone)):
            context.keys.catalogs.swap(
                lambda now, gone=gone, run=run: _replaced(now.runs, gone, run),  # type: ignore[misc]
                context.new_id,
            )
    return written


def _replaced(runs: Sequence[KeyRun], gone: set[str], run: KeyRun) -> tuple[KeyRun, ...] | None:
    """Return ``runs`` with ``run`` in place of the runs whose names are in ``gone``.  Return None if another flusher
    has replaced one of these.
    """
    if not gone <= {r.name for r in runs}:
        return None
    return (*(r for r in runs if r.name not in gone), run)


def _find_broken(keys: KeyIndex, run: KeyRun) -> None:
    """Record the run as broken if a part of it cannot be read.  The next call writes new runs for its files."""
    for part in run.parts:
        try:
            keys.parts.open(part)
        except Corrupt as error:
            keys.broken[run.name] = str(error)
            return


def _write(context: FlusherContext, entries: Entries) -> KeyPart:
    data = encode_part(entries)
    key = paths.key_part(context.new_id())
    context.key_parts_begun.add(key)
    put_own(context.store, key, data)
    numbers = entries.keys.numbers
    part = KeyPart(
        object=key,
        entries=len(entries),
        first=int(numbers[0]),
        last=int(numbers[-1]),
        size=len(data),
        crc32c=google_crc32c.value(data),
    )
    context.keys.parts.keep(part, data)
    return part
