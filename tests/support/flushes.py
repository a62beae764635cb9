"""Which flushes have what of a region, by what their manifests say; and one region's flush by itself."""

from __future__ import annotations

from collections.abc import Callable

from lancewal_core.errors import Corrupt, or_raised
from lancewal_core.names import paths
from lancewal_core.names.ids import Region
from lancewal_core.names.paths import FlushFile
from lancewal_core.region.flush import flush_from_logs
from lancewal_core.region.flushes.manifest import FlushedGeneration, read_flush
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.store.object_store import ObjectStore


def flushes_of(store: ObjectStore, region: Region) -> list[FlushedGeneration]:
    """All that any flush has of a region, that by which the region goes on or not, ascending."""
    keys = [info.key for info in store.list(paths.FLUSHES)]
    found = []
    for key in keys:
        parsed = paths.parse_flush_file(key)
        if parsed is not None and parsed[1] is FlushFile.MANIFEST:
            try:
                found += [one for one in read_flush(store, key).generations if one.region == region]
            except Corrupt:
                continue
    return sorted(found, key=lambda one: (one.generation, one.key))


def flush_objects(store: ObjectStore, region: Region) -> list[str]:
    """Keys of all objects of flushes that have something of a region."""
    folders = {one.key.rpartition("/")[0] for one in flushes_of(store, region)}
    return [i.key for i in store.list(paths.FLUSHES) if i.key.rpartition("/")[0] in folders]


def flush_from_log(opened: OpenedTable, region: Region, new_id: Callable[[], str]) -> FlushedGeneration | None:
    """``flush_from_logs`` of one region, whose error is raised."""
    return or_raised(flush_from_logs(opened, [region], new_id)[region])
