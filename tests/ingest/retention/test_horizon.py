"""The retention horizon: its figures, the looks that give them, what a worker does about it, and a real broker's answers."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from lancewal_core.errors import KafkaForbidden, KafkaUnavailable, TopicMissing
from lancewal_core.names.ids import Position, Region
from lancewal_core.process.clock import SystemClock
from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.settings.load import Settings
from lancewal_core.store.obstore import open_store
from lancewal_core.table import control
from lancewal_demo.stack import KafkaBroker
from lancewal_ingest.kafka.source import Polled, check_topic
from lancewal_ingest.retention import topic_watch
from lancewal_ingest.retention.horizon import Oldest, RetentionFacts, about_to_lose
from lancewal_ingest.retention.topic_watch import TOPIC_CHECK_S, TopicWatch
from lancewal_ingest.service import table as served
from lancewal_kafka import retention as kafka_retention
from lancewal_kafka.reread import lone_consumer
from lancewal_kafka.retention import CONFIG_S, KafkaRetention
from lancewal_kafka.topic import TopicConfig, TopicFacts
from lancewal_kafka.unpacking import StoredBatches
from lancewal_tables.define.create import create_table
from tests.ingest.service.test_service import get, metric, program, serving, settings_tree, until
from tests.ingest.service.test_worker import AtOnce, Place
from tests.support.pauses import pause, resume
from tests.support.regions import by_number, by_region, numbers, region
from tests.support.scripted import ManualClock
from tests.support.topics import make_topics

HOUR = 3600.0
NOW_MS = 1_700_000_000_000
ZERO, ONE = region(0), region(1)


def at(*positions: int) -> dict[Region, Position]:
    return {region(partition): Position(position) for partition, position in enumerate(positions)}


# -- figures ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("age_s", "low", "retention_s", "expected"),
    [
        (None, 0, HOUR, HOUR),  # nothing waits
        (600, 0, HOUR, HOUR - 600),
        (HOUR + 1, 0, HOUR, 0.0),
        (-60, 0, HOUR, HOUR),  # a producer whose clock is ahead
        (600, 11, HOUR, 0.0),  # gone already
        (None, 11, math.inf, 0.0),  # somebody deleted records
        (600, 10, math.inf, math.inf),
        (600, 10, math.nan, math.nan),
    ],
)
def test_the_horizon_of_a_partition(age_s: float | None, low: int, retention_s: float, expected: float) -> None:
    oldest = {} if age_s is None else {ZERO: Oldest(Position(10), NOW_MS - int(age_s * 1000))}
    facts = RetentionFacts(retention_s, at(10), at(low), oldest)
    assert facts.horizons(NOW_MS)[ZERO] == pytest.approx(expected, nan_ok=True)
    assert facts.reserves == {ZERO: max(0, 10 - low)}


@pytest.mark.parametrize(
    ("age_s", "moved_s", "retention_s", "expected"),
    [
        (None, 9 * HOUR, math.inf, HOUR),  # nothing waits, however quiet it is
        (600, 9 * HOUR, math.inf, HOUR - 600),
        (9 * HOUR, 600, math.inf, HOUR - 600),  # old records are read all the time
        (9 * HOUR, 2 * HOUR, math.inf, 0.0),
        (600, 600, HOUR / 2, HOUR / 2 - 600),  # deleted and compacted
        (600, 600, math.nan, math.nan),
    ],
)
def test_the_horizon_of_a_compacted_topic(
    age_s: float | None, moved_s: float, retention_s: float, expected: float
) -> None:
    oldest = {} if age_s is None else {ZERO: Oldest(Position(10), NOW_MS - int(age_s * 1000))}
    moved = {ZERO: NOW_MS - int(moved_s * 1000)}
    facts = RetentionFacts(retention_s, at(10), at(0), oldest, tombstones_s=HOUR, moved_ms=moved)
    assert facts.horizons(NOW_MS)[ZERO] == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("told_s", "waited_s", "expected"),
    [
        (NOW_MS / 1000, 0, HOUR),  # of 1970
        (NOW_MS / 1000, 600, HOUR - 600),
        (NOW_MS / 1000, HOUR + 1, 0.0),
        (HOUR + 1, 600, HOUR - 600),
        (HOUR - 60, 30, 30),  # a time that can be true
        (-(2**50), 600, HOUR - 600),  # of the future
        (-60, 600, HOUR - 600),
    ],
)
def test_a_time_that_cannot_be_true_counts_from_when_the_record_was_seen(
    told_s: float, waited_s: float, expected: float
) -> None:
    oldest = {ZERO: Oldest(Position(10), NOW_MS - int(told_s * 1000), NOW_MS)}
    later_ms = NOW_MS + int(waited_s * 1000)
    assert RetentionFacts(HOUR, at(10), at(0), oldest).horizons(later_ms) == {ZERO: expected}
    assert RetentionFacts(HOUR, at(10), at(11), oldest).horizons(later_ms) == {ZERO: 0.0}  # Kafka has deleted it


def test_time_goes_on_without_answers() -> None:
    facts = RetentionFacts(HOUR, at(10), at(0), {ZERO: Oldest(Position(10), NOW_MS)})
    assert [facts.horizons(NOW_MS + s * 1000)[ZERO] for s in (0, 60, 3599, 4000)] == [3600, 3540, 1, 0]


@pytest.mark.parametrize(
    ("floor_s", "retention_s", "short"),
    [
        (HOUR, 7 * 24 * HOUR, [0, 1]),
        (HOUR, math.inf, [0, 1]),
        (HOUR, 1200.0, [0]),  # a quarter of it is 300 s: a healthy process must get above the floor
        (0.0, HOUR, []),
    ],
)
def test_what_is_short(floor_s: float, retention_s: float, short: list[int]) -> None:
    horizons = by_region({0: 299.0, 1: 3599.0, 2: 3600.0, 3: math.inf, 4: math.nan})
    assert numbers(about_to_lose(horizons, retention_s, floor_s)) == short


# -- the looks -------------------------------------------------------------------------------------------------


@dataclass
class Topic:
    partitions: int
    positions: dict[Region, Position] = field(default_factory=dict)
    silent: bool = False

    def facts(self, topic: str) -> TopicFacts:
        if self.silent:
            raise KafkaUnavailable("nobody answers")
        return TopicFacts("topic-id", self.partitions)

    def ends(self, partitions: Collection[Region]) -> dict[Region, Position]:
        return {p: self.positions[p] for p in partitions}

    def high_watermarks(self, partitions: Collection[Region]) -> dict[Region, Position]:
        return self.ends(partitions)

    def highs(self) -> dict[Region, Position]:
        return {}


@dataclass
class Answers:
    retention: float = HOUR
    first: dict[Region, Position] = field(default_factory=dict)
    times: dict[Region, int] = field(default_factory=dict)
    peeked: list[dict[int, Position]] = field(default_factory=list)
    asked: int = 0
    error: Exception | None = None
    tombstones: float = math.inf

    def config(self) -> TopicConfig:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return TopicConfig(
            math.isfinite(self.tombstones), self.retention, self.tombstones, StoredBatches("uncompressed", 1 << 20)
        )

    def lows(self, partitions: Collection[Region]) -> dict[Region, Position]:
        return {p: self.first.get(p, Position(0)) for p in partitions}

    def timestamps(self, positions: Mapping[Region, Position]) -> dict[Region, int]:
        if positions:
            self.peeked.append(by_number(positions))
        return {p: self.times[p] for p in positions if p in self.times}


@dataclass
class Progress:
    durable: dict[Region, Position] = field(default_factory=dict)
    oldest_consumed_ms: dict[Region, int] = field(default_factory=dict)


class Watching:
    """A watch of two partitions with twins around it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.topic = Topic(2, at(10, 10))
        self.answers = Answers()
        self.progress = Progress(at(10, 10))
        self.failures: list[str] = []
        self.watch = TopicWatch(
            partial(check_topic, Place(partitions=2).contract, self.topic), self.topic, self.answers, AtOnce(), self.clock,
            lambda act, cause: self.failures.append(f"{act}: {cause}"),
        )  # fmt: skip

    def look(self) -> dict[int, float]:
        """The horizons right after the next look, by partition."""
        self.clock.sleep(TOPIC_CHECK_S)
        self.watch.look(self.progress)
        return by_number(self.watch.last.retention.horizons(self.clock.now_ms()))

    def ago(self, seconds: float) -> int:
        return self.clock.now_ms() + int((TOPIC_CHECK_S - seconds) * 1000)


