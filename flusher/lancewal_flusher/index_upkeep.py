"""Keeping secondary indexes up to date: scalar, vector and full text ones, those that users have made.

Merges and compactions leave rows that no index covers; queries scan them, so they are right at any time, and slower the
more such rows there are.  Extending an index changes no row: it may happen at any time, beside merges too, and what does
not land is tried again.

Lance indexes all uncovered rows at once: after a large import this takes long, and one merge may wait for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from lancewal_core.ids import TableVersion
from lancewal_core.open_checks import check_table
from lancewal_core.table import CommitLost, Committed, Conflicted
from lancewal_flusher.commit import checkpoint
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.index_plan import IndexLimits, index_works


@dataclass(frozen=True, slots=True)
class IndexExtended:
    """An index covers what it did not."""

    name: str
    version: TableVersion
    rows: int
    merged_segments: int


@dataclass(frozen=True, slots=True)
class IndexRefused:
    """An index was not extended, and why."""

    name: str
    reason: str


def extend_indexes(
    context: FlusherContext, limits: IndexLimits, *, at_once: bool
) -> tuple[IndexExtended | IndexRefused, ...]:
    """Extend the indexes that need it; ``at_once``: all that miss a row.  Raises what ``check_table`` raises."""
    pinned = context.table.newest()
    check_table(pinned, context.contract)
    results: list[IndexExtended | IndexRefused] = []
    for work in index_works(pinned.indexes(), pinned.fragments(), limits, at_once=at_once):
        checkpoint(context, context.table.newest().version)
        outcome = context.table.extend_index(work.name, work.merged_segments)
        match outcome:
            case Committed(version=version) if version == pinned.version:
                results.append(IndexRefused(work.name, "Lance has added nothing to it; what it logs says why"))
            case Committed(version=version):
                results.append(IndexExtended(work.name, version, work.unindexed_rows, work.merged_segments))
            case Conflicted(reason=reason) | CommitLost(cause=reason):
                results.append(IndexRefused(work.name, reason))
            case _:
                assert_never(outcome)
    return tuple(results)
