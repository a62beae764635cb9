"""Records of a partition read again, by a consumer that joins no group and commits nothing.

Guarantees
 1. ``consumed`` gives the committed records of [first, end) in offset order, each once.  It ends once all were seen, or raises
    ``OutOfRange`` (retention has taken the position) or ``KafkaUnavailable`` (the broker is silent short of the end).
 2. ``read_records`` gives no more of them than fit well into memory, from the first on.
"""

from __future__ import annotations

import contextlib
import logging
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from lancewal_core.errors import KafkaUnavailable, RetentionLost
from lancewal_core.ids import Position, Region, position_after
from lancewal_ingest.decode.records import Records
from lancewal_ingest.kafka_clients import REQUEST_TIMEOUT_S, explained, lone_consumer_properties
from lancewal_ingest.source_kafka import as_records

QUEUE_BYTES = 32 << 20
_SHORT_QUEUE_BYTES = 8 << 20
_RECORDS = 20_000
_FEW_RECORDS = 500
_WAIT_S = 0.5
_GATHER_S = 0.01
SILENT_S = 30.0
"""Nothing for so long, short of the end, is a broker that does not answer."""
READ_RECORDS_MAX = 10_000
READ_BYTES_MAX = 32 << 20
"""Where ``read_records`` ends, but for what came with the last of them."""


class OutOfRange(Exception):
    """Retention has overtaken the reading."""


@contextlib.contextmanager
def lone_consumer(
    client: Mapping[str, str], group: str, topic: str, queue_bytes: int = QUEUE_BYTES
) -> Iterator[Consumer]:
    """Kafka's own errors leave it as this project's."""
    properties = lone_consumer_properties(client, group, queue_bytes)
    try:
        with contextlib.closing(Consumer(properties, logger=logging.getLogger("lancewal.kafka"))) as consumer:
            yield consumer
    except KafkaException as error:
        raise explained(error, f"reading topic {topic}", topic) from error


def consumed(
    consumer: Consumer,
    region: Region,
    first: Position,
    end: Position,
    at_once: int = _RECORDS,
    silent_s: float = SILENT_S,
) -> Iterator[Records]:
    """Guarantee 1, as they come.  Markers and aborted records are no records, but move the position."""
    place = TopicPartition(region.topic, region.partition, first)
    consumer.assign([place])
    heard_at = time.monotonic()
    position = first
    while position < end:
        messages = consumer.consume(1, _WAIT_S)
        if messages:
            messages += consumer.consume(at_once - 1, _GATHER_S)
        good = [message for message in messages if _is_record(message, region)]
        if good:
            records = as_records(good)
            wanted = between(records, position, end)
            if len(wanted):
                yield wanted
            position = max(position, position_after(records.offsets[-1]))
        (at,) = consumer.position([place])
        if good or at.offset > position:
            heard_at, position = time.monotonic(), max(position, Position(at.offset))
        elif time.monotonic() - heard_at > silent_s:
            raise KafkaUnavailable(
                f"topic {region.topic} partition {region.partition}: nothing came for {silent_s:g} s at position {position}, "
                f"short of {end}",
                topic=region.topic,
                partition=region.partition,
            )


def read_records(
    client: Mapping[str, str], group: str, region: Region, first: Position, end: Position
) -> tuple[Records, Position]:
    """The committed records of [first, end), or of its beginning where they are many, and the position behind them.

    ``end`` is not above what Kafka has.  ``RetentionLost`` if Kafka has deleted ``first``, ``KafkaUnavailable`` if nobody
    answers.
    """
    found, nbytes = Records([], [], [], [], []), 0
    try:
        with lone_consumer(client, group, region.topic, _SHORT_QUEUE_BYTES) as consumer:
            for records in consumed(consumer, region, first, end, _FEW_RECORDS, REQUEST_TIMEOUT_S):
                found.extend(records)
                nbytes += sum(len(value or b"") for value in records.values)
                if len(found) >= READ_RECORDS_MAX or nbytes >= READ_BYTES_MAX:
                    return found, position_after(found.offsets[-1])
    except OutOfRange:
        raise RetentionLost(
            f"topic {region.topic} partition {region.partition}: Kafka deleted offset {first} while it was read",
            topic=region.topic,
            partition=region.partition,
        ) from None
    return found, end


def between(records: Records, low: Position, high: Position) -> Records:
    """Those at [low, high)."""
    start, end = bisect_left(records.offsets, low), bisect_left(records.offsets, high)
    return Records(
        records.offsets[start:end],
        records.timestamps[start:end],
        records.keys[start:end],
        records.values[start:end],
        records.headers[start:end],
    )


def _is_record(message: Message, region: Region) -> bool:
    error = message.error()
    if error is None:
        return message.partition() == region.partition
    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        raise OutOfRange
    if error.fatal() or not error.retriable():
        raise KafkaException(error)
    return False
