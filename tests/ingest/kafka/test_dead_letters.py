"""Dead letters on a real broker: what is bad goes there unchanged, says what is wrong, and is acknowledged."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import cast

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from lancewal_core.errors import DeadLetterRefused, KafkaUnavailable, TopicMissing
from lancewal_core.names.ids import Region, TopicId
from lancewal_core.rows.schema import Op
from lancewal_demo.stack import KafkaBroker
from lancewal_demo.stack.ports import free_ports
from lancewal_ingest.decode.operations import Headers, op_of
from lancewal_ingest.decode.outcomes import Refusal, Rejected
from lancewal_ingest.kafka import dead_letters
from lancewal_ingest.kafka.dead_letters import AT_ONCE, KafkaDeadLetters
from lancewal_kafka.records import Records
from tests.support.topics import make_topics

REGION = Region("orders", TopicId("abc"), 3)
SECRET = "hunter2"
RECORDS = Records(
    [10, 12, 15],
    [1, 2, 3],
    [b"k10", None, b"k15"],
    [b"{bad", b"good", None],
    [
        [
            ("mine", b"1"),
            ("lancewal.source", b"forged"),
            ("lancewal.kind", b"forged"),
            ("__connect.errors.offset", None),
            ("lancewal.value.bytes", b"9"),
            ("mine", None),
        ],
        None,
        None,
    ],
)
REJECTED = (Rejected(10, "not_json", "expected one JSON value"), Rejected(15, "null_value", "expected a value"))


def make_topic(broker: KafkaBroker, topic: str, config: dict[str, str] | None = None) -> None:
    make_topics(broker.bootstrap_servers, {topic: 1}, config)


def read(broker: KafkaBroker, topic: str, count: int) -> list[Message]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": topic, "auto.offset.reset": "error"}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = [*consumer.consume(count, 240.0), *consumer.consume(1, 0.3)]
    consumer.close()
    return found


def taken_for(letter: Message) -> Op | str | None:
    """What the headers of a letter make of it where it is produced to the table's topic."""
    try:
        return op_of(cast("Headers", letter.headers()))
    except Refusal as refusal:
        return refusal.kind


@pytest.mark.kafka
def test_letters_are_unchanged_and_say_what_is_wrong(kafka: KafkaBroker, topic_name: str) -> None:
    make_topic(kafka, topic_name)
    client = {"bootstrap.servers": kafka.bootstrap_servers, "sasl.password": SECRET, "fetch.min.bytes": "1"}
    letters = KafkaDeadLetters(client, topic_name, "the-group")
    letters.check()
    letters.send(REGION, RECORDS, REJECTED)
    first, second = read(kafka, topic_name, 2)
    assert (first.key(), first.value()) == (b"k10", b"{bad")
    assert (second.key(), second.value()) == (b"k15", None)
    assert first.headers() == [
        ("mine", b"1"),
        ("original.lancewal.source", b"forged"),
        ("original.lancewal.kind", b"forged"),
        ("original.__connect.errors.offset", None),
        ("original.lancewal.value.bytes", b"9"),
        ("mine", None),
        ("__connect.errors.topic", b"orders"),
        ("__connect.errors.partition", b"3"),
        ("__connect.errors.offset", b"10"),
        ("__connect.errors.connector.name", b"the-group"),
        ("__connect.errors.task.id", b"0"),
        ("__connect.errors.stage", b"VALUE_CONVERTER"),
        ("__connect.errors.class.name", b"not_json"),
        ("__connect.errors.exception.class.name", b"lancewal.BadRecord"),
        ("__connect.errors.exception.message", b"expected one JSON value"),
        ("lancewal.kind", b"not_json"),
        ("lancewal.source", b"orders-3-10"),
    ]
    assert SECRET not in str(second.headers())


