"""Key lookup: live rows of a version by key, against a plain comparison of values."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from lancewal_core.keys.scan import FoundRows, find_keys, groups
from lancewal_core.rows.key_set import KeySet
from lancewal_core.table.protocol import PinnedTable
from tests.twins.memory_table import MemoryDataset, MemoryTable

SCHEMA = pa.schema([("v", pa.int64()), ("id", pa.int64()), ("r", pa.string())])


def rows(keys: list[tuple[str, int]]) -> pa.Table:
    return pa.Table.from_pylist([{"r": r, "id": i, "v": 0} for r, i in keys], SCHEMA)


def key_set(keys: list[tuple[str, int]]) -> KeySet:
    schema = pa.schema([SCHEMA.field("r"), SCHEMA.field("id")])
    return KeySet(pa.Table.from_pylist([{"r": r, "id": i} for r, i in keys], schema))


def found(keys: FoundRows) -> list[tuple[int, int, int]]:
    """(fragment, row, place)."""
    assert keys.addresses.dtype.name == "uint64"
    return sorted((int(a) >> 32, int(a) & 0xFFFFFFFF, int(p)) for a, p in zip(keys.addresses, keys.places, strict=True))


@pytest.fixture
def table() -> MemoryTable:
    """Three fragments; ("a", 2) lies in two of them."""
    table = MemoryTable(MemoryDataset(SCHEMA))
    table.append(rows([("a", 1), ("a", 2)]))
    table.append(rows([("b", 1), ("b", 2), ("a", 2)]))
    table.append(rows([("c", 1)]))
    return table


def test_rows_and_the_places_of_their_keys(table: MemoryTable) -> None:
    keys = key_set([("c", 1), ("a", 2), ("b", 2), ("x", 1), ("a", 9)])
    assert found(find_keys(table.newest(), keys)) == [(0, 1, 1), (1, 1, 2), (1, 2, 1), (2, 0, 0)]


def test_some_fragments_only(table: MemoryTable) -> None:
    keys = key_set([("a", 2), ("c", 1)])
    assert found(find_keys(table.newest(), keys, [1, 2])) == [(1, 2, 0), (2, 0, 1)]
    assert found(find_keys(table.newest(), keys, [])) == []


def test_deleted_rows_are_not_found() -> None:
    table = MemoryTable(MemoryDataset(SCHEMA))
    table.append(rows([("a", 1), ("a", 2), ("a", 3)]))
    before = table.newest()
    table.delete_where("id", [2])
    keys = key_set([("a", 3), ("a", 2)])
    assert found(find_keys(table.newest(), keys)) == [(0, 2, 0)]
    assert found(find_keys(before, keys)) == [(0, 1, 1), (0, 2, 0)]


def test_no_keys_and_no_rows(table: MemoryTable) -> None:
    class Unread:
        def scan(self, *arguments: object, **more: object) -> None:
            raise AssertionError("there is nothing to look for")

    unread: PinnedTable = Unread()  # type: ignore[assignment] # only what the lookup may touch
    assert found(find_keys(unread, key_set([]))) == []
    assert found(find_keys(MemoryTable(MemoryDataset(SCHEMA)).newest(), key_set([("a", 1)]))) == []


@pytest.mark.parametrize("seed", range(10))
def test_against_plain_comparison(seed: int) -> None:
    rng = random.Random(seed)
    universe = [(rng.choice(["", "a", "ab", "ä"]), rng.choice([0, 1, -1, 2**62, 7])) for _ in range(60)]
    table = MemoryTable(MemoryDataset(SCHEMA))
    for _ in range(rng.randint(1, 5)):
        table.append(rows(rng.choices(universe, k=rng.randint(1, 30))))
    table.delete_where("id", [7])
    distinct = list(dict.fromkeys(rng.choices(universe, k=rng.randint(1, 12))))
    rng.shuffle(distinct)
    expected = []
    for batch in table.newest().scan(["r", "id"], with_row_address=True):
        for row in batch.to_pylist():
            if (row["r"], row["id"]) in distinct:
                place = distinct.index((row["r"], row["id"]))
                expected.append((row["_rowaddr"] >> 32, row["_rowaddr"] & 0xFFFFFFFF, place))
    assert found(find_keys(table.newest(), key_set(distinct))) == sorted(expected)


def test_batches_are_gathered_by_rows_or_bytes() -> None:
    batches = [pa.record_batch({"a": np.arange(n)}) for n in (3, 4, 2, 9, 1)]
    assert [g.num_rows for g in groups(iter(batches), 5)] == [7, 11, 1]
    assert [g.num_rows for g in groups(iter(batches), 100, nbytes=8 * 9)] == [9, 9, 1]
    assert [g.num_rows for g in groups(iter(batches), 100)] == [19]
    assert list(groups(iter([]), 5)) == []
    assert pa.concat_tables(groups(iter(batches), 5))["a"].to_pylist() == [
        v for b in batches for v in b["a"].to_pylist()
    ]
