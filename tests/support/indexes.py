"""The index of one region, as a process that has just started reads it."""

from __future__ import annotations

from lancewal_core.ids import Region
from lancewal_core.process.clock import Clock
from lancewal_core.region.index import RegionIndex
from lancewal_core.region.indexes import RegionIndexes
from lancewal_core.store.object_store import ObjectStore


def newest_index(store: ObjectStore, clock: Clock, region: Region) -> RegionIndex | None:
    return RegionIndexes(store, clock).read([region]).get(region)