@pytest.mark.kafka
def test_a_letter_names_the_member_that_was_not_expected(kafka: KafkaBroker, topic_name: str) -> None:
    """In ASCII, whatever it is, and cut."""
    make_topic(kafka, topic_name)
    letters = KafkaDeadLetters({"bootstrap.servers": kafka.bootstrap_servers}, topic_name, "g")
    names = ["colour", "", "a\nb\ud800'", "x" * 5000]
    records = Records(list(range(4)), [0] * 4, [None] * 4, [b"x"] * 4, [None] * 4)
    letters.send(REGION, records, [Rejected(n, "unknown_column", "m", found) for n, found in enumerate(names)])
    messages = [dict(m.headers() or [])["__connect.errors.exception.message"] for m in read(kafka, topic_name, 4)]
    assert messages[:3] == [b"m. Found: 'colour'", b"m", b'm. Found: "a\\nb\\ud800\'"']
    assert messages[3] == b"m. Found: '" + b"x" * 99 + b"..."


@pytest.mark.kafka
def test_many_letters_are_all_there(kafka: KafkaBroker, topic_name: str) -> None:
    make_topic(kafka, topic_name)
    letters = KafkaDeadLetters({"bootstrap.servers": kafka.bootstrap_servers}, topic_name, "g")
    count = 3000
    records = Records(list(range(count)), [0] * count, [None] * count, [b"x"] * count, [None] * count)
    letters.send(REGION, records, [Rejected(n, "not_json", "m") for n in range(count)])
    sources = [dict(m.headers() or [])["lancewal.source"] for m in read(kafka, topic_name, count)]
    assert sources == [b"orders-3-%d" % n for n in range(count)]


@pytest.mark.kafka
def test_missing_topic_says_what_to_do(kafka: KafkaBroker, topic_name: str) -> None:
    letters = KafkaDeadLetters({"bootstrap.servers": kafka.bootstrap_servers}, topic_name, "g", acknowledge_s=5)
    with pytest.raises(TopicMissing, match=r"table\.dead_letter_topic.*--dead-letter-topic"):
        letters.check()
    with pytest.raises((TopicMissing, KafkaUnavailable)):
        letters.send(REGION, RECORDS, REJECTED)


@pytest.mark.kafka
def test_a_letter_that_cannot_be_sent_whole_comes_without_what_was_in_the_record(
    kafka: KafkaBroker, topic_name: str
) -> None:
    """Refused for its size, or of a record that is too large; others of the same batch come whole."""
    make_topic(kafka, topic_name, {"max.message.bytes": "3000"})
    letters = KafkaDeadLetters({"bootstrap.servers": kafka.bootstrap_servers}, topic_name, "g")
    noise = random.Random(0).randbytes(60_000)  # what compresses well would fit
    records = Records(
        [1, 2, 3, 4], [1] * 4, [b"k" * 5000, None, b"k3", noise], [b"{bad", noise, b"{large", None],
        [None, [("mine", b"1"), ("ü", None)], [("mine", b"12")], None],
    )  # fmt: skip
    letters.send(
        REGION, records,
        [Rejected(n, "too_large" if n == 3 else "not_json", "m") for n in range(1, 5)],
    )  # fmt: skip
    letters.send(REGION, RECORDS, REJECTED)
    found = {dict(m.headers() or [])["lancewal.source"]: m for m in read(kafka, topic_name, 6)}
    lengths = {
        source: tuple(dict(m.headers() or []).get(f"lancewal.{part}.bytes") for part in ("key", "value", "headers"))
        for source, m in found.items()
    }
    whole = (None, None, None)
    assert lengths == {
        b"orders-3-1": whole, b"orders-3-2": (b"0", b"60000", b"7"), b"orders-3-3": (b"2", b"6", b"6"),
        b"orders-3-4": (b"60000", b"0", b"0"), b"orders-3-10": whole, b"orders-3-15": whole,
    }  # fmt: skip
    assert {source: (m.key(), m.value()) for source, m in found.items()} == {
        b"orders-3-1": (b"k" * 5000, b"{bad"), b"orders-3-2": (None, None), b"orders-3-3": (b"k3", None),
        b"orders-3-4": (noise[:1000], None), b"orders-3-10": (b"k10", b"{bad"), b"orders-3-15": (b"k15", None),
    }  # fmt: skip
    assert "mine" not in dict(found[b"orders-3-3"].headers() or [])
    # Produced to the table's topic, no cut letter is taken for a delete, nor is a letter about it.
    cut = {source: m for source, m in found.items() if lengths[source] != whole}
    assert {source for source, m in found.items() if taken_for(m) == "cut_letter"} == {*cut, b"orders-3-10"}  # forged
    about = Records(
        [1, 2, 3], [1] * 3, [m.key() for m in cut.values()], [m.value() for m in cut.values()],
        [cast("Headers", m.headers()) for m in cut.values()],
    )  # fmt: skip
    letters.send(REGION, about, [Rejected(n, "cut_letter", "m") for n in (1, 2, 3)])
    assert [taken_for(m) for m in read(kafka, topic_name, 9)[6:]] == ["cut_letter"] * 3


