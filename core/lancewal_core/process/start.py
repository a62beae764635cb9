"""Starting a service, with retries until it succeeds.  The process waits for faults that may pass, or that are mended
outside of it.

Guarantees
 1. A start that fails for such a fault is repeated.  These are a catalog, a store or a broker that does not answer, refuses
    access or has no such topic, and a table that was moved to another consumer group.  The first pause is ``PAUSE_S``, each
    further one twice as long, at most ``PAUSE_MAX_S``.  Meanwhile ``problem`` says why the service is not ready, and
    ``failed`` is told of each failure.  A process that ends instead is started again by its supervisor with pauses of
    minutes, and has no ``/readyz`` that says why.
 2. Any other error ends the start: settings, the table, a topic that is not the contract's.
 3. Whatever a failed start had opened is closed.
 4. Told to stop, the start ends within a moment, except for the time that a library waits.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeVar

from lancewal_core.errors import (
    FormerGroup,
    KafkaForbidden,
    LancewalError,
    Problem,
    Refresh,
    Retry,
    StoreNotWritable,
    TopicMissing,
)
from lancewal_core.process.clock import Clock, sleep_unless

T = TypeVar("T")

PAUSE_S = 1.0
PAUSE_MAX_S = 30.0

_MENDED_OUTSIDE = (Retry, Refresh, StoreNotWritable, KafkaForbidden, TopicMissing, FormerGroup)

Failed = Callable[[LancewalError, float], None]
"""Function that is told the error, and after how many seconds the start is repeated."""


class Start:
    """The start of one service, with retries.  ``problem`` is None once the start has succeeded."""

    def __init__(self, clock: Clock, stopping: Callable[[], bool]) -> None:
        self.problem: Problem | None = Problem("starting", "the service has not begun its work yet")
        self._clock = clock
        self._stopping = stopping

    def why_not_ready(self) -> Problem:
        """Return why a service that has no table yet is not ready."""
        return self.problem or Problem("starting", "the service begins its work")

    def run(self, begin: Callable[[ExitStack], T], stack: ExitStack, failed: Failed) -> T | None:
        """Call ``begin`` until it succeeds, and return its result.  What ``begin`` opened stays open on ``stack``.
        Return None if the process is told to stop before.
        """
        pause_s = PAUSE_S
        while True:
            try:
                with ExitStack() as opened:
                    begun = begin(opened)
                    stack.push(opened.pop_all())
            except _MENDED_OUTSIDE as error:
                self.problem = Problem.of(error, "not started yet")
                failed(error, pause_s)
                sleep_unless(self._stopping, self._clock, pause_s)
                if self._stopping():
                    return None
                pause_s = min(PAUSE_MAX_S, 2 * pause_s)
                continue
            self.problem = None
            return begun
