"""One listing shows the objects of many regions; where they are more than an answer has, each region's own does."""

from __future__ import annotations

import pytest

from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, Position, Region, TopicId
from lancewal_core.region.region_listing import list_histories
from lancewal_core.store.object_store import ANSWER_OBJECTS
from tests.support.scripted import InlineTasks, ManualClock, ScriptedStore

TOPIC = TopicId("topic-id-1")
REGIONS = [Region("orders", TOPIC, partition) for partition in (0, 3, 12)]
OTHERS = [Region("orders", TOPIC, 1), Region("orders", TopicId("another-id"), 0)]


@pytest.mark.parametrize("pages", [1, ANSWER_OBJECTS - 4, ANSWER_OBJECTS - 3, ANSWER_OBJECTS])
@pytest.mark.parametrize("asked", [1, len(REGIONS)])
def test_regions_are_listed_together_where_they_are_small(pages: int, asked: int) -> None:
    store = ScriptedStore(ManualClock())
    for region in (*REGIONS[:2], *OTHERS):
        store.plain.put_if_absent(paths.loss_record(region, Position(1), None), b"x")
    keys = [paths.history_page(REGIONS[at % 2], Generation(at + 1), None) for at in range(pages)]
    for key in keys:
        store.plain.put_if_absent(key, b"y")
    found = list_histories(store, InlineTasks(), REGIONS[:asked], None)
    assert list(found) == REGIONS[:asked]
    for region, infos in found.items():
        assert sorted(info.key for info in infos) == sorted(
            k for k in keys if k.startswith(paths.region_prefix(region, None))
        )
    together = asked > 1 and pages + 3 < ANSWER_OBJECTS
    assert len(store.calls) == (1 if together or asked == 1 else 1 + asked)
