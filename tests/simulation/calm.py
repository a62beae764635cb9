"""Without chance and without other actors: draws, a scheduler, and tasks for what is played step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Generic, TypeVar

from lancewal_core.process.tasks import Task
from lancewal_core.testing.scheduler import Scheduler

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


class _DoneTask(Generic[T]):
    def __init__(self, call: Callable[[], T]) -> None:
        self._result: list[T] = []
        self._error: Exception | None = None
        try:
            self._result.append(call())
        except Exception as error:
            self._error = error

    def done(self) -> bool:
        return True

    def wait(self, timeout_s: float) -> None:
        pass

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._result[0]


class AtOnce:
    """``Tasks`` that are done when they are started."""

    def start(self, call: Callable[[], T]) -> Task[T]:
        return _DoneTask(call)

    def map(self, call: Callable[[A], T], items: Sequence[A]) -> list[T]:
        return [call(item) for item in items]
