"""A limited number of findings that stay in memory by the text that they were found from.

Producers write few schemas, and values that all have schemas of their own must not fill the memory.  If a text has no room,
all is dropped, and found again when it is needed.  A text that is too long for all of the room does not stay.  Several
threads may call at the same time.
"""

from __future__ import annotations

from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")
TEXTS_MAX = 64
TEXTS_BYTES_MAX = 2 << 20
"""Most bytes of the texts.  A decoder of a schema with many short fields takes 13 times as much as its text, and values may
cost 64 MB."""


class KeptByText(Generic[T]):
    """Findings by text: at most ``TEXTS_MAX``, whose texts have at most ``TEXTS_BYTES_MAX``."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._found: dict[bytes, T] = {}
        self.lengths: tuple[int, ...] = ()
        """The distinct lengths of the texts."""
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._found)

    def get(self, text: bytes) -> T | None:
        return self._found.get(text)

    def put(self, text: bytes, found: T) -> T:
        if len(text) > TEXTS_BYTES_MAX:
            return found
        with self._lock:
            if len(self._found) >= TEXTS_MAX or self.nbytes + len(text) > TEXTS_BYTES_MAX:
                self._found, self.lengths, self.nbytes = {}, (), 0
            self._found[text] = found
            self.lengths = tuple({*self.lengths, len(text)})
            self.nbytes += len(text)
        return found
