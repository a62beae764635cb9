"""Wall time and CPU time of a piece of work."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Elapsed:
    """Seconds, by the clock and of the CPUs."""

    wall: float
    cpu: float

    def __add__(self, other: Elapsed) -> Elapsed:
        return Elapsed(self.wall + other.wall, self.cpu + other.cpu)


def seconds(call: Callable[[], object]) -> float:
    """By the clock."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
