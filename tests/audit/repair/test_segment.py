"""``lancewal repair segment``: a lost or damaged segment's records come from the topic again, into flushes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from lancewal_audit.repair.log_survey import LogSurvey, Piece, survey_logs
from lancewal_audit.repair.segment import plan_segment, repair_segment
from lancewal_core.errors import (
    InvalidInput,
    ObjectCorrupt,
    ObjectMissing,
    RepairRefused,
    RetentionLost,
    TopicUnsuitable,
)
from lancewal_core.names import paths
from lancewal_core.names.ids import LogId, OwnerId, Position, Region, Sequence
from lancewal_core.region.loss_record import LossRecord, write_loss
from lancewal_core.region.state import GenerationState, RegionState
from lancewal_core.rows.record_times import RecordTimes
from lancewal_core.wal.segment import FOOTER_SIZE
from lancewal_core.wal.writer import LogWriter
from lancewal_ingest.kafka.source import Offsets
from lancewal_ingest.regions.flush_queue import FlushQueue
from lancewal_ingest.regions.open import open_region
from lancewal_kafka.records import Records
from lancewal_reader.table import open_table
from tests.support.indexes import newest_state
from tests.support.pipeline import SMALL, Pipeline
from tests.support.repairs import Crash, CrashingStore, check_merged, check_strong, content, flip, messages, repairing


@dataclass(slots=True)
class MemoryRecords:
    """The topic of a pipeline, of which Kafka has dropped what lies below ``lows``."""

    pipeline: Pipeline
    lows: dict[int, int] = field(default_factory=dict)
    asked: list[tuple[int, int, int]] = field(default_factory=list)
    compacted: bool = False

    def check(self) -> None:
        if self.compacted:
            raise TopicUnsuitable("topic orders is compacted")

    def low(self, partition: int) -> Position:
        return Position(self.lows.get(partition, 0))

    def read(self, region: Region, first: Position, end: Position) -> Records:
        assert first >= self.low(region.partition)
        self.asked.append((region.partition, first, end))
        taken = self.pipeline.messages(region.partition)[first:end]
        return Records(
            list(range(first, end)),
            [self.pipeline.record_ms(region.partition, offset) for offset in range(first, end)],
            [key for key, _, _ in taken],
            [value for _, value, _ in taken],
            [None if op == "upsert" else [("lancewal.op", op.encode())] for _, _, op in taken],
        )


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    """Merged rows, and an OPEN generation of each region with many entries."""
    made = Pipeline(tmp_path, partitions=2, seed=17, seal_rows=10_000, batch=12)
    made.produce(60)
    made.merge_all()
    feed(made, 6)
    yield made
    made.close()


def feed(pipeline: Pipeline, segments: int) -> None:
    """So many segments at least."""
    for _ in range(segments):
        pipeline.produce(20)
        pipeline.ingest()


def state_of(pipeline: Pipeline, partition: int) -> RegionState:
    state = newest_state(pipeline.store, pipeline.clock, pipeline.contract.regions[partition])
    assert state is not None
    return state


def sealed_anew(pipeline: Pipeline) -> list[RecordTimes | None]:
    """Between which times the records of each region's newest generation lie, which a repair has SEALED and flushed."""
    newest = [state_of(pipeline, region.partition).generations[-1] for region in pipeline.contract.regions]
    assert all(record.state is GenerationState.FLUSHED for record in newest)
    assert all(record.sealed_at_ms is not None and record.flushed_at_ms is not None for record in newest)
    return [record.record_times for record in newest]


def survey_of(pipeline: Pipeline, log: LogId) -> LogSurvey:
    with repairing(pipeline) as context:
        return survey_logs(context, pipeline.contract.regions)[log]


def pieces(pipeline: Pipeline, log: LogId) -> list[Piece]:
    survey = survey_of(pipeline, log)
    return sorted((p for some in survey.pieces.values() for p in some), key=lambda p: p.sequence)


