"""The Kafka source on a real broker: positions, transactions, rebalances, and what it refuses."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from lancewal_core.errors import (
    Fenced,
    InvalidSettings,
    KafkaUnavailable,
    RetentionLost,
    TopicMissing,
    TopicTruncated,
)
from lancewal_core.names.ids import Position, Region
from lancewal_demo.stack import KafkaBroker
from lancewal_demo.stack.ports import free_ports
from lancewal_ingest.kafka.consumer import ConfluentSource
from lancewal_kafka.records import Records
from lancewal_kafka.topic import TopicInspector
from tests.support.regions import by_number, numbers, region
from tests.support.retention import delete_records
from tests.support.topics import make_topics

DEADLINE_S = 240.0


class Told:
    """A listener that remembers; ``at_revoke`` is called before a revocation is over."""

    def __init__(self, at_revoke: Callable[[Sequence[int]], object] = lambda _: None) -> None:
        self.events: list[tuple[str, tuple[int, ...]]] = []
        self.mine: set[int] = set()
        self._at_revoke = at_revoke

    def assigned(self, regions: Sequence[Region]) -> None:
        if regions:  # else nothing further is ours
            self.events.append(("assigned", tuple(numbers(regions))))
        self.mine |= set(numbers(regions))

    def revoked(self, regions: Sequence[Region]) -> None:
        self.events.append(("revoked", tuple(numbers(regions))))
        self.mine -= set(numbers(regions))
        self._at_revoke(numbers(regions))

    def lost(self, regions: Sequence[Region]) -> None:
        self.events.append(("lost", tuple(numbers(regions))))
        self.mine -= set(numbers(regions))


class Follower:
    """A source of one topic, and all that it has delivered."""

    def __init__(self, source: ConfluentSource, topic: str, listener: Told) -> None:
        self.source = source
        self.topic = topic
        self.listener = listener
        self.offsets: dict[int, list[int]] = {}
        self.records: dict[int, Records] = {}
        self.next: Mapping[int, Position] = {}

    def poll(self, timeout_s: float = 0.1, records_max: int = 1000) -> None:
        polled = self.source.poll(records_max, timeout_s)
        self.next = by_number(polled.next)
        for partition, records in by_number(polled.records).items():
            self.offsets.setdefault(partition, []).extend(records.offsets)
            self.records[partition] = records

    def region(self, partition: int) -> Region:
        return region(partition, self.topic)

    def until(self, condition: Callable[[], bool], *others: Follower) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, (self.listener.events, self.next, self.offsets)
            for follower in (self, *others):
                follower.poll(0.05)


def make_topic(broker: KafkaBroker, topic: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
    make_topics(broker.bootstrap_servers, {topic: partitions}, config)


def produce(broker: KafkaBroker, topic: str, count: int, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(count):
        producer.produce(topic, b"v%d" % number, key=b"k%d" % number, partition=partition)
    assert producer.flush(30) == 0


@contextmanager
def following(
    broker: KafkaBroker, topic: str, listener: Told | None = None, extra: Mapping[str, str] | None = None
) -> Iterator[Follower]:
    """A group member of the topic, assigned nothing yet."""
    client = {"bootstrap.servers": broker.bootstrap_servers, "session.timeout.ms": "6000", **(extra or {})}
    if client.get("group.protocol") == "consumer":
        del client["session.timeout.ms"]
    source = ConfluentSource(client, {topic: "topic-id"}, group=topic)
    told = listener or Told()
    source.subscribe(told)
    try:
        yield Follower(source, topic, told)
    finally:
        source.close()


@contextmanager
def started(broker: KafkaBroker, topic: str, position: int = 0, partition: int = 0) -> Iterator[Follower]:
    with following(broker, topic) as follower:
        follower.until(lambda: partition in follower.listener.mine)
        follower.source.start(follower.region(partition), Position(position))
        yield follower


# -- positions -------------------------------------------------------------------------------------------------


@pytest.mark.kafka
def test_nothing_before_start_then_exactly_from_there(kafka: KafkaBroker, topic_name: str) -> None:
    make_topic(kafka, topic_name, partitions=2)
    for partition in (0, 1):
        produce(kafka, topic_name, 500, partition)
    with following(kafka, topic_name) as follower:
        follower.until(lambda: follower.listener.mine == {0, 1})
        for _ in range(5):
            follower.poll()
        assert follower.offsets == {}
        assert follower.next == {}
        follower.source.start(follower.region(1), Position(123))
        follower.until(lambda: follower.next.get(1) == 500)
        assert follower.offsets == {1: list(range(123, 500))}


@pytest.mark.kafka
def test_records_are_column_wise_and_whole(kafka: KafkaBroker, topic_name: str) -> None:
    make_topic(kafka, topic_name)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(topic_name, b"a", key=b"x", timestamp=1_700_000_000_001)
    producer.produce(topic_name, None, key=b"y", headers=[("h", b"1"), ("h", None)], timestamp=1_700_000_000_002)
    producer.produce(topic_name, b"", key=None, timestamp=1_700_000_000_003)
    assert producer.flush(30) == 0
    with started(kafka, topic_name) as follower:
        follower.until(lambda: follower.next.get(0) == 3)
        assert follower.records[0] == Records(
            [0, 1, 2],
            [1_700_000_000_001, 1_700_000_000_002, 1_700_000_000_003],
            [b"x", b"y", None],
            [b"a", None, b""],
            [None, [("h", b"1"), ("h", None)], None],
        )


@pytest.mark.kafka
def test_position_passes_markers_and_aborted_records(kafka: KafkaBroker, topic_name: str) -> None:
    make_topic(kafka, topic_name)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic_name, "log_level": 2})
    producer.init_transactions(30)
    for commit in (False, True, False):  # 0-2 aborted, marker 3, 4-6, marker 7, 8-10 aborted, marker 11
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(topic_name, b"v", partition=0)
        producer.flush(30)
        end = producer.commit_transaction if commit else producer.abort_transaction
        end(30)
    with started(kafka, topic_name) as follower:
        follower.until(lambda: follower.next.get(0) == 12)
        assert follower.offsets == {0: [4, 5, 6]}
        assert follower.source.offsets(follower.region(0)).high == 12
        assert by_number(follower.source.highs()) == {0: 12}
        assert by_number(follower.source.ends([follower.region(0)])) == {0: 12}


@pytest.mark.kafka
def test_open_transaction_ends_what_is_readable(kafka: KafkaBroker, topic_name: str) -> None:
    make_topic(kafka, topic_name)
    produce(kafka, topic_name, 5)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic_name, "log_level": 2})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic_name, b"v", partition=0)
    producer.flush(30)
    with started(kafka, topic_name) as follower:
        follower.until(lambda: follower.next.get(0) == 5)
        assert follower.source.offsets(follower.region(0)).high == 5
        producer.commit_transaction(30)
        follower.until(lambda: follower.next.get(0) == 7)
        assert follower.offsets == {0: [0, 1, 2, 3, 4, 5]}


@pytest.mark.kafka
def test_seek_back_pause_and_resume_repeat_and_skip_nothing(kafka: KafkaBroker, topic_name: str) -> None:
    make_topic(kafka, topic_name)
    produce(kafka, topic_name, 1000)
    with started(kafka, topic_name) as follower:
        follower.until(lambda: follower.next.get(0, 0) == 1000)
        follower.offsets.clear()
        follower.source.stop(follower.region(0))
        follower.poll()
        assert follower.next == {}
        follower.source.start(follower.region(0), Position(400))  # opened again further back
        follower.source.pause([follower.region(0)])  # paused before the first fetch
        for _ in range(3):
            follower.poll()
        assert follower.next == {0: 400}  # not where it had been
        follower.source.resume([follower.region(0)])
        while follower.next[0] < 1000:
            follower.poll(records_max=150)
            follower.source.pause([follower.region(0)])
            follower.source.pause([follower.region(0)])
            follower.poll()
            follower.source.resume([follower.region(0)])
        assert follower.offsets == {0: list(range(400, 1000))}


@pytest.mark.kafka
def test_offsets_know_what_retention_removed(kafka: KafkaBroker, topic_name: str) -> None:
    make_topic(kafka, topic_name)
    produce(kafka, topic_name, 10)
    delete_records(kafka.bootstrap_servers, topic_name, {0: 4})
    with started(kafka, topic_name, position=4) as follower:
        offsets = follower.source.offsets(follower.region(0))
        assert (offsets.low, offsets.high) == (4, 10)
        follower.until(lambda: follower.next.get(0) == 10)
        follower.source.start(follower.region(0), Position(2))  # gone: the partition ends, and is not reset
        with pytest.raises(RetentionLost, match="offsets 2 to 3") as caught:
            follower.until(lambda: False)
        assert caught.value.where["partition"] == 0
        follower.source.start(follower.region(0), Position(5))  # and can begin again
        follower.offsets.clear()
        follower.until(lambda: follower.next.get(0) == 10)
        assert follower.offsets == {0: [5, 6, 7, 8, 9]}
        follower.source.start(follower.region(0), Position(11))
        with pytest.raises(TopicTruncated, match="Kafka ends at 10"):
            follower.until(lambda: False)


@pytest.mark.kafka
def test_facts(kafka: KafkaBroker, topic_name: str) -> None:
    make_topic(kafka, topic_name, partitions=3)
    with following(kafka, topic_name) as follower:
        first, again = (follower.source.facts(topic_name) for _ in range(2))
        assert first == again
        assert first.partitions == 3
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        admin.delete_topics([topic_name])[topic_name].result(30)

        def described() -> None:
            # A broker may go on describing for a moment what its controller has deleted.
            ends_at = time.monotonic() + 240
            while time.monotonic() < ends_at:
                assert follower.source.facts(topic_name) == first

        with pytest.raises(TopicMissing, match=topic_name):
            described()


def test_facts_without_a_broker() -> None:
    (port,) = free_ports(1)
    source = ConfluentSource({"bootstrap.servers": f"127.0.0.1:{port}"}, {"t": "topic-id"}, "g", request_timeout_s=1.0)
    with pytest.raises(KafkaUnavailable):
        source.facts("t")
    source.close()


@pytest.mark.kafka
def test_topics_of_one_member_whose_partitions_have_the_same_numbers_are_kept_apart(
    kafka: KafkaBroker, topic_name: str
) -> None:
    one, two = (region(0, f"{topic_name}-{name}", f"id of {name}") for name in ("one", "two"))
    for place, count in ((one, 5), (two, 9)):
        make_topic(kafka, place.topic)
        produce(kafka, place.topic, count)
    client = {"bootstrap.servers": kafka.bootstrap_servers}
    source = ConfluentSource(client, {place.topic: place.topic_id for place in (one, two)}, group=topic_name)
    offsets: dict[Region, list[int]] = {}

    class Both(Follower):
        reached: Mapping[Region, Position] = {}

        def poll(self, timeout_s: float = 0.1, records_max: int = 1000) -> None:
            polled = source.poll(records_max, timeout_s)
            self.reached = polled.next
            for place, records in polled.records.items():
                offsets.setdefault(place, []).extend(records.offsets)

    follower = Both(source, topic_name, Told())
    try:
        source.subscribe(follower.listener)
        follower.until(lambda: source._assigned == {one, two})
        source.start(one, Position(2))
        source.start(two, Position(4))
        follower.until(lambda: follower.reached == {one: 5, two: 9})
        assert offsets == {one: [2, 3, 4], two: [4, 5, 6, 7, 8]}
        source.stop(one)
        produce(kafka, two.topic, 1)
        follower.until(lambda: follower.reached == {two: 10})
        assert source.ends([one, two]) == source.high_watermarks([two, one]) == {one: 5, two: 10}
        assert {place: found.high for place, found in source.offsets_of_each([one, two]).items()} == {one: 5, two: 10}  # type: ignore[union-attr]
        assert source.commit({one: Position(3), two: Position(7)})
        assert [committed(kafka, place.topic, topic_name) for place in (one, two)] == [{0: 3}, {0: 7}]
    finally:
        source.close()


# -- the group -------------------------------------------------------------------------------------------------


def committed(broker: KafkaBroker, topic: str, group: str = "") -> dict[int, int]:
    """What the group has, by the admin client."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    named = ConsumerGroupTopicPartitions(group or topic)
    asked = admin.list_consumer_group_offsets([named])[named.group_id].result(30)
    return {p.partition: p.offset for p in asked.topic_partitions if p.topic == topic}


