"""Listing of a folder in many regions: one request if all these folders together have few objects, else at least one
more for each region.

The folders of a topic's regions lie side by side.  So a listing of their common prefix shows all, a thousand objects an
answer.  The answers of one listing come one after the other, but listings of single regions run side by side.  So if
one answer does not show all objects, each region is listed separately.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from lancewal_core.names import paths
from lancewal_core.names.ids import Making, Region
from lancewal_core.process.tasks import Tasks
from lancewal_core.store.object_store import ANSWER_OBJECTS, ObjectInfo, ObjectStore


def list_regions(
    store: ObjectStore,
    tasks: Tasks,
    regions: Collection[Region],
    folder: Callable[[Region, Making | None], str],
    making: Making | None,
) -> dict[Region, Sequence[ObjectInfo]]:
    """List the folder of each region, which ``folder`` returns, and return the objects by region.  Each folder must be
    below ``region_prefix``.  Like any listing, the result is a hint.
    """
    prefixes = {folder(region, making): region for region in regions}
    topics = {paths.topic_regions_prefix(region, making) for region in regions}
    if len(regions) > 1 and len(topics) == 1:
        together = store.list(topics.pop(), limit=ANSWER_OBJECTS)
        if len(together) != ANSWER_OBJECTS:
            return _divided(together, prefixes)
    listed = tasks.map(store.list, list(prefixes))
    return dict(zip(prefixes.values(), listed, strict=True))


def _divided(infos: Sequence[ObjectInfo], prefixes: dict[str, Region]) -> dict[Region, Sequence[ObjectInfo]]:
    found: dict[Region, list[ObjectInfo]] = {region: [] for region in prefixes.values()}
    depths = {prefix.count("/") for prefix in prefixes}
    for info in infos:
        parts = info.key.split("/")
        for depth in depths:
            region = prefixes.get("/".join(parts[:depth]) + "/")
            if region is not None:
                found[region].append(info)
    return dict(found)
