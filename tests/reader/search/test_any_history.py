"""Searches of every kind after each act of a random history: vectors against numpy, words against a BM25 over a dict.

One table has an index of every kind of vector index, by different metrics, and two of words, which cover different fragments.
A history is every act of the flusher in a random order, with unmerged records before each, an upkeep of indexes or a clean-up
of versions behind some, by one table that stays open.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pytest

from lancewal_core.rows.schema import Op
from lancewal_flusher.tasks import in_place
from lancewal_flusher.tasks.cost import Cost, Strategy
from lancewal_reader.search import merged
from lancewal_reader.search import text as text_search
from lancewal_reader.search.options import RRF, FloatMetric, Metric
from lancewal_reader.search.texts.text_query import Match, TextQuery
from lancewal_reader.table import Table, open_table
from tests.reader.search.test_hybrid import fused
from tests.reader.search.test_text import QUERIES, best, values
from tests.reader.search.test_vectors import nearest
from tests.support import indexed_tables
from tests.support.flusher_tables import Operation
from tests.support.indexed_tables import (
    ACTS,
    BITS,
    FRAGMENTS,
    PARTITIONS,
    PER_FRAGMENT,
    UPKEEP,
    VECTORS,
    WIDTH,
    AllIndexes,
    build_indexes,
)

K = 5
DEPTH = 4 * K
FUZZY = [query for query in QUERIES if isinstance(query, Match) and query.fuzziness != 0]
SEARCHED = {**VECTORS, **BITS}
ALONE = {"patches in place", "follow-up"}
"""Acts that say what they find: nothing else waits to be merged."""
CLEAN_UP = "clean-up of versions"
BEHIND = [None, "extend_indexes", "extend_indexes", "optimize_indices(0)", "optimize_indices(10)", CLEAN_UP]


def metric_of(column: str, stable_row_ids: bool) -> Metric:
    if column in BITS:
        return "hamming"
    metrics: tuple[Metric, ...] = get_args(FloatMetric)
    return metrics[(list(VECTORS).index(column) + stable_row_ids) % len(metrics)]


class Searched(AllIndexes):
    """The last fragment is in no index, the one before in that of ``text`` alone."""

    def __init__(self, folder: Path, *, stable_row_ids: bool) -> None:
        super().__init__(folder, stable_row_ids=stable_row_ids)
        self.metrics = {column: metric_of(column, stable_row_ids) for column in SEARCHED}

    def fill(self) -> None:
        for number in range(1, FRAGMENTS + 1):
            self.adopt_new(PER_FRAGMENT)
            if number == FRAGMENTS - 2:
                build_indexes(self.dataset, {"num": "BTREE", "text": "INVERTED"}, {})
                self.dataset.create_scalar_index("title", "INVERTED", with_position=True)
                for column, kind in SEARCHED.items():
                    more = {"num_sub_vectors": WIDTH, "num_bits": 4} if kind.endswith("PQ") else {}
                    how = {"num_partitions": PARTITIONS, "metric": self.metrics[column], **more}
                    self.dataset.create_index(column, kind, **how)
            if number == FRAGMENTS - 1:
                self.dataset.optimize.optimize_indices(index_names=["text_idx"], num_indices_to_merge=0)

    def write(self, rng: random.Random) -> None:
        """Records of some keys, in one or two generations, of which the last may be only in the log."""
        for flush in rng.choice([[True], [False], [True, False], [True, True]]):
            self.age += 1
            live = [id for (id,) in self.model]
            ids = rng.sample(live, 15)
            patch = {name: values(ids[0], self.age)[name] for name in ("v_pq", "bits", "text")}
            records = [
                *(self.upsert(id) for id in [*ids[:6], 5_000 + self.age]),
                *(Operation(Op.PATCH, (id,), {"num": 1, **patch}) for id in ids[6:9]),
                *(Operation(Op.DELETE, (id,)) for id in ids[9:13]),
                Operation(Op.PATCH, (ids[13],), {"text": None, "v_flat": None, "bits": None}),
                Operation(Op.UPSERT, (ids[14],), {"num": 3, "title": "w1 w2"}),
            ]
            rng.shuffle(records)
            self.generation(0, records, flush=flush)

    def flush_all(self) -> None:
        while "SEALED" in self.states(0):
            self.flush(0)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes are asked also of a small table, and for few rows at first; values have many words."""
    monkeypatch.setattr(merged, "FLAT_ROWS_MAX", 0)
    monkeypatch.setattr(text_search, "ASKED_MIN", 1)
    monkeypatch.setattr(indexed_tables, "values", values)
    monkeypatch.setattr(in_place, "least", in_place_where_possible)


