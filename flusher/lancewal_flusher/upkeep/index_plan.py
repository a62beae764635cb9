"""Choose which secondary indexes to extend now, and by how much: a pure decision.

An index is extended by a *segment* for the rows that none of its segments covers.  To keep segments few, a new
segment *takes in* (replaces) the newest existing ones.  It takes in the next one as long as that has no more live
rows than it has gathered so far.  As in a log-structured merge tree, the number of segments grows with the logarithm
of the table's size.  So does the number of times that a row is indexed.

The oldest segment is taken in last, when the others together are as large as what is left of it.  All segments are
taken in if one may have entries of rows that it no longer covers (``index_doubt``).  At least one is taken in if
Lance cannot add a segment alone (``extends_alone``).

Extensions are sorted by the bytes that they write, smallest first.  The caller ends a round at ``round_bytes``.  The
first extension is done whatever its size, because Lance indexes all uncovered rows at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from types import MappingProxyType

from lancewal_core.settings.sections import FlusherSettings
from lancewal_core.table.protocol import Fragment, TableIndex
from lancewal_flusher.upkeep.index_doubt import FieldIds, takes_in_all

_DEFAULTS = FlusherSettings()


@dataclass(frozen=True, slots=True)
class IndexLimits:
    """Limits of the rows that an index does not cover, and that queries must therefore scan.  The first limit that is
    reached counts.
    """

    unindexed_share: float = _DEFAULTS.index_unindexed_ratio_max
    """Share of the table's live rows, from 0 to 1, that an index may leave unindexed."""
    unindexed_rows: int = _DEFAULTS.index_unindexed_rows_max
    round_bytes: int = _DEFAULTS.index_round_bytes_max
    """Largest number of bytes that one round writes into indexes.  A round also rewrites at most so many bytes of
    fragments for indexes."""


@dataclass(frozen=True, slots=True)
class IndexWork:
    """Extension of one index.  ``merged_segments``: how many of its newest segments are merged into the new one."""

    name: str
    merged_segments: int
    unindexed_rows: int
    nbytes: int = 0
    """Estimated bytes of the new segment; 0 if Lance does not tell an index's size."""
    table_bytes: int = 0
    """Estimated bytes of the index if it were built from all rows; 0 if Lance does not tell an index's size."""


def unindexed(index: TableIndex, fragments: Iterable[Fragment]) -> int:
    """Return the number of live rows that the index does not cover."""
    covered = index.covered
    return sum(f.live_rows for f in fragments if f.fragment_id not in covered)


def index_works(
    indexes: Sequence[TableIndex],
    fragments: Sequence[Fragment],
    limits: IndexLimits,
    *,
    at_once: bool,
    urgent: Collection[str] = (),
    field_ids: FieldIds = MappingProxyType({}),
) -> tuple[IndexWork, ...]:
    """Return the indexes to extend now, smallest first.  ``at_once``: extend all indexes that lack a row, whatever
    the limits.  ``urgent``: names of indexes that are extended if they lack a row.

    Without ``field_ids``, all columns count as lying in their fragment's first file.
    """
    live = {f.fragment_id: f.live_rows for f in fragments}
    allowed = min(limits.unindexed_rows, limits.unindexed_share * sum(live.values()))
    works = []
    for index in indexes:
        missing = unindexed(index, fragments)
        if missing and (at_once or index.name in urgent or missing >= allowed):
            rows = [sum(live.get(i, 0) for i in segment) for segment in index.segments]
            merged = len(rows) if takes_in_all(index, fragments, field_ids) else _taken_in(missing, rows)
            merged = max(merged, 0 if index.extends_alone else 1)
            indexed = missing + sum(rows[len(rows) - merged :])
            whole = int(sum(live.values()) * index.row_bytes)
            works.append(IndexWork(index.name, merged, missing, int(indexed * index.row_bytes), whole))
    return tuple(sorted(works, key=lambda work: (work.nbytes, work.name)))


def _taken_in(missing: int, segments: Sequence[int]) -> int:
    """Return how many of the newest segments the new one takes in.  ``segments``: the live rows of each segment,
    oldest first.  ``missing``: unindexed rows.
    """
    gathered, count = missing, 0
    for rows in reversed(segments):
        if rows > gathered:
            break
        gathered += rows
        count += 1
    return count


def fitting(sizes: Sequence[int], most: int) -> int:
    """Return how many of ``sizes``, from the first on, have a sum of at most ``most``; at least 1 if there are any."""
    return max(bool(sizes), sum(total <= most for total in accumulate(sizes)))
