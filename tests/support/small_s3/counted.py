"""Requests and rounds of an act, counted so that no clock and no thread has a part in it.

``CountedTasks`` makes the calls of a ``map`` one behind the other and counts them as if they were made at once: each begins in
the round in which the map was begun, and the map ends with the longest of them.  Every request that reaches ``CountedS3`` is
one round of the call that sends it.  What Lance asks within one call counts as if it came one behind the other: of requests
that are not for rows (``requests.of_the_protocol``) that is so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tests.support.small_s3.requests import StoreRequest, of_the_protocol
from tests.support.small_s3.server import SmallS3

T = TypeVar("T")
A = TypeVar("A")


class CountedS3(SmallS3):
    """``folder``: of the table, below the bucket."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder
        self.round = 0
        """In which the call that is being made is."""

    def note(self, request: StoreRequest) -> None:
        if of_the_protocol([request], self.folder):
            self.round += 1
            super().note(request)


@dataclass(frozen=True, slots=True)
class Counted:
    """An act's requests, and the rounds in which they can go out."""

    requests: tuple[StoreRequest, ...]
    rounds: int

    def of(self, *methods: str) -> int:
        return sum(request.method in methods for request in self.requests)


def counted(store: CountedS3, act: Callable[[], object]) -> Counted:
    store.take()
    store.round = 0
    act()
    return Counted(tuple(store.take()), store.round)


class _Ended(Generic[T]):
    """A started call, which has ended in a round that the caller may be far before."""

    def __init__(self, store: CountedS3, call: Callable[[], T]) -> None:
        self._store = store
        begun = store.round
        self._result = call()
        self._round, store.round = store.round, begun

    def done(self) -> bool:
        return True

    def wait(self, timeout_s: float) -> None: ...

    def result(self) -> T:
        self._store.round = max(self._store.round, self._round)
        return self._result


class CountedTasks:
    """See the module docstring."""

    def __init__(self, store: CountedS3) -> None:
        self._store = store

    def start(self, call: Callable[[], T]) -> _Ended[T]:
        return _Ended(self._store, call)

    def map(self, call: Callable[[A], T], items: Sequence[A]) -> list[T]:
        started = [self.start(lambda item=item: call(item)) for item in items]  # type: ignore[misc] # mypy sees no T
        return [task.result() for task in started]

    def close(self) -> None: ...
