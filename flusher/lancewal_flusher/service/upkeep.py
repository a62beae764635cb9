"""Turns of compaction and of secondary indexes in the flusher service.

1. A turn of compaction compacts once, then extends indexes.  No merge of this process runs at the same time, so
   compaction may rewrite the sentinel.
2. After a compaction was refused, each turn rewrites a single group of fragments, until one is not refused.  If
   another commit changes one fragment of a compaction, all of the compaction is refused.
3. Right after merges the indexes have a turn of their own, because scanning unindexed rows in queries costs more than
   indexing them.  Each turn writes a bounded amount.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from lancewal_core.table.protocol import Fragment
from lancewal_flusher.commit.send import Refused
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.upkeep.compaction import Compacted, CompactionResult, FileSizes, compact_next
from lancewal_flusher.upkeep.compaction_plan import CompactionLimits
from lancewal_flusher.upkeep.index_plan import IndexLimits
from lancewal_flusher.upkeep.indexes import IndexExtended, IndexRefused, extend_indexes, unindexed_rows


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """Report of a turn of compaction: its result, figures of the table after it, and the work on indexes."""

    compaction: CompactionResult
    table: TableFigures
    upkeep: IndexTurnReport
    """Report of the work on indexes after the compaction."""


@dataclass(frozen=True, slots=True)
class TableFigures:
    """Size of a table version, and the cost of its deletion vectors: a read of a fragment also reads hidden rows."""

    fragments: int
    rows: int
    """Number of live rows."""
    hidden_rows: int
    nbytes: int
    """Bytes of the data files, as far as Lance records sizes."""
    hidden_fragments: int
    """Number of fragments that hide rows."""
    hidden_nbytes: int
    """Bytes of the data files of fragments that hide rows."""

    @staticmethod
    def of(fragments: Sequence[Fragment]) -> TableFigures:
        hiding = [f for f in fragments if f.deleted_rows]
        hidden = sum(f.deleted_rows for f in hiding)
        return TableFigures(
            len(fragments),
            sum(f.physical_rows for f in fragments) - hidden,
            hidden,
            sum(f.nbytes for f in fragments),
            len(hiding),
            sum(f.nbytes for f in hiding),
        )


@dataclass(frozen=True, slots=True)
class IndexTurnReport:
    """Report of a turn's work on the secondary indexes: the result for each index that had work, and the rows that
    each index still lacks.
    """

    indexes: tuple[IndexExtended | IndexRefused, ...]
    unindexed_rows: dict[str, int]
    """Number of rows that each index does not cover, by its name."""

    @property
    def more(self) -> bool:
        """Whether an index was extended, or a part of its work was done, so that there may be more to do."""
        return any(isinstance(result, IndexExtended) or result.more for result in self.indexes)


@dataclass(slots=True)
class Upkeep:
    """Compaction and index extension of one table."""

    compaction: CompactionLimits
    indexes: IndexLimits
    _sizes: FileSizes = field(default_factory=FileSizes)
    _refused: bool = False

    def extend(self, context: FlusherContext) -> IndexTurnReport:
        """Run a turn of the indexes alone."""
        extended = extend_indexes(context, self.indexes, at_once=False)
        return IndexTurnReport(extended, unindexed_rows(context.table.newest()))

    def compact(self, context: FlusherContext) -> CompactionReport:
        """Run a turn of compaction, with the indexes after it."""
        limits = replace(self.compaction, groups_max=1) if self._refused else self.compaction
        result = compact_next(context, limits, self._sizes, with_sentinel=True)
        self._refused = isinstance(result, Refused)
        extended: tuple[IndexExtended | IndexRefused, ...] = ()
        if not isinstance(result, Refused):
            extended = extend_indexes(context, self.indexes, at_once=isinstance(result, Compacted))
        after = context.table.newest()
        figures = TableFigures.of(after.fragments())
        return CompactionReport(result, figures, IndexTurnReport(extended, unindexed_rows(after)))
