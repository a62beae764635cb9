"""Searches by vectors against brute force over a dict, whatever lies where, by every kind of index and by none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest

from lancewal_core.errors import InvalidInput, SearchUnsupported
from lancewal_core.rows.schema import Op
from lancewal_reader.search import distance, merged
from lancewal_reader.search.found import SearchRows
from lancewal_reader.search.options import FloatMetric, Metric
from lancewal_reader.table import Table, open_table
from tests.support.flusher_tables import KeyedTable, Operation
from tests.support.indexed_tables import BITS, VECTORS, WIDTH, AllIndexes, values

K = 5


@pytest.fixture(autouse=True)
def _indexes_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of tables so small."""
    monkeypatch.setattr(merged, "FLAT_ROWS_MAX", 0)


# ``test_index_matrix`` takes every act with both in each run.
pytestmark = pytest.mark.in_turns("made", each=2)


@pytest.fixture(params=[False, True], ids=["addresses", "stable row ids"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AllIndexes]:
    table = AllIndexes.filled(tmp_path, stable_row_ids=request.param)
    yield table
    table.close()


def distances(metric: str, stored: np.ndarray[Any, Any], query: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """By the words of Lance's documentation."""
    match metric:
        case "l2":
            return np.array(((stored - query) ** 2).sum(axis=1))
        case "dot":
            return np.array(1 - (stored * query).sum(axis=1))
        case "hamming":
            pairs = [zip(row.astype(int).tolist(), query.astype(int).tolist(), strict=True) for row in stored]
            return np.array([float(sum((a ^ b).bit_count() for a, b in pair)) for pair in pairs])
    return np.array([1 - (row @ query) / np.sqrt((row @ row) * (query @ query)) for row in stored])


def nearest(
    table: AllIndexes, column: str, query: Sequence[float], metric: str = "l2", before: int | None = None
) -> dict[int, float]:
    """Distances of all rows that have a vector, of those with ``num < before``; by the model."""
    rows = {id: row for (id,), row in table.model.items() if row[column] is not None}
    if before is not None:
        rows = {id: row for id, row in rows.items() if row["num"] is not None and row["num"] < before}
    stored = np.array([row[column] for row in rows.values()], np.float32).astype(np.float64).reshape(-1, WIDTH)
    found = distances(metric, stored, np.array(query, np.float64))
    return dict(sorted(zip(rows, found.tolist(), strict=True), key=lambda item: item[1]))


def holds(found: pa.Table, right: dict[int, float], exact: bool) -> int:
    """Every row is one of now by its distance of now, there are as many as can be; how many of the nearest are found."""
    ids, shown = found["id"].to_pylist(), found["_distance"].to_pylist()
    assert len(ids) == len(set(ids)) == min(K, len(right))
    assert shown == sorted(shown)
    assert shown == pytest.approx([right[id] for id in ids], rel=1e-5, abs=1e-5)
    best = list(right.values())[: len(ids)]
    if exact:  # of rows that are as near as each other any may be shown
        assert shown == pytest.approx(best, rel=1e-5, abs=1e-5)
    return sum(distance <= best[-1] + 1e-5 for distance in shown)


def query_of(column: str, rng: np.random.Generator) -> list[float]:
    found: list[float] = (rng.integers(0, 256, WIDTH) if column in BITS else rng.standard_normal(WIDTH)).tolist()
    return found


def metric_of(column: str) -> Metric:
    return "hamming" if column in BITS else "l2"


def check(table: AllIndexes, columns: Sequence[str], opened: Table | None = None) -> None:
    opened, rng = opened or open_table(table.uri), np.random.default_rng(table.age)
    hits = asked = 0
    for column in columns:
        query = query_of(column, rng)
        for before in (None, 60_000, 2_500):
            right = nearest(table, column, query, metric_of(column), before)
            for exact in (True, False):
                how: dict[str, Any] = {"filter": None if before is None else f"num < {before}", "columns": ["id"]}
                found = opened.search(query, limit=K, vector_column=column, exact=exact, **how)
                hits += holds(found.to_arrow(), right, exact)
                asked += min(K, len(right))
                assert (found.coverage.approximate is None) == (exact or not found.coverage.indexed_rows)
                assert found.coverage.indexed_rows == 0 or not exact
    assert hits >= 0.95 * asked


def scatter(table: AllIndexes, flush: bool) -> None:
    """Unmerged upserts, new keys, patches, deletes and a row without vectors."""
    table.age += 1
    some = table.some(2, 12)
    table.generation(
        0,
        [
            *(table.upsert(id) for id in some[:5]),
            *(
                Operation(Op.PATCH, (id,), {n: values(id, table.age)[n] for n in ("v_pq", "bits")} | {"num": 1})
                for id in some[5:8]
            ),
            *(Operation(Op.DELETE, (id,)) for id in some[8:11]),
            Operation(Op.UPSERT, (some[11],), {"num": 3}),
            table.upsert(5_000 + table.age),
        ],
        flush=flush,
    )


def test_after_every_act(made: AllIndexes) -> None:
    """All kinds of indexes at first and at last, some in between."""
    kinds = [*VECTORS, *BITS]
    scatter(made, flush=True)
    scatter(made, flush=False)
    check(made, kinds)
    acts = [AllIndexes.combine, AllIndexes.patch, AllIndexes.delete_some, AllIndexes.compact, AllIndexes.extend]
    made.flush(0)
    for number, act in enumerate(acts):
        made.age += 1
        act(made)
        scatter(made, flush=True)
        check(made, [kinds[number % len(kinds)], "v_pq", "bits"])
    scatter(made, flush=False)
    check(made, kinds)


@pytest.mark.parametrize("where", ["entry", "flushed generation", "fragment without index"])
def test_the_best_row_is_only_there(tmp_path: Path, where: str) -> None:
    made = AllIndexes.filled(tmp_path, stable_row_ids=False)
    queries = {**dict.fromkeys(VECTORS, [9.0] * WIDTH), **dict.fromkeys(BITS, [0, 255] * (WIDTH // 2))}
    for id in (3, 7_000):
        row = {**values(id, 1), **queries}
        made.generation(0, [Operation(Op.UPSERT, (id,), row)], flush=where != "entry")
        if where == "entry":
            made.flush(0) if id == 3 else None
    if where == "fragment without index":
        made.round()
    for column, query in queries.items():
        found = open_table(made.uri).search(query, limit=2, vector_column=column, columns=["id"])
        assert sorted(found.to_arrow()["id"].to_pylist()) == [3, 7_000]
        assert found.to_arrow()["_distance"].to_pylist() == [0.0, 0.0]
        assert (found.coverage.fresh_rows, found.coverage.masked_rows) == ((0, 0) if "index" in where else (2, 1))
    made.close()


@pytest.mark.parametrize("columns", [list(VECTORS), list(BITS)], ids=["floats", "bits"])
def test_every_nearest_merged_row_is_superseded(made: AllIndexes, columns: list[str]) -> None:
    """Rows far away come back, as many as are asked for, and none of the near ones, which are far now; by every index."""
    query, metric = values(10, 0)[columns[0]], metric_of(columns[0])
    near = list(nearest(made, columns[0], query, metric))[:60]
    far = [255 - byte for byte in query] if columns == list(BITS) else [50.0] * WIDTH
    row = {**values(1, 1), **dict.fromkeys(columns, far)}
    made.generation(0, [Operation(Op.UPSERT, (id,), row) for id in near])
    opened = open_table(made.uri)
    for column in columns:
        right = nearest(made, column, query, metric)
        found = opened.search(query, limit=K, vector_column=column)
        assert not set(found.to_arrow()["id"].to_pylist()) & set(near)
        assert holds(found.to_arrow(), right, exact=False) >= K - 1
        assert (found.coverage.masked_rows, found.coverage.indexed_rows > 0) == (60, True)


def test_unmerged_rows_are_found_that_are_a_little_nearer_than_merged_ones(
    made: AllIndexes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distance, "_FEW", 5)
    made.age += 1
    made.generation(0, [made.upsert(id) for id in made.some(0, 80)])
    opened, rng = open_table(made.uri), np.random.default_rng(2)
    for query in rng.standard_normal((20, WIDTH)).tolist():
        for exact in (True, False):
            found = opened.search(query, limit=K, vector_column="v_pq", exact=exact, columns=["id"])
            holds(found.to_arrow(), nearest(made, "v_pq", query), exact=exact)


def test_an_index_is_asked_again_where_the_nearest_are_hidden(
    made: AllIndexes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From one candidate a row on: by its own distances an index of few bits does not show the right rows then."""
    monkeypatch.setattr(merged, "REFINE", 1)
    far = {**values(1, 1), **dict.fromkeys(VECTORS, [50.0] * WIDTH)}
    queries = [values(id, 0)["v_pq"] for id in range(4, 200, 20)]
    near = {id for query in queries for id in list(nearest(made, "v_pq", query))[:8]}
    made.generation(0, [Operation(Op.UPSERT, (id,), far) for id in sorted(near)])
    opened = open_table(made.uri)
    hits = 0
    for query in queries:
        found = opened.search(query, limit=K, vector_column="v_pq").to_arrow()
        hits += holds(found, nearest(made, "v_pq", query), exact=False)
    assert hits >= 0.98 * K * len(queries)


def test_what_an_index_does_not_show_is_found_without_it(made: AllIndexes, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many rows as are asked for, whatever the index gives."""
    ask = merged.MaskedVersion._nearest

    def short(self: merged.MaskedVersion, columns: Any, vector: Any, how: dict[str, Any], **more: Any) -> pa.Table:
        found = ask(self, columns, vector, how, **more)
        return found.slice(0, 1) if how.get("use_index", True) else found

    monkeypatch.setattr(merged.MaskedVersion, "_nearest", short)
    query = [0.5] * WIDTH
    found = open_table(made.uri).search(query, limit=K, vector_column="v_pq").to_arrow()
    holds(found, nearest(made, "v_pq", query), exact=True)


def test_as_many_rows_as_there_are_come_where_more_are_asked_for(made: AllIndexes) -> None:
    """Lance takes memory for each row and candidate that it is asked for, and ends the process where there is none."""
    opened = open_table(made.uri)
    for column in ("v_pq", "v_hnsw"):
        for how in ({}, {"refine_factor": 2**40}, {"exact": True}):
            found = opened.search([0.5] * WIDTH, limit=2**40, vector_column=column, **how)
            assert found.to_arrow().num_rows == len(made.model)


def test_each_metric_and_many_queries(made: AllIndexes) -> None:
    scatter(made, flush=True)
    rng, opened = np.random.default_rng(3), open_table(made.uri)
    for metric in get_args(Metric):
        column = "bits" if metric == "hamming" else "v_pq"
        queries = [query_of(column, rng) for _ in range(3)]
        found = opened.search(queries, limit=K, vector_column=column, metric=metric, exact=True).to_arrow()
        for number, query in enumerate(queries):
            rows = found.filter(pa.array(np.array(found["query_index"]) == number))
            holds(rows, nearest(made, column, query, metric), exact=True)


@pytest.mark.parametrize("merged", [False, True])
def test_a_vector_that_has_no_distance_takes_no_place(tmp_path: Path, merged: bool) -> None:
    """By ``dot`` infinities are nearer than all others: they are passed over, and as many rows as are asked for come."""
    nowhere = [[float("inf"), 1.0], [float("inf"), 2.0], [float("nan"), 1.0], [1e30, 1e30], None]
    vectors = [*nowhere, [0.0, 0.0], *([float(n), 1.0] for n in range(1, 9))]
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.list_(pa.float32(), 2))])
    table = KeyedTable(tmp_path, 1, columns=columns, primary_key=("id",))
    table.generation(0, [Operation(Op.UPSERT, (id,), {"v": vector}) for id, vector in enumerate(vectors)])
    if merged:
        table.round()
    opened = open_table(table.uri)
    assert opened.search([1e10, 1e10], metric="dot", limit=3).to_arrow()["id"].to_pylist() == [13, 12, 11]
    assert opened.search([1.0, 1.0], metric="l2", limit=3).to_arrow()["id"].to_pylist() == [6, 7, 5]
    all_there_are = opened.search([1e10, 1e10], metric="dot", limit=1000).to_arrow()
    assert sorted(all_there_are["id"].to_pylist()) == list(range(5, 14))
    table.close()


@pytest.mark.parametrize("merged", [False, True])
def test_by_cosine_the_length_of_the_query_does_not_count(tmp_path: Path, merged: bool) -> None:
    """However large or small its numbers are: their squares are beyond what float32, or float64, holds."""
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.list_(pa.float32(), 2))])
    table = KeyedTable(tmp_path, 1, columns=columns, primary_key=("id",))
    table.generation(0, [Operation(Op.UPSERT, (id,), {"v": [float(id), 10.0]}) for id in range(40)])
    if merged:
        table.round()
    for scale in (1e-310, 1e-30, 1.0, 1e30, 1e300):
        found = open_table(table.uri).search([2 * scale, scale], metric="cosine", limit=3, columns=["id"]).to_arrow()
        assert found["id"].to_pylist() == [20, 21, 19], scale
        assert found["_distance"][0].as_py() == pytest.approx(0, abs=1e-6)
    table.close()


