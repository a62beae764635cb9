"""Which remembered regions count, how a run lists them, and where keys of two partitions meet: against plain Python."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.keys.origin import NOT_KNOWN, MergedFrom, RegionList, counting, meeting
from lancewal_core.names.ids import Position, Region, TopicId
from lancewal_core.table.contract import Column, Contract


def contract(*altered_at: int) -> Contract:
    return Contract(
        table_uuid="u", topic="t", topic_id="i", partitions=6, primary_key=("id",), region_key=(),
        key_format="bytes", start=(0,) * 6, columns=(Column(name="id", type="int64", field_ids=(0,)),),
        altered_at=altered_at,
    )  # fmt: skip


def of(partition: int, position: int, topic_id: str = "i", topic: str = "t") -> MergedFrom:
    return MergedFrom(Region(topic, TopicId(topic_id), partition), Position(position))


@pytest.mark.parametrize(
    ("source", "altered_at", "counts"),
    [
        (of(0, 0), (), True),
        (of(5, 2**40), (), True),
        (of(0, 10), (10, 20), False),
        (of(0, 11), (10, 20), True),
        (of(1, 11), (10, 20), False),
        (of(2, 0), (10, 20), True),
        (of(0, 11, topic_id="before"), (), False),
        (of(0, 11, topic="other"), (), False),
    ],
)
def test_what_counts(source: MergedFrom, altered_at: tuple[int, ...], counts: bool) -> None:
    assert counting(contract(*altered_at))(source) == (source.region.partition if counts else NOT_KNOWN)


SOURCES = st.lists(st.builds(of, st.integers(0, 5), st.integers(0, 30), st.sampled_from(["i", "before"])), max_size=30)


@given(SOURCES, st.lists(st.integers(0, 30), max_size=4), st.lists(st.integers(0, 30), max_size=6))
def test_a_list_stays_short_and_each_still_counts_as_it_did(
    sources: list[MergedFrom], altered_at: list[int], more: list[int]
) -> None:
    counts = counting(contract(*altered_at))
    regions = RegionList(counts)
    places = regions.places(sources)
    assert places[-1] == NOT_KNOWN
    assert len(regions.regions) <= 2 * len({source.region for source in sources})
    for source, place in zip(sources, places, strict=False):
        listed = regions.regions[place]
        assert listed.region == source.region
        assert listed.position >= source.position
        assert counts(listed) == counts(source)
    # A later change lies behind all that was merged: it lets everything pass that is listed.
    ends = [max([s.position for s in sources if s.region.partition == p], default=0) for p in range(6)]
    later = counting(contract(*(end + extra for end, extra in zip(ends, [*more, *[0] * 6], strict=False))))
    assert {later(listed) for listed in regions.regions} <= {NOT_KNOWN}


@given(st.lists(st.sets(st.integers(0, 20)), min_size=1, max_size=4))
def test_keys_of_two_partitions(keys: list[set[int]]) -> None:
    where: dict[int, set[int]] = defaultdict(set)
    for partition, mine in enumerate(keys):
        for key in mine:
            where[key].add(partition)
    table = pa.table({"id": pa.array([key for mine in keys for key in sorted(mine)], pa.int64())})
    partitions = np.repeat(np.arange(len(keys), dtype=np.int32), [len(mine) for mine in keys])
    met = meeting(table, partitions)
    twice = [found for found in where.values() if len(found) > 1]
    if not twice:
        assert met is None
    else:
        assert met is not None
        assert met.keys == len(twice)
        assert any(set(met.partitions) <= found for found in twice)
