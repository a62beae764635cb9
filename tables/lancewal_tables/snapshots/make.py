"""Make a named snapshot: the merged and unmerged rows of one point, as a branch of the Lance table.

Guarantees
 1. The branch has the rows of a read at the point; by default, all rows that were durable when the snapshot began.  The
    receipt in the branch's metadata says which rows these are.
 2. The branch is an ordinary Lance data set with the table's indexes, which do not cover rows that were unmerged.
    Anyone can open and read the branch.  Before step 5 the branch has only the rows of the table's version, or all rows
    but no receipt.  lancewal does not treat it as a snapshot then.
 3. The table, the WAL and the state of regions stay as they were, and no log entry is kept for the snapshot.  Lance keeps the
    version that the branch began at, and all files that this version names, until the branch is dropped.
 4. If two processes make a snapshot of the same name at once, one succeeds.  A snapshot may be dropped while it is
    made, and perhaps made again by another process.  The first process then does not change the new snapshot.  It ends
    with ``SnapshotMissing``, or with another error that says to make the snapshot again.  A change between a check of
    the notes and the write of a note right after it goes unnoticed: Lance compares nothing there.
 5. A process that dies leaves a branch with the note that its snapshot is begun.  `snapshot drop` removes the branch by
    its name, and garbage collection removes it a day later.  A process that dies within step 2 may leave a branch
    without this note, which looks like a user's branch.  `snapshot drop` then says how to delete it.

Steps
 1. Plan a read at the point.  Fold its unmerged rows; find the rows of its version V that their keys supersede.
 2. Create the branch at V, and note that it is begun.  If the name is taken: ``InvalidInput``.  If V is gone: step 1.
 3. Write the rows, and deletion vectors of the rows that they supersede, into the branch's folder; one commit, on the branch.
 4. Check that V still exists: a clean-up that had begun before step 2 does not know the branch.  If V is gone, drop the
    branch, and go to step 1.
 5. Note the receipt, and the branch's version: now it is a snapshot.  Before that, check that the note of step 2 is still
    there, which has an id of its own.  Check this too before the branch is dropped for an error.

A clean-up that had begun before step 2 and deletes V after step 4 would break the snapshot: reads end with
``VersionGone``.  No clean-up that lancewal makes or recommends deletes a version that was the newest within the last
hour.  So only a point further back (``at``) is at risk, if its version is due for deletion at that moment.

Right before steps 2 and 3 commit, and before a branch is dropped for an error, the table is looked for
(``check_present``).  Another table may have been made at its place.

A commit of an earlier snapshot of that name may still be in flight.  It can only land as the first version after V.
So the commit of step 3 must get that version, or it fails.

A point may have records whose columns are newer than those of V (``reading.result_columns``).  Then a commit before that of
step 3 gives the branch the columns of the read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.errors import (
    InvalidInput,
    LancewalError,
    PlanRetriesExhausted,
    SnapshotMissing,
    StoreUnavailable,
    TableMissing,
    VersionGone,
)
from lancewal_core.keys.live import find_live
from lancewal_core.names.ids import TableVersion
from lancewal_core.rows.key_set import KeySet
from lancewal_core.table.presence import check_present
from lancewal_core.table.protocol import ColumnsCommit, CommitOutcome, Committed, PinnedTable
from lancewal_core.table.snapshots import (
    NOTE,
    Snapshot,
    begun,
    check_name,
    check_until,
    has_notes,
    is_ours,
)
from lancewal_flusher.commit.send import commit_of, hide
from lancewal_flusher.context import FlusherContext

if TYPE_CHECKING:
    from lancewal_reader.point.at import Point
    from lancewal_reader.reading.reads import Reads
    from lancewal_reader.reading.scan import OpenState

_TRIES = 10
_MAKING_MAX_MS = 24 * 3600 * 1000
"""Longest time in ms that making a snapshot takes.  `snapshot drop` relies on it as well."""


@dataclass(frozen=True, slots=True)
class Made:
    """A snapshot, and the numbers of its unmerged and hidden rows."""

    snapshot: Snapshot
    rows: int
    """Unmerged rows that were written into the branch."""
    hidden: int
    """Rows of the table's version that unmerged records replace or delete."""


@dataclass(frozen=True, slots=True)
class _Unmerged:
    """The unmerged rows of a read, and the rows of a version of the merged table that they hide."""

    version: TableVersion
    hidden: Mapping[int, npt.NDArray[np.int64]]
    """Numbers of the hidden physical rows, by fragment."""
    rows: pa.Table
    columns: ColumnsCommit | None = None
    """Commit that gives the version the columns of the read; None if it has these."""


