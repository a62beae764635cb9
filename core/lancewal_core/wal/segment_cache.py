"""Decoded segments that a process has read before."""

from __future__ import annotations

from threading import Lock

from lancewal_core.ids import LogId
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.wal.entry import kept_bytes
from lancewal_core.wal.segment import Fence, Segment, decode_segment

_LOGS_KNOWN = 1_000
"""Logs of which a cache knows how they grow."""

_SEGMENT_BYTES, _ENTRY_BYTES = 1_000, 400
"""Python's objects of a segment and of an entry, in memory: an entry that shares a batch often has fewer bytes of rows."""


class SegmentCache:
    """Decoded segments by object key; immutable objects, so what was read stays true.  ``bytes_max`` bounds it."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._segments: dict[str, tuple[Segment, int]] = {}
        """Each with the bytes that it keeps."""
        self._grown: dict[LogId, int] = {}
        self._lock = Lock()

    def grown(self, log: LogId) -> int:
        """How many segments the last walk of this log found behind those that are here."""
        return self._grown.get(log, 0)

    def has_grown(self, log: LogId, segments: int) -> None:
        with self._lock:
            self._grown.pop(log, None)
            self._grown[log] = segments
            if len(self._grown) > _LOGS_KNOWN:
                del self._grown[next(iter(self._grown))]

    def get(self, key: str) -> Segment | None:
        found = self._segments.get(key)
        return None if found is None else found[0]

    def add(self, key: str, segment: Segment, nbytes: int | None = None) -> None:
        """``nbytes``: the share of its rows, where they keep memory that others keep too."""
        nbytes = kept_bytes(segment.entries) if nbytes is None else nbytes
        nbytes += _SEGMENT_BYTES + _ENTRY_BYTES * len(segment.entries)
        with self._lock:
            if key in self._segments:
                return
            self._segments[key] = (segment, nbytes)
            self._bytes += nbytes
            while self._bytes > self._bytes_max and len(self._segments) > 1:
                _, oldest = self._segments.pop(next(iter(self._segments)))
                self._bytes -= oldest


def read_segment(store: ObjectStore, key: str, cache: SegmentCache) -> Segment | Fence | None:
    """One segment, from the cache or the store; None if there is none."""
    cached = cache.get(key)
    if cached is not None:
        return cached
    data = store.get(key)
    if data is None:
        return None
    decoded = decode_segment(data, key)
    if isinstance(decoded, Segment):
        cache.add(key, decoded)
    return decoded
