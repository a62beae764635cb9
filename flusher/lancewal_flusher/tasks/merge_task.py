"""The work of a merge on one fragment, as a pure value.

The task finds the live rows that keys replace.  It hides them, or rewrites the columns that patches set in place
(``in_place``).  Either the key index names the rows with the keys, live or hidden (``Candidates``), or a scan of the
fragment finds them (``KeyScan``).

A task can be pickled.  A thread or a Spark executor needs only the task and the table to run it.  Running a task
twice is harmless: it writes a deletion file, and perhaps a data file, which have no effect before a commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

import numpy as np
import pyarrow as pa

from lancewal_core.keys.index import RowsOfKeys
from lancewal_core.keys.live import live_rows, scan_fragment
from lancewal_core.names.ids import TableVersion
from lancewal_core.process.failpoints import point
from lancewal_core.rows.key_set import KeySet
from lancewal_core.table.protocol import PinnedTable, StoredTable, fragment_live_rows
from lancewal_flusher.tasks.in_place import PatchesInPlace


@dataclass(frozen=True, slots=True)
class KeyScan:
    """Find rows by scanning the fragment for these keys.  All tasks of a merge share the set."""

    keys: KeySet


@dataclass(frozen=True, slots=True)
class Candidates:
    """All physical rows of the fragment with a key of the merge, including deleted rows, and the indexes of their keys.

    Hiding a hidden row again changes nothing.  ``doubtful``: perhaps none of the rows is live, and a deletion vector
    would be written for nothing.  Only then the task checks which rows are live.
    """

    found: RowsOfKeys
    live_rows: int
    """Number of live rows of the whole fragment before the merge."""
    doubtful: bool


@dataclass(frozen=True, slots=True)
class FragmentTask:
    """One fragment's part of a merge.  The first ``partial_keys`` keys are those of patches.  Their rows are returned
    with ``columns``, to complete the patches, except rows that are patched ``in_place``.
    """

    version: TableVersion
    fragment_id: int
    physical_rows: int
    source: KeyScan | Candidates
    partial_keys: int
    columns: tuple[str, ...]
    in_place: PatchesInPlace | None = None


@dataclass(frozen=True, slots=True)
class FragmentResult:
    """Result of a task.  ``updated``: the fragment's new JSON, or None if no row is left.  ``hits``: number of rows
    that were hidden or patched in place.
    """

    fragment_id: int
    hits: int
    updated: str | None
    base: pa.Table | None
    """Rows of the fragment that patches will be applied to, to become new rows; None if there are none."""


def waits(task: FragmentTask) -> bool:
    """Whether the task mostly waits for the store, because its rows are known and only its deletion vector is written."""
    return isinstance(task.source, Candidates) and task.in_place is None


def run_task(table: StoredTable, task: FragmentTask) -> FragmentResult:
    """Run a task on its table version.  Raises ``VersionGone``."""
    return run_on(table.at(task.version), task)


def run_on(pinned: PinnedTable, task: FragmentTask) -> FragmentResult:
    """Run a task: find its rows, read the rows that patches apply to, hide rows and patch others in place.  Raises
    ``VersionGone``."""
    found = _found(pinned, task)
    patched = RowsOfKeys(found.rows[:0], found.places[:0])
    if task.in_place is not None:
        found, patched = task.in_place.split(found)
    base: pa.Table | None = None
    if task.partial_keys:
        needed = found.rows[found.places < task.partial_keys].astype(np.uint64)
        base = pinned.take(pa.array(needed | np.uint64(task.fragment_id << 32)), list(task.columns))
    if len(found.rows) == len(patched.rows) == 0:
        return FragmentResult(task.fragment_id, 0, None, base)
    if len(found.rows):
        with point("dv.write", fragment=task.fragment_id, rows=len(found.rows)):
            updated = pinned.hide_rows(task.fragment_id, found.rows)
    else:
        updated = pinned.fragment_json(task.fragment_id)
    hits = len(found.rows)
    if isinstance(task.source, Candidates):
        hits = task.source.live_rows - (0 if updated is None else fragment_live_rows(updated))
    if task.in_place is not None and updated is not None:
        with point("fragment.write", fragment=task.fragment_id, rows=len(patched.rows)):
            updated = task.in_place.write(pinned, task.fragment_id, patched, updated)
    return FragmentResult(task.fragment_id, hits + len(patched.rows), updated, base)


def _found(pinned: PinnedTable, task: FragmentTask) -> RowsOfKeys:
    """Return the rows of the fragment with keys of the merge.  Hidden rows are left out if patches need the live ones,
    or if perhaps no row is live."""
    match task.source:
        case KeyScan(keys=keys):
            return scan_fragment(pinned, keys, task.fragment_id)
        case Candidates(found=rows, doubtful=doubtful):
            if not doubtful and not task.partial_keys:
                return rows
            return live_rows(pinned, task.fragment_id, rows)
        case _:
            assert_never(task.source)
