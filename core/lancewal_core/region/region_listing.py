"""Listing a folder of many regions: one request where few objects lie in all of them, else one and more for each.

Their folders lie side by side, so a listing of what they have in common shows all, a thousand objects an answer.  Answers of
one listing come one behind the other, listings of single regions side by side: so where there is more than one answer,
each region is asked for by itself.
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
    """What lies in ``folder`` of each region, which is below its ``region_prefix``; a hint, as every listing."""
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
