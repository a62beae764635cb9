"""Addresses of hidden rows: ascending, each once, and nothing is looked up twice at a version."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lancewal_core.names.ids import Position, Region, TableVersion, TopicId
from lancewal_core.rows.key_set import KeySet
from lancewal_core.table.protocol import PinnedTable
from lancewal_core.table.watermarks import NOTHING_MERGED
from lancewal_reader.plan.strong import ReadPlan, RegionDelta
from lancewal_reader.unmerged.hidden import Addresses, HiddenRows
from tests.twins.memory_table import MemoryDataset, MemoryTable

_REGION = Region("orders", TopicId("id"), 0)


def _plan(cut: int) -> ReadPlan:
    return ReadPlan(TableVersion(1), NOTHING_MERGED, (RegionDelta(_REGION, (), Position(cut)),))


def test_addresses_ascend_each_once_and_only_new_keys_are_looked_up() -> None:
    pinned = MemoryTable(MemoryDataset(pa.schema([pa.field("k", pa.int64())]))).newest()
    asked: list[list[int]] = []

    def find(_: PinnedTable, keys: pa.Table) -> Addresses:
        asked.append(keys["k"].to_pylist())
        return np.array([9 * k % 11 for k in asked[-1]] * 2, np.uint64)  # in no order, and twice

    hidden = HiddenRows()
    first = hidden.addresses(find, pinned, _plan(3), KeySet(pa.table({"k": [1, 2, 3]})))
    assert first.tolist() == [5, 7, 9]
    more = hidden.addresses(find, pinned, _plan(5), KeySet(pa.table({"k": [1, 2, 3, 4, 5]})))
    assert more.tolist() == [1, 3, 5, 7, 9]
    assert asked == [[1, 2, 3], [4, 5]]
    known = hidden.known(pinned, _plan(5))
    assert known is not None
    assert known.tolist() == more.tolist()
    none = hidden.addresses(
        lambda *_: np.zeros(0, np.uint64), pinned, _plan(0), KeySet(pa.table({"k": pa.array([], pa.int64())}))
    )
    assert none.tolist() == []
