"""Searches of a table in an object store: nothing is written there, and a far store is asked in few rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lancewal_core.store.object_store import Stored
from lancewal_core.store.obstore import open_store
from lancewal_reader.search import merged
from lancewal_reader.search.text_query import Match, Phrase
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
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallS3]:
    monkeypatch.setattr(merged, "FLAT_ROWS_MAX", 0)
    made = OneOfEach(tmp_path, stable_row_ids=False)
    made.fill()
    with SmallS3() as store:
        objects = open_store(TABLE, store.options)
        for path in Path(made.uri).rglob("*"):
            if path.is_file():
                assert isinstance(objects.put_if_absent(str(path.relative_to(made.uri)), path.read_bytes()), Stored)
        yield store
    made.close()


def searches(store: SmallS3) -> dict[str, Callable[[], object]]:
    opened = open_table(TABLE, storage_options=store.options)
    return {
        "read": lambda: opened.to_arrow(["id"]),
        "vector": lambda: opened.search(QUERY, vector_column="v_pq", columns=["id"]),
        "text": lambda: opened.search(text="alpha gen0", text_columns=["text"], columns=["id"]),
        "fuzzy": lambda: opened.search(text=Match("alpho", "text", fuzziness=1), columns=["id"]),
        "phrase": lambda: opened.search(text=Phrase("alpha gen0", "text"), columns=["id"]),
        "both": lambda: opened.search(QUERY, "gen0", vector_column="v_pq", text_columns=["text"], columns=["id"]),
        "filter": lambda: opened.search(QUERY, vector_column="v_pq", columns=["id"], filter="num < 60000"),
        "exact": lambda: opened.search(QUERY, vector_column="v_pq", columns=["id"], exact=True),
    }


def test_no_search_writes_an_object(far: SmallS3) -> None:
    objects = open_store(TABLE, far.options)

    def listed() -> list[tuple[str, int, int]]:
        return sorted((found.key, found.size, found.modified_ms) for found in objects.list(""))

    before = listed()
    far.take()
    for search in searches(far).values():
        search()
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