@pytest.mark.kafka
def test_a_letter_that_the_topic_refuses_whatever_is_left_out_is_named(kafka: KafkaBroker, topic_name: str) -> None:
    make_topic(kafka, topic_name, {"max.message.bytes": "300"})
    letters = KafkaDeadLetters({"bootstrap.servers": kafka.bootstrap_servers}, topic_name, "g")
    with pytest.raises(DeadLetterRefused, match=r"max\.message\.bytes") as refused:
        letters.send(REGION, RECORDS, REJECTED)
    assert refused.value.where == {"topic": "orders", "partition": 3, "offset": 10}


def test_silent_broker_is_no_acknowledgement() -> None:
    (port,) = free_ports(1)
    client, failures = {"bootstrap.servers": f"127.0.0.1:{port}"}, list[None]()
    letters = KafkaDeadLetters(client, "t", "g", acknowledge_s=1.0, failed=lambda: failures.append(None))
    with pytest.raises(KafkaUnavailable):
        letters.send(REGION, RECORDS, REJECTED)
    assert len(failures) == 1


class _Client:
    """A producer that sends what it holds when it is flushed; ``flushes``: how many of these the broker answers."""

    flushes = 1_000

    def __init__(self, properties: object, logger: object) -> None:
        self.sent: list[bytes] = []
        self.held: list[tuple[bytes, Callable[[None, None], None]]] = []
        self.most = 0

    def produce(
        self, topic: str, value: bytes, key: None, *, headers: list[tuple[str, bytes]],
        on_delivery: Callable[[None, None], None],
    ) -> None:  # fmt: skip
        self.held.append((dict(headers)["lancewal.source"], on_delivery))
        self.most = max(self.most, len(self.held))

    def flush(self, timeout_s: float) -> int:
        self.flushes -= 1
        if self.flushes >= 0:
            for source, delivered in self.held:
                self.sent.append(source)
                delivered(None, None)
            self.held.clear()
        return len(self.held)


def send_many(monkeypatch: pytest.MonkeyPatch, count: int) -> tuple[_Client, KafkaUnavailable | None]:
    made: list[_Client] = []

    def client(properties: object, logger: object) -> _Client:
        made.append(_Client(properties, logger))
        return made[-1]

    monkeypatch.setattr(dead_letters, "Producer", client)
    letters = KafkaDeadLetters({}, "t", "g")
    records = Records(list(range(count)), [0] * count, [None] * count, [b"x"] * count, [None] * count)
    try:
        letters.send(REGION, records, [Rejected(n, "not_json", "m") for n in range(count)])
    except KafkaUnavailable as error:
        return made[0], error
    return made[0], None


def test_no_more_letters_wait_than_are_sent_together(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 2 * AT_ONCE + 1
    client, error = send_many(monkeypatch, count)
    assert error is None
    assert client.sent == [b"orders-3-%d" % n for n in range(count)]
    assert client.most == AT_ONCE


def test_behind_letters_that_are_not_acknowledged_none_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Client, "flushes", 1)
    client, error = send_many(monkeypatch, 3 * AT_ONCE)
    assert error is not None
    assert len(client.sent) == len(client.held) == AT_ONCE
