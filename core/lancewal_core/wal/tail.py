"""How far the newest segments of a log reach, looked at again and again: each look costs a listing and few trailers.

Guarantee: what is said to be reached is durable and read by every strong read that begins afterwards, as long as the region's
open generation lies in this log: a number is sent only when all before it are stored, so a segment that a listing shows has no
gap before it but what was trimmed, or lost.  A listing that ends early only makes the look later; what it leaves out before
another segment is asked for by its number.

A look goes back from the newest segment until every region asked for was met, for none behind where its generation begins, or
what an earlier look that asked for it has seen: what was left out, since others were met before, is for whoever asks for it.
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
    """One log, from the segment ``first`` on: what lies before it somebody has gone over."""

    def __init__(self, store: ObjectStore, log: LogId, first: Sequence = _FIRST) -> None:
        self.reached: dict[Region, Position] = {}
        """Behind the last entry that was met of each region."""
        self._store = store
        self._log = log
        self._first = first
        self._looked: dict[Region, Sequence] = {}
        """Number up to which each that was asked for is known."""

    def look(self, wanted: Mapping[Region, Sequence]) -> None:
        """Bring ``reached`` up to date for these regions, from where their open generations begin; others may lie behind."""
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
