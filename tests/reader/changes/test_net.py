"""Net changes between any two receipts of a random history, applied to the rows of the first by a dict."""

from __future__ import annotations

import datetime
import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import lance
import pyarrow as pa
import pytest

from lancewal_core.errors import DuplicateKeys, InvalidInput, TooManyUnmerged, VersionGone
from lancewal_core.names.ids import Position
from lancewal_core.store.address import place_of
from lancewal_core.table.lance.table import LanceTable
from lancewal_reader.point.receipt import Receipt, receipt_of
from lancewal_reader.point.token import Token
from lancewal_reader.table import Table, open_table
from tests.support.pipeline import EVERY_TYPE, SMALL, Key, Pipeline, Row, by_key
from tests.support.regions import region

ADDED = ("_change_type", "_commit_version", "_commit_timestamp", "_sequence")


class States:
    """States of a table: receipts, and the rows that they show."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.found: list[tuple[str, dict[Key, Row]]] = []

    def see(self, table: Table) -> None:
        rows = table.to_arrow()
        assert by_key(rows) == self.pipeline.oracle
        self.found.append((str(receipt_of(rows.schema)), {key: dict(row) for key, row in self.pipeline.oracle.items()}))


def applied(before: dict[Key, Row], rows: Sequence[Row], columns: Sequence[str]) -> dict[Key, Row]:
    """Apply the rows of a feed to a state, and check that each fits."""
    found = {key: {name: row.get(name) for name in columns} for key, row in before.items()}
    seen: set[tuple[Key, str]] = set()
    for row in rows:
        key, kind = (row["region"], row["id"]), row["_change_type"]
        cells = {name: row[name] for name in columns}
        sort = "before" if kind in ("delete", "update_preimage") else "after"
        assert (key, sort) not in seen
        seen.add((key, sort))
        match kind:
            case "insert":
                assert key not in before
                found[key] = cells
            case "update_postimage":
                assert (key, "before") in seen
                assert before[key] != cells
                found[key] = cells
            case "delete":
                assert found.pop(key) == cells
            case "update_preimage":
                assert found[key] == cells
            case _:
                raise AssertionError(kind)
    return found


def compacted(pipeline: Pipeline) -> None:
    dataset: Any = lance.dataset(pipeline.uri)
    dataset.optimize.compact_files(target_rows_per_fragment=10_000)


def _steps(pipeline: Pipeline) -> list[Callable[[], object]]:
    def produce() -> None:
        pipeline.produce(40)
        pipeline.ingest()

    def merge() -> None:
        pipeline.ingest()
        pipeline.hand_over()
        pipeline.merge()

    return [produce, produce, merge, pipeline.merge_all, lambda: compacted(pipeline)]


@pytest.mark.in_turns("seed", "columns", each=2)
@pytest.mark.parametrize(("seed", "columns"), [(1, None), (2, None), (3, EVERY_TYPE), (4, EVERY_TYPE)])
def test_the_changes_between_two_receipts_lead_from_one_state_to_the_other(
    tmp_path: Path, seed: int, columns: pa.Schema | None
) -> None:
    pipeline = Pipeline(tmp_path, *([] if columns is None else [columns]), partitions=2, seed=seed)
    try:
        states = States(pipeline)
        table = open_table(pipeline.uri)
        states.see(table)
        rng = random.Random(seed)
        feeds: dict[tuple[int, int], list[Row]] = {}
        for _ in range(9):
            rng.choice(_steps(pipeline))()
            states.see(table)
            last = len(states.found) - 1
            for first in {0, rng.randrange(last), last - 1}:
                feeds[first, last] = _checked(table, states, first, last)
                feeds[last, first] = _checked(table, states, last, first)
                assert _images(feeds[first, last]) == [(k, b, a) for k, a, b in _images(feeds[last, first])]
        pipeline.merge_all()
        compacted(pipeline)
        again = open_table(pipeline.uri)
        for (first, last), rows in feeds.items():
            assert _sorted(_checked(again, states, first, last)) == _sorted(rows)
        some = again.changes("earliest", states.found[-1][0]).to_arrow()
        assert set(some["_change_type"].to_pylist()) <= {"insert"}
        assert by_key(some.drop_columns(list(ADDED))) == states.found[-1][1]
    finally:
        pipeline.close()


def _checked(table: Table, states: States, first: int, last: int) -> list[Row]:
    (start, before), (end, after) = states.found[first], states.found[last]
    found = table.changes(start, end)
    assert str(found.receipt) == end
    rows = found.to_arrow()
    assert rows.schema.names == [*states.pipeline.columns.names, *ADDED]
    changed: list[Row] = rows.to_pylist()
    assert applied(before, changed, states.pipeline.columns.names) == after
    return changed


def _images(rows: Sequence[Row]) -> list[tuple[Key, str | None, str | None]]:
    """Each changed key with its row before and after."""
    found: dict[Key, list[str | None]] = {}
    for row in rows:
        sides = found.setdefault((row["region"], row["id"]), [None, None])
        cells = repr({name: value for name, value in row.items() if name not in ADDED})
        sides[row["_change_type"] in ("insert", "update_postimage")] = cells
    return sorted(((key, before, after) for key, (before, after) in found.items()), key=lambda one: one[0])


def _sorted(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """Rows without the version that may stand in for that of the end."""
    return sorted(
        (
            row["region"],
            row["id"],
            row["_change_type"],
            row["_sequence"],
            repr([v for n, v in row.items() if n not in ADDED]),
        )
        for row in rows
    )


World = tuple[Pipeline, Table, list[Receipt], list[dict[Key, Row]]]


@pytest.fixture
def merged(tmp_path: Path) -> Iterator[World]:
    """Three states of which the table has all rows, and a last one with unmerged rows."""
    pipeline = Pipeline(tmp_path, partitions=2, seed=11)
    table = open_table(pipeline.uri)
    receipts, rows = [], []
    for count, values in ((60, (5, 5, -100)), (40, (6, -100, 5)), (30, (7, -101, 6))):
        pipeline.produce(count)
        for id, a in enumerate(values, start=100):
            pipeline.upsert("r0", id, a=a)
        pipeline.merge_all()
        found = table.to_arrow(consistency="eventual")
        receipts.append(receipt_of(found.schema))
        rows.append({key: dict(row) for key, row in by_key(found).items()})
        compacted(pipeline)
    pipeline.produce(20)
    pipeline.ingest()
    yield pipeline, table, receipts, rows
    pipeline.close()


def test_commits_are_the_net_changes_of_each_version(merged: World) -> None:
    pipeline, table, receipts, rows = merged
    found = table.changes(receipts[0], receipts[2], "commits")
    assert found.receipt == receipts[2]
    changed = found.to_arrow().to_pylist()
    versions = sorted({row["_commit_version"] for row in changed})
    assert receipts[0].version < versions[0] <= receipts[1].version < versions[-1] <= receipts[2].version
    assert versions == sorted(versions, key=[row["_commit_version"] for row in changed].index)
    state = rows[0]
    for version in versions:
        state = applied(state, [row for row in changed if row["_commit_version"] == version], pipeline.columns.names)
    assert state == rows[2]
    times = {row["_commit_version"]: row["_commit_timestamp"] for row in changed}
    assert times == {v: _commit_time(pipeline, v) for v in versions}
    sequences = [row["_sequence"] for row in changed]
    assert sequences == sorted(sequences)
    unmerged = table.changes(receipts[1], "now", "commits")
    assert unmerged.receipt.version == lance.dataset(pipeline.uri).version
    assert unmerged.receipt.positions == receipts[2].positions  # unmerged rows do not count
    assert {row["_commit_version"] for row in unmerged.to_arrow().to_pylist()} == {versions[-1]}


def _commit_time(pipeline: Pipeline, version: int) -> datetime.datetime:
    dataset: Any = lance.dataset(pipeline.uri)
    time = {found["version"]: found["timestamp"] for found in dataset.versions()}[version]
    whole: datetime.datetime = time.astimezone(datetime.UTC)
    return whole.replace(microsecond=whole.microsecond // 1000 * 1000)


def test_the_sequence_grows_from_feed_to_feed(merged: World) -> None:
    _, table, receipts, _ = merged
    last = 0
    ends: list[tuple[Any, Any]] = [("earliest", receipts[0]), (receipts[0], receipts[1]), (receipts[1], "now")]
    for start, end in ends:
        rows = table.changes(start, end).to_arrow()
        (sequence,) = set(rows["_sequence"].to_pylist())
        assert sequence > last
        last = sequence


def test_a_feed_of_some_columns_and_rows_is_that_of_such_a_table(merged: World) -> None:
    _, table, receipts, rows = merged
    found = table.changes(receipts[0], receipts[2], columns=["region", "id", "a"], filter="a > -9").to_arrow()
    assert found.schema.names == ["region", "id", "a", *ADDED]
    before, after = (
        {key: {**row, "s": None} for key, row in some.items() if row["a"] is not None and row["a"] > -9}
        for some in (rows[0], rows[2])
    )
    assert {r["_change_type"] for r in found.to_pylist()} == {"insert", "delete", "update_preimage", "update_postimage"}
    narrow = ["region", "id", "a"]
    expected = {key: {name: row[name] for name in narrow} for key, row in after.items()}
    assert applied(before, found.to_pylist(), narrow) == expected
    alone = table.changes(receipts[0], receipts[2], columns=["a"])
    assert alone.schema.names == ["a", *ADDED]
    assert alone.to_arrow().num_rows > 0


def test_wrong_ends_are_refused(merged: World) -> None:
    _, table, receipts, _ = merged
    wrong: list[tuple[Any, Any, str]] = [
        ("earliest", "earliest", "nothing lies before it"),
        (str(Token.of(("orders", 0, 3))), "now", "a token"),
        (None, "now", "expected a point or 'now'"),
        ("yesterday", "now", "'now' is taken too, and as start also 'earliest'"),
    ]
    for start, end, told in wrong:
        with pytest.raises(InvalidInput, match=told):
            table.changes(start, end)
    with pytest.raises(InvalidInput, match="mode 'each' is unknown"):
        table.changes("earliest", mode="each")  # type: ignore[arg-type]
    modes: list[Literal["all", "commits"]] = ["all", "commits"]
    for mode in modes:
        with pytest.raises(
            InvalidInput, match=r"comes before the start: .* Only mode 'net' goes back in time: use it, or swap"
        ):
            table.changes(receipts[1], receipts[0], mode)
    newest = table.receipt()
    assert table.changes(newest, newest).to_arrow().num_rows == 0
    assert table.changes("now").to_arrow().num_rows == 0


def test_more_keys_than_the_reader_holds_are_refused(merged: World) -> None:
    pipeline, _, receipts, _ = merged
    table = open_table(pipeline.uri, unmerged_keys_max=5)
    with pytest.raises(TooManyUnmerged, match="unmerged_keys_max"):
        table.changes(receipts[0], receipts[2]).to_arrow()
    assert table.changes("earliest", receipts[2]).to_arrow().num_rows == len(merged[3][2])


def test_a_version_that_is_gone_ends_commits_by_name(merged: World) -> None:
    pipeline, _, receipts, _ = merged
    dataset: Any = lance.dataset(pipeline.uri)
    dataset.cleanup_old_versions(older_than=datetime.timedelta(0))
    with pytest.raises(VersionGone):
        open_table(pipeline.uri).changes(receipts[0], receipts[2], "commits").to_arrow()


@pytest.mark.parametrize("mode", ["all", "commits"])
def test_each_mode_folds_to_net(merged: World, mode: Literal["all", "commits"]) -> None:
    pipeline, table, receipts, rows = merged
    last = table.changes(receipts[0], receipts[2], mode).to_arrow()
    state = {key: dict(row) for key, row in rows[0].items()}
    names, highest = pipeline.columns.names, dict[Key, int]()
    for row in last.to_pylist():
        key = (row["region"], row["id"])
        if row["_change_type"] in ("delete", "update_preimage"):
            assert state.pop(key) == {name: row[name] for name in names}
        else:
            state[key] = {name: row[name] for name in names}
        assert row["_sequence"] >= highest.get(key, 0)
        highest[key] = row["_sequence"]
    assert state == rows[2]
    net = table.changes(receipts[0], receipts[2]).to_arrow().to_pylist()
    assert {(row["region"], row["id"]) for row in net} <= {*highest}


def test_all_records_have_their_places(merged: World) -> None:
    pipeline, table, receipts, _ = merged
    rows = table.changes(receipts[2], "now", "all").to_arrow()
    assert rows.schema.names[-4:] == ["_partition", "_offset", "_record_time", "_source"]
    seen = [(row["_partition"], row["_offset"]) for row in rows.to_pylist()]
    sent = {(p, n) for p in range(2) for n in range(receipts[2].positions[region(p)], len(pipeline.messages(p)))}
    assert set(seen) <= sent
    assert {place for place in sent if pipeline.messages(place[0])[place[1]][2] != "delete"} <= set(seen)
    assert set(rows["_source"].to_pylist()) == {"record"}
    whole = table.changes("earliest", "now", "all").to_arrow()
    assert whole["_change_type"][0].as_py() == "insert"
    assert {(row["_partition"], row["_offset"]) for row in whole.to_pylist()} >= set(seen)
    filtered = table.changes("earliest", "now", "all", ["id"], "a > 5").to_arrow()
    assert filtered.schema.names[:2] == ["id", "_change_type"]
    assert filtered.num_rows < whole.num_rows


def test_a_row_that_was_merged_and_removed_by_others_is_a_delete(tmp_path: Path) -> None:
    """At the start it is unmerged, at the end it is nowhere, and no record tells."""
    pipeline = Pipeline(tmp_path, partitions=2, seed=12)
    pipeline.produce(30)
    pipeline.upsert("r0", 777, a=1)
    pipeline.ingest()
    table = open_table(pipeline.uri)
    start, before = table.receipt(), {key: dict(row) for key, row in pipeline.oracle.items()}
    pipeline.merge_all()
    dataset: Any = lance.dataset(pipeline.uri)
    dataset.delete("id = 777")
    del pipeline.oracle["r0", 777]
    changed = table.changes(start).to_arrow().to_pylist()
    assert applied(before, changed, pipeline.columns.names) == pipeline.oracle
    assert [(row["id"], row["_change_type"]) for row in changed] == [(777, "delete")]
    back = table.changes(table.receipt(), start).to_arrow().to_pylist()
    assert [(row["id"], row["_change_type"]) for row in back] == [(777, "insert")]
    pipeline.close()


def test_a_column_that_was_dropped_is_null_at_the_start_of_a_feed_that_leads_back(tmp_path: Path) -> None:
    """Also in rows that are unmerged there, and were written before the drop."""
    pipeline = Pipeline(tmp_path, partitions=1, seed=12)
    pipeline.upsert("r0", 1, a=1, s="merged")
    pipeline.upsert("r0", 2, a=1, s="merged, then deleted")
    pipeline.merge_all()
    table = open_table(pipeline.uri)
    pipeline.upsert("r0", 3, a=1, s="unmerged")
    pipeline.ingest()
    old, rows = table.receipt(), {key: dict(row) for key, row in pipeline.oracle.items()}
    pipeline.upsert("r0", 4, a=1, s="unmerged, then gone")
    pipeline.delete("r0", 2)
    pipeline.ingest()
    pipeline.change_columns({"s": None})
    pipeline.upsert("r0", 5, a=1)
    pipeline.ingest()
    new, state = table.receipt(), {key: {**row, "s": None} for key, row in pipeline.oracle.items()}
    found = []
    for _ in range(2):
        found.append(open_table(pipeline.uri).changes(new, old).to_arrow().to_pylist())
        assert applied(state, found[-1], ["region", "id", "a", "s"]) == rows
        pipeline.merge_all()
        compacted(pipeline)
    assert _sorted(found[0]) == _sorted(found[1])
    pipeline.close()


def test_any_two_receipts_whatever_each_has_merged(tmp_path: Path) -> None:
    """Regions go forth and back within one feed, and the state with more records may be that of the older version."""
    pipeline = Pipeline(tmp_path, SMALL, seed=21, partitions=3, seal_rows=25, batch=20)
    versions, merged = [pipeline.table.newest().version], [dict[Any, int]()]
    for _ in range(4):
        pipeline.produce(60, ids=8)
        pipeline.merge_all()
        versions.append(pipeline.table.newest().version)
        merged.append(dict(open_table(pipeline.uri).receipt(consistency="eventual").positions))
    pipeline.produce(40, ids=8)
    pipeline.ingest()
    table, rng, receipts = open_table(pipeline.uri), pipeline.rng, []
    for _ in range(24):
        at = rng.randrange(len(versions))
        cut = {
            r: Position(rng.randint(merged[at].get(r, 0), len(pipeline.messages(r.partition))))
            for r in pipeline.contract.regions
        }
        receipts.append((Receipt(pipeline.contract.uuid, versions[at], cut, place_of(pipeline.uri)), cut))
    mixed = 0
    for (start, begins), (end, ends) in zip(receipts[::2], receipts[1::2], strict=True):
        rows = table.changes(start, end).to_arrow().to_pylist()
        assert applied(pipeline.fold_at(begins), rows, pipeline.columns.names) == pipeline.fold_at(ends)
        mixed += len({ends[r] > begins[r] for r in ends}) == 2
    assert mixed > 3
    pipeline.close()


def test_a_filter_counts_though_its_column_is_not_wanted(merged: World) -> None:
    pipeline, table, _, _ = merged
    start = table.receipt()
    for id, a in ((200, 5), (201, 5), (202, -5)):
        pipeline.upsert("r0", id, a=a, s="same")
    pipeline.ingest()
    middle = table.receipt()
    for id, a in ((200, -5), (201, 6), (202, 5)):
        pipeline.upsert("r0", id, a=a, s="same")
    pipeline.ingest()
    modes: list[Literal["net", "all"]] = ["net", "all"]
    for mode in modes:
        first = table.changes(start, middle, mode, ["id", "s"], "a > 0 AND id >= 200").to_arrow()
        assert {(r["id"], r["_change_type"]) for r in first.to_pylist()} == {(200, "insert"), (201, "insert")}
        rows = table.changes(middle, "now", mode, ["id", "s"], "a > 0 AND id >= 200").to_arrow().to_pylist()
        same = {(201, "update_preimage"), (201, "update_postimage")} if mode == "all" else set()
        assert {(r["id"], r["_change_type"]) for r in rows} == {(200, "delete"), (202, "insert"), *same}


def test_fragments_that_no_commit_traces_are_compared_and_counted(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, partitions=2, seed=13)
    table, states = open_table(pipeline.uri), States(pipeline)
    for _ in range(2):
        pipeline.produce(40)
        pipeline.merge_all()
    states.see(table)
    dataset: Any = lance.dataset(pipeline.uri)
    before = len(dataset.get_fragments())
    compacted(pipeline)
    states.see(table)
    assert len(pipeline.table.newest().fragments()) < before
    modes: list[Literal["net", "commits", "all"]] = ["net", "commits", "all"]
    for mode in modes:
        found = table.changes(states.found[0][0], mode=mode)
        assert found.to_arrow().num_rows == found.compared_fragments == 0
    for _ in range(2):
        pipeline.produce(40)
        pipeline.merge_all()
    lance.dataset(pipeline.uri).create_scalar_index("a", "BTREE")
    states.see(table)
    gone = len(pipeline.table.newest().fragments())
    compacted(pipeline)  # which rewrites the index, so that its transaction cannot be read
    assert len(pipeline.table.newest().fragments()) < gone
    pipeline.upsert("r0", 888, a=1)
    pipeline.merge_all()
    states.see(table)
    (start, rows), (end, after) = states.found[2:]
    found = table.changes(start, end)
    assert found.compared_fragments == 0
    for _ in range(2):
        assert applied(rows, found.to_arrow().to_pylist(), pipeline.columns.names) == after
        assert found.compared_fragments == gone
    few = open_table(pipeline.uri, unmerged_keys_max=5)
    says = (
        r"at least (\d+) keys .* holds 5 .* all of these rows count as changed: fragments [\d, ]+ \(table version (\d+) lacks "
        r"them, and its commit cannot be read, as that of a compaction that rewrote an index\). A range that does not cross "
        r"these versions has fewer. Set unmerged_keys_max to at least (\d+), or ask for the changes of shorter ranges$"
    )
    with pytest.raises(TooManyUnmerged, match=says) as raised:
        few.changes(start, end).to_arrow()
    told = re.search(says, str(raised.value))
    assert told is not None
    assert told[1] == told[3]
    version = int(told[2])
    for one, other in ((start, f"version:{version - 1}"), (f"version:{version}", end)):
        few.changes(one, other).to_arrow()
    assert open_table(pipeline.uri, unmerged_keys_max=int(told[1]) + 5).changes(start, end).to_arrow().num_rows == 1
    feeds = table.follow(start)
    first = next(feeds)
    assert [(row["id"], row["_change_type"]) for row in first.to_arrow().to_pylist()] == [(888, "insert")]
    assert first.compared_fragments == gone
    pipeline.close()


@pytest.mark.parametrize("portion", [1_000, 1])
def test_a_new_key_that_others_append_twice_is_there_as_often_as_a_read_shows_it(
    merged: World, monkeypatch: pytest.MonkeyPatch, portion: int
) -> None:
    """Until the flusher hides one row, reads show both; so does a feed, in one batch or in several."""
    monkeypatch.setattr("lancewal_reader.changes.net.batch_rows", lambda schema: portion)
    pipeline, table, _, _ = merged
    pipeline.merge_all()
    start = table.receipt()
    pipeline.append_by_hand([{"region": "new", "id": 1, "a": a} for a in (1, 2)])
    pipeline.append_by_hand([{"region": "new", "id": 1, "a": 3}])
    twice = table.receipt()
    shown = sorted(table.to_arrow(["a"], "region = 'new'", at=twice)["a"].to_pylist())
    assert shown == [1, 2, 3]
    found = table.changes(start, twice).to_arrow().to_pylist()
    assert sorted((row["_change_type"], row["a"]) for row in found) == [("insert", a) for a in shown]
    pipeline.upsert("new", 1, a=4)
    pipeline.merge_all()
    found = table.changes(start).to_arrow().to_pylist()
    assert [(row["_change_type"], row["a"]) for row in found if row["region"] == "new"] == [("insert", 4)]
    with pytest.raises(DuplicateKeys, match="shows a primary key twice"):
        table.changes(twice).to_arrow()


def test_commits_never_leave_one_out_where_a_version_is_gone(merged: World) -> None:
    pipeline, table, receipts, _ = merged
    LanceTable(pipeline.uri).remove_versions([receipts[1].version])
    assert table.scan(at=receipts[1]).to_arrow().num_rows  # another version stands in
    for start, end in ((receipts[1], receipts[2]), (receipts[0], receipts[1])):
        with pytest.raises(VersionGone):
            open_table(pipeline.uri).changes(start, end, "commits").to_arrow()
