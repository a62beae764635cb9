"""Named snapshots on real Lance tables: their rows are those of the read, whatever becomes of the table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pytest

from lancewal_core.errors import (
    BasePathsRefused,
    InvalidInput,
    NotALancewalTable,
    RegionConflict,
    SnapshotMissing,
    StoreUnavailable,
    VersionGone,
)
from lancewal_core.names.ids import TableVersion
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.protocol import CommitOutcome, TableCommit
from lancewal_core.table.snapshots import about, snapshots
from lancewal_flusher.garbage.snapshots import BEGUN_MAX_MS, drop_overdue, drop_snapshot
from lancewal_reader.point.at import point_of
from lancewal_reader.point.receipt import receipt_of
from lancewal_reader.table import open_table, reads_of
from lancewal_reader.unmerged.left_out import left_out_of
from lancewal_tables.snapshots.make import Made, make_snapshot
from tests.reader.test_key_bytes import foreign_key, through_two
from tests.support.pipeline import Pipeline, by_key


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    """Rows in the table, in flushes, and in the log alone."""
    made = Pipeline(tmp_path, seed=5, seal_rows=25, batch=15, grace_s=0, history_window_s=0)
    made.produce(80)
    made.merge_all()
    made.produce(60)
    made.ingest()
    yield made
    made.close()


def snapshot(pipeline: Pipeline, name: str, at: str | None = None, for_ms: int | None = None) -> Made:
    context = pipeline.flusher()
    return make_snapshot(context, reads_of(context, pipeline.uri), name, point_of(at), for_ms)


def branch(pipeline: Pipeline, name: str) -> Any:
    return lance.dataset(pipeline.uri).checkout_version((name, None))


def test_it_has_the_rows_of_its_moment_for_plain_lance_and_for_readers(pipeline: Pipeline) -> None:
    lance.dataset(pipeline.uri).create_scalar_index("id", "BTREE")
    before = dict(pipeline.oracle)
    made = snapshot(pipeline, "eom")
    assert made.rows > 0
    assert made.hidden > 0
    assert by_key(branch(pipeline, "eom").to_table()) == before
    assert [index.name for index in branch(pipeline, "eom").describe_indices()] == ["id_idx"]
    assert branch(pipeline, "eom").to_table(filter="id = 3").num_rows == sum(1 for _, id in before if id == 3)
    table = open_table(pipeline.uri)
    read = table.scan(at="snapshot:eom")
    assert str(read.receipt) == made.snapshot.receipt
    for _ in range(3):  # all goes on, and what it was made of goes
        pipeline.produce(60)
        pipeline.merge_all()
        pipeline.clock.ahead_s += 8 * 24 * 3600
        pipeline.collect()
    lance.dataset(pipeline.uri).optimize.compact_files()
    pipeline.produce(20)
    pipeline.merge_all()
    lance.dataset(pipeline.uri).cleanup_old_versions(older_than=timedelta(0))
    lance.dataset(pipeline.uri).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    assert by_key(branch(pipeline, "eom").to_table()) == before
    assert by_key(read.to_arrow()) == before
    assert by_key(open_table(pipeline.uri).to_arrow(at="snapshot:eom")) == before
    assert open_table(pipeline.uri).count_rows(at="snapshot:eom") == len(before)
    some = sorted(before)[:5]
    found = table.get([{"region": region, "id": id} for region, id in some], at="snapshot:eom").to_arrow()
    assert by_key(found) == {key: before[key] for key in some}
    assert by_key(open_table(pipeline.uri).to_arrow()) == pipeline.oracle
    with pytest.raises(SnapshotMissing, match="no snapshot 'eon': there are eom"):
        table.scan(at="snapshot:eon")
    drop_snapshot(pipeline.table, "eom")
    with pytest.raises(SnapshotMissing, match="eom"):
        read.to_arrow()
    with pytest.raises(SnapshotMissing, match="no snapshot 'eom': there are none"):
        drop_snapshot(pipeline.table, "eom")
    assert not list((Path(pipeline.uri) / "tree").rglob("*.lance"))
    assert by_key(open_table(pipeline.uri).to_arrow()) == pipeline.oracle


def test_at_a_point_of_the_past(pipeline: Pipeline) -> None:
    receipt, before = open_table(pipeline.uri).receipt(), dict(pipeline.oracle)
    pipeline.produce(40)
    pipeline.merge_all()
    snapshot(pipeline, "then", str(receipt))
    assert by_key(branch(pipeline, "then").to_table()) == before
    snapshot(pipeline, "merged", f"version:{receipt.version}")
    assert by_key(branch(pipeline, "merged").to_table()) == by_key(
        lance.dataset(pipeline.uri, version=receipt.version).to_table()
    )


def test_names(pipeline: Pipeline) -> None:
    for name in ("", "main", "..", "a/b", "a b", ".a", "a.", "a..b", "x" * 65, "ü", "a.lock"):
        with pytest.raises(InvalidInput, match="not a valid snapshot name"):
            snapshot(pipeline, name)
        with pytest.raises(InvalidInput, match="not a valid snapshot name"):
            drop_snapshot(pipeline.table, name)
    snapshot(pipeline, "A-b_c.1")
    with pytest.raises(InvalidInput, match=r"there is a snapshot A-b_c\.1 already"):
        snapshot(pipeline, "A-b_c.1")
    drop_snapshot(pipeline.table, "A-b_c.1")
    snapshot(pipeline, "A-b_c.1")
    with pytest.raises(InvalidInput, match=r"cannot be made of snapshot A-b_c\.1"):
        snapshot(pipeline, "again", "snapshot:A-b_c.1")
    with pytest.raises(SnapshotMissing):
        snapshot(pipeline, "again", "snapshot:none")


class _Racing:
    """Branches of a data set: as the first listing reads one, it is dropped."""

    def __init__(self, branches: Any, drop: list[str]) -> None:
        self._branches, self._drop = branches, drop

    def list(self) -> Any:
        found = self._branches.list()
        if self._drop:
            self._branches.delete(self._drop.pop())
            raise ValueError("Not found: _refs/branches/one.json")  # as Lance says it
        return found


def test_one_that_is_dropped_while_others_are_listed(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        snapshot(pipeline, name)
    drop = ["one"]
    branches = lance.LanceDataset.branches
    monkeypatch.setattr(lance.LanceDataset, "branches", property(lambda self: _Racing(branches.fget(self), drop)))  # type: ignore[attr-defined] # a property
    assert [found.name for found in snapshots(pipeline.table)] == ["two"]
    monkeypatch.undo()
    with pytest.raises(VersionGone, match="metadata of branch one"):
        pipeline.table.note_branch("one", {})


def test_one_that_was_made_anew_while_others_are_dropped_stays(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by who makes a snapshot of the same name every night, when the one of the night before is over."""
    for name in ("one", "two"):
        snapshot(pipeline, name, for_ms=1000)
    real = LanceTable.drop_branch

    def drop_branch(self: LanceTable, name: str) -> bool:
        if name == "one":
            real(self, "two")
            snapshot(pipeline, "two", for_ms=24 * 3600 * 1000)
        return real(self, name)

    monkeypatch.setattr(LanceTable, "drop_branch", drop_branch)
    assert drop_overdue(pipeline.table, pipeline.clock.now_ms() + 5000) == ("one",)
    assert [found.name for found in snapshots(pipeline.table)] == ["two"]


