"""Decoded segments that a process has read before."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock

from lancewal_core.names.ids import LogId
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.wal.entry import kept_bytes
from lancewal_core.wal.segment import Fence, Segment, Trailer, decode_segment, decode_trailer, segment_of

_LOGS_KNOWN = 1_000
"""Most logs whose growth a cache remembers."""

_SEGMENT_BYTES, _ENTRY_BYTES = 1_000, 300
"""Python's objects of a segment and of an entry, in memory: an entry that shares a batch often has fewer bytes of rows."""


@dataclass(slots=True)
class _Kept:
    segment: Segment
    nbytes: int
    plan: int
    """The last plan in which the segment was asked for."""


class SegmentCache:
    """Decoded segments by object key, in at most ``bytes_max`` bytes.  The objects are immutable, so a cached segment
    stays true.

    Each plan reads the same segments, from the first on.  If each new segment pushed out the oldest, every plan would
    read all segments again as soon as one had no room.  So a cached segment stays while plans ask for it, and a segment
    without room is read each time.  A segment that two plans have not asked for is dropped when room is needed.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._segments: dict[str, _Kept] = {}
        self._grown: dict[LogId, tuple[int, int]] = {}
        """Growth of each log at its last walk, and lately."""
        self._plan = 0
        self._looked_through = 0
        """The plan in which room was last made."""
        self._lock = Lock()

    def next_plan(self) -> None:
        """Begin another plan; several may be under way."""
        with self._lock:
            self._plan += 1

    def grown(self, log: LogId) -> int:
        """Return how many segments the last walk of this log found after the cached ones."""
        return self._grown.get(log, (0, 0))[0]

    def grown_lately(self, log: LogId) -> int:
        """Return the largest recent growth of the log at one walk.  Each later walk halves the number.

        A caller that looks twice in a row, once a minute, sees a log grow at each first look.
        """
        return self._grown.get(log, (0, 0))[1]

    def has_grown(self, log: LogId, segments: int) -> None:
        with self._lock:
            lately = self._grown.pop(log, (0, 0))[1]
            self._grown[log] = segments, max(segments, lately // 2)
            if len(self._grown) > _LOGS_KNOWN:
                del self._grown[next(iter(self._grown))]

    def get(self, key: str) -> Segment | None:
        found = self._segments.get(key)
        if found is None:
            return None
        found.plan = self._plan
        return found.segment

    def add(self, key: str, segment: Segment, nbytes: int | None = None) -> None:
        """Add a segment.  ``nbytes`` is its share of memory, if its rows keep memory together with other segments."""
        rows_bytes = kept_bytes(segment.entries) if nbytes is None else nbytes
        nbytes = _bytes_of(rows_bytes, len(segment.entries))
        with self._lock:
            if key not in self._segments and self._has_room(nbytes):
                self._segments[key] = _Kept(segment, nbytes, self._plan)
                self._bytes += nbytes

    def has_room(self, trailer: Trailer) -> bool:
        """Return whether there is room for the segment, as far as is known before its rows are decoded."""
        nbytes = _bytes_of(sum(batch.raw_bytes for batch in trailer.batches), len(trailer.entries))
        with self._lock:
            return self._has_room(nbytes)

    def _has_room(self, nbytes: int) -> bool:
        if self._bytes + nbytes > self._bytes_max:
            self._make_room()
        return self._bytes + nbytes <= self._bytes_max

    def _make_room(self) -> None:
        if self._looked_through == self._plan:
            return
        self._looked_through = self._plan
        for key in [key for key, kept in self._segments.items() if kept.plan < self._plan - 1]:
            self._bytes -= self._segments.pop(key).nbytes


def _bytes_of(rows_bytes: int, entries: int) -> int:
    return rows_bytes + _SEGMENT_BYTES + _ENTRY_BYTES * entries


def meet_segment(store: ObjectStore, key: str, cache: SegmentCache) -> Segment | Trailer | Fence | None:
    """Read a segment during a walk of its log.  If the cache has no room for it, return only its trailer.

    A log may have more rows than fit into memory.  Code that needs the rows of such a segment reads them in portions.
    """
    cached = cache.get(key)
    if cached is not None:
        return cached
    data = store.get(key)
    met = None if data is None else decode_trailer(data, key, len(data))
    if data is None or not isinstance(met, Trailer) or not cache.has_room(met):
        return met
    segment = segment_of(met, data, key)
    cache.add(key, segment)
    return segment


def read_segment(store: ObjectStore, key: str, cache: SegmentCache) -> Segment | Fence | None:
    """Return one segment, from the cache or the store; None if there is none."""
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
