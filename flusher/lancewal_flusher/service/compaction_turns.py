"""Compaction and indexes in the flusher service: when a round of them is due, and what it does.

1. A turn is due ``interval_s`` after one that found nothing to do, or did not land; and at once after one that did, or
   where a merge has worn a fragment out (``Pace.hurry``).  The service gives merges a round of theirs before every turn, and
   takes one turn after it: whatever comes without end, each has its turn.
2. A turn is one round of compaction, and the indexes after it.  No merge of this process is under way meanwhile, so the
   round may take the sentinel.
3. A round that was refused is followed by those of a single group, until one is not: whoever touches one fragment of a round
   refuses all of it.
4. A turn that fails lets the next one wait (``schedule``), and holds up no merge.
5. Right behind merges the indexes have a turn of their own (``index_turn``): whatever queries must scan costs them more than
   covering it.  Another follows at once behind one that has done something: each writes a bounded amount.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from lancewal_flusher.commit.send import Refused
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.service.schedule import Pace, TurnFailed
from lancewal_flusher.upkeep.compaction import Compacted, CompactionResult, FileSizes, compact_next
from lancewal_flusher.upkeep.compaction_plan import CompactionLimits
from lancewal_flusher.upkeep.index_plan import IndexLimits
from lancewal_flusher.upkeep.indexes import IndexExtended, IndexRefused, extend_indexes, unindexed_rows


@dataclass(frozen=True, slots=True)
class TurnReport:
    """What a turn did, and what it left."""

    compaction: CompactionResult
    indexes: tuple[IndexExtended | IndexRefused, ...]
    fragments: int
    hidden_rows: int
    unindexed_rows: dict[str, int]
    """Per index."""


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What a turn of the indexes alone did, and what it left."""

    indexes: tuple[IndexExtended | IndexRefused, ...]
    unindexed_rows: dict[str, int]
    """Per index."""

    @property
    def more(self) -> bool:
        """Whether something was done: there may be more."""
        return any(isinstance(result, IndexExtended) or result.more for result in self.indexes)


@dataclass(slots=True)
class CompactionTurns:
    """See the module docstring."""

    context: FlusherContext
    compaction: CompactionLimits
    indexes: IndexLimits
    pace: Pace
    index_pace: Pace
    """Of the indexes alone: due behind merges."""
    _sizes: FileSizes = field(default_factory=FileSizes)
    _refused: bool = False

    def turn(self) -> TurnReport | TurnFailed:
        """One turn."""
        return self.pace.turn(self._turn, more=lambda report: isinstance(report.compaction, Compacted))

    def index_turn(self) -> IndexReport | TurnFailed:
        """One turn of the indexes alone."""
        return self.index_pace.turn(self._index_turn, more=lambda report: report.more)

    def _index_turn(self) -> IndexReport:
        extended = extend_indexes(self.context, self.indexes, at_once=False)
        return IndexReport(extended, unindexed_rows(self.context.table.newest()))

    def _turn(self) -> TurnReport:
        limits = replace(self.compaction, groups_max=1) if self._refused else self.compaction
        result = compact_next(self.context, limits, self._sizes, with_sentinel=True)
        self._refused = isinstance(result, Refused)
        extended: tuple[IndexExtended | IndexRefused, ...] = ()
        if not isinstance(result, Refused):
            extended = extend_indexes(self.context, self.indexes, at_once=isinstance(result, Compacted))
        if extended:
            self.index_pace.hurry()  # it may have left some
        after = self.context.table.newest()
        fragments = after.fragments()
        return TurnReport(
            result,
            extended,
            len(fragments),
            sum(f.deleted_rows for f in fragments),
            unindexed_rows(after),
        )
