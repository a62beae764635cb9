"""Run Python's collector of cycles less often while a read goes through unmerged rows.

The collector then begins at fifty thousand new objects, not at seven hundred.  With hundreds of partitions a read
makes some hundred thousand entries of a few rows each.  An open table remembers these entries, and they form no
cycles.  By default the collector looks at all of them again and again while they are made.  That took more than a
third of the processor time of a first read of 130,000 entries (own measurement).

A reader is a guest in its process.  It changes the threshold only while it reads unmerged rows.  It changes nothing
if somebody has turned the collector off, or has set a higher threshold.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_NEW_OBJECTS = 50_000
"""Number of new objects at which Python's collector begins.  That many objects in cycles, of all threads together,
would take a few MiB.
"""


class _Guests:
    """Counter of the reads under way in all threads, and Python's garbage collection thresholds from before the first
    of them.

    A read that is interrupted during ``come`` (Ctrl-C, an alarm) still calls ``go``.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._here: set[object] = set()
        self._before: tuple[int, int, int] | None = None
        """Thresholds from before the first guest; None: they were not changed."""

    def come(self, guest: object) -> None:
        with self._lock:
            found = gc.get_threshold()
            if not self._here and 0 < found[0] < _NEW_OBJECTS:
                self._before = found
                gc.set_threshold(_NEW_OBJECTS, *found[1:])
            self._here.add(guest)

    def go(self, guest: object) -> None:
        with self._lock:
            self._here.discard(guest)
            if self._here or self._before is None:
                return
            if gc.get_threshold()[0] == _NEW_OBJECTS:  # nobody has set another meanwhile
                gc.set_threshold(*self._before)
            self._before = None


_guests = _Guests()


@contextmanager
def many_objects_made() -> Iterator[None]:
    """Run Python's garbage collector rarely, in all threads, while the context is open.

    When the last such context is closed, the former threshold is restored.
    """
    guest = object()
    try:
        _guests.come(guest)
        yield
    finally:
        _guests.go(guest)
