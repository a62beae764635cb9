"""A pause that is longer than a compacted topic keeps its tombstones: nothing goes on unawares."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lancewal_core.errors import BadRecord, KafkaUnavailable
from lancewal_core.names.ids import Position, Region
from lancewal_ingest.append.prepare import Preparer
from lancewal_ingest.kafka.source import Offsets
from lancewal_kafka.retention import Compaction
from tests.support.pipeline import MemoryTopic, NoDeadLetters, Pipeline
from tests.support.regions import by_number, region

HOUR_S = 3600.0


class Broker:
    """Answers for every partition of a pipeline; what was asked."""

    def __init__(
        self, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, recent: int, compacted: bool = True
    ) -> None:
        self.asked: list[int] = []
        self.silent = 0

        def offsets(topic: MemoryTopic, place: Region) -> Offsets:
            self.asked.append(place.partition)
            if self.silent:
                self.silent -= 1
                raise KafkaUnavailable("silent")
            end = Position(len(pipeline.messages(place.partition)))
            compaction = Compaction(24 * HOUR_S, Position(recent), end) if compacted else None
            return Offsets(Position(0), end, compaction)

        monkeypatch.setattr(MemoryTopic, "offsets", offsets)


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    """Durable up to 1 and held; more records lie beyond."""
    made = Pipeline(tmp_path, partitions=1, seed=5, seal_rows=100_000)
    made.upsert("r1", 1, a=1)
    made.ingest()
    made._worker.hold(True)
    made._worker.step(0)
    for n in range(2, 9):
        made.upsert("r1", n, a=n)
    yield made
    made.close()


def resumed(pipeline: Pipeline, hours: float) -> bool:
    """Whether consuming goes on after so long."""
    pipeline.clock.ahead_s += hours * HOUR_S
    pipeline._worker.hold(False)
    end = time.monotonic() + 240
    while not (went_on := pipeline.ingest_for(0.05)) and region(0) not in pipeline._worker.stopped:
        assert time.monotonic() < end
    assert went_on is (region(0) not in pipeline._worker.stopped)
    return went_on


def test_a_pause_longer_than_tombstones_live_stops_the_partition(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    Broker(pipeline, monkeypatch, recent=8)
    assert not resumed(pipeline, 30)
    error = pipeline._worker.stopped[region(0)]
    assert error.kind == "retention_lost"
    assert "offsets 1 to 7" in str(error)
    assert by_number(pipeline._worker.durable) == {0: 1}


def test_a_pause_that_tombstones_outlive_asks_once(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(pipeline, monkeypatch, recent=8)
    assert resumed(pipeline, 23)
    assert broker.asked == [0]


def test_nothing_beyond_is_old(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    Broker(pipeline, monkeypatch, recent=1)
    assert resumed(pipeline, 30)


@pytest.mark.parametrize(("hours", "compacted", "asked"), [(0.01, True, 0), (30, False, 1)])
def test_a_short_pause_and_other_topics_go_on(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, hours: float, compacted: bool, asked: int
) -> None:
    broker = Broker(pipeline, monkeypatch, recent=8, compacted=compacted)
    assert resumed(pipeline, hours)
    assert len(broker.asked) == asked


def test_a_silent_broker_is_asked_again(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(pipeline, monkeypatch, recent=8)
    broker.silent = 2
    assert not resumed(pipeline, 30)
    assert len(broker.asked) == 3


def test_a_region_opened_while_paused_is_judged_by_its_segments(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Away for 20 hours, then a process that starts paused for 10 more: neither alone is too long."""
    pipeline._worker.hold(False)
    pipeline.clock.ahead_s += 20 * HOUR_S
    pipeline.replace_worker()
    worker = pipeline._worker
    worker.hold(True)
    while not worker.durable:
        worker.step(0)
    Broker(pipeline, monkeypatch, recent=8)
    assert not resumed(pipeline, 10)


def _stopped_by_a_record(folder: Path) -> Pipeline:
    """Durable up to 1 and stopped there; more records lie beyond."""
    made = Pipeline(folder, partitions=1, seed=5, seal_rows=100_000)
    made.upsert("r1", 1, a=1)
    made.ingest()
    made._worker._partitions.stop(region(0), BadRecord("a record that is none", topic="orders", partition=0))
    for n in range(2, 9):
        made.upsert("r1", n, a=n)
    return made


@pytest.mark.parametrize(
    ("hours", "stopped", "durable"), [(30, {0: "retention_lost"}, {}), (23, {}, {0: 8})], ids=["longer", "shorter"]
)
def test_a_stop_that_another_policy_ends_is_judged_as_an_opening_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: float, stopped: dict[int, str], durable: dict[int, int]
) -> None:
    pipeline = _stopped_by_a_record(tmp_path)
    worker = pipeline._worker
    Broker(pipeline, monkeypatch, recent=8)
    pipeline.clock.ahead_s += hours * HOUR_S
    altered = pipeline.contract.model_copy(update={"version": 2, "on_bad_record": "ignore"})
    worker.take_up(Preparer(altered), NoDeadLetters())
    worker.step(0)
    if not stopped:
        pipeline.ingest()
    pipeline.close()
    assert {p: error.kind for p, error in by_number(worker.stopped).items()} == stopped
    assert by_number(worker.durable) == durable


def test_a_region_opened_again_while_paused_is_judged_by_its_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read until the pause began, 20 hours after its last segment; what was read and is not durable is read again."""
    pipeline = Pipeline(tmp_path, partitions=1, seed=5, seal_rows=100_000)
    pipeline.upsert("r1", 1, a=1)
    pipeline.ingest()
    worker = pipeline._worker
    pipeline.clock.ahead_s += 20 * HOUR_S
    worker.hold(True)
    worker.step(0)
    while worker._sealing.busy:  # by its age
        worker.step(0)
    for n in range(2, 9):
        pipeline.upsert("r1", n, a=n)
    Broker(pipeline, monkeypatch, recent=8)
    worker._partitions.stop(region(0), BadRecord("a record that is none", topic="orders", partition=0))
    worker.take_up(Preparer(pipeline.contract.model_copy(update={"version": 2})), NoDeadLetters())
    worker.step(0)
    assert (by_number(worker.durable), worker.stopped) == ({0: 1}, {})
    went_on = resumed(pipeline, 10)
    pipeline.close()
    assert not went_on
