"""Keep the secondary indexes that users have made correct and up to date: scalar, vector and full text indexes.

Merges and compactions leave rows that no index covers.  Queries scan these rows.  So their results are always right,
but queries are slower the more such rows there are.  Extending an index changes no row.  An index may be extended at
any time, also during merges, and an extension that does not land is retried.

Guarantee: once an index was extended here, a query by it finds what a scan finds.  This holds whatever was done to
the table before, as far as the newest version tells what was done (``index_doubt``).

Steps of ``extend_indexes``
 1. If columns of an index were written in place, the index gets one segment, from all its segments and all unindexed
    rows.  A full text index is built again instead, and once more before the last round of step 2.
 2. The fragments of step 1 are rewritten, as by a compaction, at most ``round_bytes`` of them.  While one is left,
    the indexes over its columns are not extended.
 3. An index that may still have old values, or rows twice, is built again with its own parameters.
 4. The others are extended, if the limits say so (``index_plan``), or if step 2 has just rewritten the last fragment.
    If a vector index cannot hold a row, it is built again without that row.  That happens at once if the whole index
    fits into ``round_bytes``, else when ``unindexed_share`` of the rows are unindexed.

Lance indexes all uncovered rows at once: after a large import this takes long, and one merge may wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import assert_never

from lancewal_core.errors import RewriteFailed
from lancewal_core.keys.far_rows import far_text, row_keys
from lancewal_core.names.ids import TableVersion
from lancewal_core.table.columns.restored import check_fit
from lancewal_core.table.presence import check_present
from lancewal_core.table.protocol import CommitLost, CommitOutcome, Committed, Conflicted, PinnedTable, StoredTable
from lancewal_flusher.commit.send import Refused, checkpoint
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.upkeep.compaction import Compacted, write_anew
from lancewal_flusher.upkeep.compaction_plan import CompactionLimits
from lancewal_flusher.upkeep.index_doubt import FULL_TEXT, doubted_fragments, to_rebuild
from lancewal_flusher.upkeep.index_plan import IndexLimits, fitting, index_works, unindexed


@dataclass(frozen=True, slots=True)
class FarRows:
    """Rows whose vector an index cannot hold, because its squared length exceeds float32."""

    rows: int
    keys: tuple[str, ...]
    """Texts of the primary keys of the first few of these rows."""

    @property
    def text(self) -> str:
        return far_text(self.rows, self.keys)


@dataclass(frozen=True, slots=True)
class IndexExtended:
    """An index now covers more rows, or no longer has entries that were in doubt."""

    name: str
    version: TableVersion
    rows: int
    merged_segments: int
    rebuilt: bool = False
    """True if the index was built again from all rows."""
    far: FarRows | None = None
    """Rows that the index cannot hold, and that it leaves out; None if there are none."""


@dataclass(frozen=True, slots=True)
class IndexRefused:
    """An index was not extended, and the reason."""

    name: str
    reason: str
    more: bool = False
    """Whether a part of the work was done, so that the next call can go on."""
    far: FarRows | None = None
    """Rows that the index cannot hold, because of which it was not extended; None: the reason is another one."""


def extend_indexes(
    context: FlusherContext, limits: IndexLimits, *, at_once: bool
) -> tuple[IndexExtended | IndexRefused, ...]:
    """Extend the indexes that need it, and return the results (module steps).  ``at_once``: extend all that lack a
    row, whatever the limits.  Raises the errors of ``check_fit``.
    """
    pinned = context.table.newest()
    check_fit(context.store, pinned, context.contract)
    doubted = doubted_fragments(pinned)
    left: dict[str, IndexRefused] = {}
    if doubted:
        # Step 1
        left = _one_segment(context, pinned, doubted, limits)
        # Step 2
        of_those = frozenset[int]().union(*(doubted[name] for name in left))
        left = _write_anew(context, frozenset[int]().union(*doubted.values()) - of_those, limits) | left
        pinned = context.table.newest()
    results: list[IndexExtended | IndexRefused] = [*left.values()]
    # Step 3
    updated, fragments = pinned.updated_rows(), pinned.fragments()
    old = [i for i in pinned.indexes() if i.name not in left and to_rebuild(i, fragments, updated)]
    rows = sum(f.live_rows for f in fragments)
    old.sort(key=lambda index: (index.row_bytes, index.name))
    for index in old[: fitting([int(rows * index.row_bytes) for index in old], limits.round_bytes)]:
        results.append(_rebuilt(context, index.name, rows))
    # Step 4
    apart = {*left, *(index.name for index in old)}
    works = index_works(
        [index for index in pinned.indexes() if index.name not in apart],
        fragments,
        limits,
        at_once=at_once,
        urgent=doubted.keys(),
        field_ids=pinned.field_ids,
    )
    nbytes = 0
    for work in works:
        if nbytes and nbytes + work.nbytes > limits.round_bytes:
            break
        outcome = _indexed(context, partial(context.table.extend_index, work.name, work.merged_segments))
        if isinstance(outcome, CommitLost) and outcome.far_rows:
            if work.table_bytes <= limits.round_bytes or work.unindexed_rows >= limits.unindexed_share * rows:
                results.append(_rebuilt(context, work.name, rows))
            else:
                far = _far(context.table, context.contract.primary_key, outcome)
                results.append(
                    IndexRefused(
                        work.name,
                        f"the index is rebuilt once flusher.index_unindexed_ratio_max of the rows are unindexed: {far.text}",
                        far=far,
                    )
                )
            continue
        if isinstance(outcome, CommitLost) and work.unindexed_rows == rows:
            # Lance cannot extend the index of a struct's member that covers no row.
            outcome = _indexed(context, partial(context.table.rebuild_index, work.name))
        extended = IndexExtended(work.name, pinned.version, work.unindexed_rows, work.merged_segments)
        results.append(_result(work.name, outcome, extended))
        # One that fails keeps no other from its turn.
        nbytes += work.nbytes if isinstance(outcome, Committed) else 0
    return tuple(results)


def _rebuilt(context: FlusherContext, name: str, rows: int) -> IndexExtended | IndexRefused:
    """Build the index again from all ``rows`` live rows, without those that it cannot hold."""
    outcome = _indexed(context, partial(context.table.rebuild_index, name))
    far = (
        _far(context.table, context.contract.primary_key, outcome)
        if isinstance(outcome, Committed) and outcome.far_rows
        else None
    )
    left = rows - (0 if far is None else far.rows)
    return _result(name, outcome, IndexExtended(name, TableVersion(0), left, 0, rebuilt=True, far=far))


def _far(table: StoredTable, primary_key: Sequence[str], outcome: Committed | CommitLost) -> FarRows:
    keys = row_keys(table.newest(), outcome.far_rows, primary_key)
    return FarRows(len(outcome.far_rows), keys)


def unindexed_rows(pinned: PinnedTable) -> dict[str, int]:
    """Return the number of live rows that each index does not cover, by the index's name."""
    return {index.name: unindexed(index, pinned.fragments()) for index in pinned.indexes()}


