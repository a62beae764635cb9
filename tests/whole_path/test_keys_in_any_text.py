"""Compacted topics whose rows do not tell their partition, with the broker's cleaner at work: deletes by any text of a key."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from lancewal import encode_region_key, partition_of
from lancewal_core.cli.options import read_settings
from lancewal_demo.stack import KafkaBroker
from lancewal_reader.table import open_table
from lancewal_tables.define.create import create_table
from tests.faults.test_kafka_removes import COMPACTED, stopped
from tests.support.topics import make_topics
from tests.support.whole_path import Lancewal, Service, until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

PARTITIONS, KEYS = 3, 12
FILLER = 1000
"""A key whose records only close the segments before it."""


def lancewal_at(kafka: KafkaBroker, topic: str, folder: Path, **table: object) -> Lancewal:
    folder.mkdir()
    tree: dict[str, dict[str, object]] = {
        "table": {
            "uri": str(folder / "table"),
            "topic": topic,
            "columns": {"id": "int64", "status": "string"},
            "primary_key": ["id"],
            "region_key": ["id"],
            "patches": False,
            **table,
        },
        "kafka": {"bootstrap_servers": kafka.bootstrap_servers},
        "ingest": {"linger_ms": 10, "seal_age_s": 0.5},
        "http": {"ingest_port": 0, "flusher_port": 0},
    }
    lancewal = Lancewal(folder, tree)
    create_table(read_settings(lancewal.config))
    return lancewal


def texts(number: int, partition: int) -> list[bytes]:
    """Some texts of a key that lie in one partition."""
    all_texts = [
        *(b'{"id":' + b" " * n + b"%d}" % number for n in range(20)),
        *(b' { "\\u0069d"' + b"\t" * n + b": %d } " % number for n in range(20)),
    ]
    return [text for text in all_texts if partition_of(text, PARTITIONS) == partition]


class Sender:
    """A producer that remembers what it has sent, by partition and offset."""

    def __init__(self, servers: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
        self._topic = topic
        self.sent: dict[tuple[int, int], tuple[int, bytes | None]] = {}
        self.rows: dict[int, str] = {}
        """What the table must have."""

    def send(self, partition: int, key: bytes | None, number: int, status: str | None) -> None:
        """A row of ``number``, or a record without a value; the row counts if it has a status."""
        value = None if status is None else json.dumps({"id": number, "status": status}).encode()

        def delivered(error: object, message: Message) -> None:
            assert error is None, error
            place = message.partition(), message.offset()
            assert None not in place
            self.sent[place] = number, value  # type: ignore[index]  # it was delivered

        self._producer.produce(self._topic, value, key, partition=partition, on_delivery=delivered)

    def row(self, partition: int, key: bytes, number: int, status: str | None) -> None:
        self.send(partition, key, number, status)
        if status is None:
            self.rows.pop(number, None)
        else:
            self.rows[number] = status

    def flush(self) -> None:
        assert self._producer.flush(30) == 0


def kept(servers: str, topic: str) -> set[tuple[int, int]]:
    """Partitions and offsets of the records that the topic still has."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": f"{topic}-look", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: set[tuple[int, int]] = set()
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        for message in consumer.consume(1000, 0.2):
            partition, offset, error = message.partition(), message.offset(), message.error()
            assert partition is not None
            assert offset is not None
            if error is None:
                found.add((partition, offset))
            else:
                assert error.code() == KafkaError._PARTITION_EOF
                ended.add(partition)
    consumer.close()
    return found


def opened(lancewal: Lancewal) -> Service:
    """Ingest that has opened all partitions, so that none begins with old records."""
    ingest = lancewal.start("ingest", "run")
    until(lambda: len(ingest.opened) == PARTITIONS, lambda: ingest.tail)
    return ingest


def seen(lancewal: Lancewal, **read: object) -> dict[int, str]:
    rows = open_table(str(lancewal.folder / "table")).to_arrow(**read).to_pylist()  # type: ignore[arg-type]
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["status"] for row in rows if row["id"] < FILLER}


def json_key(rng: random.Random, number: int) -> tuple[int, bytes]:
    partition = partition_of(b'{"id":%d}' % number, PARTITIONS)
    return partition, rng.choice(texts(number, partition)[:3])


def long_key(rng: random.Random, number: int) -> tuple[int, bytes]:
    return number % PARTITIONS, encode_region_key(number, form="long")


FORMATS: Mapping[str, tuple[Callable[[random.Random, int], tuple[int, bytes]], dict[str, object]]] = {
    "json": (json_key, {"format": {"key": "json"}}),
    "long, none": (long_key, {"format": {"key": "long"}, "partitioner": "none"}),
}


