"""``lancewal repair segment --accept-loss``: what no segment and no Kafka has is left out and recorded, and all goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lancewal_audit.repair.log_survey import survey_logs
from lancewal_audit.repair.segment import plan_segment, repair_segment
from lancewal_audit.verify.report import report_text
from lancewal_core.errors import (
    LancewalError,
    PlanRetriesExhausted,
    RecordsGivenUp,
    RetentionLost,
    TopicUnsuitable,
)
from lancewal_core.names import paths
from lancewal_core.names.ids import LogId, Region
from lancewal_core.region.loss_record import read_losses
from lancewal_ingest.regions.flush_queue import FlushQueue
from lancewal_kafka.records import Records
from lancewal_reader.point.receipt import receipt_of
from lancewal_reader.table import open_table
from tests.audit.repair.test_segment import MemoryRecords, damage, feed, pieces, state_of
from tests.audit.verify.records.test_wal import verify
from tests.support.pipeline import Key, Pipeline, Row, by_key
from tests.support.repairs import Crash, CrashingStore, content, messages, repairing

Lost = Mapping[int, tuple[int, int]]
"""By partition the offsets [first, next) that are gone."""


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    """Merged rows, and an OPEN generation of each region with many entries."""
    made = Pipeline(tmp_path, partitions=2, seed=23, seal_rows=10_000, batch=12)
    made.produce(60)
    made.merge_all()
    feed(made, 6)
    yield made
    made.close()


def held_by(pipeline: Pipeline, path: Path) -> Lost:
    """What a segment holds."""
    with repairing(pipeline) as context:
        survey = survey_logs(context, pipeline.contract.regions)[LogId(path.parent.name)]
    found = (p for some in survey.pieces.items() for p in ((some[0].partition, q) for q in some[1]))
    return {partition: (p.first, p.next) for partition, p in found if p.sequence == int(path.stem)}


def held_in_both(pipeline: Pipeline) -> Path:
    """A segment with entries of both regions that are not merged, in the midst of those of each."""
    newest = [state_of(pipeline, partition).generations[-1] for partition in range(2)]
    (log,) = {record.log for record in newest}
    found = [p for p in pieces(pipeline, log) if p.sequence >= max(r.first_sequence for r in newest)]
    numbers = [p.sequence for p in found]
    last = min(held[-1] for held in _numbers_of(pipeline, log))
    both = [n for n in numbers if numbers.count(n) == 2 and n < last]
    least = {n: min(p.next - p.first for p in found if p.sequence == n) for n in both}
    return Path(pipeline.uri) / paths.wal_segment(log, max(both, key=lambda n: least[n]))


def _numbers_of(pipeline: Pipeline, log: LogId) -> list[list[int]]:
    """Numbers of the segments that hold entries of each region."""
    with repairing(pipeline) as context:
        survey = survey_logs(context, pipeline.contract.regions)[log]
    return [[piece.sequence for piece in some] for some in survey.pieces.values()]


def rows_without(pipeline: Pipeline, lost: Lost) -> dict[Key, Row]:
    """The fold of everything produced but these offsets."""
    rows: dict[Key, Row] = {}
    for partition in range(pipeline.contract.partitions):
        first, end = lost.get(partition, (0, 0))
        for offset, (_, value, op) in enumerate(pipeline.messages(partition)):
            if first <= offset < end:
                continue
            sent = json.loads(value)
            key = (sent["region"], sent["id"])
            nothing = {**dict.fromkeys(pipeline.columns.names), "region": key[0], "id": key[1]}
            match op:
                case "upsert":
                    rows[key] = {**nothing, **sent}
                case "patch":
                    rows[key] = {**rows.get(key, nothing), **sent}
                case _:
                    rows.pop(key, None)
    return rows


def dropped(pipeline: Pipeline) -> MemoryRecords:
    """Kafka has nothing any more of what was produced."""
    return MemoryRecords(pipeline, lows={p: len(pipeline.messages(p)) for p in range(2)})


def give_up(pipeline: Pipeline, path: Path, topic: MemoryRecords) -> list[str]:
    with repairing(pipeline) as context:
        plan = plan_segment(context, topic, path.relative_to(pipeline.uri).as_posix(), accept_loss=True)
        return messages([*plan.lines(), *repair_segment(context, topic, plan)])


def recorded(pipeline: Pipeline, kind: str = "offsets") -> Lost:
    losses = {r.partition: read_losses(pipeline.store, r, None) for r in pipeline.contract.regions}
    assert all(len(some) <= 1 and all(loss.segment and loss.kind == kind for loss in some) for some in losses.values())
    return {partition: (loss.first, loss.next) for partition, some in losses.items() for loss in some}


def check(pipeline: Pipeline, lost: Lost, consistency: str = "strong") -> None:
    read = open_table(pipeline.uri).to_arrow(consistency=consistency)  # type: ignore[arg-type] # one of them
    assert by_key(read) == rows_without(pipeline, lost)


def goes_on(pipeline: Pipeline, lost: Lost, *, another: bool) -> None:
    """Readers, ingest, flusher and verify."""
    check(pipeline, lost)
    pipeline.produce(40)
    if another:
        pipeline.crash()
    else:
        pipeline.ingest()
    check(pipeline, lost)
    pipeline.merge_all()
    check(pipeline, lost)
    check(pipeline, lost, "eventual")
    report = verify(pipeline)
    assert report.equal, report_text(report)
    assert len(report.regions) == 2
    for region in report.regions:
        first, end = lost.get(region.partition, (0, 0))
        assert region.accepted_losses == ((f"[{first}, {end})",) if first < end else ())


@pytest.mark.parametrize(("how", "another"), [("lost", True), ("its trailer", False), ("its rows", True)])
def test_of_open_generations(pipeline: Pipeline, how: str, another: bool) -> None:
    path = held_in_both(pipeline)
    lost = held_by(pipeline, path)
    damage(path, how)
    with pytest.raises(LancewalError, match="lancewal repair segment"):
        open_table(pipeline.uri).to_arrow()
    before = content(pipeline.uri)
    topic = dropped(pipeline)
    key = path.relative_to(pipeline.uri).as_posix()
    with repairing(pipeline) as context:
        with pytest.raises(RetentionLost, match="--accept-loss") as refused:
            plan_segment(context, topic, key)
        shown = messages(plan_segment(context, topic, key, accept_loss=True).lines())
    assert content(pipeline.uri) == before
    assert len(lost) == 2, "small entries share a record batch, so none can be read without it"
    for partition, (first, end) in lost.items():
        said = f"topic orders partition {partition}: offsets {first} to {end - 1} are in no segment"
        assert said in str(refused.value)
        assert any(said in line and "given up" in line for line in shown)
    assert sum("given up" in line for line in shown) == len(lost)
    give_up(pipeline, path, topic)
    assert topic.asked == []
    assert recorded(pipeline) == lost
    assert rows_without(pipeline, lost) != pipeline.oracle
    goes_on(pipeline, lost, another=another)
    assert not [line for line in give_up(pipeline, path, topic) if "given up" in line]


def test_what_kafka_still_has_is_read(pipeline: Pipeline) -> None:
    path = held_in_both(pipeline)
    held = held_by(pipeline, path)
    damage(path, "lost")
    (first, end), whole = held[0], held[1]
    low = (first + end) // 2
    assert first < low < end
    topic = MemoryRecords(pipeline, lows={0: low})
    lines = give_up(pipeline, path, topic)
    assert any(f"offsets {low} to {end - 1} are read from Kafka" in line for line in lines)
    assert topic.asked == [(0, low, end), (1, *whole)]
    assert recorded(pipeline) == {0: (first, low)}
    goes_on(pipeline, {0: (first, low)}, another=True)


@pytest.mark.parametrize(("at", "after"), [(1, True), (2, False), (2, True), (3, True), (4, False), (6, True)])
def test_a_crash_in_between_is_repeated_away(pipeline: Pipeline, at: int, after: bool) -> None:
    path = held_in_both(pipeline)
    lost = held_by(pipeline, path)
    damage(path, "its trailer")
    topic = dropped(pipeline)
    key = path.relative_to(pipeline.uri).as_posix()
    with repairing(pipeline, CrashingStore(pipeline.store, at, after=after)) as context:
        plan = plan_segment(context, topic, key, accept_loss=True)
        with pytest.raises(Crash):
            repair_segment(context, topic, plan)
    give_up(pipeline, path, topic)
    assert recorded(pipeline) == lost
    goes_on(pipeline, lost, another=True)


@dataclass(slots=True)
class CompactedRecords(MemoryRecords):
    """Of which deletes have been removed."""

    without: list[int] = field(default_factory=list)

    def read(self, region: Region, first: int, end: int) -> Records:
        every = MemoryRecords.read(self, region, first, end)  # type: ignore[arg-type] # as above
        kept = [i for i, headers in enumerate(every.headers) if headers is None or headers[0][1] != b"delete"]
        self.without += [every.offsets[i] for i in range(len(every.offsets)) if i not in kept]
        columns = (every.offsets, every.timestamps, every.keys, every.values, every.headers)
        return Records(*([column[i] for i in kept] for column in columns))  # type: ignore[arg-type] # each its own


def test_of_a_compacted_topic_only_deletes_are_given_up(pipeline: Pipeline) -> None:
    path = held_in_both(pipeline)
    held = held_by(pipeline, path)
    damage(path, "lost")
    topic = CompactedRecords(pipeline, compacted=True)
    key = path.relative_to(pipeline.uri).as_posix()
    with repairing(pipeline) as context, pytest.raises(TopicUnsuitable, match=r"is compacted.*--accept-loss"):
        plan_segment(context, topic, key)
    lines = give_up(pipeline, path, topic)
    assert sum("rows that these removed may stay" in line for line in lines) == 4  # before and after
    assert [(partition, first, end) for partition, first, end in topic.asked] == [(p, *held[p]) for p in sorted(held)]
    assert recorded(pipeline, "tombstones") == held
    assert topic.without
    read = by_key(open_table(pipeline.uri).to_arrow())
    assert read.keys() >= pipeline.oracle.keys()
    pipeline.produce(40)
    pipeline.crash()
    pipeline.merge_all()
    assert verify(pipeline).equal
    assert not [line for line in give_up(pipeline, path, topic) if "may stay" in line]


def test_a_reader_that_has_read_it_shows_what_the_others_do(pipeline: Pipeline) -> None:
    """It remembers what it has folded; later patches lie on the earlier state for it as for all."""
    table = open_table(pipeline.uri)
    assert by_key(table.to_arrow()) == pipeline.oracle
    path = held_in_both(pipeline)
    lost = held_by(pipeline, path)
    damage(path, "lost")
    topic = dropped(pipeline)
    give_up(pipeline, path, topic)
    for _ in range(2):
        assert by_key(table.to_arrow()) == rows_without(pipeline, lost)
        pipeline.produce(40)
        pipeline.ingest()
    assert by_key(table.to_arrow()) == rows_without(pipeline, lost)


def test_an_ingest_that_is_stopped_in_order_loses_nothing(pipeline: Pipeline) -> None:
    """It has in memory what the segment held."""
    path = held_in_both(pipeline)
    damage(path, "lost")
    with repairing(pipeline) as context, pytest.raises(RetentionLost, match="stop it in order"):
        plan_segment(context, dropped(pipeline), path.relative_to(pipeline.uri).as_posix())
    pipeline.hand_over()
    assert any("nothing to do" in line for line in give_up(pipeline, path, dropped(pipeline)))
    assert recorded(pipeline) == {}
    check(pipeline, {})
    pipeline.produce(40)
    pipeline.merge_all()
    check(pipeline, {}, "eventual")


def test_a_receipt_over_what_was_given_up_is_refused_by_name(pipeline: Pipeline) -> None:
    """Reads from before saw it: what is left would be other rows."""
    before = receipt_of(open_table(pipeline.uri).scan().schema)
    path = held_in_both(pipeline)
    lost = held_by(pipeline, path)
    damage(path, "lost")
    pipeline.produce(1)
    give_up(pipeline, path, dropped(pipeline))
    table = open_table(pipeline.uri)
    with pytest.raises(RecordsGivenUp, match=r"--accept-loss.*Read without"):
        table.to_arrow(at=before)
    pipeline.merge_all()
    read = table.scan()
    rows = by_key(read.to_arrow())
    pipeline.produce(30)
    pipeline.merge_all()
    assert by_key(table.to_arrow(at=receipt_of(read.schema))) == rows
    with pytest.raises((RecordsGivenUp, PlanRetriesExhausted)):
        table.to_arrow(at=before)
    check(pipeline, lost)


def test_of_sealed_generations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ingest that seals, and dies before it flushes."""
    pipeline = Pipeline(tmp_path, partitions=2, seed=19, seal_rows=30, batch=12)
    with monkeypatch.context() as patched:
        patched.setattr(FlushQueue, "advance", lambda self: None)
        feed(pipeline, 8)
    record = state_of(pipeline, 1).generations[0]
    path = Path(pipeline.uri) / "_lancewal" / "wal" / record.log / f"{record.first_sequence + 1:020d}.arrow"
    lost = held_by(pipeline, path)
    assert lost
    damage(path, "lost")
    give_up(pipeline, path, dropped(pipeline))
    assert recorded(pipeline) == lost
    goes_on(pipeline, lost, another=True)
    pipeline.close()
