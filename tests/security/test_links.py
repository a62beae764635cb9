"""A link that somebody has put into a table's folder leads nobody into another table."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lancewal_core.errors import LinkRefused
from lancewal_flusher.garbage.collect import GarbageState, collect_garbage
from lancewal_flusher.garbage.collect_all import collect_to_the_end
from lancewal_flusher.garbage.snapshots import drop_snapshot
from lancewal_reader.table import open_table, reads_of
from lancewal_tables.snapshots.make import make_snapshot
from tests.flusher.garbage.test_table_versions import later
from tests.support.flusher_tables import FlusherTable, upserts

LANCE = ("_versions", "data", "_transactions", "_deletions", "_refs", "_indices", "tree")
OURS = ("_lancewal", "_lancewal/wal", "_lancewal/wal/*", "_lancewal/wal/*/*")


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[tuple[FlusherTable, Path]]:
    """One with versions and logs that may go, and the folder of another one with rows that are not merged."""
    made = FlusherTable(tmp_path, history_window_s=0, grace_s=0)
    for number in range(3):
        made.generation(0, upserts(range(5 * number, 5 * number + 10), a=number))
        made.round()
    shutil.copytree(made.uri, tmp_path / "other")
    yield made, tmp_path / "other"
    made.close()


def put_link(table: FlusherTable, pattern: str, other: Path) -> str:
    """Of the first that matches; the folder that was there goes."""
    root = Path(table.uri)
    path = min(root.glob(pattern), default=root / pattern)
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    key = str(path.relative_to(root))
    if pattern in LANCE:
        (other / key).mkdir(exist_ok=True)
    path.symlink_to(other / key)
    return key


@pytest.mark.parametrize("pattern", [*OURS, *LANCE])
def test_garbage_collection_deletes_nothing_through_a_link(tables: tuple[FlusherTable, Path], pattern: str) -> None:
    table, other = tables
    key, context = put_link(table, pattern, other), later(table)
    before = content(other)
    for collect in (lambda: collect_garbage(context, GarbageState()), lambda: collect_to_the_end(context, wait=False)):
        with pytest.raises(LinkRefused, match=f"{key} is a symbolic link"):
            collect()
    assert content(other) == before


@pytest.mark.parametrize("link", ["branches", "branches/odd.json", "tags/odd.json"])
def test_a_link_among_names_of_branches_holds_back_versions_and_nothing_else(
    tables: tuple[FlusherTable, Path], link: str
) -> None:
    table, other = tables
    path = Path(table.uri) / "_refs" / link
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(other / "data")
    before = content(other)
    report = collect_garbage(later(table), GarbageState())
    assert f"_refs/{link} is a symbolic link" in str(report.names_fault)
    assert report.expired_versions == ()
    table.generation(0, upserts(range(3, 30), a=9))
    table.round()
    table.check()
    path.unlink()
    assert collect_garbage(later(table), GarbageState()).expired_versions
    assert content(other) == before


@pytest.mark.parametrize("pattern", ["_lancewal", *LANCE])
def test_a_table_is_not_read_through_a_link(tables: tuple[FlusherTable, Path], pattern: str) -> None:
    table, other = tables
    key = put_link(table, pattern, other)
    with pytest.raises(LinkRefused, match=f"{key} is a symbolic link"):
        open_table(table.uri).to_arrow()


@pytest.mark.parametrize("inside", ["data/more", "data/x.lance", "_versions/1.manifest", "_indices/x", "tree/a/data"])
def test_lance_removes_no_version_where_a_link_lies_in_its_folders(
    tables: tuple[FlusherTable, Path], inside: str
) -> None:
    table, other = tables
    path = Path(table.uri) / inside
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(other / "data")
    before = content(other)
    opened = later(table).table
    with pytest.raises(LinkRefused, match=f"{inside} is a symbolic link"):
        opened.remove_versions([opened.newest().version])
    assert content(other) == before


@pytest.mark.parametrize("link", ["tree", "tree/{}", "tree/{}/data", "tree/{}/_versions"])
def test_a_snapshot_is_neither_made_nor_dropped_through_a_link(tables: tuple[FlusherTable, Path], link: str) -> None:
    table, other = tables
    context = table.context()
    reads = reads_of(context, table.uri)
    make_snapshot(context, reads, "kept")
    shutil.copytree(f"{table.uri}/tree", other / "tree")
    before = content(other)
    for name in ("kept", "more"):
        path = Path(table.uri) / link.format(name)
        if path.is_symlink():
            continue
        if path.exists():
            shutil.rmtree(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(other / link.format("kept"))
    with pytest.raises(LinkRefused, match=f"{link.format('more')} is a symbolic link"):
        make_snapshot(context, reads, "more")
    with pytest.raises(LinkRefused, match=f"{link.format('kept')} is a symbolic link"):
        drop_snapshot(context.table, "kept")
    assert content(other) == before
