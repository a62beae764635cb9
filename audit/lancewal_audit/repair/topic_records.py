"""Records of a topic read again, outside the consumer group, once it is sure that they are the same as at first.

Guarantees
 1. The topic is the contract's (its id), and is not compacted: compaction drops records that were there.
 2. ``read`` returns all committed records of [first, next), or raises: ``RetentionLost`` where Kafka has dropped some.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from lancewal_core.errors import RetentionLost, TopicTruncated, TopicUnsuitable
from lancewal_core.names.ids import Position, Region
from lancewal_core.settings.sections import KafkaSettings
from lancewal_core.table.contract import Contract
from lancewal_kafka.records import Records
from lancewal_kafka.reread import OutOfRange, consumed, lone_consumer
from lancewal_kafka.topic import TopicInspector, same_topic


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
        self._client: Mapping[str, str] = kafka.client()
        self._inspector = TopicInspector(self._client)
        self._group = kafka.group(contract.table_uuid)

    def check(self) -> None:
        topic = same_topic(self._inspector, self._contract, "Nothing was changed")
        if topic.compacted:
            raise TopicUnsuitable(
                f"topic {topic.topic} is compacted: records that were there may be gone, and what is read again would not "
                "be the same. Restore the object from the store's own versions. Nothing was changed",
                topic=topic.topic,
            )

    def low(self, partition: int) -> Position:
        return self._inspector.begins(self._contract.topic, [partition])[partition]

    def read(self, region: Region, first: Position, end: Position) -> Records:
        refused = f"offsets {first} to {end - 1} of partition {region.partition} cannot be read again"
        low, high = self.low(region.partition), self._inspector.ends(region.topic, [region.partition])[region.partition]
        if low > first:
            raise RetentionLost(f"{refused}: Kafka begins at {low}", **region.place)
        if high < end:
            raise TopicTruncated(f"{refused}: Kafka ends at {high}", **region.place)
        found = Records([], [], [], [], [])
        with lone_consumer(self._client, self._group, region.topic) as consumer:
            try:
                for records in consumed(consumer, region, first, end):
                    found.extend(records)
            except OutOfRange as error:
                raise RetentionLost(
                    f"{refused}: Kafka deleted records while they were read",
                    **region.place,
                ) from error
        return found
