"""Every change across what breaks a table's history, and across commits that no record tells."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lancewal_core.errors import (
    DuplicateKeys,
    InvalidInput,
    ObjectMissing,
    OutsideHistoryWindow,
    RecordsGivenUp,
    VersionGone,
)
from lancewal_core.rows.schema import Op
from lancewal_core.rows.ttl import Ttl
from lancewal_flusher.upkeep.expiry import Expired, OldestTimes, expire_next
from lancewal_reader.plan.lineage import Lineage
from lancewal_reader.point.receipt import Receipt
from lancewal_reader.table import open_table
from tests.audit.repair.test_segment import damage
from tests.audit.repair.test_segment import feed as feed_log
from tests.audit.repair.test_segment_loss import dropped, give_up, held_in_both
from tests.reader.changes.test_all import Change, State, applied, feed, state_now
from tests.reader.plan.test_points_across_breaks import BREAKS, Life
from tests.support.flusher_tables import COMBINE, FlusherTable, Operation, ScriptedTable, patch, upsert, upserts
from tests.support.pipeline import Pipeline
from tests.support.scripted import ManualClock

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
DAY_S = 86_400


def test_commits_are_read_once_where_a_range_is_divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Lineage] = []
    read: list[int] = []

    class Noted(Lineage):
        def __init__(self, *parts: Any) -> None:
            super().__init__(*parts)
            made.append(self)

        def _read(self, version: int) -> Any:
            read.append(version)
            return super()._read(version)

    monkeypatch.setattr("lancewal_reader.changes.all.Lineage", Noted)
    life = Life(tmp_path)
    life.go_on(2)
    before = len(life.notes)
    BREAKS["partitions added"](life)
    life.go_on(2)
    start, end = (str(life.notes[at].points["receipt"]) for at in (before - 1, -1))
    table = open_table(life.pipeline.uri)
    assert applied(life.notes[before - 1].rows, feed(table, start, end)) == life.notes[-1].rows
    assert len(made) == 1
    assert len(read) == len(set(read)) > 1
    life.pipeline.close()


@pytest.mark.parametrize("break_", BREAKS)
def test_a_break_of_the_history(tmp_path: Path, break_: str) -> None:
    """Only a restore is refused, with the points on both sides.  Partitions are those of the time."""
    life = Life(tmp_path)
    life.go_on(2)
    before = len(life.notes)
    BREAKS[break_](life)
    life.go_on(1)
    table = open_table(life.pipeline.uri)
    for one, other in combinations(range(len(life.notes)), 2):
        start, end = life.notes[one], life.notes[other]
        receipts = str(start.points["receipt"]), str(end.points["receipt"])
        if "restored" in break_ and one < before <= other:
            with pytest.raises(
                InvalidInput, match=r"is a restore.*version:\d+, and begin the next at version:\d+"
            ) as raised:
                feed(table, *receipts)
            sides = [int(number) for number in re.findall(r"version:(\d+)", str(raised.value))]
            assert sides[0] + 1 == sides[1]
            continue
        found = feed(table, *receipts)
        assert applied(start.rows, found) == end.rows
        snapshots = str(start.points["snapshot"]), str(end.points["snapshot"])
        assert other - one > 1 or feed(table, *snapshots) == found
        if break_ == "bulk load" and one < before <= other:
            assert Counter(change.source for change in found)["load"] == 40
            assert {change.before for change in found if change.source == "load"} == {None}
        partitions = {change.partition for change in found}
        assert partitions <= set(range(life.pipeline.contract.partitions))
    life.pipeline.close()


@pytest.fixture
def expiring(tmp_path: Path) -> Iterator[FlusherTable]:
    more = [pa.field("at", pa.timestamp("us", "UTC"))]
    made = FlusherTable(tmp_path, more=more, patches=False, ttl_column="at", ttl_s=DAY_S)
    yield made
    made.close()


def put(id: int, hours: float, **values: Any) -> Operation:
    return Operation(Op.UPSERT, id, {"at": NOW - timedelta(hours=hours), **values})


def expire(table: FlusherTable) -> int:
    clock, oldest, rows = ManualClock(epoch_ms=int(NOW.timestamp() * 1000)), OldestTimes(), 0
    while (done := expire_next(replace(table.context(), clock=clock), Ttl("at", DAY_S), oldest)) is not None:
        assert isinstance(done, Expired)
        rows += done.rows
    return rows


def leads(table: FlusherTable, states: list[State]) -> dict[tuple[int, int], list[Change]]:
    """The feeds between all states, each checked."""
    found = {}
    for one, other in combinations(range(len(states)), 2):
        found[one, other] = feed(open_table(table.uri), states[one].receipt, states[other].receipt)
        assert applied(states[one].rows, found[one, other]) == states[other].rows
    return found


def test_expired_rows_are_deleted_where_no_newer_record_waits(expiring: FlusherTable) -> None:
    table, reader = expiring, open_table(expiring.uri)
    table.generation(0, [put(id, 30 if id % 2 else 1, a=id) for id in range(10)])
    table.generation(1, [put(id, 30, a=id) for id in range(3)])
    table.round()
    states = [state_now(reader)]
    table.generation(0, [put(1, 2, a=-1), put(20, 30, a=20)])
    states.append(state_now(reader))
    assert expire(table) == 8
    states.append(state_now(reader))
    table.round()
    assert expire(table) == 1
    states.append(state_now(reader))
    found = leads(table, states)
    expired = found[1, 2]
    assert {change.source for change in expired} == {"expiry"}
    assert sorted(change.key for change in expired) == [("r0", id) for id in (3, 5, 7, 9)] + [
        ("r1", id) for id in range(3)
    ]
    assert {(change.after, change.offset, change.time_ms) for change in expired} == {(None, None, None)}
    regions = {region.partition: region for region in table.regions}
    codec = table.contract.key_codec
    assert codec is not None
    assert all(table.contract.partition_of(codec.encode([change.key[0]])) == change.partition for change in expired)
    assert set(regions) == {0, 1}
    assert [change.source for change in found[2, 3]] == ["expiry"]
    # Of the whole, the step comes before the records that its version had not merged.
    assert Counter(change.source for change in found[0, 3]) == {"expiry": 9, "record": 2}


def test_a_merge_that_met_appended_rows_is_no_step(tmp_path: Path) -> None:
    """The merge was computed before a user appended keys of it, so its follow-up hides the user's rows."""
    table = FlusherTable(tmp_path)
    reader = open_table(table.uri)
    table.generation(0, upserts(range(10)))
    table.round()
    states = [state_now(reader)]
    table.generation(0, [upsert(4, a=4), upsert(50, a=5), patch(51, a=6)])
    states.append(state_now(reader))
    scripted = ScriptedTable(table.uri)
    scripted.before = [lambda: table.user_append(0, [50, 51, 300], in_model=False)]
    report = table.round(COMBINE, context=table.context(scripted))
    assert [finished.rows_hidden for finished in report.finished] == [2]
    states.append(state_now(reader))
    found = leads(table, states)
    # The patch was shown over the user's row, which the merge did not know.
    assert [(change.source, change.key[1]) for change in found[1, 2]] == [
        ("commit", 300),
        ("commit", 51),
        ("commit", 51),
    ]
    assert sorted((change.source, change.key[1]) for change in found[0, 2]) == [
        ("commit", 50), ("commit", 51), ("commit", 51), ("commit", 300), ("record", 4), ("record", 50), ("record", 51),
    ]  # fmt: skip
    table.close()