def _one_segment(
    context: FlusherContext, pinned: PinnedTable, doubted: Mapping[str, frozenset[int]], limits: IndexLimits
) -> dict[str, IndexRefused]:
    """Give each index in ``doubted`` one segment of all rows (step 1).  Return the errors of indexes for which this
    failed, by name.
    """
    ids = frozenset[int]().union(*doubted.values())
    last = sum(f.nbytes for f in pinned.fragments() if f.fragment_id in ids) <= limits.round_bytes
    refused: dict[str, IndexRefused] = {}
    for index in sorted(pinned.indexes(), key=lambda index: index.kind == FULL_TEXT):
        if index.name not in doubted:
            continue
        outcome: CommitOutcome | None = None
        whole = len(index.segments) == 1 and index.covered.issuperset(doubted[index.name])
        if index.kind != FULL_TEXT and not whole:
            outcome = _indexed(context, partial(context.table.extend_index, index.name, len(index.segments)))
        # Lance cannot extend every index that it can build: that of a struct's member, for one.
        if isinstance(outcome, CommitLost) or (index.kind == FULL_TEXT and not (whole and (refused or not last))):
            outcome = _indexed(context, partial(context.table.rebuild_index, index.name))
        if outcome is not None and not isinstance(outcome, Committed):
            reason = outcome.reason if isinstance(outcome, Conflicted) else outcome.cause
            refused[index.name] = IndexRefused(index.name, reason)
    return refused


def _write_anew(context: FlusherContext, fragment_ids: frozenset[int], limits: IndexLimits) -> dict[str, IndexRefused]:
    """Rewrite fragments of which indexes may have old values (step 2).  Return the indexes that still have such
    fragments, by name, with the reason why they are not extended.
    """
    reason, more = "", False
    try:
        done = write_anew(context, fragment_ids, CompactionLimits(round_bytes=limits.round_bytes))
    except RewriteFailed as error:
        reason = str(error)
    else:
        match done:
            case Compacted():
                more = True
            case Refused():
                reason = done.reason
            case None:
                reason = "these fragments wait for the key index, or for another index over their columns"
            case _:
                assert_never(done)
    still = doubted_fragments(context.table.newest())
    return {
        name: IndexRefused(
            name,
            f"fragments of which the index may hold old values are rewritten first; left: {len(fragments)}"
            + (f"; {reason}" if reason else ""),
            more,
        )
        for name, fragments in still.items()
    }


def _indexed(context: FlusherContext, act: Callable[[], CommitOutcome]) -> CommitOutcome:
    """Call ``act``, which builds or extends an index, if the table is still at its place.

    Lance commits at the end of a build.  The check misses a table that is deleted and made again during the build."""
    before = context.table.newest().version
    checkpoint(context, before)
    check_present(context.store, context.contract)
    outcome = act()
    if outcome == Committed(before):
        return CommitLost("Lance has added nothing to the index; Lance's log says why")
    return outcome


def _result(name: str, outcome: CommitOutcome, done: IndexExtended) -> IndexExtended | IndexRefused:
    match outcome:
        case Committed(version=version):
            return replace(done, version=version)
        case Conflicted(reason=reason) | CommitLost(cause=reason):
            return IndexRefused(name, reason)
        case _:
            assert_never(outcome)
