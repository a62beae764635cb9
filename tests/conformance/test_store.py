"""One suite for every object store: the in-memory twin, alone and observed, a local folder, the small S3 of benchmarks, and
real servers of S3, Azure and Google Cloud Storage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lancewal_core.errors import ObjectCorrupt, ObjectTooLarge
from lancewal_core.names import paths
from lancewal_core.names.ids import TableVersion
from lancewal_core.process.clock import SystemClock
from lancewal_core.store.object_kinds import SMALL_BYTES_MAX
from lancewal_core.store.object_store import Done, Lost, ObjectStore, Stored, Taken, put_once
from lancewal_core.store.observed import ObservedStore, StoreMetricTable
from lancewal_core.store.obstore import open_store
from tests.support.small_s3.server import SmallS3
from tests.support.store_addresses import REAL, at_real_server
from tests.twins.memory_store import MemoryStore

MakeStore = Callable[[], ObjectStore]


@pytest.fixture(params=["memory", "observed", "folder", "small-s3", *REAL])  # s3, azure, gcs
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectStore]:
    match request.param:
        case "memory":
            yield MemoryStore(SystemClock())
        case "observed":
            yield ObservedStore(MemoryStore(SystemClock()), StoreMetricTable("orders"))
        case "folder":
            yield open_store(str(tmp_path))
        case "small-s3":
            with SmallS3() as small:
                yield open_store("s3://conformance/table", small.options)
        case kind:
            yield open_store(*at_real_server(request, kind, "conformance", f"{tmp_path.name}/table"))


def test_an_object_is_read_as_it_was_put(store: ObjectStore) -> None:
    data = bytes(range(256)) * 5
    assert store.put_if_absent("_lancewal/a/b", data) == Stored()
    assert store.get("_lancewal/a/b") == data
    assert store.put_if_absent("empty", b"") == Stored()
    assert store.get("empty") == b""


def test_what_is_not_there_is_none(store: ObjectStore) -> None:
    assert store.get("a/missing") is None
    assert store.get_range("a/missing", 0, 4) is None
    assert list(store.list("a/")) == []
    store.delete(["a/missing", "a/missing too"])


def test_what_is_larger_than_any_of_its_kind_is_neither_written_nor_read(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As told by their keys: a mark of a finished merge is a short text, and any object may be larger than it."""
    large = bytes(SMALL_BYTES_MAX + 1)
    key = paths.merge_finished(TableVersion(7), None)
    with pytest.raises(ObjectTooLarge, match=r"would have 1048577 bytes, more than the 1048576") as caught:
        store.put_if_absent(key, large)
    assert key in str(caught.value)
    assert store.get(key) is None
    stores = ("lancewal_core.store.obstore", "lancewal_core.store.folder", "tests.twins.memory_store")
    for module in stores:  # as others would put it
        monkeypatch.setattr(f"{module}.check_written", lambda key, size: None)
    for put in (key, "_lancewal/a/b"):
        assert store.put_if_absent(put, large) == Stored()
    assert store.get("_lancewal/a/b") == large
    with pytest.raises(ObjectCorrupt, match=r"has 1048577 bytes, more than the 1048576"):
        store.get(key)
    assert store.get_range(key, 0, 3) == bytes(3)


def test_a_put_never_replaces(store: ObjectStore) -> None:
    store.put_if_absent("a", b"first")
    assert store.put_if_absent("a", b"second") == Taken()
    assert store.get("a") == b"first"
    assert put_once(store, "a", b"first") == Done()
    assert put_once(store, "a", b"second") == Lost(b"first")


def test_an_entity_tag_names_an_object(store: ObjectStore) -> None:
    puts = [store.put_if_absent(f"tags/{number}", b"content %d" % number) for number in range(3)]
    listed = {info.key: info.etag for info in store.list("tags/")}
    assert [put.etag for put in puts if isinstance(put, Stored)] == [listed[f"tags/{number}"] for number in range(3)]
    assert None not in listed.values()
    store.delete(["tags/1"])
    another = store.put_if_absent("tags/1", b"content x")
    assert isinstance(another, Stored)
    (now,) = [info.etag for info in store.list("tags/") if info.key == "tags/1"]
    assert now == another.etag != listed["tags/1"]


def test_of_racing_puts_exactly_one_wins(store: ObjectStore) -> None:
    with ThreadPoolExecutor(8) as threads:
        for turn in range(10):
            contents = [f"{turn} {writer}".encode() for writer in range(8)]
            key = f"race/{turn}"
            outcomes = list(threads.map(lambda data, key=key: put_once(store, key, data), contents))
            winners = [data for data, outcome in zip(contents, outcomes, strict=True) if outcome == Done()]
            assert winners == [store.get(key)]
            assert outcomes.count(Lost(winners[0])) == 7


def test_ranges_are_cut_at_the_end(store: ObjectStore) -> None:
    store.put_if_absent("a", b"0123456789")
    assert store.get_range("a", 2, 5) == b"234"
    assert store.get_range("a", 8, 10) == b"89"
    assert store.get_range("a", 8, 100) == b"89"
    assert store.get_range("a", 10, 12) == b""
    assert store.get_range("a", 100, 112) == b""
    store.put_if_absent("empty", b"")
    assert store.get_range("empty", 0, 1) == b""


def test_a_listing_shows_what_lies_under_a_prefix(store: ObjectStore) -> None:
    for key in ("x/2", "x/1/deep", "xy/no", "y"):
        store.put_if_absent(key, key.encode())
    found = {info.key: info.size for info in store.list("x/")}
    assert found == {"x/1/deep": 8, "x/2": 3}
    assert all(info.modified_ms > 1_600_000_000_000 for info in store.list("x/"))


def test_a_limited_listing_shows_the_first_keys_or_everything(store: ObjectStore) -> None:
    keys = [f"v/{number:03d}" for number in range(20)]
    for key in reversed(keys):
        store.put_if_absent(key, b"-")
    found = [info.key for info in store.list("v/", limit=3)]
    assert found[:3] == keys[:3] or sorted(found) == keys


@pytest.mark.parametrize("limit", [None, 1])
def test_a_listing_may_begin_behind_a_key(store: ObjectStore, limit: int | None) -> None:
    """Which need not be there."""
    keys = [f"v/a/{number:03d}" for number in range(20)]
    for key in (*keys, "u/z", "v/b", "w"):
        store.put_if_absent(key, b"-")
    store.delete([keys[11]])
    for after, first in ((keys[10], keys[12]), (keys[11], keys[12]), ("u", keys[0]), (keys[19], None)):
        found = sorted(info.key for info in store.list("v/a/", limit, after))
        assert found[:1] == ([] if first is None else [first])
        assert limit or found == [key for key in keys if key > after and key != keys[11]]


def test_a_deleted_object_is_gone_and_its_key_free(store: ObjectStore) -> None:
    for key in ("d/1", "d/2", "d/3"):
        store.put_if_absent(key, b"old")
    store.delete(["d/1", "d/3", "d/never"])
    assert [store.get(key) for key in ("d/1", "d/2", "d/3")] == [None, b"old", None]
    assert [info.key for info in store.list("d/")] == ["d/2"]
    assert store.put_if_absent("d/1", b"new") == Stored()
