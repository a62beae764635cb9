"""What goes wrong at a boundary: decided call by call, from a seed.

Each decision is one of the outcomes that a real store or table has shown.  ``Faultless`` decides for none, ``Random``
by rates; a test that wants one particular fault writes a policy of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Protocol, TypeVar

T = TypeVar("T")


class PutFault(Enum):
    """What happens to a conditional put."""

    NONE = "none"
    NEVER_ARRIVED = "no verdict, and the object is not there"
    REPLY_LOST = "no verdict, but the put was done"
    LANDS_LATER = "no verdict; the put is done at some later moment, or finds the key taken then"
    REFUSED = "the store reports a conflict, and there is no object"


class ListFault(Enum):
    """What a listing shows."""

    NONE = "all objects in key order"
    SHUFFLED = "all objects in any order, whatever the limit"
    PARTIAL = "some of the objects"
    STALE = "without the newest objects, with the last deleted ones"


class CommitFault(Enum):
    """What happens to a table commit."""

    NONE = "none"
    NEVER_ARRIVED = "no verdict, and it is not there"
    REPLY_LOST = "no verdict, but it landed or failed as usual"
    LANDS_LATER = "no verdict; it lands at some later moment, unless its version number is taken then"


class Faults(Protocol):
    """The policy."""

    def put(self, key: str) -> PutFault: ...

    def listing(self, prefix: str) -> ListFault: ...

    def commit(self) -> CommitFault: ...

    def unavailable(self, act: str, what: str) -> bool:
        """Whether this get, list, delete or table call fails (503, timeout)."""

    def lands(self) -> bool:
        """Whether a put or commit that is under way lands now."""

    def some(self, items: Sequence[T]) -> list[T]:
        """Part of a listing, in order."""

    def shuffled(self, items: Sequence[T]) -> list[T]: ...


class Faultless:
    """Nothing goes wrong."""

    def put(self, key: str) -> PutFault:
        return PutFault.NONE

    def listing(self, prefix: str) -> ListFault:
        return ListFault.NONE

    def commit(self) -> CommitFault:
        return CommitFault.NONE

    def unavailable(self, act: str, what: str) -> bool:
        return False

    def lands(self) -> bool:
        return True

    def some(self, items: Sequence[T]) -> list[T]:
        return list(items)

    def shuffled(self, items: Sequence[T]) -> list[T]:
        return list(items)


@dataclass(frozen=True, slots=True)
class Rates:
    """Probabilities, each of one call."""

    put: float = 0.08
    """Some ``PutFault``."""
    listing: float = 0.3
    """Some ``ListFault``."""
    blank: float = 0.0
    """Of partial listings: those that show nothing at all, however much there is."""
    commit: float = 0.15
    """Some ``CommitFault``."""
    unavailable: float = 0.01
    lands: float = 0.05


class RandomFaults:
    """Faults by ``rates``, equal for equal seeds and calls.  ``enabled`` turns them off and on."""

    def __init__(self, rng: Random, rates: Rates | None = None) -> None:
        self.enabled = True
        self._rng = rng
        self._rates = rates or Rates()

    def put(self, key: str) -> PutFault:
        return self._one_of(self._rates.put, list(PutFault)[1:]) or PutFault.NONE

    def listing(self, prefix: str) -> ListFault:
        return self._one_of(self._rates.listing, list(ListFault)[1:]) or ListFault.NONE

    def commit(self) -> CommitFault:
        return self._one_of(self._rates.commit, list(CommitFault)[1:]) or CommitFault.NONE

    def unavailable(self, act: str, what: str) -> bool:
        return self._happens(self._rates.unavailable)

    def lands(self) -> bool:
        return not self.enabled or self._happens(self._rates.lands)

    def some(self, items: Sequence[T]) -> list[T]:
        # No draw where none is asked for: the schedules of a seed stay the same.
        kept = 0.0 if self._rates.blank and self._rng.random() < self._rates.blank else self._rng.random()
        return [item for item in items if self._rng.random() < kept]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        return self._rng.sample(list(items), len(items))

    def _happens(self, rate: float) -> bool:
        return self.enabled and self._rng.random() < rate

    def _one_of(self, rate: float, faults: Sequence[T]) -> T | None:
        return self._rng.choice(faults) if self._happens(rate) else None