def make_snapshot(
    context: FlusherContext,
    reads: Reads,
    name: str,
    at: Point | None = None,
    for_ms: int | None = None,
    cut: str = "",
) -> Made:
    """Make the snapshot ``name`` of the table at the point ``at``, by default of all durable rows.

    ``reads`` must read the same table.  ``for_ms``: garbage collection drops the snapshot after this time from now.
    ``cut``: text of a note (``CutNote``) about the cut for which the snapshot is made; empty if there is none.  Raises
    ``InvalidInput`` if the name is taken or not valid, or the time is too far off.  Errors of a read at the point are
    raised too.
    """
    from lancewal_reader.point.read_options import read_options
    from lancewal_reader.reading.reads import wanted_of
    from lancewal_reader.unmerged.left_out import left_out_of

    check_name(name)
    if for_ms is not None:
        check_until(context.clock.now_ms() + for_ms + _MAKING_MAX_MS)
    taken = context.table.find_branch(name)
    if taken is not None:
        raise _taken(name, is_ours(taken))
    read = read_options() if at is None else read_options(at=at)
    reason: Exception | None = None
    for _ in range(_TRIES):
        # Step 1
        planned = reads.plan(wanted_of(None, None, read))
        found = reads.using(planned, lambda state: _unmerged(context, state))
        try:
            version, mark = _branch(context, name, found, str(planned.receipt), cut)
        except VersionGone as error:
            reason = error
            continue
        # Step 5
        now = context.clock.now_ms()
        until = None if for_ms is None else now + for_ms
        left = left_out_of(planned.schema)
        counts = left.waiting, left.unmerged, left.partitions
        made = Snapshot(name, found.version, version, str(planned.receipt), now, until, *counts, cut=cut)
        if not has_notes(context.table, name, mark):
            raise _dropped(name)
        context.table.note_branch(name, made.notes())
        return Made(made, found.rows.num_rows, sum(len(rows) for rows in found.hidden.values()))
    raise PlanRetriesExhausted(
        f"clean-ups removed {_TRIES} versions while snapshot {name} was made of them; the last: {reason}"
    ) from reason


def _taken(name: str, ours: bool) -> InvalidInput:
    if not ours:
        return InvalidInput(f"there is a branch {name} already, or what is left of one: choose another name")
    return InvalidInput(
        f"there is a snapshot {name} already, or one is being made: `lancewal snapshot drop {name}`, or choose another name"
    )


def _unmerged(context: FlusherContext, state: OpenState) -> _Unmerged:
    from lancewal_reader.reading.result_columns import columns_commit
    from lancewal_reader.unmerged.completed import complete_rows

    delta, pinned, plan = state.context, state.pinned, state.plan
    schema = delta.rows
    if plan.branch is not None:
        raise InvalidInput(
            f"a snapshot cannot be made of snapshot {plan.branch.name}: give the point that it was made at"
        )
    columns = columns_commit(delta, plan.pin(context.table), schema)
    if not plan.has_delta:
        return _Unmerged(plan.version, {}, schema.table.empty_table(), columns)
    loaded = state.load(schema)

    def live(keys: pa.Table) -> dict[int, npt.NDArray[np.int64]]:
        found = find_live(pinned, KeySet(keys), context.keys.find(pinned, keys))
        return {fragment: rows.rows for fragment, rows in found.items() if len(rows.rows)}

    def addresses(pinned: PinnedTable, keys: pa.Table) -> npt.NDArray[np.uint64]:
        parts = [np.uint64(fragment << 32) | rows.astype(np.uint64) for fragment, rows in live(keys).items()]
        return np.concatenate([np.zeros(0, np.uint64), *parts])

    keys = loaded.folded.keys(schema)
    rows = complete_rows(loaded.folded, pinned, schema, addresses).cast(schema.table)
    return _Unmerged(plan.version, live(keys) if keys.num_rows else {}, rows, columns)


def _dropped(name: str) -> SnapshotMissing:
    return SnapshotMissing(f"snapshot {name} was dropped while it was made: make it again", snapshot=name)


def _branch(
    context: FlusherContext, name: str, found: _Unmerged, receipt: str, cut: str
) -> tuple[TableVersion, Mapping[str, str]]:
    """Create the branch and write the rows (steps 2 to 4).  Return the branch's version that has the rows, and its notes."""
    # Step 2
    check_present(context.store, context.contract)
    if not context.table.create_branch(name, found.version):
        raise _taken(name, ours=True)
    maker = context.new_id()
    mark = begun(context.clock.now_ms(), maker, cut)
    if not has_notes(context.table, name, {}):
        raise _dropped(name)
    try:
        context.table.note_branch(name, mark)
        version = _commit(context, name, found, {NOTE: maker, "lancewal.receipt": receipt})
        # Step 4
        context.table.at(found.version)
    except LancewalError as error:
        check_present(context.store, context.contract)
        if has_notes(context.table, name, mark) or has_notes(context.table, name, {}):
            context.table.drop_branch(name)
        elif isinstance(error, TableMissing):  # the folder of the branch, not that of the table
            raise _dropped(name) from error
        raise
    return version, mark


def _commit(context: FlusherContext, name: str, found: _Unmerged, properties: dict[str, str]) -> TableVersion:
    """Commit the unmerged rows and deletion vectors to the branch, and return the branch's version (step 3)."""
    branch, version = context.table.branch(name), found.version
    if found.columns is not None:
        check_present(context.store, context.contract)
        version = _landed(name, version, branch.change_columns(replace(found.columns, properties=properties)))
    if not found.hidden and not found.rows.num_rows:
        return version
    first = branch.at(version)
    new = branch.write_rows(found.rows, first.field_ids) if found.rows.num_rows else ()
    commit = commit_of(first, new, hide(first, found.hidden), properties)
    check_present(context.store, context.contract)
    return _landed(name, version, branch.commit(commit))


def _landed(name: str, after: TableVersion, outcome: CommitOutcome) -> TableVersion:
    """Return the branch's version that a commit made.  Raises ``StoreUnavailable`` unless it is the version right after
    ``after``."""
    if not isinstance(outcome, Committed) or outcome.version != after + 1:
        raise StoreUnavailable(
            f"whether the commit of snapshot {name} landed is not known, or it landed after another commit: make the "
            "snapshot again"
        )
    return outcome.version
