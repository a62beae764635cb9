"""Searches that keep an index of their own over unmerged vectors, against brute force over a dict."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from lancewal_core.errors import InvalidInput
from lancewal_core.rows.schema import Op
from lancewal_reader.search import private_views
from lancewal_reader.search.distance import KeptVectors, nearest
from lancewal_reader.search.found import SearchRows
from lancewal_reader.search.options import Metric
from lancewal_reader.search.private_views import Folder, PrivateViews, View
from lancewal_reader.table import Table, open_table
from tests.support.flusher_tables import KeyedTable, Operation

WIDTH = 8
K = 5
COLUMNS = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("num", pa.int64()), ("v", pa.list_(pa.float32(), WIDTH))]
)
OWN = "an index of the reader's own"


class Vectors(KeyedTable):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder, 1, columns=COLUMNS, primary_key=("id",))
        self.rng = np.random.default_rng(4)
        self.right: dict[int, list[float] | None] = {}

    def put(self, ids: range, flush: bool = True) -> None:
        """Every fifth row has another one's vector, every seventh none."""
        made: dict[int, list[float] | None] = {id: self.rng.standard_normal(WIDTH).astype("f4").tolist() for id in ids}
        made |= {id: None if id % 7 == 6 else made[ids[0]] for id in ids if id % 7 == 6 or id % 5 == 4}
        self.right |= made
        self.generation(
            0, [Operation(Op.UPSERT, (id,), {"num": id, "v": vector}) for id, vector in made.items()], flush=flush
        )

    def delete(self, ids: range) -> None:
        self.generation(0, [Operation(Op.DELETE, (id,)) for id in ids], flush=False)
        for id in ids:
            self.right.pop(id)

    def nearest(self, query: list[float], below: int) -> list[float]:
        rows = [vector for id, vector in self.right.items() if vector is not None and id < below]
        return sorted(float(((np.array(row) - query) ** 2).sum()) for row in rows)[:K]

    def compare(self, opened: Table, below: int = 10_000) -> SearchRows:
        query = self.rng.standard_normal(WIDTH).tolist()
        how = {} if below == 10_000 else {"filter": f"num < {below}"}
        found = opened.search(query, limit=K, columns=["id", "v"], **how)  # type: ignore[arg-type] # a filter
        rows = found.to_arrow()
        assert rows["_distance"].to_pylist() == pytest.approx(self.nearest(query, below), rel=1e-5)
        assert [self.right[id] for id in rows["id"].to_pylist()] == rows["v"].to_pylist()
        return found


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Vectors]:
    monkeypatch.setattr(private_views, "ROWS_MIN", 50)
    monkeypatch.setattr(private_views, "PAYS_AFTER", 3)
    monkeypatch.setattr(private_views, "ROWS_EACH", 20)
    table = Vectors(tmp_path)
    yield table
    table.close()


def views(scratch: Path) -> list[Path]:
    return sorted(scratch.glob("lancewal-view-*")) if scratch.exists() else []


def test_of_many_queries_one_whose_candidates_it_chose_is_enough_to_say_so(made: Vectors, tmp_path: Path) -> None:
    """Also where rows were compared for the last: to a vector of zeros no row has a cosine."""
    opened = open_table(made.uri, scratch_dir=str(tmp_path / "scratch"))
    made.put(range(200))
    for queries in ([[1.0] * WIDTH] * 4, [[1.0] * WIDTH, [0.0] * WIDTH], [[0.0] * WIDTH]):
        found = opened.search(queries, metric="cosine", limit=K)
        assert found.to_arrow().num_rows == K * sum(map(any, queries))
        assert (found.coverage.approximate or "").startswith(OWN) == (queries[0] != [0.0] * WIDTH)


