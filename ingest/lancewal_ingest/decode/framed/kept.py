"""Cache by text, such as of the decoders made from the texts of schemas.

Producers write few schemas, but values that each have another schema must not fill the memory.  If there is no room
for a text, the cache drops the texts that were used longest ago.  A text that is longer than the whole room is not
kept.  Several threads may call at the same time.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")
TEXTS_MAX = 64
TEXTS_BYTES_MAX = 2 << 20
"""Maximum number of bytes of all texts together.  Values of any bytes may cost 64 MB of memory (``payloads``).  What
is cached takes more than the texts of schemas with many short fields:

* 13 times as much in Connect's JSON,
* 16 times in Avro,
* 45 times in Protobuf (own measurements)."""


class KeptByText(Generic[T]):
    """Cache by text.  It holds at most ``texts_max`` texts, with at most ``TEXTS_BYTES_MAX`` bytes together."""

    def __init__(self, texts_max: int = TEXTS_MAX) -> None:
        self._texts_max = texts_max
        self._lock = Lock()
        self._found = OrderedDict[bytes, tuple[T, int]]()
        self.lengths: tuple[int, ...] = ()
        """The distinct lengths of the texts."""
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._found)

    def get(self, text: bytes) -> T | None:
        with self._lock:
            if text not in self._found:
                return None
            self._found.move_to_end(text)
            return self._found[text][0]

    def put(self, text: bytes, found: T, nbytes: int | None = None) -> T:
        """Put ``found`` into the cache, and return it.  ``nbytes``: the size to count, if ``text`` only stands for a
        longer text.
        """
        nbytes = len(text) if nbytes is None else nbytes
        if nbytes > TEXTS_BYTES_MAX:
            return found
        with self._lock:
            if text in self._found:
                self.nbytes -= self._found.pop(text)[1]
            while len(self._found) >= self._texts_max or self.nbytes + nbytes > TEXTS_BYTES_MAX:
                self.nbytes -= self._found.popitem(last=False)[1][1]
            self._found[text] = found, nbytes
            self.lengths = tuple({len(one) for one in self._found})
            self.nbytes += nbytes
        return found
