"""Turns: work that a service repeats, each when it is due.  One turn runs at a time, except those that run *beside* the
others, at the same time in a thread of their own.

1. The result of a turn decides in how many seconds the next one is due (``next_s``); 0 is at once.
2. A turn that fails with a transient error or damage is retried after ``retry_s`` seconds, then after twice as long
   each time, up to ``retry_max_s``.  Errors after which a person must act are raised.
3. A *pass* runs the first turn, and then each other turn that is due.  So the first turn runs between any two runs of
   another turn.  If the first turn fails, the others wait for a pass in which it does not.
4. Damage that a turn meets stays a *problem* until a turn of the same kind succeeds.  A turn that fails with another
   error, or that was refused, changes nothing about the problem.
5. A turn that has ``tasks`` runs beside the others: it begins in one pass, and its result is taken in the first pass
   that finds it ended.  Until then no other of its kind begins.  When the next one is due counts from the time when
   it began, because its end may be seen late.  Nothing here ends such a turn.  ``beside`` tells for how long it has
   been running, so that a hanging turn can be named.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from lancewal_core.errors import Corrupt, Problem, Refresh, Retry
from lancewal_core.process.clock import Clock
from lancewal_core.process.tasks import Task, Tasks

_DOUBLED_MAX = 10
RETRY_MAX_S = 3600.0
_LOOK_S = 1.0
"""Seconds between two checks whether a parallel turn has ended, while a caller waits for it."""

Result = TypeVar("Result")
Failed = Callable[[str, Retry | Refresh | Corrupt, float], None]
"""Callback for a failed turn.  It gets the turn's name, the error, and the seconds after which the turn is retried."""


@dataclass(frozen=True, slots=True)
class TurnFailed:
    """A transient error, or damage.  The turn is retried after ``again_s`` seconds."""

    error: Retry | Refresh | Corrupt
    again_s: float


@dataclass(slots=True)
class Turn(Generic[Result]):
    """Work that is repeated, and when it is due.  ``due_at`` is in monotonic seconds."""

    name: str
    clock: Clock
    do: Callable[[], Result]
    next_s: Callable[[Result], float]
    """Function that gets the result of the turn, and returns the seconds until the next one is due."""
    due_at: float
    retry_s: float
    retry_max_s: float = RETRY_MAX_S
    problems_of: Callable[[Result], Sequence[Problem] | None] = lambda result: ()
    """Function that returns the problems of a turn, given its result.  If it returns None, problems of an earlier
    turn stay."""
    faults_are_problems: bool = False
    """Whether transient errors are problems too, not only damage."""
    problems: Sequence[Problem] = ()
    tasks: Tasks | None = None
    """Thread pool in which the turn runs in parallel with other turns; None: the turn runs in the caller's thread."""
    _failures: int = 0
    _beside: Task[Result] | None = None
    _begun_at: float = 0.0

    def wait_s(self) -> float:
        """Return the seconds until ``take`` has something to do: 0 if it has now, infinite while the turn runs in
        parallel.
        """
        if self._beside is not None:
            return 0.0 if self._beside.done() else math.inf
        return max(0.0, self.due_at - self.clock.monotonic())

    @property
    def under_way(self) -> bool:
        """Whether the turn runs in parallel, or has ended and its result was not taken yet."""
        return self._beside is not None

    @property
    def under_way_s(self) -> float | None:
        """Seconds for which a parallel turn has been running; None if it is not running."""
        task = self._beside
        if task is None or task.done():
            return None
        return self.clock.monotonic() - self._begun_at

    def wait_for(self, seconds: float) -> bool:
        """Wait at most this many seconds for a parallel turn.  Return whether none is running."""
        if self._beside is not None and not self._beside.done():
            self._beside.wait(seconds)
        return self._beside is None or self._beside.done()

    def hurry(self) -> None:
        """Make the turn due now, unless it failed last time."""
        if not self._failures:
            self.due_at = min(self.due_at, self.clock.monotonic())

    def take(self) -> Result | TurnFailed | None:
        """Run the turn, and note when it is due again.  A parallel turn is only started, and None is returned; if it
        has ended, its result is returned.
        """
        try:
            if self._beside is not None:
                task, self._beside = self._beside, None
                result = task.result()
            elif self.tasks is not None:
                self._begun_at = self.clock.monotonic()
                self._beside = self.tasks.start(self.do)
                return None
            else:
                result = self.do()
        except (Retry, Refresh, Corrupt) as error:
            again_s = min(self.retry_max_s, self.retry_s * 2.0 ** min(self._failures, _DOUBLED_MAX))
            self._failures += 1
            self.due_at = self.clock.monotonic() + again_s
            if isinstance(error, Corrupt) or self.faults_are_problems:
                self.problems = [Problem.of(error, f"{self.name} failed")]
            return TurnFailed(error, again_s)
        self._failures = 0
        self.due_at = (self.clock.monotonic() if self.tasks is None else self._begun_at) + self.next_s(result)
        problems = self.problems_of(result)
        if problems is not None:
            self.problems = problems
        return result


@dataclass(frozen=True, slots=True)
class Turns:
    """Scheduler of all turns of a table.  ``failed`` is called for each turn that fails."""

    first: Turn[Any]
    others: Sequence[Turn[Any]]
    failed: Failed

    def take_due(self, stopping: Callable[[], bool]) -> float:
        """Run all turns that are due, and return the seconds until the next turn is due."""
        if not self._take(self.first):
            return self.first.wait_s()
        for turn in self.others:
            if turn.wait_s() == 0.0 and not stopping():
                self._take(turn)
        return min(turn.wait_s() for turn in (self.first, *self.others))

    def end_beside(self, look: Callable[[], object]) -> None:
        """Wait for parallel turns, and take their results.  ``look`` is called again and again during the wait."""
        for turn in self.others:
            while not turn.wait_for(_LOOK_S):
                look()
            if turn.under_way:
                self._take(turn)

    def beside(self) -> Sequence[tuple[str, float]]:
        """Return the parallel turns that have not ended, and for how many seconds they have been running.  Any thread
        may call.
        """
        found = ((turn.name, turn.under_way_s) for turn in self.others)
        return [(name, seconds) for name, seconds in found if seconds is not None]

    def problems(self) -> Sequence[Problem]:
        return [problem for turn in (self.first, *self.others) for problem in turn.problems]

    def _take(self, turn: Turn[Any]) -> bool:
        result = turn.take()
        if isinstance(result, TurnFailed):
            self.failed(turn.name, result.error, result.again_s)
        return not isinstance(result, TurnFailed)
