"""How far the newest segments of a log reach, looked at again and again: each look costs a listing and few trailers.

Guarantee: what is said to be reached is durable and read by every strong read that begins afterwards, as long as the region's
open generation lies in this log: a number is sent only when all before it are stored, so a segment that a listing shows has no
gap before it but what was trimmed, or lost.  A listing that shows less only makes the look later.

A look goes back from the newest segment until every region asked for was met, for none behind what an earlier look that asked
for it has seen: what was left out, since others were met before, is for whoever asks for it.
"""

from __future__ import annotations

from collections.abc import Collection

from lancewal_core import paths
from lancewal_core.ids import LogId, Position, Region, Sequence
from lancewal_core.store.object_store import ObjectInfo, ObjectStore
from lancewal_core.wal.segment import TRAILER_HINT, Fence, Trailer, decode_trailer, trailer_length


class LogTail:
    """One log, from the segment ``first`` on."""

    def __init__(self, store: ObjectStore, log: LogId, first: Sequence) -> None:
        self.reached: dict[Region, Position] = {}
        """Behind the last entry that was met of each region."""
        self._store = store
        self._log = log
        self._first = first
        self._looked: dict[Region, Sequence] = {}
        """Of each that was asked for, the number up to which it is known."""

    def look(self, wanted: Collection[Region]) -> None:
        """Bring ``reached`` up to date for these regions; others may lie behind."""
        left = {region: self._looked.get(region, self._first) for region in wanted}
        first = min(left.values(), default=self._first)
        after = paths.wal_segment(self._log, Sequence(first - 1)) if first else None
        numbered: dict[Sequence, ObjectInfo] = {}
        for info in self._store.list(paths.log_prefix(self._log), after=after):
            found = paths.parse_wal_segment(info.key)
            if found is not None:
                numbered[found[1]] = info
        for number in sorted(numbered, reverse=True):
            if not any(looked <= number for looked in left.values()):
                break
            trailer = read_trailer(self._store, numbered[number])
            for entry in trailer.entries if isinstance(trailer, Trailer) else ():
                left.pop(entry.region, None)
                self.reached[entry.region] = max(entry.next, self.reached.get(entry.region, entry.next))
        if numbered:
            self._looked |= dict.fromkeys(wanted, Sequence(max(numbered) + 1))


def read_trailer(store: ObjectStore, info: ObjectInfo) -> Trailer | Fence | None:
    """The table of a segment that a listing shows, without its rows; None where it was trimmed meanwhile."""
    wanted = min(TRAILER_HINT, info.size)
    while True:
        tail = store.get_range(info.key, info.size - wanted, info.size)
        if tail is None:
            return None
        needed = trailer_length(tail, info.key)
        if needed <= len(tail) or wanted == info.size:
            return decode_trailer(tail, info.key, info.size)
        wanted = min(needed, info.size)