@pytest.mark.kafka
def test_commit_never_goes_back(kafka: KafkaBroker, topic_name: str) -> None:
    make_topic(kafka, topic_name)
    produce(kafka, topic_name, 10)
    with started(kafka, topic_name, position=3) as follower:
        assert follower.source.commit({follower.region(0): Position(7)})
        assert committed(kafka, topic_name) == {0: 7}
        assert follower.source.commit({follower.region(0): Position(5)})
        assert committed(kafka, topic_name) == {0: 7}
        assert follower.source.commit({follower.region(0): Position(8)})
        assert committed(kafka, topic_name) == {0: 8}


@pytest.mark.kafka
def test_empty_commit_confirms_membership_and_changes_nothing(kafka: KafkaBroker, topic_name: str) -> None:
    make_topic(kafka, topic_name)
    produce(kafka, topic_name, 10)
    with following(kafka, topic_name) as follower:
        assert not follower.source.commit({})  # not a member yet
        follower.until(lambda: follower.listener.mine == {0})
        assert follower.source.commit({})
        assert committed(kafka, topic_name) == {0: 0}
        follower.source.start(follower.region(0), Position(0))
        assert follower.source.commit({follower.region(0): Position(6)})
        assert follower.source.commit({})
        assert committed(kafka, topic_name) == {0: 6}


