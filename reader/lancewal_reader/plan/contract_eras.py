"""Whether a delta would hold records from before and from after a change of the contract that moves keys between regions.

In one delta keys of different regions must never meet, since nothing orders them.  Such a change is made only while every
record before it is merged, so what a read saw never spans one; an older version that stands in for its own might.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from lancewal_core.errors import OutsideHistoryWindow, PlanStale
from lancewal_core.ids import Position, Region
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.contract import Contract, read_contract_version


def contracts_up_to(store: ObjectStore, newest: Contract) -> list[Contract]:
    """Every version of the contract, oldest first."""
    return [*(read_contract_version(store, newest, version) for version in range(1, newest.version)), newest]


@contextmanager
def kept_of(contract: Contract, region: Region) -> Iterator[None]:
    """``OutsideHistoryWindow`` where objects of a region are gone that the contract does not have any more.

    Garbage collection knows the contract's regions alone, so it does not trim others: their objects are simply gone.
    """
    try:
        yield
    except PlanStale as error:
        if region in contract.regions:
            raise
        raise OutsideHistoryWindow(
            f"partition {region.topic}-{region.partition} is of a topic that was made anew since, and the records of the "
            f"former one that the read needs are not kept any more: {error}",
            region=region.name,
        ) from error


def spans_a_change(
    contracts: Sequence[Contract], merged: Mapping[Region, Position], cut: Mapping[Region, Position]
) -> bool:
    """Whether the records from ``merged`` (nothing: 0) to ``cut`` lie on both sides of a change."""
    topic_ids = {region.topic_id for region in _behind(merged, cut)}
    return len(topic_ids) > 1 or any(before and after for before, after in _sides(contracts, merged, cut))


def lies_before_a_change(
    contracts: Sequence[Contract], merged: Mapping[Region, Position], cut: Mapping[Region, Position]
) -> bool:
    """Whether some of them lie before one: other owners of keys counted then (``keys.origin``)."""
    other_topic = any(region.topic_id != contracts[-1].topic_id for region in _behind(merged, cut))
    return other_topic or any(before for before, _ in _sides(contracts, merged, cut))


def _behind(merged: Mapping[Region, Position], cut: Mapping[Region, Position]) -> dict[Region, tuple[int, int]]:
    return {region: (merged.get(region, 0), end) for region, end in cut.items() if end > merged.get(region, 0)}


def _sides(
    contracts: Sequence[Contract], merged: Mapping[Region, Position], cut: Mapping[Region, Position]
) -> Iterator[tuple[bool, bool]]:
    """Of each change whether records lie before it, and whether some lie after it."""
    for topic_id, altered_at in {(c.topic_id, c.altered_at) for c in contracts if c.altered_at}:
        ends = {partition: int(end) for partition, end in enumerate(altered_at)}
        ours = {r.partition: range_ for r, range_ in _behind(merged, cut).items() if r.topic_id == topic_id}
        before = any(first < ends.get(partition, 0) for partition, (first, _) in ours.items())
        after = any(end > ends.get(partition, 0) for partition, (_, end) in ours.items())
        yield before, after
