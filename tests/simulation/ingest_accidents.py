"""Accidents around open, append and seal."""

from __future__ import annotations

from collections.abc import Callable

from lancewal_core import paths
from lancewal_core.errors import (
    BadRecordStop,
    LancewalError,
    LogTruncated,
    Misrouted,
    PartitionCountChanged,
    PlanRetriesExhausted,
    RetentionLost,
    StoreInconsistent,
    TableRestored,
    TopicReplaced,
)
from lancewal_core.testing.faults import PutFault
from lancewal_flusher.gc import GarbageState, collect_garbage
from lancewal_ingest.policy import GenerationStats, SealDecision, SealPolicy
from tests.simulation.checker import require
from tests.simulation.memory_kafka import Partition
from tests.simulation.oracle import Record
from tests.simulation.stage import ALWAYS, Member, Stage, stops


def _stopped(member: Member, partition: int, error: type[LancewalError]) -> None:
    found = member.worker.stopped.get(partition)
    require(isinstance(found, error), f"partition {partition} stopped by", found, "instead of", error)


def _handed_over() -> tuple[Stage, Member, Member]:
    """A has handed region 0 over to B, which has not opened it yet; C stands by."""
    stage = Stage()
    a, b, c = stage.member("a", 0, 1), stage.member("b"), stage.member("c")
    stage.append(a, 0)
    stage.give(b, 0)
    stage.step(a)
    return stage, b, c


def retention_follows_another_owner() -> None:
    """While B asks Kafka, C has taken the region on, and retention has removed what C made durable."""
    stage, b, c = _handed_over()

    def go_on() -> None:
        stage.take_over(b, c, 0)
        stage.append(c, 0)
        log = stage.topic.partitions[0]
        log.low = log.high

    b.script.before("kafka", "broker", go_on, passing=2)
    stage.step(b)
    require(not b.worker.stopped, "nothing was lost, but", b.worker.stopped)
    require(stage.counts.get("failed open: OwnershipLost") == 1, "B notes that it came late:", stage.counts)
    stage.check()


def region_was_elsewhere_in_between() -> None:
    """While B asks Kafka, C opens the region, appends, and hands it over: B claims behind that."""
    stage, b, c = _handed_over()

    def there_and_back() -> None:
        stage.take_over(b, c, 0)
        stage.append(c, 0)
        stage.give(b, 0)
        stage.step(c)

    b.script.before("kafka", "broker", there_and_back, passing=2)
    stage.step(b)
    stage.append(b, 0)
    stage.step(b, 10)
    stage.check()


def hand_over_fails_and_the_region_comes_back() -> None:
    """The store fails while A hands over; A gets the region again, and an own segment cannot be read for a while."""
    stage = Stage()
    a, b = stage.member("a", 0, 1), stage.member("b")
    stage.append(a, 0)
    a.script.puts += [("/index/", PutFault.NEVER_ARRIVED)] * 8
    stage.give(b, 0)
    stage.step(a)
    require(stage.counts.get("failed hand over: StoreUnavailable") == 1, "it could not:", stage.counts)
    (key,) = [info.key for info in stage.bucket.listing(paths.wal_prefix())]
    data = stage.bucket.get(key) or b""
    stage.bucket.delete(key)
    stage.give(a, 0)
    stage.step(a)
    require(stage.counts.get("failed open: StoreInconsistent") == 1, "its own segment is missing:", stage.counts)
    stage.bucket.put(key, data, 0)
    stage.step(a, 10)
    stage.append(a, 0)
    stage.check()


def index_is_old_when_its_log_is_walked() -> None:
    """B has read that A owns the region; A loses it to C and has it again, in the same log."""
    stage = Stage()
    a, b, c = stage.member("a", 0, 1), stage.member("b"), stage.member("c")
    stage.append(a, 0)

    def there_and_back() -> None:
        for taker in (c, a):
            stage.group.owner[0] = None
            stage.give(taker, 0)
            stage.step(a, 2)
            stage.step(c, 2)
            stage.step(a, 2)
            stage.append(taker, 0)

    b.script.before("get", f"wal/{a.log}", there_and_back)
    stage.group.owner[0] = None
    stage.give(b, 0)
    stage.step(b)
    require(bool(b.worker.idle) or stage.counts.get("failed open: StoreInconsistent") == 1, "B", stage.counts)
    stage.give(b, 0)
    for _ in range(10):
        stage.step(a)
        stage.step(b)
        stage.step(c)
    stage.check()


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


def topic_loses_its_tail() -> None:
    """Kafka has less than what is durable."""
    stage = Stage()
    a, b = stage.member("a", 0, 1), stage.member("b")
    stage.append(a, 0)
    stage.topic.partitions[0].high = 0
    stage.take_over(a, b, 0)
    _stopped(b, 0, LogTruncated)
    stage.check()


