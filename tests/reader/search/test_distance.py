"""Vectors that are kept give the same nearest rows as comparing all of them."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lancewal_reader.search import distance
from lancewal_reader.search.distance import KeptVectors, nearest
from lancewal_reader.search.options import FloatMetric


def rows_of(vectors: np.ndarray[tuple[int, int], np.dtype[np.float64]], value: pa.DataType) -> pa.Table:
    with np.errstate(over="ignore"):
        flat = pa.array(vectors.reshape(-1).astype(value.to_pandas_dtype()))
    gone = pa.array(np.arange(len(vectors)) % 97 == 0)
    return pa.table(
        {"id": np.arange(len(vectors)), "v": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1], mask=gone)}
    )


@pytest.mark.parametrize("metric", get_args(FloatMetric))
@pytest.mark.parametrize("value", [pa.float32(), pa.float64()])
def test_kept_vectors_give_the_nearest_of_all(
    metric: FloatMetric, value: pa.DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where all are far from 0 and close together, so that float32 tells them apart in no way."""
    monkeypatch.setattr(distance, "_FEW", 10)
    rng = np.random.default_rng(4)
    for scale, offset in (
        (1.0, 0.0),
        (1e-4, 1.0),
        (1e-6, 1_000.0),
        (1e15, 0.0),
        (1e30, 0.0),
        (1e-22, 0.0),
        (1e-30, 0.0),
    ):
        vectors = rng.standard_normal((400, 24)) * scale + offset
        rows = rows_of(vectors, value)
        kept = KeptVectors(rows, "v")
        large = [vectors[8] * -5e37] if metric == "cosine" else []  # products are beyond float32
        for query in (vectors[8] + scale * 0.01, vectors[50] + scale * 0.01, *large):
            for limit in (1, 9, 390, 1_000):
                right = nearest(rows, "v", query, metric, limit)
                assert kept.nearest(query, metric, limit).equals(right), (scale, limit)
                told = right["_distance"].to_pylist()
                for within in {*told[:1], *told[len(told) // 2 :][:1], *told[-1:]}:
                    found = kept.nearest(query, metric, limit, within)
                    assert _up_to(within, found).equals(_up_to(within, right)), (scale, limit, within)


def _up_to(within: float, found: pa.Table) -> pa.Table:
    return found.filter(pc.less_equal(found["_distance"], within))


@pytest.mark.parametrize("metric", get_args(FloatMetric))
def test_of_most_rows_their_first_numbers_tell_that_they_are_farther_than_others(metric: FloatMetric) -> None:
    rng = np.random.default_rng(8)
    vectors = rng.standard_normal((20, 96))[np.arange(2_000) % 20] + 0.3 * rng.standard_normal((2_000, 96))
    rows, query = rows_of(vectors, pa.float32()), vectors[5]
    kept, right = KeptVectors(rows, "v"), nearest(rows, "v", query, metric, 10)
    kept.nearest(query, metric, 10, 1.0)
    compared = kept._compared(query, metric, right["_distance"][9].as_py() - (query @ query if metric == "l2" else 1))
    assert np.isinf(compared).mean() > 0.8
    assert kept.nearest(query, metric, 10, right["_distance"][9].as_py()).equals(right)


@pytest.mark.parametrize("metric", get_args(FloatMetric))
def test_some_rows_may_be_left_out(metric: FloatMetric, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the nearest ones, and more than are left."""
    monkeypatch.setattr(distance, "_FEW", 10)
    rng = np.random.default_rng(6)
    vectors = rng.standard_normal((400, 24))
    kept, query = KeptVectors(rows_of(vectors, pa.float32()), "v"), vectors[3]
    near = set(nearest(kept.rows, "v", query, metric, 40)["id"].to_pylist())
    for left_out in (near, set(range(400)) - {5, 7, 300}, set(range(400)), set[int]()):
        out = np.isin(kept.rows["id"].to_numpy(), sorted(left_out))
        for limit in (1, 9, 390, 1_000):
            right = nearest(kept.rows.filter(pa.array(~out)), "v", query, metric, limit)
            assert kept.without(out).nearest(query, metric, limit).equals(right)
    assert kept.nearest(query, metric, 5).equals(nearest(kept.rows, "v", query, metric, 5))


def test_few_rows_are_compared_exactly() -> None:
    rng = np.random.default_rng(5)
    vectors = rng.standard_normal((5_000, 64))
    kept = KeptVectors(rows_of(vectors, pa.float32()), "v")
    for metric in get_args(FloatMetric):
        assert len(kept._may_be_nearest(vectors[3], metric, 10)) < 50


@pytest.mark.parametrize("metric", get_args(FloatMetric))
def test_rows_without_a_distance_make_no_others_be_compared(
    metric: FloatMetric, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectors of zeros, numbers that are none, and numbers too large: those of empty texts are among many embeddings."""
    monkeypatch.setattr(distance, "_FEW", 10)
    rng = np.random.default_rng(5)
    vectors = rng.standard_normal((5_000, 64))
    for at, value in enumerate((0.0, np.nan, np.inf, -np.inf, 1e25, 1e-25)):
        vectors[10 * at : 10 * at + 3] = value
    rows, query = rows_of(vectors, pa.float32()), vectors[300]
    kept = KeptVectors(rows, "v")
    assert len(kept._may_be_nearest(query, metric, 10)) < 60
    out = np.arange(len(kept)) % 3 == 0
    for limit in (1, 10, 4_990):
        assert kept.nearest(query, metric, limit).equals(nearest(rows, "v", query, metric, limit))
        right = nearest(kept.rows.filter(pa.array(~out)), "v", query, metric, limit)
        assert kept.without(out).nearest(query, metric, limit).equals(right)


def test_of_numbers_whose_squares_float32_does_not_hold_the_nearest_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """All are nearly as large as each other, and the query is large: products in float32 err by more than they differ."""
    monkeypatch.setattr(distance, "_FEW", 10)
    vectors = 1e-23 * (1 + 3e-7 * np.random.default_rng(9).standard_normal((2_000, 96)))
    rows, query = rows_of(vectors, pa.float32()), np.tile([1e30, -1e30], 48)
    kept = KeptVectors(rows, "v")
    for limit in (9, 100, 500):
        assert kept.nearest(query, "dot", limit).equals(nearest(rows, "v", query, "dot", limit))


def test_first_numbers_tell_nothing_of_others_whose_squares_float32_does_not_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(distance, "_FEW", 10)
    vectors = np.random.default_rng(10).uniform(-2e-23, 2e-23, (2_000, 6))
    vectors[:, :2] = 0.0
    rows, query = rows_of(vectors, pa.float32()), np.full(6, 1e30)
    kept, right = KeptVectors(rows, "v"), nearest(rows, "v", query, "dot", 9)
    last = right["_distance"][8].as_py()
    for _ in range(2):  # the first one makes them
        assert _up_to(last, kept.nearest(query, "dot", 9, last)).equals(right)
