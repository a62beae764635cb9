"""Expiry in the flusher service: when a round of it is due.

1. A turn is due ``interval_s`` after one that hid all that had expired, or did not land; at once after one that ended because
   it had enough.
2. A turn that fails lets the next one wait (``schedule``), and holds up no merge.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lancewal_core.rows.ttl import Ttl
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.service.schedule import Pace, TurnFailed
from lancewal_flusher.upkeep.expiry import Expired, ExpiryResult, Oldest, expire_next


@dataclass(slots=True)
class ExpiryTurns:
    """See the module docstring."""

    context: FlusherContext
    ttl: Ttl
    pace: Pace
    _oldest: Oldest = field(default_factory=Oldest)

    def turn(self) -> ExpiryResult | TurnFailed:
        """One round."""
        return self.pace.turn(
            lambda: expire_next(self.context, self.ttl, self._oldest),
            more=lambda result: isinstance(result, Expired) and result.more,
        )
