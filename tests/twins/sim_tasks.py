"""``Tasks`` under the scheduler: a started call is an actor of its starter's process and dies with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Generic, TypeVar

from lancewal_core.process.tasks import Task
from tests.twins.scheduler import Scheduler

T = TypeVar("T")
A = TypeVar("A")


class SimTask(Generic[T]):
    """A call under way in an actor of its own."""

    def __init__(self, scheduler: Scheduler, name: str, group: str, call: Callable[[], T]) -> None:
        self._scheduler = scheduler
        self._call = call
        self._result: list[T] = []
        self._error: Exception | None = None
        self._actor = scheduler.spawn(name, self._run, group)

    def done(self) -> bool:
        return bool(self._result) or self._error is not None

    def wait(self, timeout_s: float) -> None:
        if not self.done():
            self._scheduler.wait(self.done, timeout_s, "task.wait")

    def result(self) -> T:
        if not self.done():
            self._scheduler.wait(self.done, None, "task.result")
        if self._error is not None:
            raise self._error
        return self._result[0]

    def _run(self) -> None:
        try:
            self._result.append(self._call())
        except Exception as error:
            self._error = error


class SimTasks:
    """``map`` runs its calls in a drawn order, at the rate ``interleaved`` each in an actor of its own."""

    def __init__(self, scheduler: Scheduler, rng: Random, interleaved: float = 0.1) -> None:
        self._scheduler = scheduler
        self._rng = rng
        self._interleaved = interleaved
        self._started = 0

    def start(self, call: Callable[[], T]) -> Task[T]:
        actor = self._scheduler.current
        if actor is None:
            raise RuntimeError("only actors start tasks")
        self._started += 1
        return SimTask(self._scheduler, f"{actor.group}/{self._started}", actor.group, call)

    def map(self, call: Callable[[A], T], items: Sequence[A]) -> list[T]:
        if len(items) > 1 and self._scheduler.current is not None and self._rng.random() < self._interleaved:
            started = [self.start(partial(call, item)) for item in items]
            return [task.result() for task in started]
        results: dict[int, T] = {}
        errors: dict[int, Exception] = {}
        for place in self._rng.sample(range(len(items)), len(items)):
            try:
                results[place] = call(items[place])
            except Exception as error:
                errors[place] = error
        if errors:
            raise errors[min(errors)]
        return [results[place] for place in range(len(items))]
