"""Objects that are nobody's, in each folder that is listed: merges go on, and what they may protect stays."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from lancewal_core.errors import ObjectCorrupt, SnapshotMissing
from lancewal_core.table.snapshots import snapshots
from lancewal_flusher.garbage.collect import GarbageState, collect_garbage
from lancewal_flusher.garbage.collect_all import look
from lancewal_flusher.garbage.snapshots import drop_snapshot
from lancewal_reader.table import open_table, reads_of
from lancewal_tables.snapshots.make import make_snapshot
from tests.flusher.garbage.test_table_versions import later, versions
from tests.support.flusher_tables import FlusherTable, upserts

BRANCH: dict[str, object] = {"parentBranch": None, "parentVersion": 1, "createAt": 1, "manifestSize": 1, "metadata": {}}
TAG: dict[str, object] = {"branch": None, "version": 1, "manifestSize": 1}


def put(table: FlusherTable, key: str, content: bytes) -> Path:
    path = Path(table.uri) / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


ODD = (
    *(("odd.json", content) for content in (b"hello", b"", b"[1]", b"{}", b"\xff\xfe")),
    ("._x.json", b"\x00\x05\x16\x07"),  # as a Mac leaves
    (".json", b""),
    ("odd.json/inner", b""),
    ("odd.json/inner.json", json.dumps({**BRANCH, **TAG}).encode()),
    ("a%2Fb%zz.json", b"{}"),
    ("x y.json", b"{}"),
)


def spoilt(known: Mapping[str, object]) -> Iterator[tuple[str, bytes]]:
    """A name of a branch or tag, wrong in one member."""
    for member in sorted({"version", "parentVersion", "createAt", "manifestSize"} & known.keys()):
        yield "odd.json", json.dumps({name: value for name, value in known.items() if name != member}).encode()
        yield "odd.json", json.dumps({**known, member: -1}).encode()
    yield "odd.json", json.dumps({**known, "metadata": {"a": 1}}).encode()
    yield "odd.json", json.dumps(known).encode() + b" x"


@pytest.mark.parametrize(("folder", "known"), [("branches", BRANCH), ("tags", TAG)])
def test_an_odd_name_holds_back_versions_and_nothing_else(
    table: FlusherTable, folder: str, known: Mapping[str, object]
) -> None:
    tagged, branched = versions(table)[1:3]
    table.dataset.create_branch("mine/own", branched)
    table.dataset.tags.create("kept", tagged)
    before, state, context = versions(table), GarbageState(), later(table)
    for name, content in [*ODD, *spoilt(known)]:
        odd = put(table, f"_refs/{folder}/{name}", content)
        with pytest.raises((OSError, RuntimeError, ValueError)):  # what it is about
            table.dataset.branches.list() if folder == "branches" else table.dataset.tags.list()
        (own,) = context.table.branches()
        assert (own.name, own.version) == ("mine/own", branched)
        assert (context.table.find_branch("mine/own"), context.table.find_branch("odd")) == (own, None)
        report = collect_garbage(context, state)
        assert f"_refs/{folder}/{name.split('/')[0]}" in str(report.names_fault)
        assert (report.expired_versions, versions(table)) == ((), before)
        assert (look(context).names_fault, look(context).expired_versions) == (str(report.names_fault), 0)
        odd.unlink()
        if "/" in name:
            odd.parent.rmdir()
    odd = put(table, f"_refs/{folder}/odd.json", b"")
    table.generation(0, upserts(range(3, 30), a=9))
    table.round()
    table.check()
    odd.unlink()
    report = collect_garbage(context, state)  # the next round goes on
    assert report.names_fault is None
    assert report.expired_versions
    assert {tagged, branched} <= set(versions(table))


def test_no_snapshot_is_dropped_while_a_name_cannot_be_read(table: FlusherTable) -> None:
    """It may be the snapshot's own name, or that of a branch that needs its files."""
    context = later(table)
    made = table.context()
    make_snapshot(made, reads_of(made, table.uri), "over", for_ms=1000)
    table.dataset.create_branch("mine")
    ref = Path(table.uri) / "_refs/branches/mine.json"
    known = ref.read_bytes()
    ref.write_bytes(known[:20])
    data = sorted(path for path in Path(table.uri).rglob("*") if path.is_file() and "_lancewal" not in path.parts)
    assert collect_garbage(context, GarbageState()).dropped_snapshots == ()
    for name in ("over", "mine", "none"):
        with pytest.raises(
            ObjectCorrupt, match=r"^_refs/branches/mine.json in .* cannot be read as the name of a branch"
        ):
            drop_snapshot(context.table, name)
    assert all(path.exists() for path in data)
    assert [snapshot.name for snapshot in snapshots(context.table)] == ["over"]
    with pytest.raises(SnapshotMissing, match=r"there are over; _refs/branches/mine.json in"):
        open_table(table.uri).scan(at="snapshot:mine")
    ref.write_bytes(known)
    assert collect_garbage(context, GarbageState()).dropped_snapshots == ("over",)


@pytest.mark.parametrize("name", ["x.JSON", "x.json~", "x.json.tmp", "sub/x.json", "README"])
@pytest.mark.parametrize("folder", ["branches", "tags"])
def test_what_lance_passes_over_holds_back_nothing(table: FlusherTable, folder: str, name: str) -> None:
    put(table, f"_refs/{folder}/{name}", b"hello")
    report = collect_garbage(later(table), GarbageState())
    assert report.names_fault is None
    assert report.expired_versions


FOLDERS = [
    *("", "data/", "_versions/", "_transactions/", "_deletions/", "_indices/", "_refs/", "tree/", "tree/odd/"),
    *("_lancewal/", "_lancewal/wal/", "_lancewal/wal/log/", "_lancewal/flushes/", "_lancewal/flushes/f/"),
    *("_lancewal/keys/parts/", "_lancewal/conflicts/", "_lancewal/parcels/", "_lancewal/probe/", "_lancewal/store/"),
    "_lancewal/made/",
]


def test_odd_objects_in_all_other_folders_change_nothing(table: FlusherTable) -> None:
    making = table.contract.making
    own = [] if making is None else [f"_lancewal/made/{making}/{kind}/" for kind in ("merges", "pages", "regions")]
    odd = [
        put(table, f"{folder}{name}", b"hello")
        for folder in [*FOLDERS, *own]
        for name in ("odd.json", "._x.json", "._x.manifest", "odd.arrow", "a b%zz", "ä")
    ]
    table.generation(0, upserts(range(3, 30), a=9))
    table.round()
    table.check()
    report = collect_garbage(later(table), GarbageState())
    assert report.names_fault is None
    assert report.expired_versions
    assert look(later(table)).names_fault is None
    table.generation(0, upserts(range(40, 50), a=9))
    table.round()
    table.check()
    assert all(path.exists() for path in odd if "_lancewal" in path.parts)
