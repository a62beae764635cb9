"""A listing of a log, and reading the listed segments from bundles (``bundle``) that copy them.

Guarantees
 1. A listing is a hint: it says which objects to ask for, and never proves the end of a log.  It shows a segment's size
    and entity tag, which identify the object.  A bundle's copy replaces only an object with the same size and tag.
 2. If a bundle is wrong or unreadable, for whatever reason, its segments are read instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import TypeAlias

from lancewal_core.errors import Corrupt, FormatUnknown, StoreUnavailable
from lancewal_core.names import paths
from lancewal_core.names.ids import LogId, Sequence
from lancewal_core.process.tasks import Tasks
from lancewal_core.store.object_store import ObjectInfo, ObjectStore
from lancewal_core.wal.bundle import decode_bundle
from lancewal_core.wal.entry import kept_bytes
from lancewal_core.wal.segment import Fence, Segment, Trailer

_Read: TypeAlias = Segment | Trailer | Fence | None
_AT_ONCE = 1_024
"""Largest number of listed segments that one step of a walk asks for, if they have at most ``_BYTES_AT_ONCE`` bytes
together.

The number is larger than the number of threads that ask.  A thread that has its answer asks for the next segment, so no
thread waits for a slower one."""
_BYTES_AT_ONCE = 16 << 20
_BEHIND = 2
"""How many numbers a walk asks for after the last listed segment: one for a new segment, one for the end of the log."""
_BYTES_A_REQUEST = 64 << 10
"""Largest number of bytes by which a bundle may be larger than the wanted segments that it copies.  Fetching more would
take longer than asking for each segment."""


@dataclass(frozen=True, slots=True)
class Listed:
    """Segments and bundles of a log that a listing shows after some number."""

    segments: Mapping[int, ObjectInfo]
    bundles: Seq[tuple[int, int, ObjectInfo]] = ()
    """Bundles, each with its first and last number."""

    @staticmethod
    def behind(store: ObjectStore, log: LogId, start: Sequence) -> Listed:
        segments, bundles = dict[int, ObjectInfo](), list[tuple[int, int, ObjectInfo]]()
        for info in store.list(paths.log_prefix(log), after=paths.wal_segment(log, start)):
            if (found := paths.parse_wal_segment(info.key)) is not None:
                segments[found[1]] = info
            elif (bundled := paths.parse_wal_bundle(info.key)) is not None:
                bundles.append((bundled[1], bundled[2], info))
        return Listed(segments, bundles)

    def window(self, at: Sequence) -> int:
        """Return how many numbers a walk asks for at once, from ``at`` on.

        These are the listed numbers without a gap, and two more.  If the listed ones exceed ``_AT_ONCE`` or
        ``_BYTES_AT_ONCE``, only as many as these limits allow, but at least one."""
        count = nbytes = 0
        while at + count in self.segments:
            nbytes += self.segments[at + count].size
            if count == _AT_ONCE or (count and nbytes > _BYTES_AT_ONCE):
                return count
            count += 1
        return count + _BEHIND


NOTHING_LISTED = Listed({})


@dataclass(frozen=True, slots=True)
class ByBundles:
    """Reader of segments by number: from bundles that copy listed segments, all others by ``read``.

    ``keep`` is called for each copy that is used, with the segment's key, the segment, and its bytes of memory.  The
    copies of one bundle share memory, so each gets an equal part of the bundle's bytes.
    """

    store: ObjectStore
    tasks: Tasks
    read: Callable[[Sequence], _Read]
    keep: Callable[[str, Segment, int], None]

    def __call__(self, numbers: Seq[Sequence], listed: Listed) -> list[_Read]:
        left = set(numbers)
        chosen = list[tuple[str, set[Sequence]]]()
        for first, last, info in listed.bundles:
            copied = {number for number in left if first <= number <= last and number in listed.segments}
            nbytes = sum(listed.segments[number].size for number in copied)
            if len(copied) > 1 and info.size <= nbytes + _BYTES_A_REQUEST:
                chosen.append((info.key, copied))
                left -= copied
        found: dict[Sequence, _Read] = {}

        def ask(bundle: tuple[str, set[Sequence]] | None, number: Sequence | None) -> None:
            if bundle is not None:
                found.update(self._copies(*bundle, listed))
            if number is not None:
                found[number] = self.read(number)

        asked = [*((bundle, None) for bundle in chosen), *((None, number) for number in sorted(left))]
        self.tasks.map(lambda item: ask(*item), asked)
        missing = [number for number in numbers if number not in found]
        found.update(zip(missing, self.tasks.map(self.read, missing) if missing else (), strict=True))
        return [found[number] for number in numbers]

    def _copies(self, key: str, wanted: Collection[Sequence], listed: Listed) -> dict[Sequence, Segment]:
        """Return the wanted segments that the bundle ``key`` copies, if the listing shows the same objects.

        Return no segments if the bundle cannot be read, since it is not part of the log."""
        try:
            data = self.store.get(key)
            bundle = None if data is None else decode_bundle(data, key)
        except (Corrupt, FormatUnknown, StoreUnavailable):
            return {}
        copies = () if bundle is None else bundle.copies
        found = {
            number: copy.segment
            for copy in copies
            if (number := copy.segment.sequence) in wanted and copy.is_of(listed.segments[number])
        }
        share = kept_bytes(entry for copy in copies for entry in copy.segment.entries) // max(1, len(found))
        for segment in found.values():
            self.keep(paths.wal_segment(segment.log, segment.sequence), segment, share)
        return found