def test_before_the_first_look_nothing_is_known() -> None:
    watch = Watching().watch
    assert math.isnan(watch.last.retention.retention_s)
    assert watch.last.retention.horizons(NOW_MS) == {}


def test_a_record_is_looked_at_once_and_only_where_nobody_has_it() -> None:
    watching = Watching()
    assert watching.look() == {0: HOUR, 1: HOUR}  # nothing waits
    watching.topic.positions = at(20, 20)
    watching.progress.oldest_consumed_ms = {ZERO: watching.ago(60)}
    watching.answers.times = {ONE: watching.ago(600)}
    assert watching.look() == {0: HOUR - 60, 1: HOUR - 600}
    assert watching.answers.peeked == [{1: 10}]
    watching.look()
    assert watching.answers.peeked == [{1: 10}]
    watching.progress.durable = at(20, 15)
    watching.answers.times = {ONE: watching.ago(300)}
    assert watching.look() == {0: HOUR, 1: HOUR - 300}
    assert watching.answers.peeked == [{1: 10}, {1: 15}]
    # No answer this time: what is known is older, so the horizon is not longer than shown.
    watching.progress.durable = at(20, 17)
    watching.answers.times = {}
    assert watching.look()[1] == HOUR - 300 - TOPIC_CHECK_S


