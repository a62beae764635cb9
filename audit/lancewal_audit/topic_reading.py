"""Records of a partition read again, by a consumer that joins no group and commits nothing.

Guarantees
 1. ``consumed`` gives the committed records of [first, end) in offset order, each once.  It ends once all were seen, or raises
    ``OutOfRange`` (retention has taken the position) or ``KafkaUnavailable`` (the broker is silent short of the end).
 2. ``same_topic``: offsets mean what the contract's did, or ``TopicReplaced``.
"""

from __future__ import annotations

import contextlib
import logging
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from lancewal_core.contract import Contract
from lancewal_core.errors import KafkaUnavailable, TopicReplaced
from lancewal_core.ids import Position, Region, position_after
from lancewal_flusher.topic_checks import TopicInspector, TopicState
from lancewal_ingest.decode.records import Records
from lancewal_ingest.kafka_clients import explained, lone_consumer_properties
from lancewal_ingest.source_kafka import as_records

QUEUE_BYTES = 32 << 20
_RECORDS = 20_000
_WAIT_S = 0.5
_GATHER_S = 0.01
SILENT_S = 30.0
"""Nothing for so long, short of the end, is a broker that does not answer."""


class OutOfRange(Exception):
    """Retention has overtaken the reading."""


def same_topic(inspector: TopicInspector, contract: Contract, advice: str) -> TopicState:
    """The topic as it is now; ``advice`` ends the error's text."""
    topic = inspector.describe(contract.topic)
    if topic.topic_id != contract.topic_id:
        raise TopicReplaced(
            f"topic {contract.topic} has id {topic.topic_id}, the table's contract says {contract.topic_id}: it was "
            f"deleted and recreated, and does not have the table's records. {advice}",
            topic=contract.topic,
        )
    return topic


@contextlib.contextmanager
def lone_consumer(client: Mapping[str, str], group: str, topic: str) -> Iterator[Consumer]:
    """Kafka's own errors leave it as this project's."""
    properties = lone_consumer_properties(client, group, QUEUE_BYTES)
    try:
        with contextlib.closing(Consumer(properties, logger=logging.getLogger("lancewal.kafka"))) as consumer:
            yield consumer
    except KafkaException as error:
        raise explained(error, f"reading topic {topic}", topic) from error


def consumed(consumer: Consumer, region: Region, first: Position, end: Position) -> Iterator[Records]:
    """Guarantee 1, as they come.  Markers and aborted records are no records, but move the position."""
    place = TopicPartition(region.topic, region.partition, first)
    consumer.assign([place])
    heard_at = time.monotonic()
    position = first
    while position < end:
        messages = consumer.consume(1, _WAIT_S)
        if messages:
            messages += consumer.consume(_RECORDS - 1, _GATHER_S)
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
        elif time.monotonic() - heard_at > SILENT_S:
            raise KafkaUnavailable(
                f"topic {region.topic} partition {region.partition}: nothing came for {SILENT_S:g} s at position {position}, "
                f"short of {end}",
                topic=region.topic,
                partition=region.partition,
            )


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
