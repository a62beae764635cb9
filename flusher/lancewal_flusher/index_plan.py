"""Which secondary indexes to extend now, and by how much: a pure decision.

An index is extended by a *segment* for the rows that none of its segments covers.  So that segments do not become many, a
new one takes in the newer ones as long as they hold no more live rows than what it has gathered: as in a log-structured
merge tree, their number grows with the logarithm of the table, and so does how often a row is indexed again.  The oldest
segment is taken in last, when half of what it covered is gone or the others have grown as large.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lancewal_core.table import Fragment, TableIndex


@dataclass(frozen=True, slots=True)
class IndexLimits:
    """Rows that queries may have to scan because an index does not cover them; what is reached first."""

    unindexed_share: float = 0.1
    """Of the table's rows."""
    unindexed_rows: int = 100_000


@dataclass(frozen=True, slots=True)
class IndexWork:
    """Extend this index, and take in so many of its newest segments."""

    name: str
    merged_segments: int
    unindexed_rows: int


def unindexed(index: TableIndex, fragments: Iterable[Fragment]) -> int:
    """Live rows that the index does not cover."""
    covered = index.covered
    return sum(f.physical_rows - f.deleted_rows for f in fragments if f.fragment_id not in covered)


def index_works(
    indexes: Sequence[TableIndex], fragments: Sequence[Fragment], limits: IndexLimits, *, at_once: bool
) -> tuple[IndexWork, ...]:
    """Indexes to extend now; ``at_once``: all that miss a row."""
    live = {f.fragment_id: f.physical_rows - f.deleted_rows for f in fragments}
    allowed = min(limits.unindexed_rows, limits.unindexed_share * sum(live.values()))
    works = []
    for index in indexes:
        missing = unindexed(index, fragments)
        if missing and (at_once or missing >= allowed):
            rows = [sum(live.get(i, 0) for i in segment) for segment in index.segments]
            works.append(IndexWork(index.name, _taken_in(missing, rows), missing))
    return tuple(works)


def _taken_in(missing: int, segments: Sequence[int]) -> int:
    """How many of the newest segments, given by their live rows, oldest first, the new one takes in."""
    gathered, count = missing, 0
    for rows in reversed(segments):
        if rows > gathered:
            break
        gathered += rows
        count += 1
    return count
