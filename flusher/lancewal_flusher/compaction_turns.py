"""Compaction and indexes in the flusher service: when a round of them is due, and what it does.

1. A turn is due ``interval_s`` after one that found nothing to do, or did not land; and at once after one that did, or
   where a merge has worn a fragment out (``hurry``).  The service gives merges a round of theirs before every turn, and
   takes one turn after it: whatever comes without end, each has its turn.
2. A turn is one round of compaction, and the indexes after it.  No merge of this process is under way meanwhile, so the
   round may take the sentinel.
3. A turn that fails lets the next one wait, twice as long each time, and holds up no merge.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lancewal_core.errors import Refresh, Retry
from lancewal_flusher.commit import Refused
from lancewal_flusher.compaction import Compacted, CompactionResult, FileSizes, compact_next
from lancewal_flusher.compaction_plan import CompactionLimits
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.index_plan import IndexLimits, unindexed
from lancewal_flusher.index_upkeep import IndexExtended, IndexRefused, extend_indexes

_LATER_MAX = 10
"""A failing turn waits at most 2 to the power of this times the interval, or an hour."""
_LATER_MAX_S = 3600.0


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
class TurnFailed:
    """A fault that may pass; tried again after ``again_s``."""

    error: Retry | Refresh
    again_s: float


@dataclass(slots=True)
class CompactionTurns:
    """See the module docstring.  ``due_at`` in monotonic seconds."""

    context: FlusherContext
    compaction: CompactionLimits
    indexes: IndexLimits
    interval_s: float
    due_at: float
    _sizes: FileSizes = field(default_factory=FileSizes)
    _failures: int = 0

    def wait_s(self) -> float:
        """Time until a turn is due; 0 if one is."""
        return max(0.0, self.due_at - self.context.clock.monotonic())

    def hurry(self) -> None:
        """A turn is due now: a merge has worn a fragment out.  But not while turns fail."""
        if not self._failures:
            self.due_at = min(self.due_at, self.context.clock.monotonic())

    def turn(self) -> TurnReport | TurnFailed:
        """One turn."""
        try:
            report = self._turn()
        except (Retry, Refresh) as error:
            again_s = min(_LATER_MAX_S, self.interval_s * 2.0 ** min(self._failures, _LATER_MAX))
            self._failures += 1
            self.due_at = self.context.clock.monotonic() + again_s
            return TurnFailed(error, again_s)
        self._failures = 0
        more = isinstance(report.compaction, Compacted)
        self.due_at = self.context.clock.monotonic() + (0.0 if more else self.interval_s)
        return report

    def _turn(self) -> TurnReport:
        result = compact_next(self.context, self.compaction, self._sizes, with_sentinel=True)
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