@pytest.mark.parametrize("at_ms", [0, 1, 2**62])
def test_a_backfill_of_odd_times_holds_back_no_partition(at_ms: int) -> None:
    watching = Watching()
    watching.topic.positions, watching.answers.times = at(20, 20), {ONE: at_ms}
    watching.progress.oldest_consumed_ms = {ZERO: at_ms}
    assert watching.look() == {0: HOUR, 1: HOUR}
    # The same offsets wait still, one of them consumed meanwhile: they count from the first look.
    watching.progress.oldest_consumed_ms = {ZERO: at_ms, ONE: at_ms}
    assert watching.look() == {0: HOUR - TOPIC_CHECK_S, 1: HOUR - TOPIC_CHECK_S}
    watching.progress.durable = at(15, 10)
    assert watching.look() == {0: HOUR, 1: HOUR - 2 * TOPIC_CHECK_S}
    watching.answers.first = {ONE: Position(11)}
    assert watching.look()[1] == 0.0


def test_what_kafka_has_deleted_is_not_looked_for() -> None:
    watching = Watching()
    watching.topic.positions, watching.answers.first = at(20, 20), {ZERO: Position(15)}
    watching.answers.times = {ZERO: 0, ONE: watching.ago(0)}
    assert watching.look() == {0: 0.0, 1: HOUR}
    assert watching.answers.peeked == [{1: 10}]


def test_the_retention_is_asked_for_now_and_then() -> None:
    watching = Watching()
    watching.look()
    watching.answers.retention = 2 * HOUR
    assert watching.look() == {0: HOUR, 1: HOUR}
    assert watching.answers.asked == 1
    watching.clock.sleep(CONFIG_S)
    assert watching.look() == {0: 2 * HOUR, 1: 2 * HOUR}


