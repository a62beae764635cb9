"""The key index over a table: what it finds is what a plain comparison of values finds, or its fragment is uncovered."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Event
from typing import Any, TypeVar

import lance
import pyarrow as pa
import pytest
from lance.fragment import LanceFragment

from lancewal_core.keys import index as key_index
from lancewal_core.keys import parts as parts_module
from lancewal_core.keys.catalog import KeyCatalogs, catalog_family
from lancewal_core.keys.index import KeyIndex, KeyRows
from lancewal_core.keys.parts import MappedParts, PartSource
from lancewal_core.keys.run import Entries, decode_part
from lancewal_core.names import paths
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.store.object_store import Stored
from lancewal_core.store.versioned import newest_version
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.protocol import PinnedTable
from lancewal_flusher.upkeep.key_runs import UpkeepReport, UpkeepState, keep_up
from tests.support.flusher_tables import FlusherTable, patch, upserts
from tests.support.stored_parts import StoredParts

KEY_NAMES = ["region", "id"]
T = TypeVar("T")
A = TypeVar("A")


@pytest.fixture(params=["mapped files", "files brought from a store", "objects"])
def source(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few keys these tests have: where there are threads, they share the work."""
    monkeypatch.setattr(key_index, "_SIDE_BY_SIDE_KEYS", 0)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    made = FlusherTable(tmp_path)
    yield made
    made.close()


def parts(table: FlusherTable, source: str, folder: Path) -> PartSource:
    if source == "objects":
        return StoredParts(table.store)
    folder.mkdir(exist_ok=True)
    return MappedParts(table.store, Path(table.uri) if source == "mapped files" else None, folder, bytes_max=2_000)


def index_of(table: FlusherTable, source: str = "objects", folder: Path = Path()) -> KeyIndex:
    tasks = None if source == "objects" else table.context().tasks
    return KeyIndex(KeyCatalogs(table.store, SystemClock(), None), parts(table, source, folder), tasks)


def indexed(table: FlusherTable) -> UpkeepReport:
    return keep_up(table.context(), UpkeepState())


def key_table(keys: list[tuple[str, int]]) -> pa.Table:
    return pa.table({"region": [k[0] for k in keys], "id": pa.array([k[1] for k in keys], pa.int64())})


def check(pinned: PinnedTable, found: KeyRows, keys: list[tuple[str, int]]) -> None:
    """Against all physical rows of each covered fragment, read by the table itself."""
    for fragment in pinned.fragments():
        if fragment.fragment_id in found.uncovered:
            assert fragment.fragment_id not in found.covered
            continue
        batches = list(pinned.all_rows(fragment.fragment_id, KEY_NAMES))
        rows = [(r["region"], r["id"]) for b in batches for r in b.to_pylist()]
        expected = sorted((at, keys.index(row)) for at, row in enumerate(rows) if row in keys)
        mine = found.covered.get(fragment.fragment_id)
        assert ([] if mine is None else sorted(zip(mine.rows, mine.places, strict=True))) == expected


KEYS = [(f"r{p}", i) for i in (0, 3, 7, 12, 99, 5) for p in (1, 0)]


def test_rows_of_keys_are_found_in_every_fragment(table: FlusherTable, source: str, tmp_path: Path) -> None:
    table.generation(0, upserts(range(10)))
    table.generation(1, upserts(range(5)))
    table.round()
    table.generation(0, upserts(range(3, 13), a=1))  # hides rows of the first fragment
    table.round()
    pinned = table.context().table.newest()
    found = index_of(table, source, tmp_path / "parts").find(pinned, key_table(KEYS))
    assert found.uncovered == ()
    assert found.faults == ()
    assert sum(len(rows.rows) for rows in found.covered.values()) == 10
    check(pinned, found, KEYS)


def test_files_that_nobody_has_indexed_are_uncovered(table: FlusherTable) -> None:
    table.generation(0, upserts(range(10)))
    table.round()
    table.user_append(1, range(5), in_model=True)
    pinned = table.context().table.newest()
    found = index_of(table).find(pinned, key_table(KEYS))
    assert found.uncovered == (pinned.fragments()[-1].fragment_id,)
    check(pinned, found, KEYS)
    assert indexed(table).indexed == 5
    assert index_of(table).find(pinned, key_table(KEYS)).uncovered == ()


