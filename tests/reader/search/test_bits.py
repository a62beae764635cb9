"""Binary vectors that are kept give the nearest rows by bits that Python counts one by one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from lancewal_reader.search import bits
from lancewal_reader.search.bits import KeptBits
from lancewal_reader.search.distance import DISTANCE

Rows = list[list[int | None] | None]


def table_of(vectors: Rows, size: int) -> pa.Table:
    """In several pieces, one of which begins within its buffers."""
    column = pa.array([[None] * size, *vectors], pa.list_(pa.uint8(), size)).slice(1)
    pieces = [column.slice(begin, end - begin) for begin, end in pairwise([0, len(column) // 3, len(column)])]
    return pa.table({"id": np.arange(len(vectors)), "v": pa.chunked_array(pieces, column.type)})


def nearest(
    vectors: Rows, query: list[int], limit: int, left_out: frozenset[int] = frozenset()
) -> list[tuple[int, int]]:
    """Distances and ids; of rows as near as each other the first."""
    apart = [
        (sum((have ^ want).bit_count() for have, want in zip(vector, query, strict=True) if have is not None), id)
        for id, vector in enumerate(vectors)
        if vector is not None and None not in vector and id not in left_out
    ]
    return sorted(apart)[:limit]


def found(kept: KeptBits, query: list[int], limit: int) -> list[tuple[int, int]]:
    rows = kept.nearest(np.array(query, np.float64), "hamming", limit)
    assert rows.schema.field(DISTANCE).type == pa.float32()
    return list(zip(rows[DISTANCE].to_pylist(), rows["id"].to_pylist(), strict=True))


@pytest.mark.parametrize("size", [1, 3, 8, 13, 96])
def test_kept_bits_give_the_nearest_of_all(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any size, also where most rows are as near as others, by blocks, and without rows that have no whole vector."""
    monkeypatch.setattr(bits, "_BLOCK_BYTES", 300)
    rng = np.random.default_rng(size)
    vectors: Rows = rng.integers(0, 256, (200, size)).tolist()
    some = [[0] * size, [255] * size, rng.integers(0, 256, size).tolist(), rng.integers(0, 256, size).tolist()]
    vectors[70], vectors[7], vectors[190] = [*some[3]], None, None
    vectors[12] = [*[0] * (size - 1), None]
    kept = KeptBits(table_of(vectors, size), "v")
    assert set(kept.rows["id"].to_pylist()) == set(range(200)) - {7, 12, 190}
    for query in some:
        for limit in (1, 9, 196, 197, 2**40):
            assert found(kept, query, limit) == nearest(vectors, query, limit)


def test_some_rows_may_be_left_out() -> None:
    """Also the nearest ones, and more than are left."""
    vectors: Rows = np.random.default_rng(6).integers(0, 256, (100, 5)).tolist()
    kept, query = KeptBits(table_of(vectors, 5), "v"), [1, 2, 3, 4, 5]
    near = frozenset(id for _, id in nearest(vectors, query, 20))
    for left_out in (near, frozenset(range(100)) - {5, 7}, frozenset(range(100)), frozenset[int]()):
        out = np.isin(np.arange(100), sorted(left_out))
        for limit in (1, 9, 1_000):
            assert found(kept.without(out), query, limit) == nearest(vectors, query, limit, left_out)
    assert found(kept, query, 5) == nearest(vectors, query, 5)


def test_none_is_shown_that_is_farther_than_others_that_are_known() -> None:
    """One as near as these is."""
    vectors: Rows = np.random.default_rng(8).integers(0, 256, (100, 5)).tolist()
    kept, query = KeptBits(table_of(vectors, 5), "v"), [1, 2, 3, 4, 5]
    right = nearest(vectors, query, 30)
    for within in (0, right[0][0], right[9][0]):
        rows = kept.nearest(np.array(query, np.float64), "hamming", 30, within)
        assert rows["id"].to_pylist() == [id for apart, id in right if apart <= within]


def test_no_rows() -> None:
    assert found(KeptBits(table_of([], 4), "v"), [0] * 4, 3) == []
    assert found(KeptBits(table_of([None, None], 4), "v"), [0] * 4, 3) == []
