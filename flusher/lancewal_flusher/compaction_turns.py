"""Compaction and indexes in the flusher service: when a round of them is due, and what it does.

1. A turn is due ``interval_s`` after one that found nothing to do, or did not land; and at once after one that did, or
   where a merge has worn a fragment out (``Pace.hurry``).  The service gives merges a round of theirs before every turn, and
   takes one turn after it: whatever comes without end, each has its turn.
2. A turn is one round of compaction, and the indexes after it.  No merge of this process is under way meanwhile, so the
   round may take the sentinel.
3. A round that was refused is followed by those of a single group, until one is not: whoever touches one fragment of a round
   refuses all of it.
4. A turn that fails lets the next one wait (``pace``), and holds up no merge.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from lancewal_flusher.commit import Refused
from lancewal_flusher.compaction import Compacted, CompactionResult, FileSizes, compact_next
from lancewal_flusher.compaction_plan import CompactionLimits
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.index_plan import IndexLimits, unindexed
from lancewal_flusher.index_upkeep import IndexExtended, IndexRefused, extend_indexes
from lancewal_flusher.pace import Pace, TurnFailed


@dataclass(frozen=True, slots=True)
class TurnReport:
    """What a turn did, and what it left."""

    compaction: CompactionResult
    indexes: tuple[IndexExtended | IndexRefused, ...]
    fragments: int
    hidden_rows: int
    unindexed_rows: dict[str, int]
    """Per index."""


@dataclass(slots=True)
class CompactionTurns:
    """See the module docstring."""

    context: FlusherContext
    compaction: CompactionLimits
    indexes: IndexLimits
    pace: Pace
    _sizes: FileSizes = field(default_factory=FileSizes)
    _refused: bool = False

    def turn(self) -> TurnReport | TurnFailed:
        """One turn."""
        return self.pace.turn(self._turn, more=lambda report: isinstance(report.compaction, Compacted))

    def _turn(self) -> TurnReport:
        limits = replace(self.compaction, groups_max=1) if self._refused else self.compaction
        result = compact_next(self.context, limits, self._sizes, with_sentinel=True)
        self._refused = isinstance(result, Refused)
        extended: tuple[IndexExtended | IndexRefused, ...] = ()
        if not isinstance(result, Refused):
            extended = extend_indexes(self.context, self.indexes, at_once=isinstance(result, Compacted))
        after = self.context.table.newest()
        fragments = after.fragments()
        return TurnReport(
            result,
            extended,
            len(fragments),
            sum(f.deleted_rows for f in fragments),
            {index.name: unindexed(index, fragments) for index in after.indexes()},
        )