def test_an_old_and_a_restored_version_are_right(table: FlusherTable) -> None:
    table.generation(0, upserts(range(10)))
    table.round()
    old = table.context().table.newest()
    table.dataset.optimize.compact_files(target_rows_per_fragment=1000)
    table.dataset.delete("id < 4")
    table.dataset.optimize.compact_files(target_rows_per_fragment=1000, materialize_deletions_threshold=0.0)
    indexed(table)  # runs of files out of use go
    index = index_of(table)
    assert index.find(old, key_table(KEYS)).uncovered == (old.fragments()[0].fragment_id,)
    check(table.context().table.newest(), index.find(table.context().table.newest(), key_table(KEYS)), KEYS)
    dataset: Any = lance.dataset(table.uri, version=old.version)
    dataset.restore()
    restored = table.context().table.newest()
    check(restored, index.find(restored, key_table(KEYS)), KEYS)
    assert indexed(table).indexed == 10
    assert index.find(restored, key_table(KEYS)).uncovered == ()
    check(restored, index.find(restored, key_table(KEYS)), KEYS)


def test_a_file_in_two_fragments_gives_rows_of_both(table: FlusherTable) -> None:
    table.generation(0, upserts(range(10)))
    table.round()
    dataset = table.dataset
    again = [f.metadata for f in dataset.get_fragments()]
    lance.LanceDataset.commit(table.uri, lance.LanceOperation.Append(again), read_version=dataset.version)
    pinned = table.context().table.newest()
    found = index_of(table).find(pinned, key_table(KEYS))
    assert found.uncovered == ()
    assert len(found.covered) == 2
    check(pinned, found, KEYS)


def test_rewriting_other_columns_keeps_the_coverage(table: FlusherTable) -> None:
    table.generation(0, upserts(range(10)))
    table.round()
    dataset = table.dataset
    fragment, fields = dataset.get_fragments()[0].merge_columns(
        lambda batch: pa.record_batch({"b": pa.array(range(batch.num_rows))}), columns=["id"]
    )
    lance.LanceDataset.commit(table.uri, lance.LanceOperation.Merge([fragment], fields), read_version=dataset.version)
    pinned = table.context().table.newest()
    assert len(pinned.fragments()[0].files) == 2
    found = index_of(table).find(pinned, key_table(KEYS))
    assert found.uncovered == ()
    check(pinned, found, KEYS)


