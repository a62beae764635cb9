"""Records read again outside the group, on a real broker: where the reading begins and ends, and what is no end."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from lancewal_core.errors import KafkaUnavailable, RetentionLost
from lancewal_core.names.ids import Position, Region, TopicId
from lancewal_kafka import reread as lone_reader
from lancewal_kafka.records import Records
from lancewal_kafka.reread import OutOfRange, consumed, lone_consumer
from tests.ingest.kafka.test_consumer import make_topic, produce
from tests.support.retention import delete_records

if TYPE_CHECKING:
    from lancewal_demo.stack import KafkaBroker


def read(broker: KafkaBroker, topic: str, first: int, end: int) -> tuple[Records, Position]:
    client = {"bootstrap.servers": broker.bootstrap_servers}
    region = Region(topic, TopicId("topic-id"), 0)
    return lone_reader.read_records(client, "orders", region, Position(first), Position(end))


def offsets(broker: KafkaBroker, topic: str, first: int, end: int) -> tuple[list[int], int]:
    records, behind = read(broker, topic, first, end)
    return records.offsets, behind


def test_the_end_is_exact_wherever_it_lies(kafka: KafkaBroker, topic_name: str) -> None:
    make_topic(kafka, topic_name)
    produce(kafka, topic_name, 10)
    assert offsets(kafka, topic_name, 0, 10) == (list(range(10)), 10)
    assert offsets(kafka, topic_name, 2, 7) == ([2, 3, 4, 5, 6], 7)
    assert offsets(kafka, topic_name, 9, 10) == ([9], 10)
    assert offsets(kafka, topic_name, 4, 4) == ([], 4)
    records, _ = read(kafka, topic_name, 8, 10)
    assert (records.keys, records.values) == ([b"k8", b"k9"], [b"v8", b"v9"])


@pytest.mark.parametrize(
    ("first", "end", "found"),
    [
        (0, 9, [0, 1, 2]),  # all
        (0, 3, [0, 1, 2]),  # ends before the marker of the commit
        (0, 4, [0, 1, 2]),  # ends behind it
        (0, 6, [0, 1, 2]),  # ends amid what was aborted
        (2, 8, [2]),
        (5, 7, []),
        (8, 9, []),  # the marker alone
    ],
)
def test_an_end_that_no_record_reaches(
    kafka: KafkaBroker, topic_name: str, first: int, end: int, found: list[int]
) -> None:
    """Behind the last record lie markers, and records that were aborted: the position passes them, no record tells."""
    make_topic(kafka, topic_name)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic_name, "log_level": 2})
    producer.init_transactions(30)
    for count, ends in ((3, producer.commit_transaction), (4, producer.abort_transaction)):
        producer.begin_transaction()  # 0-2 committed, marker 3, 4-7 aborted, marker 8
        for _ in range(count):
            producer.produce(topic_name, b"v", partition=0)
        producer.flush(30)
        ends(30)
    assert offsets(kafka, topic_name, first, end) == (found, end)


def test_many_records_come_in_parts_that_join(
    kafka: KafkaBroker, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(kafka, topic_name)
    produce(kafka, topic_name, 10)
    monkeypatch.setattr(lone_reader, "_FEW_RECORDS", 2)
    for limit, value in (("READ_RECORDS_MAX", 4), ("READ_BYTES_MAX", 6)):
        with monkeypatch.context() as patched:
            patched.setattr(lone_reader, limit, value)
            seen, at, parts = list[int](), 0, 0
            while at < 9:
                found, behind = offsets(kafka, topic_name, at, 9)
                assert 0 < len(found) <= 5
                seen, at, parts = seen + found, behind, parts + 1
            assert (seen, at) == (list(range(9)), 9)
            assert parts > 1


def test_what_retention_has_taken_is_not_passed_over(kafka: KafkaBroker, topic_name: str) -> None:
    make_topic(kafka, topic_name)
    produce(kafka, topic_name, 10)
    delete_records(kafka.bootstrap_servers, topic_name, {0: 5})
    with pytest.raises(RetentionLost, match="deleted offset 3") as caught:
        read(kafka, topic_name, 3, 10)
    assert caught.value.where == {"topic": topic_name, "partition": 0}
    assert offsets(kafka, topic_name, 5, 10) == ([5, 6, 7, 8, 9], 10)
    region = Region(topic_name, TopicId("topic-id"), 0)
    with (
        lone_consumer({"bootstrap.servers": kafka.bootstrap_servers}, "orders", topic_name) as consumer,
        pytest.raises(OutOfRange),
    ):
        list(consumed(consumer, region, Position(4), Position(10)))


class SilentConsumer:
    """Has delivered what lies below position 3, and nothing comes any more."""

    def assign(self, places: object) -> None: ...

    def consume(self, count: int, timeout_s: float) -> list[object]:
        return []

    def position(self, places: object) -> list[TopicPartition]:
        return [TopicPartition("orders", 0, 3)]


def test_silence_short_of_the_end_is_an_error_and_no_end() -> None:
    region, silent = Region("orders", TopicId("topic-id"), 0), cast("Consumer", SilentConsumer())
    assert list(consumed(silent, region, Position(0), Position(3), silent_s=0)) == []
    with pytest.raises(KafkaUnavailable, match="at position 3, but records before position 5"):
        list(consumed(silent, region, Position(3), Position(5), silent_s=0))
