"""Searches by vector and text at once against the sum of reciprocal ranks of two rankings over a dict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lancewal_core.errors import InvalidInput
from lancewal_core.rows.schema import Op
from lancewal_reader.search import hybrid
from lancewal_reader.search.found import SearchRows
from lancewal_reader.search.options import RRF
from lancewal_reader.search.text import text_rows
from lancewal_reader.search.texts.text_query import Match
from lancewal_reader.search.vectors import vector_rows
from lancewal_reader.table import open_table
from tests.reader.search.test_text import Texts, best, scatter, values
from tests.support import indexed_tables
from tests.support.flusher_tables import Operation, Row
from tests.support.indexed_tables import WIDTH

K = 6


def of_many_lengths(id: int, age: int) -> Row:
    """Texts no two of which have the same score."""
    words = [*(["w11"] if id % 3 else []), *(["w4"] if id % 4 else [])]
    return {**values(id, age), "text": " ".join([*words, *["w2"] * (id % 1_000 + 1)])}


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Texts]:
    monkeypatch.setattr(indexed_tables, "values", of_many_lengths)
    table = Texts.filled(tmp_path, stable_row_ids=True)
    scatter(table, flush=True)
    scatter(table, flush=False)
    yield table
    table.close()


def nearest(table: Texts, query: Sequence[float], before: int | None = None) -> dict[int, float]:
    rows = {id: row for (id,), row in table.model.items() if row["v_flat"] is not None}
    if before is not None:
        rows = {id: row for id, row in rows.items() if row["num"] is not None and row["num"] < before}
    apart = {id: float(((np.array(row["v_flat"]) - np.array(query)) ** 2).sum()) for id, row in rows.items()}
    return dict(sorted(apart.items(), key=lambda item: item[1]))


def fused(near: Mapping[int, float], told: Mapping[int, float], k: float, weights: Sequence[float]) -> dict[int, float]:
    worth: dict[int, float] = {}
    for ranking, weight in ((near, weights[0]), (told, weights[1])):
        for rank, id in enumerate([*ranking][: 4 * K], 1):
            worth[id] = worth.get(id, 0.0) + weight / (k + rank)
    return worth


@pytest.mark.parametrize("before", [None, 90_000])
@pytest.mark.parametrize("fusion", [RRF(), RRF(k=3, weights=(1.0, 2.5))])
def test_ranks_are_those_among_all_rows(made: Texts, before: int | None, fusion: RRF) -> None:
    query, words = [0.3] * WIDTH, "w11 w4"
    near, told = nearest(made, query, before), best(made, Match(words), before)
    assert len(set(told.values())) == len(told)  # else the order is not ours to say
    right = fused(near, told, fusion.k, fusion.weights)
    found = open_table(made.uri).search(
        query, words, vector_column="v_flat", text_columns=["text"], limit=K, columns=["num"], fusion=fusion,
        filter=None if before is None else f"num < {before}",
    )  # fmt: skip
    rows = found.to_arrow()
    assert rows.column_names == ["num", "_distance", "_score", "_relevance_score"]
    ids = {row["num"]: id for (id,), row in made.model.items() if id in right}
    shown = [ids[num] for num in rows["num"].to_pylist()]
    assert rows["_relevance_score"].to_pylist() == pytest.approx(sorted(right.values(), reverse=True)[:K], rel=1e-5)
    assert [right[id] for id in shown] == pytest.approx(rows["_relevance_score"].to_pylist(), rel=1e-5)
    deep = ([*near][: 4 * K], [*told][: 4 * K])
    for name, ranking, ids_deep in (("_distance", near, deep[0]), ("_score", told, deep[1])):
        right_ones = [ranking[id] if id in ids_deep else -1.0 for id in shown]
        assert rows[name].fill_null(-1.0).to_pylist() == pytest.approx(right_ones, rel=1e-5)
    assert found.receipt.version == made.dataset.version
    coverage = found.coverage
    assert (coverage.indexed_rows, coverage.approximate) == (0, None)
    assert coverage.flat_rows + coverage.indexed_rows == made.dataset.count_rows()


def test_both_sides_are_asked_at_once(made: Texts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither waits for the other: both have begun before one ends."""
    met = Barrier(2, timeout=30)

    def behind(side: Callable[..., SearchRows]) -> Callable[..., SearchRows]:
        def asked(*arguments: object) -> SearchRows:
            met.wait()
            return side(*arguments)

        return asked

    monkeypatch.setattr(hybrid, "vector_rows", behind(vector_rows))
    monkeypatch.setattr(hybrid, "text_rows", behind(text_rows))
    found = open_table(made.uri).search([0.3] * WIDTH, "w11", vector_column="v_flat", text_columns=["text"], limit=K)
    assert found.to_arrow().num_rows == K