def test_a_fragment_with_an_overlay_is_scanned(table: FlusherTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may change a key, and no data file says so.  (This release of Lance writes overlays and reads none.)"""
    table.generation(0, upserts(range(10)))
    table.round()
    real: Any = LanceFragment.__dict__["metadata"]
    overlay: Any = object()
    monkeypatch.setattr(LanceFragment, "metadata", property(lambda f: replace(real.fget(f), overlays=[overlay])))
    pinned = table.context().table.newest()
    assert index_of(table).find(pinned, key_table(KEYS)).uncovered == (0,)


def test_hidden_rows_of_a_shallow_clone(table: FlusherTable, tmp_path: Path) -> None:
    table.generation(0, upserts(range(10)))
    table.round()
    table.user_delete(0, 4)
    table.dataset.shallow_clone(str(tmp_path / "clone"), table.dataset.version)
    pinned = LanceTable(str(tmp_path / "clone"), base_paths="allow").newest()
    assert pinned.hidden_rows(0).tolist() == [4]


def damage(table: FlusherTable, how: str) -> None:
    (info, *_) = table.store.list(paths.KEY_PARTS)
    path = Path(table.uri) / info.key
    data = path.read_bytes()
    match how:
        case "missing":
            path.unlink()
        case "truncated":
            path.write_bytes(data[:-20])
        case "flipped":
            path.write_bytes(data[:-100] + bytes([data[-100] ^ 1]) + data[-99:])


@pytest.mark.parametrize("how", ["missing", "truncated", "flipped"])
def test_a_damaged_part_is_said_scanned_and_written_anew(
    table: FlusherTable, how: str, source: str, tmp_path: Path
) -> None:
    table.generation(0, upserts(range(10)))
    table.round()
    damage(table, how)
    pinned = table.context().table.newest()
    index = index_of(table, source, tmp_path / "parts")
    for _ in range(2):
        found = index.find(pinned, key_table(KEYS))
        assert found.uncovered == tuple(f.fragment_id for f in pinned.fragments())
        assert "a part of the key index" in found.faults[0]
    table.generation(0, upserts(range(5, 15), a=1))
    table.round()
    table.check()
    found = index_of(table).find(table.context().table.newest(), key_table(KEYS))
    assert found.uncovered == ()
    assert found.faults == ()


@pytest.mark.parametrize("refused", ["open", "map"])
@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.EISDIR, errno.ENOMEM])
def test_a_part_that_the_system_refuses_to_read_is_said_and_scanned(
    table: FlusherTable, refused: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.generation(0, upserts(range(10)))
    table.round()

    def refuse(*_: Any) -> Any:
        raise OSError(code, os.strerror(code))

    pinned = table.context().table.newest()
    index = index_of(table, "mapped files", tmp_path / "parts")
    with monkeypatch.context() as patched:
        patched.setattr(f"{parts_module.__name__}.opened_object" if refused == "open" else "pyarrow.memory_map", refuse)
        found = index.find(pinned, key_table(KEYS))
    assert found.uncovered == tuple(f.fragment_id for f in pinned.fragments())
    (part, *_) = table.store.list(paths.KEY_PARTS)
    assert found.faults == (f"{part.key}, a part of the key index, cannot be read: [Errno {code}] {os.strerror(code)}",)


def test_a_folder_in_a_part_s_place_is_scanned_around(table: FlusherTable, tmp_path: Path) -> None:
    table.generation(0, upserts(range(10)))
    table.round()
    (part, *_) = table.store.list(paths.KEY_PARTS)
    (Path(table.uri) / part.key).unlink()
    (Path(table.uri) / part.key).mkdir()
    table.generation(0, upserts(range(5, 15), a=1))
    keys = index_of(table, "mapped files", tmp_path / "parts")
    (merge,) = table.round(context=replace(table.context(), keys=keys)).merges
    assert f"a folder lies at {part.key}" in merge.index_faults[0]
    table.check()


@pytest.mark.parametrize("content", [b"{}", b"", b'{"format":2}'])
def test_a_catalog_that_cannot_be_read_costs_scans_only(table: FlusherTable, content: bytes) -> None:
    table.generation(0, upserts(range(10)))
    table.round()
    newest = newest_version(table.store, catalog_family(None))
    assert newest is not None
    assert table.store.put_if_absent(paths.key_catalog_version(newest.version + 1, None), content) == Stored()
    pinned = table.context().table.newest()
    found = index_of(table).find(pinned, key_table(KEYS))
    assert found.uncovered == tuple(f.fragment_id for f in pinned.fragments())
    assert paths.key_catalog_version(newest.version + 1, None) in found.faults[0]
    table.generation(0, [*upserts(range(5, 15), a=1), patch(3, a=9)])
    table.round()
    table.check()
    # A catalog of a newer release is left to it.
    assert (index_of(table).catalogs.read().runs == ()) == (b"format" in content)


def test_a_flipped_bit_of_the_catalog_hides_no_row(table: FlusherTable) -> None:
    """Each part's end, one bit lower: keys above it would be looked for nowhere."""
    table.generation(0, upserts(range(10)))
    table.round()
    newest = newest_version(table.store, catalog_family(None))
    assert newest is not None
    key = paths.key_catalog_version(newest.version, None)
    flipped = re.sub(rb'"last":[1-9]', lambda m: m[0][:-1] + b"%d" % (int(m[0][-1:]) & int(m[0][-1:]) - 1), newest.data)
    assert flipped != newest.data
    table.store.delete([key])
    assert table.store.put_if_absent(key, flipped) == Stored()
    table.generation(0, upserts(range(10), a=1))
    (merge,) = table.round().merges
    assert key in merge.index_faults[0]
    assert merge.fragments_scanned == 1
    table.check()
    found = index_of(table).find(table.context().table.newest(), key_table(KEYS))
    assert (found.uncovered, found.faults) == ((), ())


class CountedMaps(ThreadTasks):
    def __init__(self) -> None:
        super().__init__()
        self.mapped: list[int] = []

    def map(self, call: Callable[[A], T], items: Sequence[A]) -> list[T]:
        self.mapped.append(len(items))
        return super().map(call, items)


def test_threads_share_many_keys_and_what_must_be_fetched(
    table: FlusherTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):  # four runs of one part, in each of which the keys may lie
        table.generation(0, upserts(range(number, 10 + number), a=number))
        table.round()
    tasks = CountedMaps()
    index = KeyIndex(
        KeyCatalogs(table.store, SystemClock(), None),
        MappedParts(table.store, Path(table.uri), tmp_path, 1 << 20),
        tasks,
    )
    pinned = table.context().table.newest()

    def find() -> list[int]:
        before = len(tasks.mapped)
        check(pinned, index.find(pinned, key_table(KEYS)), KEYS)
        return tasks.mapped[before:]

    monkeypatch.setattr(key_index, "_SIDE_BY_SIDE_KEYS", len(KEYS) + 1)
    assert find() == [4]  # nothing is open yet
    assert find() == []
    monkeypatch.setattr(key_index, "_SIDE_BY_SIDE_KEYS", len(KEYS))
    assert find() == [4]
    tasks.close()


@pytest.mark.parametrize("local", [True, False])
def test_a_part_that_threads_want_at_once_is_brought_once(
    table: FlusherTable, tmp_path: Path, local: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.generation(0, upserts(range(10)))
    table.round()
    (part,) = [part for run in KeyCatalogs(table.store, SystemClock(), None).read().runs for part in run.parts]
    source = MappedParts(table.store, Path(table.uri) if local else None, tmp_path, 1 << 20)
    begun, let_go, read = Barrier(5), Event(), list[str]()
    decode = decode_part

    def slowly(data: pa.Buffer, where: str) -> Entries:
        read.append(where)
        let_go.wait(60)
        return decode(data, where)

    def opened() -> Entries:
        begun.wait(60)
        return source.open(part)

    monkeypatch.setattr(parts_module, "decode_part", slowly)
    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(opened) for _ in range(4)]
        begun.wait(60)
        let_go.set()
        entries = [future.result(60) for future in found]
    assert read == [part.object]
    assert all(one is entries[0] for one in entries)
    assert source.at_hand(part)
    assert len(source._turns) == 0


def test_parts_that_were_written_here_are_at_hand(table: FlusherTable, tmp_path: Path) -> None:
    table.user_append(0, range(10), in_model=True)
    index = index_of(table, "files brought from a store", tmp_path / "parts")
    keep_up(replace(table.context(), keys=index), UpkeepState())
    (part,) = (part for run in index.catalogs.read().runs for part in run.parts)
    assert index.parts.at_hand(part)
    assert not parts(table, "files brought from a store", tmp_path / "others").at_hand(part)
    pinned = table.context().table.newest()
    check(pinned, index.find(pinned, key_table(KEYS)), KEYS)


def test_a_catalog_of_some_seconds_ago_will_do_where_it_covers_all_files(table: FlusherTable) -> None:
    table.generation(0, upserts(range(10)))
    table.round()
    index, pinned = index_of(table), table.context().table.newest()
    assert index.find(pinned, key_table(KEYS)).uncovered == ()
    asked: list[str] = []
    read = index.catalogs.read

    def noted() -> Any:
        asked.append("read")
        return read()

    index.catalogs.read = noted  # type: ignore[method-assign]
    assert index.find(pinned, key_table(KEYS)).uncovered == ()
    assert asked == []
    table.user_append(1, range(5), in_model=True)
    indexed(table)
    newer = table.context().table.newest()
    assert index.find(newer, key_table(KEYS)).uncovered == ()
    assert asked == ["read"]


def test_only_parts_that_can_hold_a_key_are_read(table: FlusherTable) -> None:
    table.generation(0, upserts(range(10)))
    table.round()
    index = index_of(table)

    class Unread(StoredParts):
        def open(self, part: Any) -> Any:
            raise AssertionError("read")

    unread = KeyIndex(index.catalogs, Unread(table.store))
    pinned = table.context().table.newest()
    assert unread.find(pinned, key_table([])).covered == {}
    with pytest.raises(AssertionError, match="read"):
        unread.find(pinned, key_table(KEYS))
