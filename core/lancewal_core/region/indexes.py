"""Reading and swapping the indexes of regions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple, assert_never

from lancewal_core import paths
from lancewal_core.errors import StoreInconsistent
from lancewal_core.ids import Region
from lancewal_core.process.clock import Clock
from lancewal_core.process.tasks import Tasks
from lancewal_core.region.index import RegionIndex, decode_index, encode_index
from lancewal_core.store.object_kinds import INDEX_BYTES_MAX
from lancewal_core.store.object_limits import too_large
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.store.versioned import FIRST_VERSION, Declined, Family, Swapped, Version, newest_version, swap

KNOWN_FOR_S = 3600.0
"""An index read longer ago is read anew by a listing: versions after it may have been deleted."""

OPENED_BELOW = INDEX_BYTES_MAX // 3
"""Bytes of an index in which a generation may be opened.  What is in a larger one becomes FLUSHED and MERGED before more
comes: until its generations leave it, that makes it longer, by about as much as it was."""


@dataclass(frozen=True, slots=True)
class IndexRead:
    """An index and the version it is."""

    version: Version
    index: RegionIndex
    read_at: float
    """Monotonic seconds."""


def index_family(region: Region) -> Family:
    """The versions of a region's index."""

    def parse(key: str) -> int | None:
        found = paths.parse_index_version(key)
        return None if found is None or found[0] != region else found[1]

    return Family(paths.index_prefix(region), lambda version: paths.index_version(region, version), parse)


Decide = Callable[[RegionIndex | None], RegionIndex | None]
"""From the newest index of a region, or None for one that nobody has claimed, to the next one; None where it stays."""


class Swap(NamedTuple):
    """``ours``: ``found`` is what was decided.  Else it was declined, and ``found`` is what it was declined against."""

    ours: bool
    found: RegionIndex | None


class RegionIndexes:
    """Indexes by region; remembers the last version read of each as the place to look on from.

    No call returns an older version than a call that ended before it began, in whatever thread: ``StoreInconsistent`` instead.
    Calls take as many regions as the caller has; each is decided by itself, and where one raises, those before it have been
    swapped, perhaps.
    """

    def __init__(self, store: ObjectStore, clock: Clock, tasks: Tasks | None = None) -> None:
        """``tasks`` read several regions at the same time; None: one after the other."""
        self._store = store
        self._clock = clock
        self._tasks = tasks
        self._known: dict[Region, IndexRead] = {}
        self._lock = Lock()
        """Of what is known; held for no call outside."""

    def read(self, regions: Collection[Region]) -> dict[Region, RegionIndex]:
        """The newest index of each, but for regions that nobody has claimed yet; in their order."""
        asked = list(regions)
        if self._tasks is None or len(asked) == 1:
            found = [self._read(region) for region in asked]
        else:
            found = self._tasks.map(self._read, asked)
        return {region: index for region, index in zip(asked, found, strict=True) if index is not None}

    def swap(self, decisions: Mapping[Region, Decide]) -> dict[Region, Swap]:
        """Compare-and-swap of each, in their order; an answer for each.  A ``Decide`` may be asked several times.

        ``ObjectTooLarge`` where a generation would be opened in an index that is too large for that.
        """
        return {region: self._swap(region, decide) for region, decide in decisions.items()}

    def _read(self, region: Region) -> RegionIndex | None:
        before = self._known.get(region)
        found = newest_version(self._store, index_family(region), self._hint(region))
        _check_not_older(region, found, before)
        return None if found is None else self._remember(region, found)

    def _swap(self, region: Region, decide: Decide) -> Swap:
        before = self._known.get(region)
        seen: RegionIndex | None = None

        def decide_version(version: Version | None) -> RegionIndex | None:
            nonlocal seen
            _check_not_older(region, version, before)
            seen = None if version is None else self._remember(region, version)
            return decide(seen)

        def encode(index: RegionIndex) -> bytes:
            data = encode_index(index)
            if len(data) > OPENED_BELOW and _opens(index, seen):
                raise too_large(
                    paths.index_version(region, FIRST_VERSION),
                    f"{len(data)} bytes at its next version, with one generation more than now: that is above {OPENED_BELOW}, "
                    f"and all marks on those there are have to fit in the {INDEX_BYTES_MAX}",
                )
            return data

        outcome = swap(self._store, index_family(region), self._clock, decide_version, encode, self._hint(region))
        match outcome:
            case Swapped(version=version, value=value):
                self._keep(region, IndexRead(version, value, self._clock.monotonic()))
                return Swap(True, value)
            case Declined(found=found):
                return Swap(False, None if found is None else self._remember(region, found))
            case _:
                assert_never(outcome)

    def _hint(self, region: Region) -> Version | None:
        known = self._known.get(region)
        if known is None or self._clock.monotonic() - known.read_at > KNOWN_FOR_S:
            return None
        return known.version

    def _remember(self, region: Region, version: Version) -> RegionIndex:
        known = self._known.get(region)
        if known is not None and known.version == version:
            index = known.index
        else:
            index = decode_index(version.data, paths.index_version(region, version.version))
        self._keep(region, IndexRead(version, index, self._clock.monotonic()))
        return index

    def _keep(self, region: Region, read: IndexRead) -> None:
        with self._lock:
            known = self._known.get(region)
            if known is None or known.version.version <= read.version.version:  # another thread may have been faster
                self._known[region] = read


def _opens(index: RegionIndex, found: RegionIndex | None) -> bool:
    """Whether ``index`` has a generation that is newer than all that were found."""
    if index.newest is None:
        return False
    return found is None or found.newest is None or index.newest.generation > found.newest.generation


def _check_not_older(region: Region, found: Version | None, before: IndexRead | None) -> None:
    if before is not None and (found is None or found.version < before.version.version):
        raise StoreInconsistent(
            f"region {region.name}: index version {before.version.version} was read before, now the store's listing leads "
            f"to {'none' if found is None else found.version}",
            region=region.name,
        )
