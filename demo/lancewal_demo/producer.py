"""Send the feed to Kafka with an ordinary client: producing needs no part of lancewal.

A producer must key each record by the region key, let murmur2 choose the partition (as Java's client does by default),
and name the operation in the header ``lancewal.op`` unless it is an upsert.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from lancewal_core.errors import KafkaUnavailable
from lancewal_demo.feed import SENT_AT, Message

OP_HEADER = "lancewal.op"
PARTITIONS = 4
_CHUNK = 2_000
_SILENT = logging.getLogger("lancewal.demo.kafka")
"""Logger that drops librdkafka's messages about a broker that has just started.  Real problems are raised as errors."""
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False
_PACED_CHUNK_S = 0.01
_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Sent:
    """The messages that one call of ``send`` has sent: their number, bytes and the seconds that it took."""

    messages: int
    nbytes: int
    """Bytes of keys and values."""
    seconds: float


class FlightProducer:
    """Produces into one topic, waiting for all replicas, compressed with LZ4."""

    def __init__(self, servers: str, topic: str) -> None:
        from confluent_kafka import Producer

        self._topic = topic
        self._failures: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "partitioner": "murmur2_random",
                "compression.type": "lz4",
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "delivery.report.only.error": True,
                "on_delivery": self._failed,
            },
            logger=_SILENT,
        )

    def send(
        self, messages: Iterable[Message], tick: Callable[[int], None], messages_per_s: float | None = None
    ) -> Sent:
        """Send all messages, as fast as the broker takes them or at a steady rate, and wait until all are stored.

        ``tick`` is called every few thousand messages (every 10 ms at a steady rate) with the number sent so far.
        Raises ``KafkaUnavailable`` if a message was not stored.
        """
        remaining = iter(messages)
        size = _CHUNK if messages_per_s is None else max(1, round(messages_per_s * _PACED_CHUNK_S))
        started = time.monotonic()
        count = nbytes = 0
        while chunk := list(itertools.islice(remaining, size)):
            sent_at = datetime.now(UTC).isoformat(timespec="milliseconds")
            for message in chunk:
                nbytes += self._send(message, sent_at)
            count += len(chunk)
            self._producer.poll(0)
            self._check()
            tick(count)
            if messages_per_s is not None:
                time.sleep(max(0.0, started + count / messages_per_s - time.monotonic()))
        left = self._producer.flush(_TIMEOUT_S)
        self._check()
        if left:
            raise KafkaUnavailable(f"{left} messages were not stored by Kafka within {_TIMEOUT_S:g} s")
        return Sent(count, nbytes, time.monotonic() - started)

    def _send(self, message: Message, sent_at: str) -> int:
        headers: list[tuple[str, str | bytes | None]] | None = None
        if message.operation != "upsert":
            headers = [(OP_HEADER, message.operation.encode())]
        if message.operation != "delete":
            message.columns[SENT_AT] = sent_at
        value = orjson.dumps(message.columns)
        while True:
            try:
                self._producer.produce(self._topic, value, message.key, headers=headers)
                return len(value) + len(message.key)
            except BufferError:  # librdkafka's queue is full: the broker is slower
                self._producer.poll(0.05)
                self._check()

    def _failed(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._failures.append(error.str())

    def _check(self) -> None:
        if self._failures:
            raise KafkaUnavailable(f"{len(self._failures)} messages were not stored by Kafka: {self._failures[0]}")


def make_topics(servers: str, partitions_of: Mapping[str, int]) -> None:
    """Create topics with unlimited retention.  ``partitions_of``: the number of partitions by topic."""
    from confluent_kafka.admin import (  # type: ignore[attr-defined] # imported there, not listed
        AdminClient,
        NewTopic,
    )

    config = {"retention.ms": "-1"}
    topics = [NewTopic(name, partitions, 1, config=config) for name, partitions in partitions_of.items()]
    admin = AdminClient({"bootstrap.servers": servers}, logger=_SILENT)
    for created in admin.create_topics(topics).values():
        created.result(_TIMEOUT_S)