def test_how_old_the_oldest_record_is_is_known_also_where_retention_is_unlimited() -> None:
    watching = Watching()
    watching.answers.retention = math.inf
    watching.topic.positions, watching.answers.times = at(20, 20), {ZERO: 5, ONE: 7}
    assert watching.look() == {0: math.inf, 1: math.inf}
    assert {p: o.timestamp_ms for p, o in by_number(watching.watch.last.retention.oldest).items()} == {0: 5, 1: 7}
    assert watching.look() == {0: math.inf, 1: math.inf}
    assert len(watching.answers.peeked) == 1  # nothing has moved


def test_of_a_compacted_topic_it_counts_since_when_nothing_became_durable() -> None:
    watching = Watching()
    watching.answers.retention, watching.answers.tombstones = math.inf, HOUR
    watching.topic.positions, watching.answers.times = at(20, 20), {ZERO: 0, ONE: 0}
    assert watching.look() == {0: HOUR, 1: HOUR}
    watching.progress.durable = at(12, 10)
    assert watching.look() == {0: HOUR, 1: HOUR - TOPIC_CHECK_S}
    assert watching.look() == {0: HOUR - TOPIC_CHECK_S, 1: HOUR - 2 * TOPIC_CHECK_S}
    assert watching.watch.last.retention.kept_s == HOUR


def test_without_the_right_to_ask_the_rest_goes_on() -> None:
    watching = Watching()
    watching.answers.error = KafkaForbidden("DescribeConfigs is not allowed")
    watching.topic.positions = at(20, 30)
    assert all(math.isnan(left_s) for left_s in watching.look().values())
    assert by_number(watching.watch.highs()) == {0: 20, 1: 30}
    assert watching.failures == ["retention: DescribeConfigs is not allowed"]


def test_while_kafka_is_silent_the_last_answers_stand() -> None:
    watching = Watching()
    watching.topic.positions = at(20, 10)
    watching.answers.times = {ZERO: watching.ago(0)}
    watching.look()
    watching.topic.silent = True
    assert watching.look() == {0: HOUR - TOPIC_CHECK_S, 1: HOUR}
    assert watching.watch.silent is not None


# -- the worker ------------------------------------------------------------------------------------------------


def test_a_worker_that_admits_nothing_goes_on_with_what_it_has() -> None:
    place = Place(partitions=2)
    worker = place.worker()
    worker.assigned(place.regions(0))
    place.source.coming = [Polled({}, {}), place.records(0, 3), Polled({}, {}), place.records(3, 2)]
    worker.step()
    worker.admit(False)
    worker.assigned(place.regions(1))
    for _ in range(6):
        worker.step()
    assert by_number(worker.durable) == {0: 5}
    assert numbers(worker.waiting) == [1]
    worker.admit(True)
    worker.step()
    assert by_number(worker.durable) == {0: 5, 1: 0}
    assert not worker.waiting


def test_the_worker_knows_the_oldest_record_that_it_has_consumed() -> None:
    place = Place()
    worker = place.worker()
    worker.assigned(place.regions(0))
    place.store.silent = "_lancewal/wal/"
    first, second = place.records(0, 3), place.records(3, 2)
    first.records[ZERO].timestamps[:] = [5, 6, 7]
    second.records[ZERO].timestamps[:] = [8, 9]
    place.source.coming = [Polled({}, {}), first, second]
    seen = []
    for _ in range(4):
        worker.step()
        seen.append(by_number(worker.oldest_consumed_ms))
    assert seen == [{}, {0: 5}, {0: 5}, {0: 5}]  # in flight, and the second behind it
    place.store.silent = None
    for _ in range(3):
        place.clock.sleep(1)
        worker.step()
    assert (by_number(worker.durable), worker.oldest_consumed_ms) == ({0: 5}, {})


# -- a real broker ---------------------------------------------------------------------------------------------


def make_topic(broker: KafkaBroker, topic: str, partitions: int, **config: str) -> None:
    named = {name.replace("_", "."): value for name, value in config.items()}
    make_topics(broker.bootstrap_servers, {topic: partitions}, named)


def retention_of(broker: KafkaBroker, topic: str) -> KafkaRetention:
    return KafkaRetention({"bootstrap.servers": broker.bootstrap_servers}, topic, "somebody")