@pytest.mark.kafka
def test_a_member_that_was_expelled_gets_no_confirmation(kafka: KafkaBroker, topic_name: str) -> None:
    make_topic(kafka, topic_name)
    limits = {"max.poll.interval.ms": "6000"}
    with following(kafka, topic_name, extra=limits) as frozen:
        frozen.until(lambda: frozen.listener.mine == {0})
        with following(kafka, topic_name) as other:
            # ``frozen`` does not poll any more: the group goes on without it.
            other.until(lambda: other.listener.mine == {0})
            assert not frozen.source.commit({})
            assert not frozen.source.commit({frozen.region(0): Position(1)})
            assert other.source.commit({})
            frozen.until(lambda: not frozen.listener.mine)
            assert frozen.listener.events[1][0] in ("lost", "revoked")


@pytest.mark.kafka
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_rebalance_hands_over_before_the_other_gets_it(kafka: KafkaBroker, topic_name: str, protocol: str) -> None:
    topic = topic_name.replace("[", "-").replace("]", "-")
    make_topic(kafka, topic, partitions=4)
    for partition in range(4):
        produce(kafka, topic, 50, partition)
    order: list[tuple[str, int]] = []
    lock = threading.Lock()

    def note(what: str, partitions: Sequence[int]) -> None:
        with lock:
            order.extend((what, p) for p in partitions)

    first_told = Told(at_revoke=lambda partitions: note("a revoked", partitions))
    with following(kafka, topic, first_told, {"group.protocol": protocol}) as first:
        first.until(lambda: first_told.mine == set(range(4)))
        for partition in range(4):
            first.source.start(first.region(partition), Position(0))
        first.until(lambda: all(first.next.get(p) == 50 for p in range(4)))
        with following(kafka, topic, extra={"group.protocol": protocol}) as second:
            second.until(lambda: len(second.listener.mine) == 2, first)
            note("b assigned", sorted(second.listener.mine))
            moved = second.listener.mine
            assert first_told.mine == set(range(4)) - moved
            assert {p for what, p in order if what == "a revoked"} == moved
            assert [what for what, _ in order] == ["a revoked"] * 2 + ["b assigned"] * 2
            first.poll()
            assert set(first.next) == first_told.mine  # what stayed goes on, what moved is gone
            for partition in moved:
                second.source.start(second.region(partition), Position(25))
            second.until(lambda: all(second.next.get(p) == 50 for p in moved), first)
            assert second.offsets == {p: list(range(25, 50)) for p in moved}
            assert first.offsets == {p: list(range(50)) for p in range(4)}
        first.until(lambda: first_told.mine == set(range(4)))  # all back, once the other has left


