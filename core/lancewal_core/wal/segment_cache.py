"""Cache of decoded WAL segments that a process has read."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock

from lancewal_core.names.ids import LogId
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.wal.entry import kept_bytes
from lancewal_core.wal.segment import Fence, Segment, Trailer, decode_segment, decode_trailer, segment_of

_LOGS_KNOWN = 1_000
"""Largest number of logs whose growth a cache remembers."""

_SEGMENT_BYTES, _ENTRY_BYTES = 1_000, 300
"""Bytes of Python's objects for a segment, and for an entry.  An entry that shares a batch often has fewer bytes of
rows."""


@dataclass(slots=True)
class _Kept:
    segment: Segment
    nbytes: int
    plan: int
    """Number of the newest plan that asked for the segment."""


class SegmentCache:
    """Decoded segments by object key, in at most ``bytes_max`` bytes.  The objects are immutable, so a cached segment
    never becomes stale.

    Each plan of a read reads the same segments, from the first on.  If each new segment pushed out the oldest, every
    plan would read all segments again as soon as one had no room.  So a cached segment stays while plans ask for it,
    and a segment without room is read each time.  If room is needed, segments are dropped that neither this plan nor
    the one before has asked for.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._segments: dict[str, _Kept] = {}
        self._grown: dict[LogId, tuple[int, int]] = {}
        """For each log the numbers that ``grown`` and ``grown_lately`` return."""
        self._plan = 0
        self._looked_through = 0
        """Number of the newest plan in which unused segments were dropped."""
        self._lock = Lock()

    def next_plan(self) -> None:
        """Count the beginning of one more plan.  Several plans may run at the same time."""
        with self._lock:
            self._plan += 1

    def grown(self, log: LogId) -> int:
        """Return how many segments the newest walk of this log found after the cached ones; 0 if they are not known."""
        return self._grown.get(log, (0, 0))[0]

    def grown_lately(self, log: LogId) -> int:
        """Return the largest recent growth of the log between two walks, in segments.  Each later walk halves the
        number.

        So a caller that walks twice in a row, once a minute, still knows the growth of a minute after the second walk.
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
        """Add a segment if there is room for it.

        ``nbytes``: its share of the bytes of memory, if its rows share memory with those of other segments."""
        rows_bytes = kept_bytes(segment.entries) if nbytes is None else nbytes
        nbytes = _bytes_of(rows_bytes, len(segment.entries))
        with self._lock:
            if key not in self._segments and self._has_room(nbytes):
                self._segments[key] = _Kept(segment, nbytes, self._plan)
                self._bytes += nbytes

    def has_room(self, trailer: Trailer) -> bool:
        """Return whether there is room for a segment, by the sizes in its trailer.  Its rows need not be decoded."""
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
    """Return the segment or fence ``key``, from the cache or the store; None if there is none.

    If the cache has no room for the segment, return only its trailer.  A log may have more rows than fit into memory.
    Code that needs the rows of such a segment reads them in portions.
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
    """Return the segment or fence ``key``, from the cache or the store; None if there is none."""
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
