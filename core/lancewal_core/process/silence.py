"""Watching whether a store or a broker answers.  The watch runs beside the service's loop, because a call of the loop
that hangs cannot report it.

Guarantees
 1. ``problem`` reports silence once no answer has come for ``Pace.silent_s``, and not earlier, whatever the loop
    does.  One lost request, or work that takes long by itself, is not silence.
 2. The report ends as soon as there is an answer again.  A transient error (``Retry``) is not an answer; the report
    names it.  Any other error is an answer, since the loop's own errors report it.
 3. The watch's thread does not delay the end of the process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from lancewal_core.errors import LancewalError, Problem, Retry
from lancewal_core.process.clock import Clock


@dataclass(frozen=True, slots=True)
class Pace:
    """``ask_s``: seconds between two requests.  ``silent_s``: seconds without an answer after which there is a
    problem."""

    ask_s: float
    silent_s: float


STORE = Pace(5.0, 10.0)
"""Times for watching a store.  A request is one GET of a small object: half a million a month, which cost some tenths
of a dollar."""
BROKER = Pace(2.0, 5.0)
"""Times for watching a broker.  A request costs the broker nothing.  The election of a partition's leader takes less
time than ``silent_s``."""


class SilenceWatch:
    """Periodic check that a store or broker answers.  ``ask`` sends a small request, at the times of ``pace``.

    The check runs on a thread of its own, inside ``with``.  ``who`` names the store or broker, as the subject of the
    problem's text.  If the last request failed, the problem has the error's kind, otherwise ``kind``.
    """

    def __init__(self, ask: Callable[[], object], clock: Clock, kind: str, who: str, pace: Pace) -> None:
        self._ask = ask
        self._clock = clock
        self._kind = kind
        self._who = who
        self._pace = pace
        self._heard_at = clock.monotonic()
        self._error: LancewalError | None = None
        self._over = threading.Event()

    @property
    def problem(self) -> Problem | None:
        """Silence longer than ``Pace.silent_s``, as a problem for ``/readyz``; None otherwise."""
        silent_s = self._clock.monotonic() - self._heard_at
        if silent_s <= self._pace.silent_s:
            return None
        silent = f"{self._who} has not answered for {silent_s:.0f} s"
        if self._error is None:
            return Problem(self._kind, silent)
        return Problem(self._error.kind, f"{silent}; its last failure: {self._error}")

    def ask(self) -> None:
        """Send one request.  The call may take as long as the client's timeout."""
        try:
            self._ask()
        except Retry as error:
            self._error = error
            return
        except LancewalError:
            pass
        self._heard_at, self._error = self._clock.monotonic(), None

    def __enter__(self) -> Self:
        threading.Thread(target=self._run, name=f"lancewal-{self._kind}", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(self._pace.ask_s):
            self.ask()