@pytest.mark.parametrize("name", FORMATS)
def test_rows_and_deletes_while_the_cleaner_works(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int, name: str
) -> None:
    """The table has what all records say, though the topic has lost most of them, deletes too."""
    key_of, terms = FORMATS[name]
    servers, rng = kafka.bootstrap_servers, random.Random(f"keys {seed}")
    make_topics(servers, {topic_name: PARTITIONS}, {**COMPACTED, "delete.retention.ms": "1000"})
    make_topics(servers, {f"{topic_name}.dead-letters": 1})
    lancewal, sender = lancewal_at(kafka, topic_name, tmp_path / "t", **terms), Sender(servers, topic_name)
    ingest = opened(lancewal)
    turn = 0

    def cleaned() -> bool:
        """Deletes are gone, and a superseded row.  All of a turn is read before the next one: its records lie in segments
        that are not cleaned before more come."""
        nonlocal turn
        turn += 1
        for number in rng.sample(range(KEYS), KEYS // 2):
            sender.row(*key_of(rng, number), number, None if rng.random() < 0.4 else f"{number} in turn {turn}")
        for partition in range(PARTITIONS):
            filler = next(n for n in range(FILLER, FILLER + 99) if key_of(random.Random(0), n)[0] == partition)
            sender.send(*key_of(random.Random(0), filler), filler, "filler")
        sender.flush()
        until(lambda: seen(lancewal) == sender.rows, lambda: f"{seen(lancewal)} {sender.rows} {ingest.tail}")
        gone = [sender.sent[place][1] for place in sender.sent.keys() - kept(servers, topic_name)]
        assert not stopped(ingest), ingest.tail
        return gone.count(None) >= 3 and len(gone) > gone.count(None)

    until(cleaned, lambda: ingest.tail, poll_s=0.3)
    lancewal.succeed("merge")
    assert seen(lancewal, consistency="eventual") == sender.rows
    lancewal.succeed("verify")

    wrong: list[tuple[bytes, int]] = [(b"{}", 1), (b"", 1), (b'{"id":"1"}', 1), (key_of(rng, 2)[1], 1)]
    for key, number in wrong:  # a compacted topic takes no record without a key
        partition = partition_of(key, PARTITIONS)
        sender.send(partition, key, number, "is not to be seen")
    sender.row(*key_of(rng, 3), 3, "after them")
    sender.flush()
    until(lambda: seen(lancewal) == sender.rows, lambda: f"{seen(lancewal)} {sender.rows}")
    ingest.stop()
    told = json.loads(lancewal.succeed("dead-letter", "list", "-o", "json"))
    assert {group["kind"]: group["letters"] for group in told["groups"]} == {"key_form": 3, "key_differs": 1}
    assert "is not to be seen" not in ingest.log


def test_a_deleted_row_does_not_come_back(kafka: KafkaBroker, topic_name: str, tmp_path: Path) -> None:
    """A table that begins after the cleaner has removed a delete, and left the row's record under another text."""
    servers, terms = kafka.bootstrap_servers, {"format": {"key": "json"}}
    make_topics(servers, {topic_name: PARTITIONS}, {**COMPACTED, "delete.retention.ms": "1000"})
    make_topics(servers, {f"{topic_name}.dead-letters": 1})
    sender = Sender(servers, topic_name)
    early = lancewal_at(kafka, topic_name, tmp_path / "early", **terms)
    ingest = opened(early)
    partition = partition_of(b'{"id":7}', PARTITIONS)
    one, other, *_ = texts(7, partition)
    for key, status in ((one, "deleted"), (other, None)):
        sender.row(partition, key, 7, status)
        sender.flush()
        until(lambda: seen(early) == sender.rows, lambda: ingest.tail)
    filler, *_ = texts(FILLER, partition)

    def gone() -> bool:
        sender.send(partition, filler, FILLER, "filler")
        sender.flush()
        (removed,) = [place for place, (number, value) in sender.sent.items() if (number, value) == (7, None)]
        return removed not in kept(servers, topic_name)

    until(gone, lambda: ingest.tail, poll_s=0.3)
    left = kept(servers, topic_name)
    assert [value for place, (number, value) in sender.sent.items() if number == 7 and place in left] != []
    until(lambda: FILLER in raw(early), lambda: ingest.tail)
    assert seen(early) == {}
    ingest.stop()
    early.succeed("merge")
    early.succeed("verify")

    late = lancewal_at(kafka, topic_name, tmp_path / "late", **terms)
    ingest = late.start("ingest", "run")
    until(lambda: stopped(ingest) == {partition: "retention_lost"}, lambda: ingest.tail)
    (line,) = ingest.logged("partition_stopped")
    assert "table.format.key is json" in line["error"]
    assert seen(late) == {}
    said = late.succeed("offset", "accept-loss", f"{topic_name}-{partition}", "--yes")
    assert "deletes among offsets" in said
    ingest.stop()
    ingest = late.start("ingest", "run")
    until(lambda: FILLER in raw(late), lambda: ingest.tail)
    assert seen(late) == {7: "deleted"}  # which was accepted
    ingest.stop()


def raw(lancewal: Lancewal) -> set[int]:
    return {row["id"] for row in open_table(str(lancewal.folder / "table")).to_arrow().to_pylist()}
