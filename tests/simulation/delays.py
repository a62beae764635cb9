"""Calls that take their time: what happens to a process anyway, and delays before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from tests.simulation.draws import drawn_s
from tests.simulation.settings import Delay
from tests.twins.faults import CommitFault, Faults, ListFault, PutFault

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Delayed:
    """``Faults`` of one process; ``sleep`` lets others go on meanwhile."""

    faults: Faults
    delays: Sequence[Delay]
    rng: Random
    sleep: Callable[[float], None]

    def put(self, key: str) -> PutFault:
        self._take_time("put", key)
        return self.faults.put(key)

    def listing(self, prefix: str) -> ListFault:
        return self.faults.listing(prefix)

    def commit(self) -> CommitFault:
        self._take_time("commit", "table")
        return self.faults.commit()

    def unavailable(self, act: str, what: str) -> bool:
        self._take_time(act, what)
        return self.faults.unavailable(act, what)

    def lands(self) -> bool:
        return self.faults.lands()

    def some(self, items: Sequence[T]) -> list[T]:
        return self.faults.some(items)

    def shuffled(self, items: Sequence[T]) -> list[T]:
        return self.faults.shuffled(items)

    def _take_time(self, act: str, what: str) -> None:
        for delay in self.delays:
            if delay.act in ("", act) and delay.what in what and self.rng.random() < delay.rate:
                self.sleep(drawn_s(self.rng, delay.mean_s))