def test_a_branch_of_a_user_is_no_snapshot(pipeline: Pipeline) -> None:
    lance.dataset(pipeline.uri).create_branch("mine")
    with pytest.raises(SnapshotMissing, match="is a user's"):
        open_table(pipeline.uri).scan(at="snapshot:mine")
    with pytest.raises(InvalidInput, match="is not a snapshot: delete it with Lance"):
        drop_snapshot(pipeline.table, "mine")
    with pytest.raises(InvalidInput, match="there is a branch mine already"):
        snapshot(pipeline, "mine")
    assert snapshots(pipeline.table) == []
    assert drop_overdue(pipeline.table, pipeline.clock.now_ms() + 10**12) == ()


def test_a_reader_does_not_take_a_branch_for_the_table(pipeline: Pipeline) -> None:
    snapshot(pipeline, "eom")
    with pytest.raises(
        BasePathsRefused, match=r"is a branch of the table at .*, read that table at the point snapshot:eom"
    ):
        open_table(f"{pipeline.uri}/tree/eom")
    with pytest.raises(NotALancewalTable):
        open_table(f"{pipeline.uri}/tree/eom", base_paths="allow")


@pytest.mark.parametrize("step", ["note_branch", "commit", "at", "write_rows"])
def test_one_that_is_cut_short_is_no_snapshot(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """The process dies, or the store does: then nothing of it is read, and the name is free once it was dropped."""
    before = dict(pipeline.oracle)

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        original = LanceTable.at

        def at(self: LanceTable, version: int) -> Any:
            if step == "at" and lance.dataset(pipeline.uri).branches.list() and self.uri == pipeline.uri:
                dies()
            return original(self, version)

        patch.setattr(LanceTable, step, at if step == "at" else dies)
        with pytest.raises(KeyboardInterrupt):
            snapshot(pipeline, "eom")
    with pytest.raises(SnapshotMissing):
        open_table(pipeline.uri).scan(at="snapshot:eom")
    assert snapshots(pipeline.table) == []
    if step == "note_branch":  # nobody can tell it from a user's
        lance.dataset(pipeline.uri).branches.delete("eom")
    else:
        with pytest.raises(InvalidInput, match="or one is being made"):
            snapshot(pipeline, "eom")
        now = pipeline.clock.now_ms()
        assert drop_overdue(pipeline.table, now) == ()
        assert drop_overdue(pipeline.table, now + BEGUN_MAX_MS + 1000) == ("eom",)
    snapshot(pipeline, "eom")
    assert by_key(branch(pipeline, "eom").to_table()) == before


def test_one_that_died_before_lance_knew_its_name_is_dropped_by_it(pipeline: Pipeline) -> None:
    snapshot(pipeline, "eom")
    next((Path(pipeline.uri) / "_refs" / "branches").iterdir()).unlink()
    with pytest.raises(InvalidInput, match="there is a snapshot eom already, or one is being made"):
        snapshot(pipeline, "eom")
    drop_snapshot(pipeline.table, "eom")
    snapshot(pipeline, "eom")
    assert by_key(branch(pipeline, "eom").to_table()) == pipeline.oracle


def test_a_version_that_goes_meanwhile_makes_it_begin_again(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clean-up that had begun before the branch was there takes the version: another one is taken."""
    real, gone = LanceTable.create_branch, list[int]()

    def create_branch(self: LanceTable, name: str, version: TableVersion) -> bool:
        found = real(self, name, version)
        if not gone:
            pipeline.produce(20)
            pipeline.merge_all()
            gone.append(version)
            manifest = Path(pipeline.uri) / "_versions" / f"{2**64 - 1 - version:020d}.manifest"
            manifest.unlink()
        return found

    monkeypatch.setattr(LanceTable, "create_branch", create_branch)
    made = snapshot(pipeline, "eom")
    assert made.snapshot.version > gone[0]
    assert by_key(branch(pipeline, "eom").to_table()) == pipeline.oracle


@pytest.mark.parametrize(("step", "call"), [("find_branch", 1), ("branch", 1), ("commit", 1), ("find_branch", 2)])
@pytest.mark.parametrize("again", [False, True])
def test_one_that_is_dropped_while_it_is_made(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, step: str, call: int, again: bool
) -> None:
    """By whom it seems to hang, who may make it again, of newer rows: that one stays as it is."""
    before, calls, others = dict(pipeline.oracle), list[int](), list[Made]()
    real = getattr(LanceTable, step)

    def first(self: LanceTable, *of: Any) -> Any:
        if "eom" in lance.dataset(pipeline.uri).branches.list() and len(calls) < call:
            calls.append(1)
            if len(calls) == call:
                drop_snapshot(pipeline.table, "eom")
                if again:
                    pipeline.produce(20)
                    pipeline.ingest()
                    others.append(snapshot(pipeline, "eom"))
        return real(self, *of)

    with monkeypatch.context() as patch:
        patch.setattr(LanceTable, step, first)
        try:
            made = [snapshot(pipeline, "eom")]
        except (SnapshotMissing, InvalidInput, StoreUnavailable):
            made = []
    assert len(calls) >= call
    assert not (made and others)
    if made or others:
        (found,) = snapshots(pipeline.table)
        assert found == (made or others)[0].snapshot
        rows = open_table(pipeline.uri).to_arrow(at="snapshot:eom")
        assert by_key(rows) == by_key(branch(pipeline, "eom").to_table()) == (pipeline.oracle if others else before)
    else:
        assert snapshots(pipeline.table) == []


def test_a_stray_commit_of_an_earlier_one_makes_it_fail(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lands in the place of ours: the rows would be there twice."""
    real = LanceTable.commit

    def commit(self: LanceTable, wanted: TableCommit) -> CommitOutcome:
        real(self, replace(wanted, updated_fragments=(), removed_fragment_ids=()))  # so that Lance rebases ours over it
        return real(self, wanted)

    with monkeypatch.context() as patch:
        patch.setattr(LanceTable, "commit", commit)
        with pytest.raises(StoreUnavailable, match="make the snapshot again"):
            snapshot(pipeline, "eom")
    assert lance.dataset(pipeline.uri).branches.list() == {}
    snapshot(pipeline, "eom")
    assert by_key(branch(pipeline, "eom").to_table()) == pipeline.oracle


def test_what_a_user_does_to_the_branch_does_not_count(pipeline: Pipeline) -> None:
    before = dict(pipeline.oracle)
    snapshot(pipeline, "eom")
    branch(pipeline, "eom").delete("true")
    assert by_key(open_table(pipeline.uri).to_arrow(at="snapshot:eom")) == before


def test_a_snapshot_that_is_made_anew_is_not_the_one_planned(pipeline: Pipeline) -> None:
    snapshot(pipeline, "eom")
    read = open_table(pipeline.uri).scan(at="snapshot:eom")
    drop_snapshot(pipeline.table, "eom")
    pipeline.produce(40)
    pipeline.merge_all()
    snapshot(pipeline, "eom")
    with pytest.raises((SnapshotMissing, VersionGone)):
        read.to_arrow()
    assert by_key(open_table(pipeline.uri).to_arrow(at="snapshot:eom")) == pipeline.oracle


def test_an_empty_table(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, seed=5, seal_rows=1000)
    snapshot(pipeline, "nothing")
    assert branch(pipeline, "nothing").count_rows() == 0
    pipeline.produce(30)
    pipeline.ingest()
    snapshot(pipeline, "unmerged")
    assert by_key(branch(pipeline, "unmerged").to_table()) == pipeline.oracle
    assert by_key(open_table(pipeline.uri).to_arrow(at="snapshot:unmerged")) == pipeline.oracle
    pipeline.close()


def test_garbage_collection_drops_what_its_time_is_over(pipeline: Pipeline) -> None:
    snapshot(pipeline, "short", for_ms=3_600_000)
    snapshot(pipeline, "kept")
    pipeline.clock.ahead_s += 3000
    assert pipeline.collect().dropped_snapshots == ()
    pipeline.clock.ahead_s += 3700
    assert pipeline.collect().dropped_snapshots == ("short",)
    assert [found.name for found in snapshots(pipeline.table)] == ["kept"]


def test_texts_are_searched(pipeline: Pipeline) -> None:
    for id in range(6):
        pipeline.upsert("text", id, s=f"winter {id}" if id % 2 else "summer")
    pipeline.merge_all()
    lance.dataset(pipeline.uri).create_scalar_index("s", "INVERTED")
    pipeline.upsert("text", 7, s="winter, late")
    pipeline.upsert("text", 5, s="winter 5, once more")
    pipeline.ingest()
    snapshot(pipeline, "eom")
    pipeline.upsert("text", 9, s="winter, later")
    pipeline.merge_all()
    table = open_table(pipeline.uri)
    found = table.search(text="winter", limit=10, columns=["id"], text_columns=["s"], at="snapshot:eom")
    assert sorted(found.to_arrow()["id"].to_pylist()) == [1, 3, 5, 7]
    assert sorted(branch(pipeline, "eom").to_table(full_text_query="winter")["id"].to_pylist()) == [1, 3, 5, 7]


def test_of_keys_in_conflict_it_says_what_it_lacks(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, partitions=3, keyed_by=foreign_key)
    pipeline.produce(50)
    pipeline.merge_all()
    through_two(pipeline, between="nothing")
    expected = {key: row for key, row in pipeline.oracle.items() if key != ("secret", 1)}
    pipeline.ingest()
    made = snapshot(pipeline, "eom").snapshot
    assert by_key(branch(pipeline, "eom").to_table()) == expected
    read = open_table(pipeline.uri).to_arrow(at="snapshot:eom")
    assert by_key(read) == expected
    assert (left_out_of(read.schema).unmerged, len(left_out_of(read.schema).partitions)) == (1, 2)
    assert str(receipt_of(read.schema)) == made.receipt
    assert about(made)["keys_left_out"] == 1
    with pytest.raises(RegionConflict, match="snapshot eom lacks records of primary keys"):
        open_table(pipeline.uri, conflicts="fail").to_arrow(at="snapshot:eom")
    pipeline.close()