@pytest.mark.kafka
def test_who_leaves_right_away_has_joined_before(kafka: KafkaBroker, topic_name: str) -> None:
    """In the midst of it it would stay a member for the others."""
    make_topic(kafka, topic_name)
    for _ in range(3):
        with following(kafka, topic_name) as follower:
            pass
        assert follower.listener.events[0][0] == "assigned"


@pytest.mark.kafka
def test_who_has_no_partition_leaves_the_group_too(kafka: KafkaBroker, topic_name: str) -> None:
    """Or the others wait for it when they are dealt partitions next, until its session is over."""
    make_topic(kafka, topic_name)
    inspector = TopicInspector({"bootstrap.servers": kafka.bootstrap_servers})
    with started(kafka, topic_name) as follower:
        with following(kafka, topic_name) as another:
            follower.until(lambda: len(inspector.members(topic_name, topic_name)) == 2, another)
        assert not another.listener.mine
        assert len(inspector.members(topic_name, topic_name)) == 1


@pytest.mark.kafka
def test_a_replaced_static_member_is_fenced(kafka: KafkaBroker, topic_name: str) -> None:
    make_topic(kafka, topic_name)
    member = {"group.instance.id": f"m-{secrets.token_hex(4)}", "heartbeat.interval.ms": "500"}
    with following(kafka, topic_name, extra=member) as old:
        old.until(lambda: old.listener.mine == {0})
        with following(kafka, topic_name, extra=member) as new:
            new.until(lambda: new.listener.mine == {0})
            with pytest.raises(Fenced, match=r"group\.instance\.id"):
                old.until(lambda: False)


# -- settings --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "contradiction",
    [
        {"enable.auto.commit": "true"},
        {"auto.commit.enable": "true"},
        {"auto.offset.reset": "earliest"},
        {"isolation.level": "read_uncommitted"},
        {"partition.assignment.strategy": "range"},
        {"queued.max.messages.kbytes": "2000000"},
    ],
)
def test_refuses_properties_that_correctness_depends_on(contradiction: dict[str, str]) -> None:
    (name,) = contradiction
    with pytest.raises(InvalidSettings, match=name):
        ConfluentSource({"bootstrap.servers": "127.0.0.1:1", **contradiction}, {"t": "topic-id"}, "g")


def test_refuses_properties_that_librdkafka_does_not_know() -> None:
    with pytest.raises(InvalidSettings, match="no\\.such\\.thing"):
        ConfluentSource({"bootstrap.servers": "127.0.0.1:1", "no.such.thing": "1"}, {"t": "topic-id"}, "g")
