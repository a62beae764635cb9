"""Links inside a local folder: not followed, by whatever a store does, also where one comes in between."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from lancewal_core.errors import LinkRefused, ObjectCorrupt, StoreUnavailable, TableMissing
from lancewal_core.store.folder import FolderStore, SeenFolder, opened_object, refuse_links
from lancewal_core.store.object_store import Stored, Taken
from lancewal_core.store.obstore import open_store

KEY = "_lancewal/wal/log/1"
REQUESTS: dict[str, Callable[[FolderStore], object]] = {
    "get": lambda store: store.get(KEY),
    "get_range": lambda store: store.get_range(KEY, 0, 3),
    "size": lambda store: store.size(KEY),
    "put": lambda store: store.put_if_absent("_lancewal/wal/log/2", b"ours"),
    "list": lambda store: store.list("_lancewal/wal/log/"),
    "list above": lambda store: store.list("_lancewal/"),
    "delete": lambda store: store.delete([KEY]),
}


def folder_of(tmp_path: Path, name: str) -> Path:
    made = tmp_path / name
    made.mkdir(parents=True)
    assert open_store(str(made)).put_if_absent(KEY, name.encode()) == Stored()
    return made


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def replace_by_link(path: Path, target: Path | str) -> None:
    path.rename(path.with_name(f"{path.name}-moved"))
    path.symlink_to(target)


@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize("link", ["_lancewal", "_lancewal/wal", "_lancewal/wal/log", KEY])
@pytest.mark.parametrize("target", ["there", "nowhere", "itself"])
def test_no_link_is_followed(tmp_path: Path, request_name: str, link: str, target: str) -> None:
    table, other = folder_of(tmp_path, "table"), folder_of(tmp_path, "other")
    leads_to = {"there": other / link, "nowhere": tmp_path / "nowhere", "itself": table / link}[target]
    replace_by_link(table / link, leads_to)
    before = content(other)
    ask, store = REQUESTS[request_name], FolderStore(table)
    if link == KEY and request_name in ("put", "delete"):
        ask(store)  # neither leads through it
        assert (table / KEY).is_symlink() == (request_name == "put")
    else:
        with pytest.raises(LinkRefused) as caught:
            ask(store)
        assert caught.value.where["object"] == link
        assert str(caught.value).startswith(f"{table / link} is a symbolic link: ")
    assert content(other) == before
    assert not (tmp_path / "nowhere").exists()


def test_a_link_is_no_object_that_a_put_replaces(tmp_path: Path) -> None:
    table = folder_of(tmp_path, "table")
    for name, target in (("dangling", tmp_path / "nowhere"), ("led", tmp_path / "table" / KEY)):
        (table / name).symlink_to(target)
        assert FolderStore(table).put_if_absent(name, b"ours") == Taken()
    assert not (tmp_path / "nowhere").exists()
    assert (table / KEY).read_bytes() == b"table"


@pytest.mark.parametrize("link", ["_lancewal", "_lancewal/wal", "_lancewal/wal/log"])
def test_a_folder_that_becomes_a_link_after_a_listing(tmp_path: Path, link: str) -> None:
    table, other = folder_of(tmp_path, "table"), folder_of(tmp_path, "other")
    store = FolderStore(table)
    listed = [info.key for info in store.list("_lancewal/")]
    assert listed == [KEY]
    replace_by_link(table / link, other / link)
    with pytest.raises(LinkRefused):
        store.delete(listed)
    assert content(other) == {KEY: b"other"}


@pytest.mark.parametrize("request_name", REQUESTS)
def test_a_folder_that_becomes_a_link_while_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_name: str
) -> None:
    """Just after it was opened: what is opened stays that folder."""
    table, other = folder_of(tmp_path, "table"), folder_of(tmp_path, "other")
    opened = os.open

    def swap(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        found = opened(path, flags, mode, dir_fd=dir_fd)
        if path == "wal" and not (table / "_lancewal/wal").is_symlink():
            replace_by_link(table / "_lancewal/wal", other / "_lancewal/wal")
        return found

    monkeypatch.setattr(os, "open", swap)
    answer: object = None
    try:
        answer = REQUESTS[request_name](FolderStore(table))
    except LinkRefused:
        assert request_name == "list above"  # which opens a folder anew for each in it
    assert (table / "_lancewal/wal").is_symlink()
    assert answer in (None, b"table", b"tab", 5, Stored()) or request_name == "list"
    assert content(other) == {KEY: b"other"}


def test_a_link_that_takes_the_place_of_a_staged_object_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, other = folder_of(tmp_path, "table"), folder_of(tmp_path, "other")
    link = os.link

    def swap(source: str, target: str, **named: object) -> None:
        staged = table / "_lancewal/wal/log" / source
        staged.unlink()
        staged.symlink_to(other / KEY)
        link(source, target, **named)  # type: ignore[arg-type]  # as it came

    monkeypatch.setattr(os, "link", swap)
    FolderStore(table).put_if_absent("_lancewal/wal/log/2", b"ours")
    with pytest.raises(LinkRefused):
        FolderStore(table).get("_lancewal/wal/log/2")
    assert (other / KEY).stat().st_nlink == 1


def test_a_folder_may_be_a_link_or_lie_behind_one(tmp_path: Path) -> None:
    folder_of(tmp_path, "disk/table")
    (tmp_path / "link").symlink_to(tmp_path / "disk/table")
    (tmp_path / "above").symlink_to(tmp_path / "disk")
    for uri in (tmp_path / "link", tmp_path / "above/table"):
        store = open_store(str(uri))
        assert store.get(KEY) == b"disk/table"
        assert store.put_if_absent("a/b", b"ours") == Stored()
        assert sorted(info.key for info in store.list("")) == [KEY, "a/b"]
        refuse_links(uri, ["_lancewal/", "a/"], below=True)
        store.delete(["a/b"])


def test_links_are_found_below_the_folders_that_are_named(tmp_path: Path) -> None:
    table = folder_of(tmp_path, "table")
    (table / "data/deep").mkdir(parents=True)
    (table / "mine").symlink_to(tmp_path)
    refuse_links(table, ["data/", "_versions/"], below=True)
    (table / "data/deep/link").symlink_to(tmp_path / "nowhere")
    refuse_links(table, ["data/"])
    with pytest.raises(LinkRefused, match="data/deep/link is a symbolic link"):
        refuse_links(table, ["data/"], below=True)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = folder_of(tmp_path, "table")
    os.mkfifo(table / "pipe")
    with pytest.raises(ObjectCorrupt, match=r"pipe in .* is neither a file nor a folder"):
        FolderStore(table).get("pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        monkeypatch.chdir(table)  # a socket's address is short
        listening.bind("socket")
    with pytest.raises(ObjectCorrupt, match=r"socket in .* is neither a file nor a folder"):
        FolderStore(table).get("socket")


def test_a_folder_in_place_of_an_object_is_named(tmp_path: Path) -> None:
    table = folder_of(tmp_path, "table")
    (table / "pages" / "1.binpb").mkdir(parents=True)
    store, key = FolderStore(table), "pages/1.binpb"
    asks = (store.get, store.size, lambda key: store.get_range(key, 0, 1), lambda key: store.put_if_absent(key, b"x"))
    for ask in asks:
        with pytest.raises(ObjectCorrupt, match=r"a folder lies at pages/1\.binpb in .*, where an object belongs"):
            ask(key)
    with pytest.raises(ObjectCorrupt, match="a folder lies"), opened_object(table, key):
        pass
    assert [path.name for path in (table / "pages").iterdir()] == ["1.binpb"]


def test_a_file_in_place_of_a_folder_is_named(tmp_path: Path) -> None:
    table = folder_of(tmp_path, "table")
    (table / "pages").write_bytes(b"")
    store = FolderStore(table)
    asks = (store.get, store.size, lambda key: store.list("pages/"), lambda key: store.put_if_absent(key, b"x"))
    for ask in asks:
        with pytest.raises(ObjectCorrupt, match=r"a file lies at pages in .*, where a folder belongs"):
            ask("pages/1.binpb")


def test_names_that_are_no_keys(tmp_path: Path) -> None:
    table = folder_of(tmp_path, "table")
    store = FolderStore(table)
    (table / os.fsdecode(b"\xff")).write_bytes(b"")
    (table / "left#1").write_bytes(b"of a writer that died")
    assert [info.key for info in store.list("")] == [KEY]
    assert store.put_if_absent("left", b"ours") == Stored()
    for key in ("", "/a", "a/", "a//b", ".", "a/../b", "a\0b", "\udcff", "left#1", "x" * 256):
        for ask in (store.get, store.size, lambda key: store.delete([key]), lambda key: store.put_if_absent(key, b"")):
            with pytest.raises(ObjectCorrupt, match="cannot be the key of an object"):
                ask(key)
    assert sorted(info.key for info in store.list("")) == [KEY, "left"]


def test_without_its_folder_no_object_is_absent(tmp_path: Path) -> None:
    """A disk that is not mounted says nothing of what lies on it."""
    table = folder_of(tmp_path, "table")
    table.rename(tmp_path / "away")
    for name, ask in REQUESTS.items():
        with pytest.raises(StoreUnavailable, match="there is no folder"):
            ask(FolderStore(table))
        assert not table.exists(), name


def test_a_folder_that_was_deleted_is_told_from_a_disk_that_is_not_mounted(tmp_path: Path) -> None:
    table = folder_of(tmp_path, "disk/lake/table")
    store = FolderStore(table)
    for vanishes in (table, tmp_path / "disk" / "lake"):  # with the disk still there
        vanishes.rename(tmp_path / "away")
        for name, ask in REQUESTS.items():
            with pytest.raises(TableMissing, match=f"the folder {table} was deleted or moved"):
                ask(store)
            assert not table.exists(), name
        (tmp_path / "away").rename(vanishes)
        assert store.get(KEY) is not None
    disk = tmp_path / "disk"
    disk.rename(tmp_path / "away")
    disk.mkdir()  # a mount point without its disk is another folder
    for ask in REQUESTS.values():
        with pytest.raises(StoreUnavailable, match="there is no folder"):
            ask(store)
    disk.rmdir()
    (tmp_path / "away").rename(disk)
    assert store.get(KEY) is not None


def test_a_link_that_is_gone_says_nothing_of_the_folder(tmp_path: Path) -> None:
    folder_of(tmp_path, "there")
    table = tmp_path / "table"
    table.symlink_to(tmp_path / "there")
    store = FolderStore(table)
    table.unlink()
    with pytest.raises(StoreUnavailable, match="there is no folder"):
        store.get(KEY)


def test_an_empty_folder_on_another_device_is_a_mount_point(tmp_path: Path) -> None:
    table = folder_of(tmp_path, "table")
    store = FolderStore(table)
    (real, seen), *above = store._seen.folders
    assert seen is not None
    store._seen = SeenFolder([(real, (seen[0] + 1, seen[1])), *above])
    assert store.get(KEY) == b"table"  # mounted again, by another number
    table.rename(tmp_path / "away")
    table.mkdir()
    for name, ask in REQUESTS.items():
        with pytest.raises(StoreUnavailable, match="is empty and on another device than before"):
            ask(store)
        assert list(table.iterdir()) == [], name
    store._seen = SeenFolder.at(table)
    assert store.get(KEY) is None