@pytest.mark.parametrize("metric", get_args(FloatMetric))
def test_an_index_none_of_whose_rows_is_left_is_no_reason_to_rank_by_another_metric(
    tmp_path: Path, metric: FloatMetric
) -> None:
    """As after a compaction, until the index is extended: Lance then compares all rows, by ``l2`` if it is not told."""
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.list_(pa.float32(), 4))])
    table, rng = KeyedTable(tmp_path, 1, columns=columns, primary_key=("id",)), np.random.default_rng(6)
    stored = (rng.standard_normal((200, 4)) * rng.uniform(0.1, 9, (200, 1))).astype(np.float32).astype(np.float64)
    rows = [Operation(Op.UPSERT, (id,), {"v": vector}) for id, vector in enumerate(stored.tolist())]
    table.generation(0, rows)
    table.round()
    table.dataset.create_index("v", "IVF_FLAT", num_partitions=2, metric=metric)
    table.generation(0, rows)
    table.round()
    query = [1.0, 0.5, -0.2, 0.1]
    right = distances(metric, stored, np.array(query))
    for cache, filter in product((0, 1 << 20), (None, "id < 150")):
        found = open_table(table.uri, cache_bytes_max=cache).search(query, limit=K, columns=["id"], filter=filter)
        assert (found.coverage.indexed_rows, found.coverage.approximate) == (0, None)
        best = np.argsort(right if filter is None else right[:150])[:K]
        assert found.to_arrow()["id"].to_pylist() == best.tolist(), (cache, filter)
    table.close()


