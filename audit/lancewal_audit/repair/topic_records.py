"""Read records of a topic again, outside the consumer group, once it is certain that they are the same as before.

Guarantees
 1. ``check`` raises unless the topic has the contract's id and is not compacted: compaction deletes records.
 2. ``read`` returns all committed records of [first, end), or raises: ``RetentionLost`` if Kafka has deleted some.
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
        """Raise ``TopicReplaced`` if the topic has another id, ``TopicUnsuitable`` if it is compacted (guarantee 1)."""

    def low(self, partition: int) -> Position:
        """Return the first offset that Kafka still has."""

    def read(self, region: Region, first: Position, end: Position) -> Records:
        """Return the committed records of [``first``, ``end``) (guarantee 2).

        ``RetentionLost``: Kafka has deleted some.  ``TopicTruncated``: Kafka ends before ``end``."""


class KafkaTopicRecords:
    """``TopicRecords`` that reads from the Kafka brokers in the settings."""

    def __init__(self, kafka: KafkaSettings, contract: Contract) -> None:
        self._contract = contract
        self._client: Mapping[str, str] = kafka.client()
        self._inspector = TopicInspector(self._client)
        self._group = kafka.group(contract.table_uuid)

    def check(self) -> None:
        topic = same_topic(self._inspector, self._contract, "Nothing was changed")
        if topic.compacted:
            raise TopicUnsuitable(
                f"topic {topic.topic} is compacted: records may be gone, so they may not give the same rows again. Restore "
                "the object from the store's own versions. Nothing was changed",
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
