"""The storage that pages took the place of, as their model: each region's index is a chain of versions of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from lancewal_core.names.ids import Region
from lancewal_core.process.clock import Clock
from lancewal_core.region.state import RegionState, decode_state, encode_state
from lancewal_core.region.states import Decide, Swap
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.store.versioned import Family, Swapped, Version, newest_version, swap


def _family(region: Region) -> Family:
    prefix = f"single/{region.partition}/"
    return Family(
        prefix,
        lambda version: f"{prefix}{2**64 - 1 - version:020d}",
        lambda key: 2**64 - 1 - int(key.removeprefix(prefix)),
    )


def _index(version: Version | None) -> RegionState | None:
    return None if version is None else decode_state(version.data, "single")


class SingleStates:
    """What ``RegionStates`` promises of each region, one after the other."""

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def read(self, regions: Collection[Region]) -> dict[Region, RegionState]:
        found = {region: _index(newest_version(self._store, _family(region))) for region in regions}
        return {region: index for region, index in found.items() if index is not None}

    def swap(self, decisions: Mapping[Region, Decide]) -> dict[Region, Swap]:
        return {region: self._swap(region, decide) for region, decide in decisions.items()}

    def _swap(self, region: Region, decide: Decide) -> Swap:
        outcome = swap(self._store, _family(region), self._clock, lambda v: decide(_index(v)), encode_state)
        if isinstance(outcome, Swapped):
            return Swap(True, outcome.value)
        return Swap(False, _index(outcome.found))