@pytest.mark.parametrize("where", ["entry", "flushed generation", "fragment without index"])
def test_the_best_row_is_only_there(made: Texts, where: str) -> None:
    """It is first in both rankings, and so in what is fused of them; filtered too."""
    made.flush(0)
    vector = [9.0] * WIDTH
    row = {**of_many_lengths(7_000, 1), "text": "seldom", "v_flat": vector}
    made.generation(0, [Operation(Op.UPSERT, (7_000,), row)], flush=where != "entry")
    if where == "fragment without index":
        made.round()
    opened = open_table(made.uri)
    for filter in (None, "num BETWEEN 6000000 AND 8000000"):
        found = opened.search(
            vector, "seldom w11", vector_column="v_flat", text_columns=["text"], columns=["id"], filter=filter
        )
        assert found.to_arrow()["id"].to_pylist()[0] == 7_000
        assert found.to_arrow()["_relevance_score"][0].as_py() == pytest.approx(2 / 61)
        if filter is not None:
            assert found.coverage.fresh_rows == int("index" not in where)


def test_every_best_merged_row_is_superseded(made: Texts) -> None:
    """Of both rankings; as many rows as are asked for come back, and none of those."""
    vector, words = [0.3] * WIDTH, "w11 w4"
    was_best = {*[*nearest(made, vector)][: 4 * K], *[*best(made, Match(words))][: 4 * K]}
    row = {**of_many_lengths(1, 1), "text": "w30 w31", "v_flat": [50.0] * WIDTH}
    made.flush(0)
    made.generation(0, [Operation(Op.UPSERT, (id,), row) for id in was_best])
    found = open_table(made.uri).search(
        vector, words, vector_column="v_flat", text_columns=["text"], limit=K, columns=["id"]
    )
    ids = found.to_arrow()["id"].to_pylist()
    assert len(ids) == len(set(ids)) == K
    assert not set(ids) & was_best


def test_a_search_at_a_receipt_is_the_same_search(made: Texts) -> None:
    """Also one that must be no older than it, and one that is eventual."""
    opened = open_table(made.uri)
    sought: dict[str, Any] = {"vector_column": "v_flat", "text_columns": ["text"], "limit": K, "columns": ["id"]}
    found = opened.search([0.3] * WIDTH, "w11 w4", **sought)
    made.generation(0, [Operation(Op.DELETE, (id,)) for id in found.to_arrow()["id"].to_pylist()], flush=False)
    again = opened.search([0.3] * WIDTH, "w11 w4", at=str(found.receipt), **sought)
    assert again.to_arrow().equals(found.to_arrow())
    newer = opened.search([0.3] * WIDTH, "w11 w4", at_least=found.receipt, **sought).to_arrow()
    assert newer.num_rows == K
    assert not set(newer["id"].to_pylist()) & set(found.to_arrow()["id"].to_pylist())
    eventual = opened.search([0.3] * WIDTH, "w11 w4", consistency="eventual", **sought)
    assert (eventual.coverage.fresh_rows, eventual.coverage.masked_rows) == (0, 0)
    assert eventual.coverage.flat_rows == made.dataset.count_rows()


def test_a_function_of_the_rows_may_rank_them(made: Texts) -> None:
    opened, query = open_table(made.uri), [0.3] * WIDTH
    seen: list[pa.Table] = []

    def by_number(rows: pa.Table) -> list[float]:
        seen.append(rows)
        return [float(num) for num in rows["num"].to_pylist()]

    how = {"vector_column": "v_flat", "text_columns": ["text"], "limit": K, "columns": ["num"], "filter": "num > 0"}
    for sought in ((query, "w11"), (query, None), (None, "w11")):
        found = opened.search(*sought, rerank=by_number, **how).to_arrow()  # type: ignore[arg-type]
        numbers = seen.pop()["num"].to_pylist()
        assert len(numbers) > K
        assert found["num"].to_pylist() == sorted(numbers, reverse=True)[:K]
        assert found["_relevance_score"].to_pylist() == [float(num) for num in found["num"].to_pylist()]
    for wrong in (
        lambda rows: [1.0],
        lambda rows: ["high"] * rows.num_rows,
        lambda rows: [float("nan")] * rows.num_rows,
    ):
        with pytest.raises(InvalidInput, match="rerank"):
            opened.search(query, "w11", rerank=wrong, **how)  # type: ignore[arg-type]


def test_what_is_wrong_is_said(made: Texts) -> None:
    opened, query = open_table(made.uri), [0.3] * WIDTH
    both = {"vector": query, "text": "w1", "vector_column": "v_flat", "text_columns": ["text"]}
    wrong: list[tuple[dict[str, object], str]] = [
        ({**both, "vector": [query, query]}, "many vectors cannot be combined with a text"),
        ({**both, "vector": None, "fusion": RRF()}, "fusion combines two rankings"),
        ({**both, "fusion": 60}, "expected a lancewal"),
        ({**both, "fusion": RRF(k=-1)}, "expected k and two weights"),
        ({**both, "fusion": RRF(weights=(0, 0))}, "not both 0"),
        ({**both, "fusion": RRF(weights=2.0)}, "two weights"),  # type: ignore[arg-type]
        ({**both, "rerank": 3}, "expected a function"),
    ]
    for arguments, told in wrong:
        with pytest.raises(InvalidInput, match=told):
            opened.search(**arguments)  # type: ignore[arg-type]