def table_is_restored() -> None:
    """Somebody restores an old version: merges, trimming and strong reads stop; ingest goes on, and loses nothing."""
    stage = Stage()
    a, f, _ = stage.flushed(0, 1)
    b = stage.member("b")
    stage.checker.table.restore(1)
    for act in (lambda: stage.round(f), lambda: stage.collect(f), lambda: stage.reader("r").read("strong")):
        with stops(TableRestored):
            act()
    stage.take_over(a, b, 0, 1)
    stage.append(b, 0)
    stage.append(b, 1)
    require(not b.worker.stopped, "ingest stopped:", b.worker.stopped)
    stage.checker.check(stage.acknowledged)


def index_is_deleted() -> None:
    """An operator deletes a region's index: nobody takes that for a region that is new."""
    stage = Stage()
    a, _, g = stage.flushed(0, 1)
    b, reader = stage.member("b"), stage.reader("r")
    for info in stage.bucket.listing(paths.index_prefix(stage.region(0))):
        stage.bucket.delete(info.key)
    state = GarbageState()
    with stops(StoreInconsistent):
        stage.round(stage.flusher("h"))
    with stops(StoreInconsistent):
        collect_garbage(g, state)
    with stops(PlanRetriesExhausted):
        reader.read("strong")
    stage.take_over(a, b, 0)
    require(stage.counts.get("failed open: StoreInconsistent") == 1, "B opened it:", stage.counts)


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
    stage = Stage(misrouted="dlq")
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
    stage = Stage()
    a = stage.member("a", 0, 1, bad_records="stop")
    for partition, before in ((0, 2), (1, 0)):
        keys = stage.send(partition, before or 1)
        log = stage.topic.partitions[partition]
        key, k = log.records[-1].key, keys[-1]
        del log.records[before:]
        log.high = before
        stage.topic.append(partition, lambda offset, key=key, k=k: Record(offset, 0, key, b"{", None, None, k, {}))  # type: ignore[misc] # defaults
    stage.step(a, 3)
    for partition in (0, 1):
        _stopped(a, partition, BadRecordStop)
    require(stage.acknowledged == {0: 2, 1: 0}, "durable up to", stage.acknowledged)
    stage.checker.check(stage.acknowledged)


def topic_is_recreated() -> None:
    """The topic has another id by the time a batch has arrived: ingest ends, and nothing of the batch is written."""
    stage = Stage()
    a = stage.member("a", 0, 1)
    stage.append(a, 0)
    stage.send(0)
    stage.topic.topic_id = "topic-id-2"
    with stops(TopicReplaced):
        stage.step(a, 2)
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


def owner_sleeps_through_a_claim() -> None:
    """A is frozen in a step; B claims its regions; A would seal one and move the other."""
    stage = Stage()
    a, b = stage.member("a", 0, 1), stage.member("b")
    stage.append(a, 0)
    stage.take_over(a, b, 0, 1)
    a.worker._seal_policy = ALWAYS
    a.worker._seal_due()
    require(a.worker.durable == {}, "A still believes that it has", a.worker.durable)
    stage.append(b, 0)
    stage.check()


class _Wrong(SealPolicy):
    """Decides what must never be."""

    def decide(self, stats: GenerationStats) -> SealDecision:
        return SealDecision.REANCHOR


def index_would_change_too_early() -> None:
    """A bug in the loop or in the policy meets the checks in ``seal``."""
    stage = Stage()
    a = stage.member("a", 0, 1)
    stage.append(a, 0)
    a.worker._seal_policy = _Wrong()
    with stops(RuntimeError):
        a.worker._seal_due()
    a.script.puts.append((f"wal/{a.log}", PutFault.NEVER_ARRIVED))
    a.worker._seal_policy = ALWAYS
    stage.send(1)
    a.worker._consume(0.1)
    a.worker._start_job(now=True)
    with stops(RuntimeError):
        a.worker._seal_due()
    stage.step(a, 10)
    stage.check()


def member_drains_behind_a_rebalance() -> None:
    """A has handed a region over and leaves; B has gone on with it: what A tells the group last is no older position."""
    stage = Stage()
    a, b = stage.member("a", 0, 1), stage.member("b")
    stage.append(a, 0)
    stage.append(a, 1)
    while stage.group.committed != {0: 1, 1: 1}:
        stage.step(a)
    stage.give(b, 0)
    stage.step(a)  # too early to commit again: it keeps in mind what it has handed over
    stage.step(b)
    stage.append(b, 0)
    stage.step(b, 10)
    require(stage.group.committed.get(0) == 2, "B committed", stage.group.committed)
    require(a.worker.drain(1.0), "A drains")
    require(stage.group.committed == {0: 2, 1: 1}, "the group knows", stage.group.committed)
    stage.check()


ACCIDENTS: list[Callable[[], None]] = [
    member_drains_behind_a_rebalance,
    retention_follows_another_owner,
    region_was_elsewhere_in_between,
    hand_over_fails_and_the_region_comes_back,
    index_is_old_when_its_log_is_walked,
    retention_overtakes_ingest,
    topic_loses_its_tail,
    table_is_restored,
    index_is_deleted,
    producer_uses_another_partitioner,
    misrouted_records_are_dead_letters,
    bad_record_stops,
    topic_is_recreated,
    topic_gets_more_partitions,
    owner_sleeps_through_a_claim,
    index_would_change_too_early,
]
