"""The scheduler's time as a ``Clock``."""

from __future__ import annotations

from tests.twins.scheduler import Scheduler

EPOCH_MS = 1_700_000_000_000
"""Wall clock when a simulation begins."""


class SimClock:
    """One process's clock; its wall clock is wrong by ``skew_ms``."""

    def __init__(self, scheduler: Scheduler, skew_ms: int = 0) -> None:
        self._scheduler = scheduler
        self._skew_ms = skew_ms

    def now_ms(self) -> int:
        return EPOCH_MS + self._skew_ms + int(self._scheduler.now * 1000)

    def monotonic(self) -> float:
        return self._scheduler.now

    def sleep(self, seconds: float) -> None:
        self._scheduler.sleep(seconds)
