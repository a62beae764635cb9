"""A flusher dies between a merge and the extension of the indexes: searches before, between and after find the same rows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from lancewal_core.rows.schema import Op
from lancewal_flusher.upkeep.indexes import unindexed_rows
from lancewal_reader.search import merged
from lancewal_reader.search.texts.text_query import Boolean, Match, Phrase, TextQuery
from lancewal_reader.table import Table, open_table
from tests.reader.search.test_any_history import Searched
from tests.reader.search.test_hybrid import fused
from tests.reader.search.test_text import best, values
from tests.reader.search.test_vectors import nearest
from tests.support import indexed_tables
from tests.support.flusher_tables import Operation
from tests.support.indexed_tables import VECTORS, WIDTH
from tests.support.whole_path import until

K = 5
PROGRAM = """
import os, signal, sys
from lancewal_core.cli import program as cli
from lancewal_core.table.lance.table import LanceTable

extend, left = LanceTable.extend_index, int(sys.argv[1])

def extend_index(table, *arguments):
    global left
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    return extend(table, *arguments)

LanceTable.extend_index = extend_index
sys.exit(cli.run(sys.argv[2:]))
"""
"""A flusher that dies before it extends an index when it has extended so many."""
WHERE = {
    "behind the commit": (99, "commit.recv:after=kill"),
    "before the first index": (0, None),
    "between two indexes": (3, None),
}


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Searched]:
    monkeypatch.setattr(merged, "FLAT_ROWS_MAX", 0)
    monkeypatch.setattr(indexed_tables, "values", values)
    table = Searched.filled(tmp_path, stable_row_ids=True)
    yield table
    table.close()


def flusher(made: Searched, extended_max: int, failpoint: str | None) -> subprocess.Popen[bytes]:
    """It looks for indexes to extend soon, also where it has nothing to merge."""
    often = {"merge_interval_s": 0.05, "compaction_interval_s": 0.2}
    tree = {
        "table": {"uri": made.uri},
        "flusher": {**often, "merge_defer_s": 0, "index_unindexed_rows_max": 1},
        "http": {"ingest_port": 0, "flusher_port": 0},
    }
    settings, log = Path(made.uri).parent / "settings.yaml", Path(made.uri).parent / "log"
    settings.write_text(yaml.safe_dump(tree))
    more = {} if failpoint is None else {"LANCEWAL_TESTING": "1", "LANCEWAL_FAILPOINT": failpoint}
    with open(log, "ab") as output:
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(extended_max), "flusher", "run", "--config", str(settings)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **more}, stdout=output, stderr=output,
        )  # fmt: skip


def unindexed(made: Searched) -> Mapping[str, int]:
    return unindexed_rows(made.context().table.newest())


def check(made: Searched, opened: Table, query: list[float]) -> None:
    """By every vector index, by words of every kind and by both: complete, of now, and the row that came last is first."""
    for column in VECTORS:
        right = nearest(made, column, query, made.metrics[column])
        for exact in (True, False):
            rows = opened.search(query, limit=K, vector_column=column, columns=["id"], exact=exact).to_arrow()
            ids, shown = rows["id"].to_pylist(), rows["_distance"].to_pylist()
            assert len(set(ids)) == K
            assert shown == pytest.approx([right[id] for id in ids], rel=1e-5, abs=1e-5)
            assert ids[0] == next(iter(right))
            if exact:
                assert shown == pytest.approx([*right.values()][:K], rel=1e-5, abs=1e-5)
    queries: list[TextQuery] = [
        Match("seldom w1"), Match("seldom w1", operator="and"), Match("zeldom w22", fuzziness=1), Phrase("seldom w1"),
        Boolean(must=[Match("w1")], must_not=[Match("w2")]),
    ]  # fmt: skip
    for text in queries:
        scores = best(made, text)
        rows = opened.search(text=text, text_columns=["text"], limit=K, columns=["id"]).to_arrow()
        ids, shown = rows["id"].to_pylist(), rows["_score"].to_pylist()
        assert len(set(ids)) == min(K, len(scores))
        assert shown == pytest.approx([*scores.values()][:K], rel=1e-5, abs=1e-6)
        assert shown == pytest.approx([scores[id] for id in ids], rel=1e-5, abs=1e-6)
    rows = opened.search(
        query, "seldom", vector_column="v_pq", text_columns=["text"], limit=K, columns=["id"], exact=True
    ).to_arrow()
    right = fused(nearest(made, "v_pq", query), best(made, Match("seldom")), 60, (1, 1))
    assert rows["_relevance_score"].to_pylist() == pytest.approx(sorted(right.values(), reverse=True)[:K], rel=1e-5)


@pytest.mark.in_turns("where", each=3)
@pytest.mark.parametrize("where", WHERE)
def test_searches_before_between_and_after(made: Searched, where: str) -> None:
    opened, vector = open_table(made.uri), [9.0] * WIDTH
    was_best = [*nearest(made, "v_pq", vector)][: 2 * K]
    new = {**values(7_000, 1), "text": "seldom w1 w22", **dict.fromkeys(VECTORS, vector)}
    made.generation(
        0,
        [
            *(Operation(Op.DELETE, (id,)) for id in was_best[:K]),
            *(Operation(Op.UPSERT, (id,), values(id, 5)) for id in [*was_best[K:], *range(60, 75)]),
            Operation(Op.UPSERT, (7_000,), new),
        ],
    )
    check(made, opened, vector)
    extended_max, failpoint = WHERE[where]
    victim = flusher(made, extended_max, failpoint)
    assert victim.wait(240) == -signal.SIGKILL, (Path(made.uri).parent / "log").read_text()
    made.check()  # it is merged
    left = [name for name, rows in unindexed(made).items() if rows]
    assert len(left) == len(unindexed(made)) - (extended_max if failpoint is None else 0)
    for between in (opened, open_table(made.uri)):
        check(made, between, vector)
    heir = flusher(made, 99, None)
    try:
        until(lambda: not any(unindexed(made).values()) or heir.poll() is not None)
        assert heir.poll() is None
    finally:
        heir.terminate()
        assert heir.wait(240) == 0, (Path(made.uri).parent / "log").read_text()
    for after in (opened, open_table(made.uri)):
        check(made, after, vector)
