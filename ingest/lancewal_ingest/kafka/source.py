"""Interface of Kafka for ingest: one consumer group member, of one topic or several.

A partition is a ``Region`` here, with the topic id of the contract.  A group assigns partitions by the topic's name.
``check_topic`` therefore checks that the live topic is the topic of the contract.
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
    """Offsets of one partition: the first that Kafka still has, and the position after the last committed record."""

    low: Position
    high: Position
    compaction: Compaction | None = None
    """Facts about the topic's compaction; None if the topic is not compacted."""

    def problem(
        self, region: Region, at: Position, reached: Literal["durable", "read"]
    ) -> RetentionLost | TopicTruncated | None:
        """Return why Kafka cannot deliver records from position ``at`` on; None if it can.

        ``reached`` says, for the message, how the partition came to that position."""
        where = f"{reached} up to position {at}"
        way_on = f"`lancewal offset accept-loss {region.topic}-{region.partition}`, then restart ingest"
        if self.low > at:
            return region.partition_error(
                RetentionLost,
                f"{where}, but Kafka begins at {self.low}: offsets {at} to {self.low - 1} were deleted before they became "
                f"durable. To go on without them: {way_on}",
            )
        if at > self.high:
            return region.partition_error(
                TopicTruncated,
                f"{where}, but Kafka ends at {self.high}: the topic, which is the same by its id, lost its tail. Stop its "
                f"producers: records that they write at offsets {self.high} to {at - 1} are never read. Once you know the "
                f"cause (a replica that lagged, or a restored backup), go on after the durable records: {way_on}",
            )
        return None


class PollListener(Protocol):
    """Called from within ``KafkaSource.poll``, in the polling thread."""

    def assigned(self, regions: Sequence[Region]) -> None:
        """The group has assigned these partitions to us, in addition to those that we have.

        A partition delivers records after ``KafkaSource.start``.  If ``regions`` is empty, the group has assigned its
        partitions and has no further one for us."""

    def revoked(self, regions: Sequence[Region]) -> None:
        """The group takes these partitions away.  They are ours until this call returns."""

    def lost(self, regions: Sequence[Region]) -> None:
        """The group took these partitions away some time ago.  Other members may have them already."""


class DescribedTopics(Protocol):
    """Source of facts about topics."""

    def facts(self, topic: str) -> TopicFacts:
        """Ask the broker for a topic's id and number of partitions.  ``TopicMissing`` if there is no such topic.

        Safe from any thread."""


class KafkaSource(DescribedTopics, Protocol):
    """A consumer.  All calls except ``facts`` come from one thread.  ``KafkaUnavailable`` if the broker does not answer."""

    def subscribe(self, listener: PollListener) -> None: ...

    def poll(self, records_max: int, timeout_s: float, gather_s: float = 0.0) -> Polled:
        """Wait up to ``timeout_s`` for a first record, then ``gather_s`` for more unless ``records_max`` have come."""

    def start(self, region: Region, position: Position) -> None:
        """Deliver an assigned partition's records from ``position`` on."""

    def stop(self, region: Region) -> None:
        """Deliver no more records of an assigned partition until ``start``."""

    def pause(self, regions: Sequence[Region]) -> None:
        """Deliver nothing of these partitions until ``resume``; they keep their positions."""

    def resume(self, regions: Sequence[Region]) -> None: ...

    def offsets(self, region: Region) -> Offsets: ...

    def offsets_of_each(self, regions: Collection[Region]) -> Mapping[Region, Offsets | LancewalError]:
        """Ask the broker for the offsets of many partitions at once; a partition without an answer has the error."""

    def commit(self, positions: Positions) -> bool:
        """Commit positions to the group, and return whether the coordinator took them.

        True also proves that we are a member of the group.  Does not wait long for a silent coordinator."""

    def commit_soon(self, positions: Positions, done: Callable[[bool], None]) -> None:
        """Commit without waiting; no two commits at a time.  ``done`` is called with the answer, from this call or a later
        ``poll``."""

    def close(self) -> None:
        """Leave the group.  If the consumer is still joining for the first time, wait a few seconds for the join to end, then
        leave in any case."""


def check_topic(contract: Contract, source: DescribedTopics, drain: Drain | None = None) -> None:
    """Raise ``TopicReplaced`` or ``PartitionCountChanged`` if the live topic is not that of the contract.

    During a drain the topic must have the drain's number of partitions."""
    facts = source.facts(contract.topic)
    if facts.topic_id != contract.topic_id:
        raise TopicReplaced(
            f"topic {contract.topic} has id {facts.topic_id}, the table's contract says {contract.topic_id}: the topic was "
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