def test_a_key_that_a_state_shows_twice_is_refused(tmp_path: Path) -> None:
    table = FlusherTable(tmp_path)
    reader = open_table(table.uri)
    table.generation(0, upserts(range(10)))
    table.round()
    start = str(reader.receipt())
    table.user_append(0, [4], in_model=False)
    with pytest.raises(DuplicateKeys, match=r"had one|key twice"):
        feed(reader, start, str(reader.receipt()))
    start = str(reader.receipt())
    table.generation(0, [upsert(4, a=7)])
    with pytest.raises(DuplicateKeys, match="two rows at table version"):
        feed(reader, start, str(reader.receipt()))
    table.close()


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path, partitions=1, seed=5, seal_rows=10, batch=10, grace_s=0, history_window_s=3600)
    yield made
    made.close()


def test_records_that_are_trimmed_end_the_feed_by_name(pipeline: Pipeline) -> None:
    table = open_table(pipeline.uri)
    states = [state_now(table)]
    for _ in range(3):
        pipeline.produce(30)
        pipeline.merge_all()
        states.append(state_now(table))
    pipeline.collect()
    pipeline.clock.ahead_s += 3700
    pipeline.produce(30)
    pipeline.merge_all()
    states.append(state_now(table))
    pipeline.collect()
    pipeline.collect()
    again = open_table(pipeline.uri)
    for state in states[:3]:
        with pytest.raises(OutsideHistoryWindow, match="history_window_s"):
            feed(again, state.receipt, states[4].receipt)
    assert applied(states[3].rows, feed(again, states[3].receipt, states[4].receipt)) == states[4].rows


def test_a_lost_segment_and_records_given_up_are_named(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, partitions=2, seed=23, seal_rows=10_000, batch=12)
    pipeline.produce(60)
    pipeline.merge_all()
    start = state_now(open_table(pipeline.uri))
    feed_log(pipeline, 6)
    end = state_now(open_table(pipeline.uri))
    lost = held_in_both(pipeline)
    damage(lost, "lost")
    with pytest.raises(ObjectMissing, match=lost.name):
        feed(open_table(pipeline.uri), start.receipt, end.receipt)
    give_up(pipeline, lost, dropped(pipeline))
    with pytest.raises(RecordsGivenUp, match="accept-loss"):
        feed(open_table(pipeline.uri), start.receipt, end.receipt)
    pipeline.close()


def test_a_commit_of_which_nothing_is_left_ends_the_feed_by_name(pipeline: Pipeline) -> None:
    pipeline.produce(30)
    pipeline.merge_all()
    table = open_table(pipeline.uri)
    start = state_now(table)
    pipeline.append_by_hand([{"region": "by hand", "id": 1}])
    pipeline.append_by_hand([{"region": "by hand", "id": 2}])
    pipeline.produce(30)
    pipeline.merge_all()
    end = state_now(table)
    dataset: Any = lance.dataset(pipeline.uri)
    dataset.tags.create("kept", Receipt.parse(start.receipt).version)
    dataset.cleanup_old_versions(older_than=timedelta(0), error_if_tagged_old_versions=False)
    with pytest.raises(VersionGone, match="nothing tells what its commit did"):
        feed(open_table(pipeline.uri), start.receipt, end.receipt)