def test_a_query_beyond_float32_is_compared_with_every_row(tmp_path: Path) -> None:
    """Lance would be asked what is near to an infinity."""
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.list_(pa.float32(), 4))])
    table, rng = KeyedTable(tmp_path, 1, columns=columns, primary_key=("id",)), np.random.default_rng(4)
    first = rng.permutation(np.linspace(0.01, 0.3, 300)).astype(np.float32)
    rows = [{"v": [float(number), *rng.standard_normal(3)]} for number in first]
    table.generation(0, [Operation(Op.UPSERT, (id,), row) for id, row in enumerate(rows)])
    opened = open_table(table.uri)
    table.round()
    table.dataset.create_index("v", "IVF_FLAT", num_partitions=2, metric="dot")
    told = [opened.search([1.0, 0.0, 0.0, 0.0], metric="dot", limit=K).coverage.approximate for _ in range(3)]
    assert told[-1] is not None
    queries = [[1e39, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]]
    both = opened.search(queries, metric="dot", limit=K, columns=["id"])
    best = np.argsort(-first)[:K].tolist()
    assert both.to_arrow()["id"].to_pylist() == [*best, *best]
    assert both.coverage.approximate is None
    table.close()


@pytest.mark.parametrize("value", [pa.float32(), pa.float64()])
@pytest.mark.parametrize("merged", [False, True])
def test_exact_is_exact_where_float32_tells_nothing_apart(tmp_path: Path, merged: bool, value: pa.DataType) -> None:
    """Of rows that are nearly the same, very long, very short or far from 0."""
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64()), ("v", pa.list_(value, 4))])
    table, rng = KeyedTable(tmp_path, 1, columns=columns, primary_key=("id",)), np.random.default_rng(2)
    scales = ((1.0, 1e-5), (1e-25, 1e-25), (1e12, 1e12), (1e3, 1e-3))
    stored = np.concatenate([
        (scale * np.array([1.0, 0, 0, 0]) + apart * rng.standard_normal((80, 4))).astype(value.to_pandas_dtype())
        for scale, apart in scales
    ]).astype(np.float64)  # fmt: skip
    rows = [{"n": number // 80, "v": row.tolist()} for number, row in enumerate(stored)]
    table.generation(0, [Operation(Op.UPSERT, (id,), row) for id, row in enumerate(rows)])
    if merged:
        table.round()
    opened, metrics = open_table(table.uri), get_args(FloatMetric)
    for number, metric in product(range(len(scales)), metrics):
        query = [1.0, 1e-5, 2e-5, 0.0]
        right = distances(metric, stored[80 * number : 80 * (number + 1)], np.array(query))
        found = opened.search(query, metric=metric, exact=True, limit=K, filter=f"n = {number}").to_arrow()
        shown = [right[id - 80 * number] for id in found["id"].to_pylist()]
        with np.errstate(over="ignore"):
            least = np.sort(right)[:K].astype(np.float32)
        assert np.array(shown, np.float32).tolist() == pytest.approx(least.tolist(), rel=1e-5), (number, metric)
    table.close()


def test_a_column_called_as_what_tells_many_vectors_apart_is_not_taken_for_it(tmp_path: Path) -> None:
    columns = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("query_index", pa.int64()), ("v", pa.list_(pa.float32(), 1))]
    )
    table = KeyedTable(tmp_path, 1, columns=columns, primary_key=("id",))
    table.generation(0, [Operation(Op.UPSERT, (id,), {"v": [float(id)], "query_index": -id}) for id in range(4)])
    opened = open_table(table.uri)
    one: Any = np.int64(1)  # a number, of numpy too
    assert opened.search([3.0], limit=one, nprobes=one).to_arrow()["query_index"].to_pylist() == [-3]
    assert opened.search([[3.0]], limit=1, columns=["id"]).to_arrow()["query_index"].to_pylist() == [0]
    with pytest.raises(InvalidInput, match=r"'query_index' of the table .* name other columns"):
        opened.search([[3.0]], limit=1)
    table.close()


