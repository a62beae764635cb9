"""Starting a service, with retries until it succeeds.  The process waits for the end of faults that may pass, or that
somebody mends outside of it.

Guarantees
 1. A start that fails for such a fault is repeated.  A catalog, a store or a broker does not answer or refuses
    access, the topic does not exist, another process changed what was read, or the table was moved to another
    consumer group.  The first pause is ``PAUSE_S``, each further one twice as long, at most ``PAUSE_MAX_S``.  In the
    pause ``problem`` says why the service is not ready, and ``failed`` is told of each failure.  If the process ended
    instead, its supervisor would restart it after pauses of minutes, and no ``/readyz`` would say why.
 2. Any other error ends the start, for example an error of the settings or of the table, or a topic that is not the
    contract's.
 3. Whatever a failed start had opened is closed.
 4. If the process is told to stop during a pause, the start ends within a moment.  A running ``begin`` is not
    interrupted.
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
"""Function that is told the error of a failed start, and after how many seconds the start is repeated."""


class Start:
    """Start of one service, with retries.  ``problem`` says why it has not succeeded yet; None: it has."""

    def __init__(self, clock: Clock, stopping: Callable[[], bool]) -> None:
        self.problem: Problem | None = Problem("starting", "the service has not begun its work yet")
        self._clock = clock
        self._stopping = stopping

    def why_not_ready(self) -> Problem:
        """Return why a service that has no table yet is not ready."""
        return self.problem or Problem("starting", "the service begins its work")

    def run(self, begin: Callable[[ExitStack], T], stack: ExitStack, failed: Failed) -> T | None:
        """Call ``begin`` until it succeeds, and return its result.  What ``begin`` opened stays open on ``stack``.

        Return None if the process is told to stop after a failure.
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
