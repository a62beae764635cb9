"""Reading and swapping the index of one region."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from lancewal_core import paths
from lancewal_core.errors import StoreInconsistent
from lancewal_core.ids import Region
from lancewal_core.process.clock import Clock
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


class RegionIndexes:
    """Indexes by region; remembers the last version read of each as the place to look on from.

    No call returns an older version than a call that ended before it began: ``StoreInconsistent`` instead.
    """

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: dict[Region, IndexRead] = {}

    def read(self, region: Region) -> RegionIndex | None:
        """The newest index, or None for a region that nobody has claimed yet."""
        before = self._known.get(region)
        found = newest_version(self._store, index_family(region), self._hint(region))
        _check_not_older(region, found, before)
        return None if found is None else self._remember(region, found)

    def swap(
        self, region: Region, decide: Callable[[RegionIndex | None], RegionIndex | None]
    ) -> tuple[bool, RegionIndex | None]:
        """Compare-and-swap: (True, our index) or, where ``decide`` declined, (False, the index it saw).

        ``ObjectTooLarge`` where a generation would be opened in an index that is too large for that.
        """

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
                return True, value
            case Declined(found=found):
                return False, None if found is None else self._remember(region, found)
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
