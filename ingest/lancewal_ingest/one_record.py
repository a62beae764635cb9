"""One record of a topic, read outside the consumer group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from lancewal_core.ids import Position, Region
from lancewal_ingest.decode.records import Records
from lancewal_ingest.kafka_clients import REQUEST_TIMEOUT_S, explained, lone_consumer_properties

_QUEUE_BYTES = 1 << 20
_HEADERS: Any = Message.headers  # the type hints know a form that only producers use


def read_record(client: Mapping[str, str], group: str, region: Region, offset: Position) -> Records:
    """The committed record at ``offset``; no record where there is none.  ``KafkaUnavailable`` if nobody answers."""
    consumer = Consumer(lone_consumer_properties(client, group, _QUEUE_BYTES))
    try:
        consumer.assign([TopicPartition(region.topic, region.partition, offset)])
        message = consumer.poll(REQUEST_TIMEOUT_S)
        error = None if message is None else message.error()
        if error is not None:
            raise KafkaException(error)
    except KafkaException as error:
        raise explained(error, f"reading offset {offset} of partition {region.partition}", region.topic) from error
    finally:
        consumer.close()
    if message is None or message.offset() != offset:
        return Records([], [], [], [], [])
    return Records([offset], [message.timestamp()[1]], [message.key()], [message.value()], [_HEADERS(message)])
