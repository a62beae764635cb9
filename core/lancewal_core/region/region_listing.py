"""Listing of the history pages of many regions.

One request is enough if the topic's regions together have few objects.  Otherwise each region takes at least one more.

The folders of a topic's regions lie side by side.  So a listing of their common prefix shows all, a thousand objects an
answer.  The answers of one listing come one after the other, but listings of single regions run side by side.  So if
one answer does not show all objects, each region is listed separately.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from lancewal_core.names import paths
from lancewal_core.names.ids import Making, Region
from lancewal_core.process.tasks import Tasks
from lancewal_core.store.object_store import ANSWER_OBJECTS, ObjectInfo, ObjectStore


def list_histories(
    store: ObjectStore, tasks: Tasks, regions: Collection[Region], making: Making | None
) -> dict[Region, Sequence[ObjectInfo]]:
    """Return the objects in the history folder of each region.  Like any listing, the result is a hint."""
    folders = {paths.history_prefix(region, making): region for region in regions}
    topics = {paths.topic_regions_prefix(region, making) for region in regions}
    if len(regions) > 1 and len(topics) == 1:
        together = store.list(topics.pop(), limit=ANSWER_OBJECTS)
        if len(together) != ANSWER_OBJECTS:
            found: dict[Region, list[ObjectInfo]] = {region: [] for region in regions}
            for info in together:
                region = folders.get(info.key.rpartition("/")[0] + "/")
                if region is not None:
                    found[region].append(info)
            return dict(found)
    listed = tasks.map(store.list, list(folders))
    return dict(zip(folders.values(), listed, strict=True))
