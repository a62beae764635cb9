"""Whether a store or a broker answers, asked beside a loop that may wait for it: a call that hangs tells nobody that it does.

Guarantees
 1. ``problem`` says so once nothing was heard for ``Pace.silent_s``, whatever the loop does meanwhile, and not before: one
    request that is lost, or an act that takes long by itself, is no silence.
 2. It says nothing as soon as there is an answer again.  An error that may pass (``Retry``) is none, and is named; any other
    is one: the loop's own errors say more.
 3. Its thread holds up no end of the process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from lancewal_core.errors import LancewalError, Retry
from lancewal_core.process.clock import Clock
from lancewal_core.process.health import Problem


@dataclass(frozen=True, slots=True)
class Pace:
    """How often is asked, and after how much silence that is a problem, in seconds."""

    ask_s: float
    silent_s: float


STORE = Pace(5.0, 10.0)
"""A question is one GET of a small object: half a million a month, some tenths of a dollar."""
BROKER = Pace(2.0, 5.0)
"""A question costs a broker nothing.  A partition's new leader is elected in less."""


class SilenceWatch:
    """Asks inside of ``with``, on a thread of its own.  ``who`` is the problem's subject, ``kind`` its kind unless the last
    error has its own."""

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
        """For ``/readyz``."""
        silent_s = self._clock.monotonic() - self._heard_at
        if silent_s <= self._pace.silent_s:
            return None
        silent = f"{self._who} has not answered for {silent_s:.0f} s"
        if self._error is None:
            return Problem(self._kind, silent)
        return Problem(self._error.kind, f"{silent}; its last failure: {self._error}")

    def ask(self) -> None:
        """One question; it may take as long as the client waits."""
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