@pytest.mark.kafka
def test_what_a_topic_retains(kafka: KafkaBroker, topic_name: str) -> None:
    topics = {
        f"{topic_name}-a": ({"retention_ms": "60000"}, 60.0, math.inf),
        f"{topic_name}-b": ({"retention_ms": "-1"}, math.inf, math.inf),
        f"{topic_name}-c": ({"cleanup_policy": "compact", "retention_ms": "60000"}, math.inf, 24 * HOUR),
        f"{topic_name}-d": (
            {"cleanup_policy": "compact,delete", "retention_ms": "60000", "delete_retention_ms": "5000"}, 60.0, 5.0
        ),
    }  # fmt: skip
    for topic, (config, records_s, tombstones_s) in topics.items():
        make_topic(kafka, topic, 1, **config)
        found = retention_of(kafka, topic).config()
        assert (found.retention_s, found.tombstones_s) == (records_s, tombstones_s)
    with pytest.raises(TopicMissing):
        retention_of(kafka, f"{topic_name}-none").config()


@pytest.mark.kafka
def test_times_of_records(kafka: KafkaBroker, topic_name: str) -> None:
    """Partition 0: ten records.  1: a gap of aborted ones.  2: nothing but aborted ones.  3: empty."""
    make_topic(kafka, topic_name, 4)
    now_ms = SystemClock().now_ms()
    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    producer = Producer(servers)
    for number in range(10):
        producer.produce(topic_name, b"x" * 100_000, partition=0, timestamp=now_ms - 10_000 + number)
        assert producer.flush(30) == 0
    aborted = Producer({**servers, "transactional.id": topic_name, "log_level": 2})
    aborted.init_transactions(30)
    aborted.begin_transaction()
    for partition in (1, 2):
        aborted.produce(topic_name, b"x", partition=partition, timestamp=now_ms - 5_000)
    aborted.abort_transaction(30)
    producer.produce(topic_name, b"x", partition=1, timestamp=now_ms - 4_000)
    assert producer.flush(30) == 0
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    (deleted,) = admin.delete_records([TopicPartition(topic_name, 0, 3)]).values()
    deleted.result(30)
    retention = retention_of(kafka, topic_name)
    assert by_number(retention.lows([region(p) for p in (0, 1, 3)])) == {0: 3, 1: 0, 3: 0}

    def timestamps(positions: dict[int, int]) -> dict[int, int]:
        return by_number(retention.timestamps({region(p): Position(at) for p, at in positions.items()}))

    assert timestamps({0: 7, 1: 0}) == {0: now_ms - 9_993, 1: now_ms - 4_000}
    assert timestamps({0: 9, 2: 0, 3: 0}) == {0: now_ms - 9_991}
    assert retention.timestamps({}) == {}


