"""Turns: work that a service repeats, each when it is due.  One turn runs at a time, except those that run *beside* the
others, at the same time in a thread of their own.

1. A turn returns in how many seconds the next one is due, by what it did; 0 is at once.
2. A turn that fails with a fault that may pass, or meets damage, is tried again after ``retry_s``, twice as long each
   time, at most after ``retry_max_s``.  What a person must decide or change is raised.
3. A *pass* is the first turn, and after it each other one that is due.  However many are always due, the first has
   its turn before any other has its next.  If the first fails, the others wait for a pass in which it does not.
4. Damage that a turn meets is a *problem* until a turn of the same kind ends well.  A turn that fails otherwise, or
   that was refused, says nothing of it.
5. A turn that has ``tasks`` runs beside the others: it begins in one pass, and its result is taken in the first pass
   that finds it ended.  Until then no other of its kind begins.  The next one is due by when it began, since its end
   may be seen late.  Nothing here ends it: ``beside`` says how long it has been under way, so that a hanging turn can
   be named.
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
"""Seconds between two looks whether a turn that is waited for has ended."""

Result = TypeVar("Result")
Failed = Callable[[str, Retry | Refresh | Corrupt, float], None]
"""Callback with the turn's name, its error, and the seconds after which it is tried again."""


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
    """Seconds until the next one is due, by what this one did."""
    due_at: float
    retry_s: float
    retry_max_s: float = RETRY_MAX_S
    problems_of: Callable[[Result], Sequence[Problem] | None] = lambda result: ()
    """Return the problems of a turn that did not fail.  None: the turn says nothing, and problems of an earlier one stay."""
    faults_are_problems: bool = False
    """Whether faults that may pass are problems too."""
    problems: Sequence[Problem] = ()
    tasks: Tasks | None = None
    """Thread pool of a turn that runs beside the others; None for other turns."""
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
        """Run all turns that are due, and return the seconds until the next one is."""
        if not self._take(self.first):
            return self.first.wait_s()
        for turn in self.others:
            if turn.wait_s() == 0.0 and not stopping():
                self._take(turn)
        return min(turn.wait_s() for turn in (self.first, *self.others))

    def end_beside(self, look: Callable[[], object]) -> None:
        """Wait for parallel turns, and take their results.  ``look`` is called during the wait."""
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
