"""A deletion file that is damaged, or was cleaned up under a pinned version, is told as such by whatever meets it."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

from lancewal_core.errors import ObjectCorrupt, VersionGone
from lancewal_core.table import Committed, TableCommit
from lancewal_core.table_lance import LancePinnedTable, LanceTable


@pytest.fixture(params=[10, 30_000], ids=["a list", "a bitmap"])
def made(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[LancePinnedTable, Path]:
    uri = str(tmp_path / "table")
    lance.write_dataset(pa.table({"k": list(range(60_000))}), uri)
    lance.dataset(uri).delete(f"k < {request.param}")
    (file,) = (tmp_path / "table" / "_deletions").iterdir()
    assert (file.suffix == ".bin") == (request.param > 10)
    return LanceTable(uri).newest(), file


def test_damaged(made: tuple[LancePinnedTable, Path]) -> None:
    pinned, file = made
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(ObjectCorrupt):
        pinned.hide_rows(0, [40_000])
    with pytest.raises(ObjectCorrupt):
        list(pinned.scan(["k"]))


@pytest.mark.parametrize("how", ["empty", "other rows", "beyond the end"])
def test_damaged_in_another_way(made: tuple[LancePinnedTable, Path], how: str) -> None:
    """What is hidden is written again by each merge: it must not take over what a damaged file names."""
    pinned, file = made
    if file.suffix == ".bin":
        rows = BitMap.deserialize(file.read_bytes())
        rows.remove(7)
        if how == "beyond the end":
            rows.add(60_000)
        file.write_bytes(b"" if how == "empty" else rows.serialize())
    else:
        hidden = pa.ipc.open_file(file.read_bytes()).read_all()
        new = (
            hidden.slice(1)
            if how == "other rows"
            else pa.table([pa.array([*range(9), 60_000], pa.uint32())], schema=hidden.schema)
        )
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, hidden.schema) as writer:
            writer.write_table(new)
        if how == "empty":
            file.write_bytes(b"")
    for act in (lambda: pinned.hide_rows(0, [40_000]), lambda: pinned.hidden_rows(0)):
        with pytest.raises(ObjectCorrupt, match=file.name):
            act()


def test_gone(made: tuple[LancePinnedTable, Path]) -> None:
    pinned, file = made
    file.unlink()
    with pytest.raises(VersionGone):
        pinned.hide_rows(0, [40_000])
    with pytest.raises(VersionGone):
        list(pinned.scan(["k"]))


def test_plain_lance_reads_what_was_hidden_over_what_was_deleted(made: tuple[LancePinnedTable, Path]) -> None:
    """Whatever the file before was; rows in no order, some of them hidden before, some twice."""
    pinned, file = made
    before = set(range(10 if file.suffix == ".arrow" else 30_000))
    for more in (np.array([40_000]), np.random.default_rng(7).integers(0, 60_000, 20_000)):
        table = LanceTable(pinned.dataset.uri)
        changed = table.newest().hide_rows(0, more)
        assert changed is not None
        commit = TableCommit(table.newest().version, (), (changed,), (), {}, strict=False)
        assert isinstance(table.commit(commit), Committed)
        before |= set(more.tolist())
        dataset = lance.dataset(pinned.dataset.uri)
        assert dataset.to_table()["k"].to_pylist() == sorted(set(range(60_000)) - before)
        assert dataset.count_rows() == 60_000 - len(before)
        assert sorted(table.newest().hidden_rows(0)) == sorted(before)
    dataset = lance.dataset(pinned.dataset.uri)
    dataset.delete("k = 59999")  # and Lance goes on from it
    before.add(59_999)
    assert dataset.to_table()["k"].to_pylist() == sorted(set(range(60_000)) - before)
    assert LanceTable(pinned.dataset.uri).newest().hide_rows(0, np.arange(60_000)) is None


@pytest.mark.parametrize("row", [-1, 60_000, 1 << 32])
def test_a_row_that_is_not_there(made: tuple[LancePinnedTable, Path], row: int) -> None:
    with pytest.raises(ValueError, match="fragment 0 has no row"):
        made[0].hide_rows(0, [1, row])
