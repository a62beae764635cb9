"""Searches of a table in an object store: nothing is written there, and a far store is asked in few rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lancewal_core.store.object_store import Stored
from lancewal_core.store.obstore import open_store
from lancewal_reader.search import merged
from lancewal_reader.search.texts.text_query import Boolean, Boost, Match, Phrase, TextQuery
from lancewal_reader.table import open_table
from tests.reader.search.test_text import scatter
from tests.support.indexed_tables import WIDTH, AllIndexes, build_indexes
from tests.support.small_s3.requests import rounds_of
from tests.support.small_s3.server import SmallS3

TABLE = "s3://bucket/table"
MORE_ROUNDS_MAX = 3
QUERY = [0.1] * WIDTH


class OneOfEach(AllIndexes):
    """A vector index and a full text index over all fragments but the last."""

    def fill(self) -> None:
        for _ in range(3):
            self.adopt_new(60)
        build_indexes(self.dataset, {"num": "BTREE", "text": "INVERTED"}, {"v_pq": "IVF_PQ"})
        self.adopt_new(20)
        scatter(self, flush=True)  # type: ignore[arg-type] # it has the same columns
        scatter(self, flush=False)  # type: ignore[arg-type]


@pytest.fixture
def stable_row_ids() -> bool:
    return False


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stable_row_ids: bool) -> Iterator[SmallS3]:
    monkeypatch.setattr(merged, "FLAT_ROWS_MAX", 0)
    made = OneOfEach.filled(tmp_path, stable_row_ids=stable_row_ids)
    with SmallS3() as store:
        objects = open_store(TABLE, store.options)
        for path in Path(made.uri).rglob("*"):
            if path.is_file():
                assert isinstance(objects.put_if_absent(str(path.relative_to(made.uri)), path.read_bytes()), Stored)
        yield store
    made.close()


def searches(store: SmallS3) -> dict[str, Callable[[], object]]:
    opened = open_table(TABLE, storage_options=store.options)
    of_vectors: dict[str, Any] = {"vector_column": "v_pq", "columns": ["id"]}
    of_both: dict[str, Any] = {**of_vectors, "text_columns": ["text"]}

    def told(query: TextQuery) -> Callable[[], object]:
        return lambda: opened.search(text=query, text_columns=["text"], columns=["id"])

    return {
        "read": lambda: opened.to_arrow(["id"]),
        "vector": lambda: opened.search(QUERY, **of_vectors),
        "many vectors": lambda: opened.search([QUERY, QUERY], **of_vectors),
        "another metric": lambda: opened.search(QUERY, metric="cosine", **of_vectors),
        "filter": lambda: opened.search(QUERY, filter="num < 60000", **of_vectors),
        "narrow filter": lambda: opened.search(QUERY, filter="num < 2000", **of_vectors),
        "exact": lambda: opened.search(QUERY, exact=True, **of_vectors),
        "text": lambda: opened.search(text="alpha gen0", text_columns=["text"], columns=["id"]),
        "all words": told(Match("alpha gen0", operator="and")),
        "fuzzy": told(Match("alpho", fuzziness=1)),
        "phrase": told(Phrase("alpha gen0")),
        "boolean": told(Boolean(must=[Match("alpha")], should=[Phrase("gen0 w1a0")], must_not=[Match("gen1")])),
        "boost": told(Boost(Match("alpha"), Match("gen0"))),
        "exact text": lambda: opened.search(text="alpha", text_columns=["text"], columns=["id"], exact=True),
        "both": lambda: opened.search(QUERY, "gen0", **of_both),
        "both, filtered and ranked": lambda: opened.search(
            QUERY, "gen0", filter="num > 5", rerank=lambda rows: range(rows.num_rows), **of_both
        ),
        "at a receipt": lambda: opened.search(QUERY, "gen0", at=opened.receipt(), **of_both),
        "eventual": lambda: opened.search(QUERY, "gen0", consistency="eventual", **of_both),
    }


@pytest.mark.parametrize("stable_row_ids", [False, True], ids=["addresses", "stable row ids"])
def test_no_search_writes_an_object(far: SmallS3) -> None:
    objects = open_store(TABLE, far.options)

    def listed() -> list[tuple[str, int, int]]:
        return sorted((found.key, found.size, found.modified_ms) for found in objects.list(""))

    before = listed()
    far.take()
    for act in searches(far).values():
        act()
    assert {request.method for request in far.take()} <= {"GET", "HEAD", "LIST"}
    assert listed() == before


def test_of_an_open_table_it_takes_few_rounds_more_than_a_read(far: SmallS3) -> None:
    """Once it was searched before.  Requests side by side need not be so on a busy machine: the fewest rounds of some runs
    are those that it needs, and it is looked at until they are few."""
    far.delay_s = 0.03
    acts = searches(far)

    def rounds(name: str) -> int:
        far.take()
        acts[name]()
        return rounds_of(far.take())

    for name in acts:
        rounds(name)
    read = max(rounds("read") for _ in range(3))
    for name in ("vector", "text", "fuzzy", "both"):
        tried = [rounds(name)]
        while tried[-1] > read + MORE_ROUNDS_MAX and len(tried) < 10:
            tried.append(rounds(name))
        assert min(tried) <= read + MORE_ROUNDS_MAX, (name, read, tried)
