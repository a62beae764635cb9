"""Without chance and without other actors: draws, a scheduler, and tasks for what is played step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Generic, TypeVar

from lancewal_core.process.tasks import Task
from tests.simulation.script import Unanswered
from tests.twins.scheduler import Scheduler

T = TypeVar("T")
A = TypeVar("A")


class First(Random):
    """No draws: the first of a choice, the most of a range, everything in its order."""

    def random(self) -> float:
        return 0.0

    def choice(self, seq: Any) -> Any:
        return seq[0]

    def randint(self, a: int, b: int) -> int:
        return b

    def sample(self, population: Any, k: int, *, counts: Any = None) -> list[Any]:
        return list(population)[:k]


class Alone(Scheduler):
    """No actors: whoever waits lets the time pass."""

    def wait(self, condition: Callable[[], bool] | None, timeout_s: float | None, label: str) -> None:
        self.now += timeout_s or 0.0


class _BegunTask(Generic[T]):
    """Done, unless a request of it has no answer: what it does is asked for anew then, once there is to be one."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._result: list[T] = []
        self._error: Exception | None = None
        self.run()

    def run(self) -> None:
        try:
            self._result.append(self._call())
        except Unanswered:
            pass
        except Exception as error:
            self._error = error

    def done(self) -> bool:
        return bool(self._result) or self._error is not None

    def wait(self, timeout_s: float) -> None:
        pass

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._result[0]


class AtOnce:
    """``Tasks`` that are done when they are started, but for those with a request that has no answer."""

    def __init__(self) -> None:
        self._under_way: list[_BegunTask[Any]] = []

    def start(self, call: Callable[[], T]) -> Task[T]:
        task = _BegunTask(call)
        if not task.done():
            self._under_way.append(task)
        return task

    def answer(self) -> None:
        """What was not answered is now."""
        under_way, self._under_way = self._under_way, []
        for task in under_way:
            task.run()

    def map(self, call: Callable[[A], T], items: Sequence[A]) -> list[T]:
        return [call(item) for item in items]
