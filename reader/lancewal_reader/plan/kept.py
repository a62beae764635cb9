"""The last few values that an open table has made, such as opened versions."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, TypeVar

T = TypeVar("T")


class Kept:
    """The ``count_max`` values that were made last, by the key of what each was made from.  Threads may share the object."""

    def __init__(self, count_max: int = 4) -> None:
        self._count_max = count_max
        self._found: tuple[tuple[object, object], ...] = ()
        """Keys are compared, not hashed: they contain plans, and a hash would visit every source of a plan."""
        self._lock = Lock()

    def get(self, key: object, make: Callable[[], T]) -> T:
        """Return the value of a key; ``make`` makes it if it is not kept."""
        for known, value in self._found:
            if known == key:
                return value  # type: ignore[return-value] # what ``make`` of the same key gave
        made = make()
        self.keep(key, made)
        return made

    def known(self, key: object) -> Any:
        """Return the value of a key; None if it is not kept."""
        return next((value for known, value in self._found if known == key), None)

    def keep(self, key: object, value: object) -> None:
        """Keep a value, in place of another one of its key."""
        with self._lock:
            others = [found for found in self._found if found[0] != key]
            self._found = (*others, (key, value))[-self._count_max :]