def in_place_where_possible(costs: Sequence[Cost]) -> Cost:
    return next((cost for cost in costs if cost.strategy is Strategy.COLUMNS), costs[0])


@dataclass(slots=True)
class Checks:
    """What is compared after each act, and how well the indexes did in all."""

    table: Searched
    rng: random.Random
    hits: int = 0
    asked: int = 0
    by_index: int = 0

    def all(self, opened: Table, number: int) -> None:
        kinds = list(SEARCHED)
        for column in (kinds[number % len(kinds)], kinds[(number + 3) % len(kinds)], "bits"):
            self.vectors(opened, column, self.rng.choice([None, 60_000, 2_500]))
        for query in (QUERIES[number % len(QUERIES)], FUZZY[number % len(FUZZY)], self.rng.choice(QUERIES)):
            self.words(opened, query, self.rng.choice([None, 60_000]))
        self.both(opened, kinds[number % len(kinds)], self.rng.choice(QUERIES))

    def query(self, column: str) -> list[float]:
        """Some of them are a row's vector, of now or of before."""
        id, age = self.rng.randrange(PER_FRAGMENT * FRAGMENTS), self.rng.randrange(self.table.age + 1)
        made: list[float] = values(id, age)[column]
        return made

    def vectors(self, opened: Table, column: str, before: int | None) -> None:
        query, metric = self.query(column), self.table.metrics[column]
        right = nearest(self.table, column, query, metric, before)
        for exact in (True, False):
            found = opened.search(query, limit=K, vector_column=column, exact=exact, **asked_for(before))
            rows = found.to_arrow()
            ids, shown = rows["id"].to_pylist(), rows["_distance"].to_pylist()
            assert len(ids) == len(set(ids)) == min(K, len(right))
            assert shown == sorted(shown)
            assert shown == pytest.approx([right[id] for id in ids], rel=1e-5, abs=1e-5)
            if exact:
                assert shown == pytest.approx(list(right.values())[:K], rel=1e-5, abs=1e-5)
                continue
            self.hits += sum(distance <= list(right.values())[len(ids) - 1] + 1e-5 for distance in shown)
            self.asked += len(ids)
            self.by_index += found.coverage.indexed_rows > 0
            coverage = found.coverage
            live = self.table.dataset.count_rows()
            assert coverage.indexed_rows + coverage.flat_rows == live

    def words(self, opened: Table, query: TextQuery, before: int | None) -> None:
        right = best(self.table, query, before)
        found = opened.search(text=query, text_columns=["text"], limit=K, **asked_for(before)).to_arrow()
        ids, shown = found["id"].to_pylist(), found["_score"].to_pylist()
        assert len(ids) == len(set(ids)) == min(K, len(right)), query
        assert shown == pytest.approx(list(right.values())[:K], rel=1e-5, abs=1e-6), query
        assert shown == pytest.approx([right[id] for id in ids], rel=1e-5, abs=1e-6), query

    def both(self, opened: Table, column: str, query: TextQuery) -> None:
        """Each ranking is right, and what comes of both is the sum of their reciprocal ranks."""
        vector, fusion = self.query(column), RRF(self.rng.choice([1.0, 60.0]), (1.0, self.rng.choice([0.5, 2.0])))
        how: dict[str, Any] = {"columns": ["id"], "at": opened.receipt()}
        near = opened.search(vector, limit=DEPTH, vector_column=column, exact=True, **how).to_arrow()
        told = opened.search(text=query, text_columns=["text"], limit=DEPTH, **how).to_arrow()
        distances = nearest(self.table, column, vector, self.table.metrics[column])
        scores = best(self.table, query)
        assert near["_distance"].to_pylist() == pytest.approx(list(distances.values())[:DEPTH], rel=1e-5, abs=1e-5)
        assert told["_score"].to_pylist() == pytest.approx(list(scores.values())[:DEPTH], rel=1e-5, abs=1e-6)
        by_vector, by_text = (dict.fromkeys(rows["id"].to_pylist(), 0.0) for rows in (near, told))
        right = fused(by_vector, by_text, fusion.k, fusion.weights)
        found = opened.search(
            vector, query, limit=K, vector_column=column, text_columns=["text"], exact=True, fusion=fusion, **how
        ).to_arrow()
        worth = found["_relevance_score"].to_pylist()
        assert worth == pytest.approx(sorted(right.values(), reverse=True)[:K], rel=1e-5)
        assert worth == pytest.approx([right[id] for id in found["id"].to_pylist()], rel=1e-5)


