"""Records of a topic read again, outside the consumer group, once it is sure that they are the same as at first.

Guarantees
 1. The topic is the contract's (its id), and is not compacted: compaction drops records that were there.
 2. ``read`` returns all committed records of [first, next), or raises: ``RetentionLost`` where Kafka has dropped some.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from lancewal_core.contract import Contract
from lancewal_core.errors import KafkaUnavailable, LogTruncated, RetentionLost, TopicReplaced, TopicUnsuitable
from lancewal_core.ids import Position, Region
from lancewal_core.settings_sections import KafkaSettings
from lancewal_flusher.topic_checks import TopicInspector
from lancewal_ingest.decode.records import Records
from lancewal_ingest.kafka_clients import explained, lone_consumer_properties
from lancewal_ingest.retention_kafka import KafkaRetention

_QUEUE_BYTES = 16 << 20
_WAIT_S = 1.0
_WAITS = 20
"""Times that the broker may bring nothing, one after the other."""
_HEADERS: Any = Message.headers  # the type hints know a form that only producers use


class TopicRecords(Protocol):
    def check(self) -> None:
        """Guarantee 1: ``TopicReplaced`` or ``TopicUnsuitable``."""

    def low(self, partition: int) -> Position:
        """The first offset that Kafka still has."""

    def read(self, region: Region, first: Position, end: Position) -> Records:
        """Guarantee 2."""


class KafkaTopicRecords:
    """``TopicRecords`` of the brokers that the settings name."""

    def __init__(self, kafka: KafkaSettings, contract: Contract) -> None:
        self._contract = contract
        self._inspector = TopicInspector(kafka)
        self._client: Mapping[str, str] = kafka.client()
        self._group = kafka.group(contract.table_uuid)
        self._lows = KafkaRetention(self._client, contract.topic, self._group)

    def check(self) -> None:
        topic = self._inspector.describe(self._contract.topic)
        if topic.topic_id != self._contract.topic_id:
            raise TopicReplaced(
                f"topic {topic.topic} has id {topic.topic_id}, the table's contract says {self._contract.topic_id}: its "
                "records are other ones. Nothing was changed",
                topic=topic.topic,
            )
        if topic.compacted:
            raise TopicUnsuitable(
                f"topic {topic.topic} is compacted: records that were there may be gone, and what is read again would not "
                "be the same. Restore the object from the store's own versions. Nothing was changed",
                topic=topic.topic,
            )

    def low(self, partition: int) -> Position:
        return self._lows.lows([partition])[partition]

    def read(self, region: Region, first: Position, end: Position) -> Records:
        place = TopicPartition(region.topic, region.partition, first)
        act = f"reading offsets {first} to {end - 1} of partition {region.partition}"
        low, high = self.low(region.partition), self._inspector.ends(region.topic, [region.partition])[region.partition]
        if low > first:
            raise RetentionLost(f"{act} again: Kafka begins at {low}", topic=region.topic, partition=region.partition)
        if high < end:
            raise LogTruncated(f"{act} again: Kafka ends at {high}", topic=region.topic, partition=region.partition)
        consumer = Consumer(lone_consumer_properties(self._client, self._group, _QUEUE_BYTES))
        found = Records([], [], [], [], [])
        try:
            consumer.assign([place])
            at, waits = int(first), 0
            while at < end:
                reached = at
                for message in consumer.consume(10_000, _WAIT_S):
                    _take(message, found, first, end)
                    at = max(at, (message.offset() or 0) + 1)
                at = max(at, consumer.position([place])[0].offset)
                waits = 0 if at > reached else waits + 1
                if waits > _WAITS:
                    raise KafkaUnavailable(f"{act}: nothing comes behind {at}", topic=region.topic)
        except KafkaException as error:
            raise explained(error, act, region.topic) from error
        finally:
            consumer.close()
        return found


def _take(message: Message, found: Records, first: Position, end: Position) -> None:
    error = message.error()
    if error is not None:
        raise KafkaException(error)
    offset = message.offset()
    if offset is not None and first <= offset < end:
        found.extend(
            Records([offset], [message.timestamp()[1]], [message.key()], [message.value()], [_HEADERS(message)])
        )
