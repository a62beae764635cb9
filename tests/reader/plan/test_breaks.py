"""Deltas on both sides of a change of the contract."""

from __future__ import annotations

import pytest

from lancewal_core.names.ids import Position, Region, TopicId
from lancewal_core.table.contract import Column, Contract
from lancewal_reader.plan.breaks import spans_a_change

FIRST = Contract(
    table_uuid="uuid-1",
    topic="orders",
    topic_id="old",
    partitions=2,
    primary_key=("k",),
    region_key=("k",),
    start=(0, 0),
    columns=(Column(name="k", type="int64", field_ids=(0,)),),
)
ALTERED = FIRST.model_copy(update={"version": 2, "partitions": 3, "altered_at": (10, 20)})
AGAIN = ALTERED.model_copy(update={"version": 3, "partitions": 4, "altered_at": (30, 40, 50)})
REBOUND = AGAIN.model_copy(update={"version": 4, "topic_id": "new", "altered_at": ()})


def at(topic_id: str, *positions: int | None) -> dict[Region, Position]:
    return {Region("orders", TopicId(topic_id), p): Position(at) for p, at in enumerate(positions) if at is not None}


@pytest.mark.parametrize(
    ("merged", "cut", "spans"),
    [
        (at("old"), at("old", 10, 20), False),
        (at("old", 10, 20), at("old", 30, 40, 50), False),
        (at("old", 10, 19), at("old", 10, 20, 1), True),
        (at("old", 9, 20), at("old", 9, 21), False),  # nothing of partition 0 is in the delta
        (at("old", 9, 20), at("old", 10, 21), True),
        (at("old", 9, 20), at("old", 11, 20), True),
        (at("old", 30, 39, 50), at("old", 30, 40, 50, 1), True),
        (at("old", 30, 40, 50), at("old", 31, 41, 51, 1), False),
        (at("old", 30, 40, 50, 8), at("old", 30, 40, 50, 8) | at("new", 5), False),
        (at("old", 30, 40, 50, 7), at("old", 30, 40, 50, 8) | at("new", 5), True),
    ],
)
def test_spans_a_change(merged: dict[Region, Position], cut: dict[Region, Position], spans: bool) -> None:
    assert spans_a_change([FIRST, ALTERED, AGAIN, REBOUND], merged, cut) is spans
