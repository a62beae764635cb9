"""Positions up to which the newest segments of a log hold records.

Each call of ``LogTail.look`` costs a listing and a few trailers.

Guarantee: records below a position in ``LogTail.reached`` are durable, and every strong read that begins afterwards has
them.  This holds as long as the region's open generation lies in this log.  A segment is sent only when all segments
before it are stored.  So before a listed segment, only trimmed or lost segments are missing.  A listing that ends early
only delays the result.  If the listing leaves out a segment before another one, that segment is asked for separately.

``look`` goes back from the newest segment until it has found an entry of every region that was asked for.  For each
region it stops where the open generation begins, or at segments that an earlier ``look`` for it has covered.
``look`` may end before it finds entries of other regions.  A later call that asks for these finds them.
"""

from __future__ import annotations

from collections.abc import Mapping

from lancewal_core.names import paths
from lancewal_core.names.ids import LogId, Position, Region, Sequence
from lancewal_core.store.object_store import ObjectInfo, ObjectStore
from lancewal_core.wal.segment import TRAILER_HINT, Fence, Trailer, decode_trailer, trailer_length
from lancewal_core.wal.walk import trailer_at

_FIRST = Sequence(0)


class LogTail:
    """The end of one log, from the segment ``first`` on.  The caller knows all earlier segments."""

    def __init__(self, store: ObjectStore, log: LogId, first: Sequence = _FIRST) -> None:
        self.reached: dict[Region, Position] = {}
        """By region, the position after the newest entry that ``look`` has found."""
        self._store = store
        self._log = log
        self._first = first
        self._looked: dict[Region, Sequence] = {}
        """For each region that ``look`` was asked for, the number of the first segment that it has not covered."""

    def look(self, wanted: Mapping[Region, Sequence]) -> None:
        """Bring ``reached`` up to date for the regions in ``wanted``, each with the segment in which its open
        generation begins.  Other regions may lag."""
        left = {region: max(begins, self._looked.get(region, self._first)) for region, begins in wanted.items()}
        first = min(left.values(), default=self._first)
        after = paths.wal_segment(self._log, Sequence(first - 1)) if first else None
        numbered: dict[int, ObjectInfo] = {}
        for info in self._store.list(paths.log_prefix(self._log), after=after):
            found = paths.parse_wal_segment(info.key)
            if found is not None:
                numbered[found[1]] = info
        if not numbered:
            return
        last = max(numbered)
        for number in range(last, first - 1, -1):
            if not any(looked <= number for looked in left.values()):
                break
            if number in numbered:
                trailer = read_trailer(self._store, numbered[number])
            else:
                trailer = trailer_at(self._store, self._log, Sequence(number))
            for entry in trailer.entries if isinstance(trailer, Trailer) else ():
                left.pop(entry.region, None)
                self.reached[entry.region] = max(entry.next, self.reached.get(entry.region, entry.next))
        self._looked |= dict.fromkeys(wanted, Sequence(last + 1))


def read_trailer(store: ObjectStore, info: ObjectInfo) -> Trailer | Fence | None:
    """Return the trailer of a listed segment, or the fence there; None if the object was trimmed since the listing."""
    wanted = min(TRAILER_HINT, info.size)
    while True:
        tail = store.get_range(info.key, info.size - wanted, info.size)
        if tail is None:
            return None
        needed = trailer_length(tail, info.key)
        if needed <= len(tail) or wanted == info.size:
            return decode_trailer(tail, info.key, info.size)
        wanted = min(needed, info.size)
