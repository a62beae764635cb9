"""A deletion file that is damaged, or was cleaned up under a pinned version, is told as such by whatever meets it."""

from __future__ import annotations

import gc
import json
import tracemalloc
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

from lancewal_core.errors import ObjectCorrupt, VersionGone
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.store.obstore import open_store
from lancewal_core.table.lance.deletions import DeletionFiles
from lancewal_core.table.lance.pinned import LancePinnedTable
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.protocol import Committed, TableCommit, fragment_objects


@pytest.fixture(params=[10, 30_000], ids=["a list", "a bitmap"])
def made(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[LancePinnedTable, Path]:
    uri = str(tmp_path / "table")
    lance.write_dataset(pa.table({"k": list(range(60_000))}), uri)
    lance.dataset(uri).delete(f"k < {request.param}")
    (file,) = (tmp_path / "table" / "_deletions").iterdir()
    assert (file.suffix == ".bin") == (request.param > 10)
    return LanceTable(uri).newest(), file


def test_the_objects_of_a_fragment_are_named_as_they_lie(made: tuple[LancePinnedTable, Path]) -> None:
    pinned, file = made
    (data,) = (file.parent.parent / "data").iterdir()
    text = pinned.fragment_json(0)
    assert fragment_objects(text) == {f"data/{data.name}": data.stat().st_size, f"_deletions/{file.name}": 0}
    elsewhere = json.loads(text)
    elsewhere["files"][0]["base_id"] = elsewhere["deletion_file"]["base_id"] = 1
    assert fragment_objects(json.dumps(elsewhere)) == {}
    assert fragment_objects(json.dumps({**json.loads(text), "deletion_file": None})).keys() == {f"data/{data.name}"}


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


class CountingStore:
    """Which objects are read."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.read: list[str] = []

    def get(self, key: str) -> bytes | None:
        self.read.append(key)
        return self._store.get(key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def hide(uri: str, files: DeletionFiles, rows: list[int]) -> None:
    """And commit it."""
    table = LanceTable(uri)
    pinned = table.newest()
    changed = files.hide_rows(pinned.dataset, 0, np.array(rows))
    assert changed is not None
    commit = TableCommit(pinned.version, (), (json.dumps(changed),), (), {}, strict=False)
    assert isinstance(table.commit(commit), Committed)


@pytest.mark.parametrize(("bytes_max", "reads"), [(1 << 20, 1), (0, 4)])
def test_a_file_is_read_once_and_what_was_written_not_at_all(
    made: tuple[LancePinnedTable, Path], bytes_max: int, reads: int
) -> None:
    """While there is room for it."""
    pinned, file = made
    uri, gone = pinned.dataset.uri, int(pinned.dataset.get_fragment(0).metadata.num_deletions)
    store = CountingStore(open_store(uri))
    files = DeletionFiles(store, bytes_max)
    for n in range(3):
        hide(uri, files, [40_000 + n])
    found = files.hidden_rows(lance.dataset(uri), 0)
    assert found == BitMap([*range(gone), 40_000, 40_001, 40_002])
    assert lance.dataset(uri).count_rows() == 60_000 - gone - 3
    assert len(store.read) == reads
    assert store.read[0] == f"_deletions/{file.name}"


def test_the_files_longest_unused_are_forgotten(tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    lance.write_dataset(pa.table({"k": range(300)}), uri, max_rows_per_file=100)
    lance.dataset(uri).delete("k % 10 = 0")
    store = CountingStore(open_store(uri))
    sizes = [path.stat().st_size for path in (tmp_path / "table" / "_deletions").iterdir()]
    files, dataset = DeletionFiles(store, bytes_max=2 * (max(sizes) + 512)), lance.dataset(uri)
    for fragment_id in (0, 1, 0, 2, 0, 1):
        assert len(files.hidden_rows(dataset, fragment_id)) == 10
    names = [fragment.deletion_file() for fragment in dataset.get_fragments()]
    assert [names.index(key) for key in store.read] == [0, 1, 2, 1]


def test_gone_after_it_was_read(made: tuple[LancePinnedTable, Path]) -> None:
    """The next file says all that it said: plain Lance reads the table again."""
    pinned, file = made
    uri, files = pinned.dataset.uri, DeletionFiles(open_store(pinned.dataset.uri))
    hidden = len(files.hidden_rows(pinned.dataset, 0))
    file.unlink()
    hide(uri, files, [40_000])
    assert lance.dataset(uri).to_table().num_rows == 60_000 - hidden - 1


def test_many_small_files_take_no_more_than_they_may(tmp_path: Path) -> None:
    """A row each: what stands around it takes more than the file."""
    uri = str(tmp_path / "table")
    lance.write_dataset(pa.table({"k": range(100)}), uri)
    files, dataset = DeletionFiles(open_store(uri), bytes_max=256 << 10), lance.dataset(uri)
    gc.collect()
    tracemalloc.start()
    for n in range(6_000):
        files.hide_rows(dataset, 0, np.array([n % 100]))
    gc.collect()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 512 << 10
