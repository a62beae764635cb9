"""Kafka as ingest needs it: one consumer group member, of one topic or several.

A partition is a ``Region`` here, with the topic id of the contract.  A group deals out topics by name.  ``check_topic`` asks
whether the live topic is that of the contract.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from lancewal_core.errors import LancewalError, PartitionCountChanged, RetentionLost, TopicReplaced, TopicTruncated
from lancewal_core.names.ids import Position, Region
from lancewal_core.table.contract import Contract
from lancewal_core.table.drain import Drain
from lancewal_kafka.records import Records
from lancewal_kafka.retention import Compaction
from lancewal_kafka.topic import TopicFacts

Positions = Mapping[Region, Position]


@dataclass(frozen=True, slots=True)
class Polled:
    """Records that one poll delivered.

    ``next`` has the consumer's position right after that poll, for every started partition.  It lies after the last
    record delivered and after any transaction markers that followed it.
    """

    records: Mapping[Region, Records]
    next: Positions


@dataclass(frozen=True, slots=True)
class Offsets:
    """The first offset that Kafka still has, and the position behind the last committed record."""

    low: Position
    high: Position
    compaction: Compaction | None = None
    """None: the topic is not compacted."""

    def problem(
        self, region: Region, at: Position, reached: Literal["durable", "read"]
    ) -> RetentionLost | TopicTruncated | None:
        """Return why nothing can be read at the position that was ``reached``; None if it can be read."""
        topic, partition = region.topic, region.partition
        where = f"topic {topic} partition {partition}: {reached} up to position {at}"
        if self.low > at:
            return RetentionLost(
                f"{where}, but Kafka begins at {self.low}: offsets {at} to {self.low - 1} were deleted before they became "
                f"durable. To go on without them: `lancewal offset accept-loss {topic}-{partition}`",
                topic=topic,
                partition=partition,
            )
        if at > self.high:
            return TopicTruncated(
                f"{where}, but Kafka ends at {self.high}: the topic, which is the same by its id, lost its tail. Stop its "
                f"producers: what they write at offsets {self.high} to {at - 1} is never read. Once you know why (a replica "
                "that was behind, or a backup that was restored), go on behind what is durable: "
                f"`lancewal offset accept-loss {topic}-{partition}`",
                topic=topic,
                partition=partition,
            )
        return None


class PollListener(Protocol):
    """Called from within ``KafkaSource.poll``, in the polling thread."""

    def assigned(self, regions: Sequence[Region]) -> None:
        """Hear that these partitions are ours, beside those that are; each delivers records once ``KafkaSource.start``
        was called for it.  None: the group has dealt its partitions out, and has no further one for us."""

    def revoked(self, regions: Sequence[Region]) -> None:
        """Hear that these partitions are ours until this call returns."""

    def lost(self, regions: Sequence[Region]) -> None:
        """Hear that these partitions have not been ours for some time."""


class DescribedTopics(Protocol):
    """Topics that can be asked for."""

    def facts(self, topic: str) -> TopicFacts:
        """Ask the broker.  ``TopicMissing`` if the topic does not exist.  Safe from any thread."""


class KafkaSource(DescribedTopics, Protocol):
    """A consumer.  All calls but ``facts`` come from one thread.  ``KafkaUnavailable`` when the broker is silent."""

    def subscribe(self, listener: PollListener) -> None: ...

    def poll(self, records_max: int, timeout_s: float, gather_s: float = 0.0) -> Polled:
        """Waits for a first record, and then so long for more, unless there are as many."""

    def start(self, region: Region, position: Position) -> None:
        """Deliver an assigned partition's records from ``position`` on."""

    def stop(self, region: Region) -> None:
        """Deliver no more of an assigned partition until ``start``."""

    def pause(self, regions: Sequence[Region]) -> None:
        """Keep the position, deliver nothing."""

    def resume(self, regions: Sequence[Region]) -> None: ...

    def offsets(self, region: Region) -> Offsets: ...

    def offsets_of_each(self, regions: Collection[Region]) -> Mapping[Region, Offsets | LancewalError]:
        """Return the offsets of many at once; where one has no answer, that is why."""

    def commit(self, positions: Positions) -> bool:
        """Commit positions to the group, synchronously: True if the coordinator took them, which also confirms that
        this member is one.  Does not wait long for a coordinator that says nothing."""

    def commit_soon(self, positions: Positions, done: Callable[[bool], None]) -> None:
        """Commit without waiting, one at a time: ``done`` hears the answer, from within this call or a later ``poll``."""

    def close(self) -> None:
        """Leave the group.  A joining that is under way ends first, if that does not take long."""


def check_topic(contract: Contract, source: DescribedTopics, drain: Drain | None = None) -> None:
    """Compare the live topic with the contract, or with what is drained; ``TopicReplaced`` or ``PartitionCountChanged``."""
    facts = source.facts(contract.topic)
    if facts.topic_id != contract.topic_id:
        raise TopicReplaced(
            f"topic {contract.topic} has id {facts.topic_id}, the table's contract says {contract.topic_id}: it was "
            "deleted and recreated. To take up the new topic, once all durable rows are merged: `lancewal table alter "
            f"--topic-id {facts.topic_id}`",
            topic=contract.topic,
        )
    if facts.partitions < contract.partitions:
        raise PartitionCountChanged(
            f"topic {contract.topic} has {facts.partitions} partitions, the table's contract says {contract.partitions}: this "
            "is another topic, or the brokers do not agree yet",
            topic=contract.topic,
        )
    if facts.partitions != (contract.partitions if drain is None else drain.partitions):
        raise PartitionCountChanged(
            f"topic {contract.topic} has {facts.partitions} partitions, the table's contract says "
            f"{contract.partitions}. Start ingest again: it takes what the old partitions still hold. Then, once producers "
            f"are stopped and all is merged: `lancewal table alter --partitions {facts.partitions}`",
            topic=contract.topic,
        )