def middle(pipeline: Pipeline) -> Path:
    """A segment in the midst of what the newest generations have in their log."""
    newest = state_of(pipeline, 1).generations[-1]
    found = sorted({p.sequence for p in pieces(pipeline, newest.log) if p.sequence >= newest.first_sequence})
    assert len(found) > 3
    return Path(pipeline.uri) / paths.wal_segment(newest.log, found[len(found) // 2])


def damage(path: Path, how: str) -> None:
    data = path.read_bytes()
    match how:
        case "lost":
            path.unlink()
        case "its trailer":
            path.write_bytes(data[:-FOOTER_SIZE])
        case "its rows":
            body = int.from_bytes(data[-FOOTER_SIZE : -FOOTER_SIZE + 8], "little")
            path.write_bytes(data[: body - 40] + bytes(b ^ 0xFF for b in data[body - 40 : body - 8]) + data[body - 8 :])
        case _:
            path.write_bytes(b"")


def repair(pipeline: Pipeline, path: Path, topic: MemoryRecords | None = None, *, dry: bool = False) -> list[str]:
    topic = topic or MemoryRecords(pipeline)
    with repairing(pipeline) as context:
        plan = plan_segment(context, topic, path.relative_to(pipeline.uri).as_posix())
        assert plan.lines()
        return messages(plan.lines() if dry else repair_segment(context, topic, plan))


def goes_on(pipeline: Pipeline, *, another: bool, write: Callable[[int], object] | None = None) -> None:
    (write or pipeline.produce)(40)
    if another:
        pipeline.crash()
    else:
        pipeline.ingest()
    check_strong(pipeline)
    pipeline.merge_all()
    check_merged(pipeline)
    check_strong(pipeline)


@pytest.mark.parametrize(
    ("how", "another"),
    [("lost", True), ("its trailer", False), ("its rows", True), ("its trailer", True), ("all", False)],
)
def test_of_open_generations(pipeline: Pipeline, how: str, another: bool) -> None:
    """The owner that goes on is told by a fence; another one finds the generations handed over."""
    path = middle(pipeline)
    damage(path, how)
    with pytest.raises((ObjectCorrupt, ObjectMissing), match="lancewal repair segment"):
        open_table(pipeline.uri).to_arrow()
    before = content(pipeline.uri)
    assert any("are read from Kafka" in line for line in repair(pipeline, path, dry=True))
    assert content(pipeline.uri) == before
    topic = MemoryRecords(pipeline)
    assert len(repair(pipeline, path, topic)) == 2
    assert topic.asked
    read_again = {partition for partition, _, _ in topic.asked}
    assert [times is None for times in sealed_anew(pipeline)] == [p in read_again for p in range(2)]
    check_strong(pipeline)
    assert repair(pipeline, path) == []
    goes_on(pipeline, another=another)


@pytest.mark.parametrize("how", ["its trailer", "lost"])
def test_of_sealed_generations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """An ingest that seals, and dies before it flushes."""
    pipeline = Pipeline(tmp_path, partitions=2, seed=19, seal_rows=30, batch=12)
    with monkeypatch.context() as patched:
        patched.setattr(FlushQueue, "advance", lambda self: None)
        feed(pipeline, 8)
    records = [r for r in state_of(pipeline, 1).generations if r.state is GenerationState.SEALED]
    assert records
    record = records[0]
    inside = {p.sequence for p in pieces(pipeline, record.log) if record.first <= p.first < (record.next or 0)}
    path = Path(pipeline.uri) / paths.wal_segment(
        record.log, Sequence(max(n for n in inside if n < (record.end_sequence or 0)))
    )
    damage(path, how)
    assert repair(pipeline, path)
    check_strong(pipeline)
    goes_on(pipeline, another=True)
    pipeline.close()


def test_of_a_flushed_generation_whose_flush_is_lost_too(pipeline: Pipeline) -> None:
    path = middle(pipeline)
    pipeline.hand_over()
    damage(path, "its rows")
    assert "no unmerged generation needs it: nothing to do" in repair(pipeline, path, dry=True)
    record = next(r for r in state_of(pipeline, 1).generations if r.state is GenerationState.FLUSHED)
    (Path(pipeline.uri) / (record.flush or "")).unlink()
    assert repair(pipeline, path)
    check_strong(pipeline)
    goes_on(pipeline, another=False)


def test_a_segment_that_is_lost_between_two_contracts(tmp_path: Path) -> None:
    """Nobody knows by which of them its records were taken: each counts by the newest under which it is a row."""
    columns = pa.schema([*SMALL, ("tags", pa.list_(pa.string()))])
    pipeline = Pipeline(tmp_path, columns, partitions=1, seed=3, seal_rows=10_000, batch=12, on_bad_record="ignore")
    for id in range(4):
        pipeline.upsert("r0", id, a=id, s="old", tags=["x"])
        pipeline.ingest()
    pipeline.produced("upsert", "r0", 9, {"b": 5})  # no row by version 1
    pipeline.upsert("r0", 3, a=33, tags=["only by version 1"])
    pipeline.ingest()
    pipeline.change_columns({"s": None, "tags": None}, {"b": "int64", "tags": "int64"})
    pipeline.upsert("r0", 1, a=11, b=1, tags=7)
    pipeline.ingest()
    log = state_of(pipeline, 0).generations[-1].log
    held = pieces(pipeline, log)
    by_version = [piece.contract_version for piece in held]
    assert by_version == sorted(by_version)
    assert set(by_version) == {1, 2}
    lost = held[by_version.index(2) - 1]
    pipeline.upsert("r0", 2, b=22)
    pipeline.ingest()
    path = Path(pipeline.uri) / paths.wal_segment(log, lost.sequence)
    damage(path, "lost")
    said = repair(pipeline, path, dry=True)
    assert any("records may be of versions 1 and 2 of the contract" in line for line in said), said
    assert repair(pipeline, path)
    if lost.first <= 4:  # else its entry, which lists it as no row, lies in the segment before
        pipeline.oracle["r0", 9] = {"region": "r0", "id": 9, "a": None, "b": 5, "tags": None}
    pipeline.oracle["r0", 3] = {"region": "r0", "id": 3, "a": 33, "b": None, "tags": None}
    goes_on(pipeline, another=True)
    pipeline.close()


def test_a_damaged_fence(pipeline: Pipeline) -> None:
    """Nothing of the rows is lost; but no walk gets over it."""
    log = state_of(pipeline, 1).generations[-1].log
    key = Path(pipeline.uri) / paths.wal_segment(log, Sequence(max(p.sequence for p in pieces(pipeline, log)) + 1))
    key.write_bytes(b"a fence that is none")
    with pytest.raises(ObjectCorrupt):
        open_table(pipeline.uri).to_arrow()
    topic = MemoryRecords(pipeline)
    held = survey_of(pipeline, log).pieces
    expected = []
    for region in pipeline.contract.regions:
        first = state_of(pipeline, region.partition).generations[-1].first
        expected.append(RecordTimes.joined(p.record_times for p in held[region] if p.first >= first))
    assert None not in expected
    repair(pipeline, key, topic)
    assert topic.asked == []
    assert sealed_anew(pipeline) == expected
    check_strong(pipeline)
    goes_on(pipeline, another=True)


def test_the_last_segment(pipeline: Pipeline) -> None:
    """What it alone has shown is read by ingest."""
    log = state_of(pipeline, 1).generations[-1].log
    path = Path(pipeline.uri) / paths.wal_segment(log, max(p.sequence for p in pieces(pipeline, log)))
    damage(path, "its trailer")
    repair(pipeline, path)
    goes_on(pipeline, another=True)


def test_refused(pipeline: Pipeline) -> None:
    path = middle(pipeline)
    assert repair(pipeline, path, dry=True) == [
        f"{path.relative_to(pipeline.uri).as_posix()} is not damaged: nothing to do"
    ]
    assert repair(pipeline, path) == []
    with pytest.raises(InvalidInput, match="is not a WAL segment"):
        repair(pipeline, Path(pipeline.uri) / "data" / "x")
    with pytest.raises(RepairRefused, match="is not part of a log"):
        repair(pipeline, path.with_name("00000000000000009999.arrow"))
    damage(path, "its trailer")
    before = content(pipeline.uri)
    ends = {p: len(pipeline.messages(p)) for p in range(2)}
    with pytest.raises(RetentionLost, match=f"Kafka begins at ({ends[0]}|{ends[1]})"):
        repair(pipeline, path, MemoryRecords(pipeline, lows=ends))
    with pytest.raises(TopicUnsuitable):
        repair(pipeline, path, MemoryRecords(pipeline, compacted=True))
    assert content(pipeline.uri) == before


def test_offsets_that_were_accepted_as_lost_are_asked_of_nobody(pipeline: Pipeline) -> None:
    path = middle(pipeline)
    with repairing(pipeline) as context:
        survey = survey_logs(context, pipeline.contract.regions)[LogId(path.parent.name)]
    damage(path, "its trailer")
    for region, found in survey.pieces.items():
        for p in (p for p in found if p.sequence == int(path.stem)):
            loss = LossRecord(first=p.first, next=p.next, accepted_at_ms=1, accepted_by="person")
            write_loss(pipeline.store, region, loss, None)
    topic = MemoryRecords(pipeline, lows={p: len(pipeline.messages(p)) for p in range(2)})
    assert repair(pipeline, path, topic)
    assert topic.asked == []


@pytest.mark.parametrize(("at", "after"), [(1, True), (2, True), (4, False)])
def test_a_crash_in_between_is_repeated_away(pipeline: Pipeline, at: int, after: bool) -> None:
    path = middle(pipeline)
    damage(path, "its trailer")
    topic = MemoryRecords(pipeline)
    key = path.relative_to(pipeline.uri).as_posix()
    with repairing(pipeline, CrashingStore(pipeline.store, at, after=after)) as context:
        plan = plan_segment(context, topic, key)
        with pytest.raises(Crash):
            repair_segment(context, topic, plan)
    repair(pipeline, path)
    check_strong(pipeline)
    goes_on(pipeline, another=True)


def test_a_claimer_in_between_changes_nothing(pipeline: Pipeline) -> None:
    """It stops at the lost segment, and goes on once the repair is done."""
    path = middle(pipeline)
    damage(path, "lost")
    key = path.relative_to(pipeline.uri).as_posix()
    topic = MemoryRecords(pipeline)
    with repairing(pipeline) as context:
        plan = plan_segment(context, topic, key)
        before = content(pipeline.uri)
        with pytest.raises(ObjectMissing, match=key):
            pipeline.crash()
        assert content(pipeline.uri) == before
        assert all("is flushed" in line for line in messages(repair_segment(context, topic, plan)))
    check_strong(pipeline)
    goes_on(pipeline, another=True)


def test_every_byte_of_a_trailer(pipeline: Pipeline) -> None:
    """Wherever it is damaged, it is found; a sample."""
    path = middle(pipeline)
    data = path.read_bytes()
    for at in range(len(data) - 400, len(data), 41):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert "is not damaged" not in repair(pipeline, path, dry=True)[0], at
    path.write_bytes(data)
    flip(path)
    assert "is not damaged" not in repair(pipeline, path, dry=True)[0]


def test_a_claim_of_another_region_does_not_end_the_log_where_a_segment_is_lost(tmp_path: Path) -> None:
    """The owner is alive and goes on behind; whoever claims one of its regions leaves the reads of the others as they are."""
    pipeline = Pipeline(tmp_path, partitions=2, seed=5, seal_rows=100_000, batch=10)
    for _ in range(4):
        pipeline.produce(40)
        pipeline.ingest()
    log = pipeline._worker._writer.log
    lost = paths.wal_segment(log, Sequence(2))
    pipeline.store.delete([lost])
    north, south = pipeline.contract.regions
    high = Position(len(pipeline.messages(0)))
    with repairing(pipeline) as context:
        before = content(pipeline.uri)
        writer = LogWriter(context.store, context.clock, LogId("b" * 16), OwnerId("other"), context.contract.rows.wal)
        with pytest.raises(ObjectMissing, match=lost):
            open_region(context, writer, north, lambda: Offsets(Position(0), high))
        assert content(pipeline.uri) == before
        with pytest.raises(ObjectMissing, match=lost):
            open_table(pipeline.uri).to_arrow()
        records = MemoryRecords(pipeline)
        plan = plan_segment(context, records, lost)
        assert {g.region for g in plan.needed} == {north, south}
        repair_segment(context, records, plan)
    check_strong(pipeline)
    with repairing(pipeline) as context:
        writer = LogWriter(context.store, context.clock, LogId("c" * 16), OwnerId("other"), context.contract.rows.wal)
        assert open_region(context, writer, north, lambda: Offsets(Position(0), high)).record.first == high
    pipeline.produce(20)
    pipeline.crash()
    check_strong(pipeline)
    pipeline.close()


def test_a_loss_of_deletes_alone_leaves_the_rows_to_be_read(pipeline: Pipeline) -> None:
    path = middle(pipeline)
    damage(path, "lost")
    for region in pipeline.contract.regions:
        deletes = LossRecord(first=0, next=10_000, accepted_at_ms=0, accepted_by="me", kind="tombstones")
        write_loss(pipeline.store, region, deletes, None)
    repair(pipeline, path)
    check_strong(pipeline)