def test_one_is_made_once_it_pays_and_carried_on(made: Vectors, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    opened = open_table(made.uri, scratch_dir=str(scratch))
    made.put(range(200))
    for number in range(4):
        assert (made.compare(opened).coverage.approximate is None) == (number < 3)
        assert len(views(scratch)) == (number >= 2)
    made.put(range(150, 190), flush=False)  # replaces some, which are hidden now
    made.delete(range(20))
    for below in (10_000, 180, 40, 3):
        told = made.compare(opened, below).coverage.approximate
        assert (told or "").startswith(OWN) == (below > 20)
    assert made.compare(opened, 30).coverage.fresh_rows == 10
    made.put(range(300, 400))
    for _ in range(5):
        made.compare(opened)
    (view,) = views(scratch)
    assert len(lance.dataset(str(view / "view")).get_fragments()) == 2
    made.put(range(400))  # nothing that it holds is of the state any more
    for _ in range(5):
        made.compare(opened)
    (anew,) = views(scratch)
    assert anew != view
    exact = opened.search([0.5] * WIDTH, limit=K, exact=True)
    assert exact.coverage.approximate is None
    made.round()
    assert made.compare(opened).coverage.fresh_rows == 0


def test_it_is_asked_in_the_place_of_comparisons(
    made: Vectors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it shows is what is found."""
    opened = open_table(made.uri, scratch_dir=str(tmp_path / "scratch"))
    made.put(range(200))
    for _ in range(3):
        made.compare(opened)
    none = np.zeros(0, np.uint64)
    asked: list[int] = []

    def shows_none(content: object, query: object, limit: int, hidden: bytes | None) -> private_views.Addresses:
        asked.append(limit)
        return none

    monkeypatch.setattr(private_views.Content, "nearest", shows_none)
    assert made.compare(opened).coverage.approximate is None  # too few: all were compared after all
    assert asked == [K]


def test_as_many_rows_as_there_are_come_where_more_are_asked_for(made: Vectors, tmp_path: Path) -> None:
    """Lance takes memory for each row that it is asked for, and ends the process where there is none."""
    opened = open_table(made.uri, scratch_dir=str(tmp_path / "scratch"))
    made.put(range(200))
    for _ in range(3):
        made.compare(opened)
    found = opened.search([0.5] * WIDTH, limit=2**40)
    assert (found.coverage.approximate or "").startswith(OWN)
    assert found.to_arrow().num_rows == sum(vector is not None for vector in made.right.values())


def some_vectors(count: int) -> tuple[pa.Table, np.ndarray[tuple[int, int], np.dtype[np.float32]]]:
    vectors = np.random.default_rng(7).standard_normal((count, WIDTH)).astype("f4")
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), WIDTH)
    return pa.table({"id": np.arange(count), "v": column}), vectors


def test_another_thread_may_ask_by_another_view_meanwhile(tmp_path: Path) -> None:
    """What the one view lacks is not what the other one lacks."""
    rows, vectors = some_vectors(300)
    kept, query = KeptVectors(rows, "v"), vectors[250].astype(np.float64)
    first, second = View(Folder(tmp_path), "l2", vectors[:100]), View(Folder(tmp_path), "l2", vectors[100:])

    class Meanwhile(PrivateViews):
        def get(self, column: str, metric: Metric) -> View:
            return first

        def compared(self, *_: object) -> None:
            kept.held(second.content)

    found, by_view = kept.nearest_by(Meanwhile(), query, "l2", K)
    assert by_view == 100
    assert found.equals(nearest(rows, "v", query, "l2", K))


def test_who_asks_a_view_that_is_added_to_goes_on_with_what_it_held(tmp_path: Path) -> None:
    """What came since is not among its candidates, where it would take the places of others."""
    rows, vectors = some_vectors(300)
    query = vectors[250].astype(np.float64)
    view = View(Folder(tmp_path), "l2", vectors[:100])
    held = KeptVectors(rows, "v").held(view.content).held
    before = held.nearest(query, K)
    view.add(vectors[200:])
    assert sorted(before) == sorted(nearest(rows.slice(0, 100), "v", query, "l2", K)["id"].to_pylist())
    assert held.nearest(query, K).tolist() == before.tolist()
    assert 250 in KeptVectors(rows, "v").held(view.content).held.nearest(query, K)


def test_it_goes_with_the_open_table(made: Vectors, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    opened = open_table(made.uri, scratch_dir=str(scratch))
    made.put(range(100))
    for _ in range(4):
        made.compare(opened)
    assert len(views(scratch)) == 1
    del opened
    gc.collect()
    assert views(scratch) == []


def test_what_a_dead_process_left_goes_and_what_a_live_one_has_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import os, sys, pathlib; from lancewal_reader.search.private_views import Folder\n"
        "folder = Folder(pathlib.Path(sys.argv[1])); (folder.path / 'file').touch(); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    (dead,) = views(tmp_path)
    live = Folder(tmp_path)
    (live.path / "file").touch()
    assert not dead.exists()
    other = Folder(tmp_path)
    assert views(tmp_path) == sorted([live.path, other.path])
    other.remove()
    assert views(tmp_path) == [live.path]
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: -1)  # as at the end of one that has it by a fork
        live.remove()
    assert live.path.exists()


@pytest.mark.parametrize("reason", ["too large", "no folder", "not asked for"])
def test_where_none_can_be_made_rows_are_compared(made: Vectors, tmp_path: Path, reason: str) -> None:
    scratch = tmp_path / "scratch"
    if reason == "no folder":
        scratch.write_text("a file")
    opened = {
        "too large": lambda: open_table(made.uri, scratch_dir=str(scratch), scratch_bytes_max=1_000),
        "no folder": lambda: open_table(made.uri, scratch_dir=str(scratch)),
        "not asked for": lambda: open_table(made.uri),
    }[reason]()
    made.put(range(100))
    for _ in range(8):
        assert made.compare(opened).coverage.approximate is None
    assert views(scratch) == []


def test_none_is_made_of_binary_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_views, "ROWS_MIN", 50)
    monkeypatch.setattr(private_views, "PAYS_AFTER", 1)
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("bits", pa.list_(pa.uint8(), 2))])
    table = KeyedTable(tmp_path / "table", 1, columns=columns, primary_key=("id",))
    table.generation(0, [Operation(Op.UPSERT, (id,), {"bits": [id, 0]}) for id in range(200)])
    opened = open_table(table.uri, scratch_dir=str(tmp_path / "scratch"))
    for _ in range(4):
        found = opened.search([0b111, 0], limit=K)
        assert sorted(found.to_arrow()["_distance"].to_pylist()) == [0, *[1] * (K - 1)]
        assert found.coverage.approximate is None
    assert views(tmp_path / "scratch") == []
    table.close()


def test_one_that_somebody_has_removed_is_not_missed(made: Vectors, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    opened = open_table(made.uri, scratch_dir=str(scratch))
    made.put(range(100))
    for _ in range(3):  # the last makes it, and it was not asked yet
        made.compare(opened)
    shutil.rmtree(scratch)
    for _ in range(2):
        made.compare(opened)


def test_one_that_somebody_has_removed_is_not_added_to(made: Vectors, tmp_path: Path) -> None:
    """What it held would be taken for what lies at the same places of another one."""
    scratch = tmp_path / "scratch"
    opened = open_table(made.uri, scratch_dir=str(scratch))
    made.put(range(100))
    for _ in range(4):
        made.compare(opened)
    (removed,) = views(scratch)
    shutil.rmtree(scratch)
    made.put(range(100, 200))
    for _ in range(12):
        made.compare(opened)
    assert removed not in views(scratch)
    made.put(range(200, 260))
    assert (made.compare(opened).coverage.approximate or "").startswith(OWN)


def test_what_is_wrong_is_said(made: Vectors) -> None:
    for wrong, told in (({"scratch_dir": 3}, "scratch_dir 3"), ({"scratch_bytes_max": -1}, "scratch_bytes_max -1")):
        with pytest.raises(InvalidInput, match=told):
            open_table(made.uri, **wrong)  # type: ignore[arg-type]
