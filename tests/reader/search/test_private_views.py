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
from lancewal_reader.search.found import SearchRows
from lancewal_reader.search.private_views import Folder
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

    def shows_none(view: private_views.View, query: object, limit: int, hidden: bytes | None) -> private_views.Hashes:
        asked.append(limit)
        return none

    monkeypatch.setattr(private_views.View, "nearest", shows_none)
    assert made.compare(opened).coverage.approximate is None  # too few: all were compared after all
    assert asked == [K]


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


def test_one_that_somebody_has_removed_is_not_missed(made: Vectors, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    opened = open_table(made.uri, scratch_dir=str(scratch))
    made.put(range(100))
    for _ in range(3):  # the last makes it, and it was not asked yet
        made.compare(opened)
    shutil.rmtree(scratch)
    for _ in range(2):
        made.compare(opened)


def test_what_is_wrong_is_said(made: Vectors) -> None:
    for wrong, told in (({"scratch_dir": 3}, "scratch_dir 3"), ({"scratch_bytes_max": -1}, "scratch_bytes_max -1")):
        with pytest.raises(InvalidInput, match=told):
            open_table(made.uri, **wrong)  # type: ignore[arg-type]
