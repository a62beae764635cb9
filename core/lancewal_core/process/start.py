"""The start of a service, tried until it succeeds: what may pass, or is mended outside, is waited for in the process.

Guarantees
 1. A store or a broker that does not answer, lets nobody in or has no such topic, and a table that was moved to another
    consumer group, is asked again after ``PAUSE_S``, twice as
    long each time, at most ``PAUSE_MAX_S``; ``problem`` says meanwhile why the service is not ready, and ``failed`` is told
    of each.  A process that ends instead is started again by its supervisor with pauses of minutes, and has no ``/readyz``
    that says why.
 2. Any other error ends the start: settings, the table, a topic that is not the contract's.
 3. What a start that failed had opened is closed.
 4. Told to stop, it ends within a moment, but for what a library waits for.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeVar

from lancewal_core.errors import (
    FormerGroup,
    KafkaForbidden,
    LancewalError,
    Refresh,
    Retry,
    StoreNotWritable,
    TopicMissing,
)
from lancewal_core.process.clock import Clock, sleep_unless
from lancewal_core.process.health import Problem

T = TypeVar("T")

PAUSE_S = 1.0
PAUSE_MAX_S = 30.0

_MENDED_OUTSIDE = (Retry, Refresh, StoreNotWritable, KafkaForbidden, TopicMissing, FormerGroup)

Failed = Callable[[LancewalError, float], None]
"""Is told what went wrong, and after how many seconds it is tried again."""


class Start:
    """See the module docstring."""

    def __init__(self, clock: Clock, stopping: Callable[[], bool], failed: Failed) -> None:
        self.problem: Problem | None = Problem("starting", "the service has not begun its work yet")
        self._clock = clock
        self._stopping = stopping
        self._failed = failed

    def run(self, begin: Callable[[ExitStack], T], stack: ExitStack) -> T | None:
        """Return what ``begin`` gives, with what it opened on ``stack``; None if told to stop before."""
        pause_s = PAUSE_S
        while True:
            try:
                with ExitStack() as opened:
                    begun = begin(opened)
                    stack.push(opened.pop_all())
            except _MENDED_OUTSIDE as error:
                self.problem = Problem.of(error, "not started yet")
                self._failed(error, pause_s)
                sleep_unless(self._stopping, self._clock, pause_s)
                if self._stopping():
                    return None
                pause_s = min(PAUSE_MAX_S, 2 * pause_s)
                continue
            self.problem = None
            return begun
