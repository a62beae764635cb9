"""Accidents of a topic: retention, truncation, wrong partitions, bad records, another topic of the same name."""

from __future__ import annotations

from collections.abc import Callable

from lancewal_core.errors import (
    BadRecord,
    LancewalError,
    Misrouted,
    PartitionCountChanged,
    RetentionLost,
    TopicReplaced,
    TopicTruncated,
)
from tests.simulation.checker import require
from tests.simulation.memory_kafka import Partition
from tests.simulation.oracle import Record
from tests.simulation.script import stops
from tests.simulation.stage import Member, Stage
from tests.support.regions import by_number


def _stopped(member: Member, partition: int, error: type[LancewalError]) -> None:
    found = by_number(member.worker.stopped).get(partition)
    require(isinstance(found, error), f"partition {partition} stopped by", found, "instead of", error)


def retention_overtakes_ingest() -> None:
    """Nobody ingests until retention has removed records: the partition stops and says so; the others go on."""
    stage = Stage()
    a, b = stage.member("a", 0, 1), stage.member("b")
    stage.append(a, 0)
    stage.send(0, 2)
    log = stage.topic.partitions[0]
    log.low = log.high
    stage.take_over(a, b, 0, 1)
    _stopped(b, 0, RetentionLost)
    stage.append(b, 1)
    stage.check()


def retention_takes_what_is_durable() -> None:
    """Kafka has nothing any more of what is in the log: it is not asked for that, by the owner and by the next one."""
    stage = Stage()
    a, b = stage.member("a", 0, 1), stage.member("b")
    for owner in (a, b):
        stage.append(owner, 0)
        log = stage.topic.partitions[0]
        log.low = log.high
        stage.append(owner, 0)
        stage.take_over(a, b, 0)
        require(not b.worker.stopped, "nothing was lost, but", b.worker.stopped)
    stage.check()


def topic_loses_its_tail() -> None:
    """Kafka has less than what is durable."""
    stage = Stage()
    a, b = stage.member("a", 0, 1), stage.member("b")
    stage.append(a, 0)
    stage.topic.partitions[0].high = 0
    stage.take_over(a, b, 0)
    _stopped(b, 0, TopicTruncated)
    stage.check()


def producer_uses_another_partitioner() -> None:
    """A record lies in a partition that its key does not belong to: that partition stops right before it."""
    stage = Stage()
    a = stage.member("a", 0, 1)
    stage.send(0, 2)
    (k,) = stage.send(1)
    log, key = stage.topic.partitions[0], stage.topic.partitions[1].records[0].key
    stage.topic.append(0, lambda offset: Record(offset, 0, key, b'{"k": %d}' % k, None, None, k, {}))
    stage.step(a, 3)
    _stopped(a, 0, Misrouted)
    require(stage.acknowledged == {0: log.high - 1, 1: 1}, "durable up to", stage.acknowledged)
    b = stage.member("b")
    stage.take_over(a, b, 0)
    stage.step(b, 3)
    _stopped(b, 0, Misrouted)  # now it is the first record
    stage.check()


def misrouted_records_are_dead_letters() -> None:
    """The contract says that a record in the wrong partition is a bad record: ingest goes on without it."""
    stage = Stage(on_misrouted="dead-letter")
    a = stage.member("a", 0, 1)
    stage.send(0, 2)
    (k,) = stage.send(1)
    key = stage.topic.partitions[1].records[0].key
    stage.topic.append(0, lambda offset: Record(offset, 0, key, b'{"k": %d}' % k, None, None, k, {}))
    stage.append(a, 0)
    require(stage.acknowledged == {0: 4, 1: 1}, "durable up to", stage.acknowledged)
    stage.check()


def bad_record_stops() -> None:
    """With ``stop`` a record that is no row ends its partition right before it, also as the first one."""
    stage = Stage(on_bad_record="stop")
    a = stage.member("a", 0, 1)
    for partition, before in ((0, 2), (1, 0)):
        keys = stage.send(partition, before or 1)
        log = stage.topic.partitions[partition]
        key, k = log.records[-1].key, keys[-1]
        del log.records[before:]
        log.high = before
        stage.topic.append(partition, lambda offset, key=key, k=k: Record(offset, 0, key, b"{", None, None, k, {}))  # type: ignore[misc] # defaults
    stage.step(a, 3)
    for partition in (0, 1):
        _stopped(a, partition, BadRecord)
    require(stage.acknowledged == {0: 2, 1: 0}, "durable up to", stage.acknowledged)
    stage.checker.check(stage.acknowledged)


def stopped_region_is_claimed() -> None:
    """A stops at a bad record, and is taken for dead while it still looks after its region: it does not open that again."""
    stage = Stage(on_bad_record="stop")
    a, b = stage.member("a", 0, 1), stage.member("b")
    stage.append(a, 0)
    stage.topic.append(
        0, lambda offset: Record(offset, 0, stage.topic.partitions[0].records[0].key, b"{", None, None, 0, {})
    )
    stage.step(a, 3)
    _stopped(a, 0, BadRecord)
    stage.take_over(a, b, 1)
    stage.step(a, 3)
    require(not a.worker.durable, "open at A:", a.worker.durable)
    stage.append(b, 1)
    stage.checker.check(stage.acknowledged)


def topic_is_recreated() -> None:
    """The topic has another id by the time a batch has arrived: ingest ends, and nothing of the batch is written."""
    stage = Stage()
    a, b = stage.member("a", 0, 1), stage.member("b")
    stage.append(a, 0)
    stage.send(0)
    stage.topic.topic_id = "topic-id-2"
    with stops(TopicReplaced):
        stage.step(a, 2)
    with stops(TopicReplaced):  # as does who opens a partition of it
        stage.take_over(a, b, 1)
    stage.check()


def topic_gets_more_partitions() -> None:
    """Somebody alters the topic: keys may move between partitions, so ingest ends."""
    stage = Stage()
    a = stage.member("a", 0, 1)
    stage.append(a, 0)
    stage.send(0)
    stage.topic.partitions.append(Partition())
    with stops(PartitionCountChanged):
        stage.step(a, 2)
    stage.check()


ACCIDENTS: list[Callable[[], None]] = [
    retention_overtakes_ingest,
    retention_takes_what_is_durable,
    topic_loses_its_tail,
    producer_uses_another_partitioner,
    misrouted_records_are_dead_letters,
    bad_record_stops,
    stopped_region_is_claimed,
    topic_is_recreated,
    topic_gets_more_partitions,
]
