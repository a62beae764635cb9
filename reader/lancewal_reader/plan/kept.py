"""Small cache of the values that an open table has made most recently, such as opened versions."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, TypeVar

T = TypeVar("T")


class Kept:
    """Cache of the ``count_max`` values that were made last.  The key of a value is what it was made from.  Threads
    may share the cache.
    """

    def __init__(self, count_max: int = 4) -> None:
        self._count_max = count_max
        self._found: tuple[tuple[object, object], ...] = ()
        """Keys are compared, not hashed: they contain plans, and a hash would visit every source of a plan."""
        self._lock = Lock()

    def get(self, key: object, make: Callable[[], T]) -> T:
        """Return the value of a key.  If the cache lacks it, call ``make`` and keep its result."""
        for known, value in self._found:
            if known == key:
                return value  # type: ignore[return-value] # what ``make`` of the same key gave
        made = make()
        self.keep(key, made)
        return made

    def known(self, key: object) -> Any:
        """Return the value of a key; None if the cache lacks it."""
        return next((value for known, value in self._found if known == key), None)

    def keep(self, key: object, value: object) -> None:
        """Put a value into the cache.  It replaces the value of an equal key."""
        with self._lock:
            others = [found for found in self._found if found[0] != key]
            self._found = (*others, (key, value))[-self._count_max :]
