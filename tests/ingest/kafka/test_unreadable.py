"""What Kafka's client cannot read, on a real broker: it stops its partition by name, nothing behind it is delivered, and a
person leads past it."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest
import yaml
from confluent_kafka import KafkaError, Message, Producer, TopicPartition
from typer.testing import CliRunner

from lancewal_core.errors import RecordsUnreadable
from lancewal_core.names.ids import Position
from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.rows.murmur2 import partition_of
from lancewal_core.settings.load import load_settings
from lancewal_demo.stack import KafkaBroker
from lancewal_ingest.commands.offset import app
from lancewal_ingest.kafka.consumer import ConfluentSource
from lancewal_kafka.reread import read_records
from lancewal_reader.table import open_table
from lancewal_tables.define.create import create_table
from tests.ingest.kafka.test_consumer import make_topic, produce, started
from tests.ingest.kafka.test_dead_letters import read as read_letters
from tests.ingest.service.test_service import get, metric, serving, settings_tree, until
from tests.support.regions import by_number, region

RECEIVE = {
    "receive.message.max.bytes": "200000", "fetch.max.bytes": "100000", "message.max.bytes": "100000",
    "max.partition.fetch.bytes": "100000",
}  # fmt: skip
"""What unpacks to more is unreadable: a small stand-in for the 100 MB that are the default."""


def produce_batch(broker: KafkaBroker, topic: str, values: list[bytes]) -> None:
    """One batch in zstd.

    The client knows the topic's partitions before the first record: what is produced earlier is moved into its partition's
    queue record by record once they are known, and a batch may leave while that goes on.  What is sent again after a lost
    answer is not written twice (idempotence).
    """
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "compression.type": "zstd", "linger.ms": 60_000,
         "batch.size": 2_000_000, "message.max.bytes": 2_000_000, "enable.idempotence": True}
    )  # fmt: skip
    producer.list_topics(topic, 240)
    first = sum(batches(broker, topic))
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(240) == 0
    written = batches(broker, topic)
    assert written[-1] == len(values) == sum(written) - first, f"not one batch: {written}"


def batches(broker: KafkaBroker, topic: str) -> list[int]:
    """How many offsets each batch of partition 0 has, from the broker's file: the format's first fields are the batch's first
    offset (8 bytes), its length from there on (4), 11 bytes of no interest, and its last offset less its first (4)."""
    (log,) = (broker.directory / "data" / f"{topic}-0").glob("*.log")
    held, at, found = log.read_bytes(), 0, []
    while at < len(held):
        _, length, delta = struct.unpack_from(">qi11xi", held, at)
        found.append(delta + 1)
        at += 12 + length
    return found


def test_a_batch_whose_checksum_is_wrong_stops_its_partition_and_nothing_behind_it_comes(
    kafka: KafkaBroker, topic_name: str
) -> None:
    make_topic(kafka, topic_name)
    produce(kafka, topic_name, 3)
    mark = random.Random(0).randbytes(40).hex().encode()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(topic_name, mark, partition=0)
    assert producer.flush(240) == 0
    produce(kafka, topic_name, 3)
    (log,) = (kafka.directory / "data" / f"{topic_name}-0").glob("*.log")
    with log.open("r+b") as file:  # in place: the broker serves what is in the file
        file.seek(log.read_bytes().index(mark))
        file.write(b"#")
    with started(kafka, topic_name) as follower, pytest.raises(RecordsUnreadable, match="CRC32C") as stop:
        follower.until(lambda: False)
    assert stop.value.where == {"topic": topic_name, "partition": 0, "offset": 3}
    assert follower.offsets == {0: [0, 1, 2]}
    client = {"bootstrap.servers": kafka.bootstrap_servers}
    found, behind = read_records(client, "g", region(0, topic_name), Position(0), Position(7))
    assert (found.offsets, behind) == ([0, 1, 2], 3)


class Client:
    """A consumer that goes on behind what it cannot read, as librdkafka may."""

    def __init__(self) -> None:
        self.sought: list[int] = []

    def consume(self, count: int, timeout_s: float) -> list[Message]:
        bad = KafkaError(KafkaError._BAD_MSG)
        return [
            Message(topic="t", partition=p, offset=o, key=b"", value=b"", error=bad if (p, o) == (0, 3) else None)
            for p in (0, 1)
            for o in range(2, 6)
        ]

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition("t", at.partition, 6) for at in partitions]

    def seek(self, place: TopicPartition) -> None:
        self.sought.append(place.offset)

    def pause(self, partitions: list[TopicPartition]) -> None: ...

    def resume(self, partitions: list[TopicPartition]) -> None: ...

    def close(self) -> None: ...


def test_where_the_client_goes_on_behind_what_it_cannot_read_nothing_of_that_is_taken() -> None:
    source = ConfluentSource({"bootstrap.servers": "127.0.0.1:1"}, {"t": "topic-id"}, "g")
    source._consumer.close()
    source._consumer = client = Client()  # type: ignore[assignment] # as much of one as is needed
    for partition in (0, 1):
        source._region("t", partition)
        source.start(region(partition, "t"), Position(2))
    polled = source.poll(1, 0.0)
    assert {p: records.offsets for p, records in by_number(polled.records).items()} == {0: [2], 1: [2, 3, 4, 5]}
    assert by_number(polled.next) == {0: 3, 1: 6}
    again = source.poll(1, 0.0)  # asked for once more
    assert client.sought == [2, 2, 3]
    assert by_number(again.next) == {0: 3, 1: 6}
    with pytest.raises(RecordsUnreadable):
        source.poll(1, 0.0)
    assert by_number(source.poll(1, 0.0).next) == {1: 6}


def test_the_end_of_what_cannot_be_read_is_found(kafka: KafkaBroker, topic_name: str) -> None:
    make_topic(kafka, topic_name)
    produce(kafka, topic_name, 2)
    produce_batch(kafka, topic_name, [b"x" * 50_000] * 11)  # 2 to 12
    produce_batch(kafka, topic_name, [b"y" * 300_000])  # 13
    produce(kafka, topic_name, 1)
    client = {"bootstrap.servers": kafka.bootstrap_servers, **RECEIVE}
    for first, end, behind in ((2, 15, 13), (5, 15, 13), (2, 9, 13), (12, 15, 13), (13, 15, 14)):
        with pytest.raises(RecordsUnreadable) as stop:
            read_records(client, "g", region(0, topic_name), Position(first), Position(end))
        assert (stop.value.where["offset"], stop.value.where["behind"]) == (first, behind)
    found, at = read_records(client, "g", region(0, topic_name), Position(14), Position(15))
    assert (found.offsets, at) == ([14], 15)


def test_a_partition_that_cannot_be_read_stops_alone_and_is_led_past(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path
) -> None:
    make_topic(kafka, topic_name, 2)
    make_topic(kafka, f"{topic_name}.dead-letters", 1)
    tree = settings_tree(kafka, topic_name, tmp_path, kafka={"options": RECEIVE})
    config = tmp_path / "lancewal.yaml"
    config.write_text(yaml.safe_dump(tree))
    settings = load_settings(config, {})
    contract = create_table(settings)
    keys = [next(f"c{n}" for n in range(99) if partition_of(encode_region_key(f"c{n}"), 2) == p) for p in (0, 1)]

    def row(partition: int, number: int) -> None:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        value = f'{{"customer":"{keys[partition]}","id":{number},"amount":1}}'.encode()
        producer.produce(topic_name, value, key=encode_region_key(keys[partition]), partition=partition)
        assert producer.flush(240) == 0

    row(0, 0)
    produce_batch(kafka, topic_name, [b"x" * 150_000] * 3)  # 1 to 3
    row(0, 4)
    row(1, 0)
    for _ in range(2):  # what meets it again at a new start stops again, and ends nothing
        with serving(settings) as running:
            until(lambda running=running: by_number(running.worker.durable) == {0: 1, 1: 1} and running.worker.stopped)  # type: ignore[misc] # a default
            assert {p: error.kind for p, error in by_number(running.worker.stopped).items()} == {
                0: "records_unreadable"
            }
            labels = {"partition": "0", "kind": "records_unreadable"}
            assert metric(running.port, "lancewal_ingest_partition_stopped", **labels) == 1
            status, text = get(running.port, "/readyz")
            assert status == 503
            assert "records_unreadable: partition 0 stopped" in text
            assert f"lancewal offset reject {topic_name}-0-1" in text
    first = CliRunner().invoke(app, ["reject", f"{topic_name}-0-1", "--config", str(config)])
    assert first.exit_code == 0, first.output
    assert f"reject {topic_name}-0-2 --through 3" in first.output
    rest = CliRunner().invoke(app, ["reject", f"{topic_name}-0-2", "--through", "3", "--config", str(config)])
    assert rest.exit_code == 0, rest.output
    with serving(settings) as running:
        until(lambda: by_number(running.worker.durable) == {0: 5, 1: 1})
        assert running.worker.stopped == {}
    found = open_table(settings.table.uri).to_arrow()
    assert sorted(zip(found["customer"].to_pylist(), found["id"].to_pylist(), strict=True)) == sorted(
        [(keys[0], 0), (keys[0], 4), (keys[1], 0)]
    )
    letters = read_letters(kafka, f"{topic_name}.dead-letters", 3)
    assert [(m.key(), m.value(), dict(m.headers() or [])["lancewal.source"]) for m in letters] == [
        (None, None, f"{topic_name}-0-{offset}".encode()) for offset in (1, 2, 3)
    ]
    assert contract.partitions == 2
