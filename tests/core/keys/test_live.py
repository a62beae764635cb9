"""Live rows by key, through the index where it covers a fragment and by a scan where it does not."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lancewal_core.keys.index import KeyRows, RowsOfKeys
from lancewal_core.keys.live import find_live
from lancewal_core.rows.key_set import KeySet
from tests.twins.memory_table import MemoryDataset, MemoryTable

SCHEMA = pa.schema([("id", pa.int64())])


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": ids}, SCHEMA)


def of_rows(*pairs: tuple[int, int]) -> RowsOfKeys:
    return RowsOfKeys(np.array([row for row, _ in pairs]), np.array([place for _, place in pairs]))


@pytest.mark.parametrize("uncovered", [(), (1,), (1, 2), (0, 1, 2, 3)])
def test_the_index_and_a_scan_find_the_same(uncovered: tuple[int, ...]) -> None:
    table = MemoryTable(MemoryDataset(SCHEMA))
    for ids in ((1, 2, 3), (4, 2), (6, 3, 2), (8,)):
        table.append(rows(*ids))
    table.delete_where("id", [3])
    covered = {0: of_rows((1, 1), (2, 0)), 1: of_rows((1, 1)), 2: of_rows((1, 0), (2, 1))}  # deleted ones too
    by_index = {fragment: found for fragment, found in covered.items() if fragment not in uncovered}
    found = find_live(table.newest(), KeySet(rows(3, 2)), KeyRows(by_index, uncovered))
    told = {
        fragment: list(zip(some.rows.tolist(), some.places.tolist(), strict=True)) for fragment, some in found.items()
    }
    assert told == {0: [(1, 1)], 1: [(1, 1)], 2: [(2, 1)]}
