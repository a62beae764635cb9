"""Whether a delta would hold records from before and from after a change of the contract that moves keys between regions.

In one delta keys of different regions must never meet, since nothing orders them.  Such a change is made only while every
record before it is merged, so what a read saw never spans one; an older version that stands in for its own might.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lancewal_core.ids import Position, Region
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.contract import Contract, read_contract_version


def contracts_up_to(store: ObjectStore, newest: Contract) -> list[Contract]:
    """Every version of the contract, oldest first."""
    return [*(read_contract_version(store, version) for version in range(1, newest.version)), newest]


def spans_a_change(
    contracts: Sequence[Contract], merged: Mapping[Region, Position], cut: Mapping[Region, Position]
) -> bool:
    """Whether the records from ``merged`` (nothing: 0) to ``cut`` lie on both sides of a change."""
    behind = {region: (merged.get(region, 0), end) for region, end in cut.items() if end > merged.get(region, 0)}
    if len({region.topic_id for region in behind}) > 1:
        return True
    for topic_id, altered_at in {(c.topic_id, c.altered_at) for c in contracts if c.altered_at}:
        ends = {partition: int(end) for partition, end in enumerate(altered_at)}
        ours = {r.partition: range_ for r, range_ in behind.items() if r.topic_id == topic_id}
        before = any(first < ends.get(partition, 0) for partition, (first, _) in ours.items())
        after = any(end > ends.get(partition, 0) for partition, (_, end) in ours.items())
        if before and after:
            return True
    return False
