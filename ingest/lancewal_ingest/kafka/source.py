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
    """Records that one poll returned.

    ``next`` has the consumer's position after the poll, for every started partition.  It is after the last returned
    record, and after transaction markers that follow that record.
    """

    records: Mapping[Region, Records]
    next: Positions


@dataclass(frozen=True, slots=True)
class Offsets:
    """Two offsets of one partition: the first one that Kafka still has, and the position after the last committed
    record.
    """

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
    """Callbacks for changes of the assignment.  ``KafkaSource.poll`` calls them in its own thread."""

    def assigned(self, regions: Sequence[Region]) -> None:
        """The group has assigned these partitions to this process, in addition to earlier ones.

        A partition returns records only after ``KafkaSource.start``.  An empty ``regions`` means that the group has
        finished an assignment without a new partition for this process.
        """

    def revoked(self, regions: Sequence[Region]) -> None:
        """The group revokes these partitions.  They belong to this process until this call returns."""

    def lost(self, regions: Sequence[Region]) -> None:
        """The group revoked these partitions earlier.  Other members may own them already."""


class DescribedTopics(Protocol):
    """Source of facts about topics."""

    def facts(self, topic: str) -> TopicFacts:
        """Ask the broker for a topic's id and number of partitions.  Raises ``TopicMissing`` if there is no such topic.
        Any thread may call.
        """


class KafkaSource(DescribedTopics, Protocol):
    """A consumer.  One thread makes all calls except ``facts``.  Raises ``KafkaUnavailable`` if the broker does not
    answer.
    """

    def subscribe(self, listener: PollListener) -> None: ...

    def poll(self, records_max: int, timeout_s: float, gather_s: float = 0.0) -> Polled:
        """Wait up to ``timeout_s`` for a first record.  Then wait ``gather_s`` for more, or until there are
        ``records_max``.
        """

    def start(self, region: Region, position: Position) -> None:
        """Begin to return an assigned partition's records, from ``position`` on."""

    def stop(self, region: Region) -> None:
        """Return no more records of an assigned partition until ``start`` is called."""

    def pause(self, regions: Sequence[Region]) -> None:
        """Return no records of these partitions until ``resume`` is called.  The partitions keep their positions."""

    def resume(self, regions: Sequence[Region]) -> None: ...

    def offsets(self, region: Region) -> Offsets: ...

    def offsets_of_each(self, regions: Collection[Region]) -> Mapping[Region, Offsets | LancewalError]:
        """Ask the broker for the offsets of many partitions at once.  A partition without an answer has an error as its
        value.
        """

    def commit(self, positions: Positions) -> bool:
        """Commit positions to the group.  Return whether the coordinator accepted them.

        True also proves that this process is a member of the group.  The call does not wait long for a silent
        coordinator.
        """

    def commit_soon(self, positions: Positions, done: Callable[[bool], None]) -> None:
        """Start a commit, and do not wait for it.  Only one commit runs at a time.  ``done`` gets the answer, either
        during this call or during a later ``poll``.
        """

    def close(self) -> None:
        """Leave the group.  If the consumer is still joining for the first time, wait a few seconds for that before
        leaving.
        """


def check_topic(contract: Contract, source: DescribedTopics, drain: Drain | None = None) -> None:
    """Raise ``TopicReplaced`` or ``PartitionCountChanged`` if Kafka's topic differs from the contract's.

    During a drain, the topic must have the number of partitions that the drain records.
    """
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
            "is another topic, or the brokers do not agree yet. Check kafka.bootstrap_servers, and start ingest again",
            topic=contract.topic,
        )
    if facts.partitions != (contract.partitions if drain is None else drain.partitions):
        raise PartitionCountChanged(
            f"topic {contract.topic} has {facts.partitions} partitions, the table's contract says "
            f"{contract.partitions}. Start ingest again: it takes what the old partitions still hold. Then, once producers "
            f"are stopped and all is merged: `lancewal table alter --partitions {facts.partitions}`",
            topic=contract.topic,
        )