@pytest.mark.kafka
def test_times_of_small_records_of_many_partitions_come_together(
    kafka: KafkaBroker, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer of one partition each would be sixty-four, each of a request that names all."""
    partitions = range(64)
    make_topic(kafka, topic_name, len(partitions))
    now_ms = SystemClock().now_ms()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for partition in partitions:
        producer.produce(topic_name, b"x" * 500, partition=partition, timestamp=now_ms + partition)
    assert producer.flush(30) == 0
    asked = [0]

    def count(text: str) -> None:
        asked.append(sum(broker["req"].get("Fetch", 0) for broker in json.loads(text)["brokers"].values()))

    def counting(client: Mapping[str, str], group: str, topic: str, nbytes: int, more: Mapping[str, Any]) -> Any:
        properties: dict[str, Any] = {**more, "statistics.interval.ms": 1, "stats_cb": count}
        return lone_consumer(client, group, topic, nbytes, properties)

    monkeypatch.setattr(kafka_retention, "lone_consumer", counting)
    found = retention_of(kafka, topic_name).timestamps(dict.fromkeys(map(region, partitions), Position(0)))
    assert by_number(found) == {partition: now_ms + partition for partition in partitions}
    assert max(asked) < 16


@pytest.mark.kafka
def test_a_process_that_is_about_to_lose_records_takes_no_more(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "POLL_S", 0.1)
    monkeypatch.setattr(topic_watch, "TOPIC_CHECK_S", 0.1)
    monkeypatch.setattr(served, "REFRESH_S", 0.1)
    make_topic(kafka, topic_name, 2, retention_ms="3600000")
    session = {"options": {"session.timeout.ms": "2500"}}
    tree = settings_tree(kafka, topic_name, tmp_path, table={"on_bad_record": "stop"}, kafka=session)
    settings = Settings(**tree)
    making = create_table(settings).making
    store, clock = open_store(settings.table.uri), SystemClock()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "partitioner": "murmur2_random"})
    old_ms = clock.now_ms() - 3_000_000  # 600 s are left, less than a quarter of the hour

    def produce_old(id_: int, at_ms: int = old_ms) -> None:
        for number in range(200):
            value = f'{{"customer": "c{number}", "id": {id_}}}'
            producer.produce(topic_name, value, key=encode_region_key(f"c{number}"), timestamp=at_ms)
        assert producer.flush(30) == 0

    produce_old(id_=1)
    horizon = "lancewal_ingest_retention_horizon_seconds"
    with serving(settings) as first:
        until(lambda: sum(first.worker.durable.values()) == 200, lambda: first.worker.durable)
        until(lambda: metric(first.port, horizon) == HOUR)
        ends = by_number(first.worker.durable)
        reserve = [metric(first.port, "lancewal_ingest_retention_reserve_offsets", partition=p) for p in "01"]
        assert reserve == [ends[0], ends[1]]
        pause(store, clock, lambda: "1", control.Service.INGEST, making=making)
        until(lambda: metric(first.port, "lancewal_ingest_paused") == 1)
        with serving(settings) as second:
            until(lambda: len(second.worker.durable) == len(first.worker.durable) == 1)
            (mine,) = numbers(first.worker.durable)
            produce_old(id_=2)
            until(lambda: 500 < (metric(first.port, horizon) or 0) < 600, lambda: metric(first.port, horizon))
            assert get(first.port, "/readyz") == (200, "ok\n")
        # The other one has left; its partition is the first one's now, and waits.
        until(lambda: numbers(first.worker.waiting) == [1 - mine], lambda: first.worker.waiting)
        until(lambda: get(first.port, "/readyz")[0] == 503)
        assert get(first.port, "/readyz")[1] == (
            f"retention_short: partitions {1 - mine} are not opened: Kafka is about to delete records of partitions {mine} "
            "that are not durable\n"
        )
        assert numbers(first.worker.durable) == [mine]
        resume(store, clock, lambda: "2", control.Service.INGEST, making=making)
        until(lambda: sum(first.worker.durable.values()) == 400, lambda: first.worker.durable)
        until(lambda: metric(first.port, horizon) == HOUR)
        assert get(first.port, "/readyz") == (200, "ok\n")
        # A member dies while records of 1970 wait: they say nothing of when Kafka deletes them.
        pause(store, clock, lambda: "3", control.Service.INGEST, making=making)
        until(lambda: metric(first.port, "lancewal_ingest_paused") == 1)
        process = program(tmp_path, tree)
        try:
            until(lambda: len(first.worker.durable) == 1, lambda: (first.worker.durable, process.poll()))
            produce_old(id_=3, at_ms=1_000)
            until(lambda: HOUR - 60 < (metric(first.port, horizon) or 0) < HOUR, lambda: metric(first.port, horizon))
        finally:
            process.kill()
            process.communicate()
        until(lambda: numbers(first.worker.durable) == [0, 1], lambda: get(first.port, "/readyz"))
        assert 0 < (metric(first.port, "lancewal_ingest_freshness_seconds") or 0) < 60
        resume(store, clock, lambda: "4", control.Service.INGEST, making=making)
        until(lambda: sum(first.worker.durable.values()) == 600, lambda: first.worker.durable)
