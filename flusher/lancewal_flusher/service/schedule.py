"""When the next turn is due of something that is done again and again.

1. ``interval_s`` after a turn that left nothing to do; at once after one that left more.
2. A turn that fails with a fault that may pass, or meets damage, lets the next one wait, twice as long each time, at most an
   hour.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from lancewal_core.errors import Corrupt, Refresh, Retry
from lancewal_core.process.clock import Clock

_DOUBLED_MAX = 10
_LATER_MAX_S = 3600.0

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class TurnFailed:
    """A fault that may pass, or damage; tried again after ``again_s``."""

    error: Retry | Refresh | Corrupt
    again_s: float


@dataclass(slots=True)
class Pace:
    """See the module docstring.  ``due_at`` in monotonic seconds."""

    clock: Clock
    interval_s: float
    due_at: float
    _failures: int = 0

    def wait_s(self) -> float:
        """Time until a turn is due; 0 if one is."""
        return max(0.0, self.due_at - self.clock.monotonic())

    def hurry(self) -> None:
        """A turn is due now.  But not while turns fail."""
        if not self._failures:
            self.due_at = min(self.due_at, self.clock.monotonic())

    def turn(self, act: Callable[[], Result], more: Callable[[Result], bool]) -> Result | TurnFailed:
        """Do it; ``more`` says of what it returned whether it left something to do."""
        try:
            result = act()
        except (Retry, Refresh, Corrupt) as error:
            again_s = min(_LATER_MAX_S, self.interval_s * 2.0 ** min(self._failures, _DOUBLED_MAX))
            self._failures += 1
            self.due_at = self.clock.monotonic() + again_s
            return TurnFailed(error, again_s)
        self._failures = 0
        self.due_at = self.clock.monotonic() + (0.0 if more(result) else self.interval_s)
        return result