def test_a_search_at_a_receipt_is_the_same_search(made: AllIndexes) -> None:
    scatter(made, flush=True)
    opened, query = open_table(made.uri), [0.5] * WIDTH
    found = opened.search(query, vector_column="v_flat", limit=K, exact=True)
    assert isinstance(found, SearchRows)
    assert found.receipt.version == made.dataset.version
    merged_alone = opened.search(query, vector_column="v_flat", exact=True, consistency="eventual")
    assert (merged_alone.coverage.fresh_rows, merged_alone.coverage.masked_rows) == (0, 0)
    scatter(made, flush=True)
    again = opened.search(query, vector_column="v_flat", limit=K, exact=True, at=str(found.receipt))
    assert again.to_arrow().equals(found.to_arrow())
    assert again.to_pandas()["id"].tolist() == found.to_arrow()["id"].to_pylist()


def test_nothing_is_written(made: AllIndexes) -> None:
    scatter(made, flush=True)

    def objects() -> dict[str, int]:
        return {str(p): p.stat().st_mtime_ns for p in Path(made.uri).rglob("*") if p.is_file()}

    before = objects()
    open_table(made.uri).search([0.5] * WIDTH, vector_column="v_pq", filter="num < 60000")
    assert objects() == before


def test_what_is_wrong_is_said(made: AllIndexes) -> None:
    opened, query = open_table(made.uri), [0.5] * WIDTH
    for arguments, told in (
        ({}, "vector_column must be named"),
        ({"vector_column": "num"}, "is not a vector column"),
        ({"vector_column": "v_pq", "limit": 0}, "limit 0"),
        ({"vector_column": "v_pq", "metric": "manhattan"}, "metric 'manhattan'"),
        ({"vector_column": "v_pq", "nprobes": -1}, "nprobes -1"),
        ({"vector_column": "v_pq", "filter": "no such column"}, "is not accepted"),
    ):
        with pytest.raises(InvalidInput, match=told):
            opened.search(query, **arguments)
    for vector in ([1.0], [float("nan")] * WIDTH, "text", []):
        with pytest.raises(InvalidInput, match="vector"):
            opened.search(vector, vector_column="v_pq")
    with pytest.raises(InvalidInput, match=f"expected {WIDTH} numbers.*give words as text="):
        opened.search("flood", vector_column="v_pq")
    with pytest.raises(SearchUnsupported, match="'v_pq' has floats: use 'l2', 'cosine' or 'dot'"):
        opened.search(query, vector_column="v_pq", metric="hamming")
    for metric in get_args(FloatMetric):
        with pytest.raises(SearchUnsupported, match=f"'{metric}' .* 'bits' has binary vectors: use 'hamming'"):
            opened.search([0] * WIDTH, vector_column="bits", metric=metric)
    for number in (256, -1, 0.5):
        with pytest.raises(InvalidInput, match="integers from 0 to 255: column 'bits'"):
            opened.search([number] * WIDTH, vector_column="bits")
    with pytest.raises(InvalidInput, match=f"{8 * WIDTH} bits, {WIDTH} bytes: numpy.packbits"):
        opened.search([0, 1] * 4 * WIDTH, vector_column="bits")
    others: list[object] = [10**400, 1j, np.datetime64(7, "D"), "7", b"7"]
    for other, column in product(others, ("bits", "v_pq")):
        with pytest.raises(InvalidInput, match=f"expected {WIDTH} numbers"):
            opened.search([other] * WIDTH, vector_column=column)
    with pytest.raises(InvalidInput, match=r"not bytes: numpy\.frombuffer"):
        opened.search(bytes(WIDTH), vector_column="bits")
    for count in (WIDTH, 8 * WIDTH):
        with pytest.raises(InvalidInput, match=f"expected {WIDTH} bytes .* not single bits: numpy.packbits"):
            opened.search([True, False] * (count // 2), vector_column="bits")
    for metric in ("HAMMING", ["l2"], np.array(["l2", "dot"])):
        with pytest.raises(InvalidInput, match="is unknown: use 'l2', 'cosine', 'dot' or 'hamming'"):
            opened.search([0] * WIDTH, vector_column="bits", metric=metric)  # type: ignore[arg-type] # what users write
