"""A topic in another format than the table's: its partition stops, in each process alike, and hardly a letter is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from lancewal_demo.stack import KafkaBroker
from tests.support.whole_path import Service, until
from tests.whole_path.feed import Record
from tests.whole_path.test_bad_records import GOOD, read_letters
from tests.whole_path.world import World, make_world

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

RECORDS = 3_000
FRAMED = b"\x00\x00\x00\x00\x07\x02hunter2"


def stopped(ingest: Service, offset: int) -> Callable[[], bool]:
    return lambda: [(line["kind"], f" offset {offset}: " in line["error"]) for line in ingest.logged("partition_stopped")] == [
        ("wrong_format", True)
    ]  # fmt: skip


def send_all(world: World, value: bytes) -> int:
    """Many records of this value, all in the partition of ``GOOD``, which is returned."""
    partition, offset = world.feed.send_raw(value, world.feed.kafka_key(GOOD))
    assert offset == 0
    producer = Producer(
        {"bootstrap.servers": world.servers, "linger.ms": 5, "queue.buffering.max.messages": 2 * RECORDS}
    )
    for _ in range(RECORDS - 1):
        producer.produce(world.feed.topic, value, world.feed.kafka_key(GOOD), partition=partition)
    producer.flush()
    return partition


def letters_at_all(world: World) -> int:
    """Number of records that the dead-letter topic has ever got."""
    consumer = Consumer({"bootstrap.servers": world.servers, "group.id": "count"})
    _, end = consumer.get_watermark_offsets(TopicPartition(f"{world.feed.topic}.dead-letters", 0), timeout=30)
    consumer.close()
    return int(end)


def test_a_topic_in_a_known_format_stops_before_its_first_record(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int
) -> None:
    world = make_world(kafka, topic_name, tmp_path, seed)
    ingest = world.lancewal.start("ingest", "run")
    until(lambda: len(ingest.opened) == 4, lambda: ingest.tail)
    partition = send_all(world, FRAMED)
    until(stopped(ingest, 0), lambda: ingest.tail)
    (line,) = ingest.logged("partition_stopped")
    for text in (
        "Confluent's wire format",
        "table.format.value",
        "table.on_wrong_format",
        f"{topic_name}-{partition}-0",
    ):
        assert text in line["error"]
    assert "hunter2" not in ingest.log

    ingest.kill()
    again, other = world.lancewal.start("ingest", "run"), None
    until(stopped(again, 0), lambda: again.tail)
    other = world.lancewal.start("ingest", "run")
    until(lambda: bool(other.opened), lambda: other.tail)
    again.stop()
    until(stopped(other, 0), lambda: other.tail)
    assert letters_at_all(world) == 0

    world.lancewal.succeed("offset", "reject", f"{topic_name}-{partition}-0", "--through", str(RECORDS - 1))
    world.feed.send([Record("upsert", GOOD)])
    world.feed.history.ends[partition] = RECORDS + 1
    world.wait_caught_up()
    world.feed.send_raw(FRAMED, world.feed.kafka_key(GOOD))  # now the partition is at work
    world.wait_caught_up()
    assert letters_at_all(world) == RECORDS + 1
    world.finish([other])


def test_a_topic_of_bad_records_stops_at_its_hundredth(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int
) -> None:
    world = make_world(kafka, topic_name, tmp_path, seed)
    ingest = world.lancewal.start("ingest", "run")
    partition = send_all(world, b'{"id": "hunter2"}')
    until(stopped(ingest, 99), lambda: ingest.tail)
    ingest.kill()  # its log alone says how many there were
    again = world.lancewal.start("ingest", "run")
    until(stopped(again, 99), lambda: again.tail)
    other = world.lancewal.start("ingest", "run")
    until(lambda: bool(other.opened), lambda: other.tail)
    again.stop()  # the region's state says it
    until(stopped(other, 99), lambda: other.tail)
    read_letters(world, f"{topic_name}.dead-letters", {f"{topic_name}-{partition}-{n}" for n in range(99)})
    assert letters_at_all(world) == 99

    said = world.lancewal.succeed("table", "alter", "--on", "wrong-format=dead-letter", "--on", "bad-record=ignore")
    assert "wrong format" in said
    world.feed.send([Record("upsert", GOOD)])
    world.feed.history.ends[partition] = RECORDS + 1
    world.wait_caught_up()
    assert letters_at_all(world) == 99
    world.finish([other])