def asked_for(before: int | None) -> dict[str, Any]:
    return {"columns": ["id"], "filter": None if before is None else f"num < {before}"}


@dataclass(frozen=True, slots=True)
class Past:
    """What a search gave at some state."""

    receipt: str
    query: list[float]
    near: pa.Table
    told: pa.Table

    @staticmethod
    def of(opened: Table, query: list[float], at: str | None = None) -> Past:
        near = opened.search(query, limit=K, vector_column="v_hnsw_pq", columns=["id"], exact=True, at=at)
        receipt = at or str(near.receipt)
        told = opened.search(text="w1 w7", text_columns=["text"], limit=K, columns=["id"], at=receipt)
        return Past(receipt, query, near.to_arrow(), told.to_arrow())

    def check(self, opened: Table) -> None:
        again = Past.of(opened, self.query, self.receipt)
        for then, now in ((self.near, again.near), (self.told, again.told)):
            assert now.equals(then)


@pytest.mark.parametrize("stable_row_ids", [False, True], ids=["addresses", "stable row ids"])
def test_whatever_was_done_to_the_table(
    tmp_path: Path, stable_row_ids: bool, seed: int, pytestconfig: pytest.Config
) -> None:
    rng, table = random.Random(seed), Searched.filled(tmp_path, stable_row_ids=stable_row_ids)
    opened, checks, number = open_table(table.uri), Checks(table, rng), count()
    past: Past | None = None
    # In turns; ``dev.py soak every-case`` takes all, and ``test_index_matrix`` takes each with both in every run.
    acts = [*ACTS] if pytestconfig.getoption("--every-case") else [*ACTS][stable_row_ids::2]
    for act in rng.sample(acts, len(acts)):
        table.write(rng)
        checks.all(opened, next(number))
        table.flush_all()
        if act in ALONE:
            table.round()
        table.age += 1
        ACTS[act](table)
        if act == "load":  # it brings key 1 too, unless that has a row
            table.model.setdefault((1,), {"id": 1, **values(1, table.age)})
        checks.all(opened, next(number))
        behind = rng.choice(BEHIND)
        if behind == CLEAN_UP:
            table.round()  # it puts on record what the version holds that is left
            table.clean_up()
            past = None
        elif behind is not None:
            UPKEEP[behind](table)
            checks.all(opened, next(number))
        if past is not None:
            past.check(opened)
        past = Past.of(opened, checks.query("v_hnsw_pq"))
    table.write(rng)
    checks.all(open_table(table.uri), next(number))
    assert checks.by_index > 10
    assert checks.hits >= 0.95 * checks.asked
    table.close()
