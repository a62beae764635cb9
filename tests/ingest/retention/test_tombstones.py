"""When deletes of a compacted topic may be gone unread: every condition, one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, LogId, OwnerId, Position, Region, Sequence, TopicId
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.record_keys.key_choices import KeyFormat
from lancewal_core.region.loss_record import LossRecord, write_loss
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.state import GenerationRecord, GenerationState, RegionState
from lancewal_core.rows.schema import RowSchema
from lancewal_core.table.contract import Column, Contract
from lancewal_core.wal.entry import Entry
from lancewal_core.wal.segment import Segment, encode_segment
from lancewal_ingest.retention.tombstones import lost_tombstones
from lancewal_kafka.retention import Compaction
from tests.twins.memory_store import MemoryStore
from tests.twins.memory_table import MemoryDataset, MemoryTable

HOUR_MS = 3_600_000
NOW_MS = 1_800_000_000_000
DURABLE = Position(20)
REGION, OTHER = (Region("orders", TopicId("AAAAAAAAQACAAAAAAAAAAQ"), partition) for partition in (3, 4))
ROWS = RowSchema(pa.schema([pa.field("id", pa.int64(), nullable=False)]), ("id",), ("id",))
CONTRACT = Contract(
    table_uuid="uuid-1",
    topic="orders",
    topic_id="topic-id-1",
    partitions=5,
    primary_key=("id",),
    region_key=("id",),
    start=(0,) * 5,
    columns=(Column(name="id", type="int64", field_ids=(0,)),),
)
SUSPICIOUS = Compaction(3600.0, Position(30), Position(40))
"""The first record that is younger than an hour lies at 30."""


class Clock:
    def __init__(self, now_ms: int = NOW_MS) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing is to wait")


class Stage:
    """A region with one SEALED generation of two entries, at 10 and 15, and an OPEN one without any."""

    def __init__(self, tasks: ThreadTasks, written_ms_ago: int) -> None:
        self.store = MemoryStore(Clock())
        table = MemoryTable(MemoryDataset(ROWS.table))
        self.opened = OpenedTable.over(self.store, table, CONTRACT, tasks, Clock())
        for sequence, first, next_, region, ago in (
            (0, 10, 15, REGION, written_ms_ago + HOUR_MS),
            (1, 15, 20, REGION, written_ms_ago),
            (2, 0, 5, OTHER, 0),
        ):
            rows = pa.RecordBatch.from_pylist([], schema=ROWS.wal)
            entry = Entry(region, Position(first), Position(next_), 1, rows, ())
            segment = Segment(LogId("log.1"), Sequence(sequence), "me", (entry,), NOW_MS - ago)
            self.store.put_if_absent(
                paths.wal_segment(segment.log, segment.sequence), encode_segment(segment, ROWS.wal)
            )
        sealed = GenerationRecord(
            Generation(1), GenerationState.SEALED, OwnerId("me"), LogId("log.1"), Position(10), DURABLE,
            Sequence(0), Sequence(3), None, None, None,
        )  # fmt: skip
        open_ = replace(
            sealed, generation=Generation(2), state=GenerationState.OPEN, first=DURABLE, next=None, first_sequence=Sequence(3),
            end_sequence=None,
        )  # fmt: skip
        self.index: RegionState | None = RegionState(REGION, 1, (sealed, open_), Generation(0), Position(10), "w-1")

    def lost(self, compaction: Compaction | None = SUSPICIOUS) -> bool:
        found = lost_tombstones(self.opened, REGION, self.index, DURABLE, compaction)
        if found is not None:
            assert (found.kind, found.where["partition"]) == ("retention_lost", 3)
            assert "20 to 29" in str(found)
        return found is not None


@pytest.fixture
def tasks() -> Iterator[ThreadTasks]:
    tasks = ThreadTasks(workers=1)
    yield tasks
    tasks.close()


@pytest.mark.parametrize(
    ("key_format", "recent", "expected"),
    [("json", 30, True), ("json", 20, False), ("json", 10, False), ("canonical", 30, False)],
)
def test_a_region_that_begins(tasks: ThreadTasks, key_format: KeyFormat, recent: int, expected: bool) -> None:
    """If rows do not tell their partition, a delete under another text of a key may be gone.  A person may accept that."""
    stage = Stage(tasks, 5)
    stage.opened = replace(stage.opened, contract=CONTRACT.model_copy(update={"key_format": key_format}))
    compaction = Compaction(3600.0, Position(recent), Position(40))
    found = lost_tombstones(stage.opened, REGION, None, DURABLE, compaction)
    assert (found is not None) is expected
    assert lost_tombstones(stage.opened, REGION, None, DURABLE, None) is None
    if found is not None:
        for told in ("table.format.key is json", "offsets 20 to 29", "`lancewal offset accept-loss orders-3`"):
            assert told in str(found)
        loss = LossRecord(first=20, next=30, accepted_at_ms=NOW_MS, accepted_by="me", kind="tombstones")
        write_loss(stage.store, REGION, loss, None)
        assert lost_tombstones(stage.opened, REGION, None, DURABLE, compaction) is None


def test_away_for_longer_than_tombstones_stay(tasks: ThreadTasks) -> None:
    assert Stage(tasks, HOUR_MS + 1).lost()


def test_whoever_read_in_time_goes_on_however_old_the_records_are(tasks: ThreadTasks) -> None:
    assert not Stage(tasks, HOUR_MS).lost()


@pytest.mark.parametrize(
    "compaction", [None, Compaction(3600.0, DURABLE, Position(40)), Compaction(3600.0, Position(7), DURABLE)]
)
def test_nothing_old_lies_beyond(tasks: ThreadTasks, compaction: Compaction | None) -> None:
    assert not Stage(tasks, HOUR_MS + 1).lost(compaction)


def test_who_begins_has_nothing_to_delete(tasks: ThreadTasks) -> None:
    stage = Stage(tasks, HOUR_MS + 1)
    stage.index = None
    assert not stage.lost()


def test_the_open_generation_counts_once_it_has_entries(tasks: ThreadTasks) -> None:
    stage = Stage(tasks, HOUR_MS + 1)
    rows = pa.RecordBatch.from_pylist([], schema=ROWS.wal)
    entry = Entry(REGION, DURABLE, Position(21), 1, rows, ())
    segment = Segment(LogId("log.1"), Sequence(3), "me", (entry,), NOW_MS - 5)
    stage.store.put_if_absent(paths.wal_segment(segment.log, segment.sequence), encode_segment(segment, ROWS.wal))
    assert not stage.lost()


def test_lost_segments_raise_the_alarm_and_never_silence_it(tasks: ThreadTasks) -> None:
    """The walk ends before them, so what it knows of is older."""
    stage = Stage(tasks, HOUR_MS + 2)
    rows = pa.RecordBatch.from_pylist([], schema=ROWS.wal)
    for n, ago in enumerate((HOUR_MS + 1, 7, 6, 5)):
        entry = Entry(REGION, Position(20 + n), Position(21 + n), 1, rows, ())
        segment = Segment(LogId("log.1"), Sequence(3 + n), "me", (entry,), NOW_MS - ago)
        stage.store.put_if_absent(paths.wal_segment(segment.log, segment.sequence), encode_segment(segment, ROWS.wal))
    assert not stage.lost()
    stage.store.delete([paths.wal_segment(LogId("log.1"), Sequence(n)) for n in (4, 5)])
    assert stage.lost()


def test_a_trimmed_log_proves_nothing(tasks: ThreadTasks) -> None:
    stage = Stage(tasks, 5)
    assert not stage.lost()
    stage.store.delete([paths.wal_segment(LogId("log.1"), Sequence(n)) for n in range(3)])
    assert stage.lost()


def test_a_record_whose_time_is_ahead_hides_nothing(tasks: ThreadTasks) -> None:
    ahead = Compaction(3600.0, Position(7), Position(30))
    assert Stage(tasks, HOUR_MS + 1).lost(ahead)
    assert not Stage(tasks, HOUR_MS).lost(ahead)
    trimmed = Stage(tasks, HOUR_MS + 1)
    trimmed.store.delete([paths.wal_segment(LogId("log.1"), Sequence(n)) for n in range(3)])
    assert not trimmed.lost(ahead)  # the record at 7 may as well be what it says


@pytest.mark.parametrize(("ago", "expected"), [(HOUR_MS, False), (HOUR_MS + 1, True)])
def test_the_caller_knows_how_long_it_has_not_read(tasks: ThreadTasks, ago: int, expected: bool) -> None:
    for written_ms_ago in (5, 9 * HOUR_MS):
        stage = Stage(tasks, written_ms_ago)
        found = lost_tombstones(stage.opened, REGION, stage.index, DURABLE, SUSPICIOUS, NOW_MS - ago)
        assert (found is not None) is expected


def test_what_was_lost_after_a_person_accepted_is_accepted_anew(tasks: ThreadTasks) -> None:
    stage = Stage(tasks, 48 * HOUR_MS)

    def accept(first: int, next_: int, at_ms: int) -> None:
        loss = LossRecord(first=first, next=next_, accepted_at_ms=at_ms, accepted_by="me", kind="tombstones")
        write_loss(stage.store, REGION, loss, None)

    def lost(now_ms: int, recent: int) -> bool:
        compaction = Compaction(3600.0, Position(recent), Position(99))
        return (
            lost_tombstones(replace(stage.opened, clock=Clock(now_ms)), REGION, stage.index, DURABLE, compaction)
            is not None
        )

    accept(20, 30, NOW_MS)
    assert not lost(NOW_MS + 24 * HOUR_MS, 30)
    assert not lost(NOW_MS + HOUR_MS, 35)  # the time to start ingest
    assert lost(NOW_MS + HOUR_MS + 1, 35)
    accept(30, 60, NOW_MS + 24 * HOUR_MS)
    assert not lost(NOW_MS + 48 * HOUR_MS, 60)
    assert lost(NOW_MS + 48 * HOUR_MS, 61)


def test_a_person_has_accepted_it_at_this_position(tasks: ThreadTasks) -> None:
    stage = Stage(tasks, HOUR_MS + 1)
    for kind, first in (("tombstones", 10), ("offsets", 20)):
        other = LossRecord(first=first, next=30, accepted_at_ms=1, accepted_by="me", kind=kind)  # type: ignore[arg-type] # one of them
        write_loss(stage.store, REGION, other, None)
        assert stage.lost()
    stage.store.delete([paths.loss_record(REGION, DURABLE, None)])
    write_loss(
        stage.store, REGION, LossRecord(first=20, next=30, accepted_at_ms=1, accepted_by="me", kind="tombstones"), None
    )
    assert not stage.lost()
