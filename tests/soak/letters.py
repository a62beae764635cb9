"""Dead letters of a topic."""

from __future__ import annotations

import time
from collections.abc import Sequence

from confluent_kafka import Consumer, Message, TopicPartition

from tests.whole_path.test_bad_records import headers_of


def letters_found(servers: str, topic: str, at_least: int, patience_s: float = 120.0) -> set[str]:
    """The source of every dead letter: the last header of that name.  ``at_least``: so many are awaited."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "soak-check", "log_level": 2, "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(f"{topic}.dead-letters", 0, 0)])
    found: set[str] = set()
    waits_until = time.monotonic() + patience_s
    while True:
        messages: Sequence[Message] = consumer.consume(50, 1.0)
        assert time.monotonic() < waits_until, f"{len(found)} letters of {at_least}"
        for message in messages:
            if message.error() is not None:
                consumer.close()
                return found
            last = [value for name, value in headers_of(message) if name == "lancewal.source"][-1]
            assert isinstance(last, bytes)
            found.add(last.decode())
