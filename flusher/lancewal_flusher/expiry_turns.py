"""Expiry in the flusher service: when a round of it is due.

1. A turn is due ``interval_s`` after one that hid all that had expired, or did not land; at once after one that ended because
   it had enough.
2. A turn that fails lets the next one wait, twice as long each time, and holds up no merge.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lancewal_core.errors import Refresh, Retry
from lancewal_core.ttl import Ttl
from lancewal_flusher.compaction_turns import TurnFailed
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.expiry import Expired, ExpiryResult, Oldest, expire_next

_LATER_MAX = 10
_LATER_MAX_S = 3600.0


@dataclass(slots=True)
class ExpiryTurns:
    """See the module docstring.  ``due_at`` in monotonic seconds."""

    context: FlusherContext
    ttl: Ttl
    interval_s: float
    due_at: float
    _oldest: Oldest = field(default_factory=Oldest)
    _failures: int = 0

    def wait_s(self) -> float:
        """Time until a turn is due; 0 if one is."""
        return max(0.0, self.due_at - self.context.clock.monotonic())

    def turn(self) -> ExpiryResult | TurnFailed:
        """One round."""
        try:
            result = expire_next(self.context, self.ttl, self._oldest)
        except (Retry, Refresh) as error:
            again_s = min(_LATER_MAX_S, self.interval_s * 2.0 ** min(self._failures, _LATER_MAX))
            self._failures += 1
            self.due_at = self.context.clock.monotonic() + again_s
            return TurnFailed(error, again_s)
        self._failures = 0
        more = isinstance(result, Expired) and result.more
        self.due_at = self.context.clock.monotonic() + (0.0 if more else self.interval_s)
        return result
