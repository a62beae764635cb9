"""Questions to Kafka about the records that a topic keeps, and for how long.  Any thread may ask.  Errors are those
of ``topic``."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from confluent_kafka import Message, TopicPartition

from lancewal_core.errors import ActionNeeded
from lancewal_core.names.ids import Position, Region
from lancewal_core.process.clock import Clock
from lancewal_kafka.clients import Properties
from lancewal_kafka.records import Records, as_records
from lancewal_kafka.reread import lone_consumer
from lancewal_kafka.topic import TopicConfig, TopicInspector
from lancewal_kafka.unpacking import StoredBatches

_PEEK_QUEUE_BYTES = 1 << 20
_PEEK_WAIT_S = 0.1
_PEEK_WAITS = 30
"""Number of polls without a record after which a peek ends.  After a position there may be nothing but transaction
markers."""
_PEEK_BATCH_BYTES_MAX = 16 << 10


class KafkaRetention:
    """Questions about one topic.  ``client`` holds ``bootstrap.servers`` and ``kafka.options``."""

    def __init__(self, client: Mapping[str, str], topic: str, group: str) -> None:
        self._client = client
        self._topic = topic
        self._group = group
        self._inspector = TopicInspector(client, election_s=0)

    def config(self) -> TopicConfig:
        """Return the topic's configuration: how long it keeps records, and tombstones if it is compacted."""
        return self._inspector.configuration(self._topic)

    def stored_batches(self) -> StoredBatches:
        """Return how the topic stores batches.

        Raises ``KafkaForbidden`` if this user may not read the topic's configuration.
        """
        return self.config().stored

    def lows(self, regions: Collection[Region]) -> dict[Region, Position]:
        """Return the first offset that Kafka still has, for each of these partitions."""
        found = self._inspector.begins(self._topic, [region.partition for region in regions])
        return {region: found[region.partition] for region in regions}

    def timestamps(self, positions: Mapping[Region, Position]) -> dict[Region, int]:
        """Return for each position the time of the first committed record at or after it, in milliseconds since 1970.

        A consumer that joins no group reads these records.  Partitions without an answer are left out.
        """
        found = self._peek({region.partition: at for region, at in positions.items()})
        times = {r: found[r.partition].timestamp()[1] for r in positions if r.partition in found}
        return {region: at for region, at in times.items() if at >= 0}

    def records(self, positions: Mapping[int, Position]) -> dict[int, Records]:
        """Return the committed record at each position.  Partitions without a record at their position are left out."""
        return {
            p: as_records([message]) for p, message in self._peek(positions).items() if message.offset() == positions[p]
        }

    def _peek(self, positions: Mapping[int, Position]) -> dict[int, Message]:
        if not positions:
            return {}
        found: dict[int, Message] = {}
        # One batch of each partition is enough, however small.  The broker sends a whole one of the first, whatever its
        # size, and of the others what is whole within their share: without one each answer would be of one partition.
        peek: Properties = {
            "fetch.message.max.bytes": max(1, min(_PEEK_BATCH_BYTES_MAX, _PEEK_QUEUE_BYTES // len(positions))),
            "queued.min.messages": 1,
        }
        with lone_consumer(self._client, self._group, self._topic, _PEEK_QUEUE_BYTES, peek) as consumer:
            consumer.assign([TopicPartition(self._topic, p, at) for p, at in positions.items()])
            waits = 0
            while len(found) < len(positions) and waits < _PEEK_WAITS:
                message = consumer.poll(_PEEK_WAIT_S)
                if message is None or message.error() is not None:
                    waits += 1
                    continue
                partition = message.partition()
                if partition is None or partition in found:
                    continue
                found[partition] = message
                consumer.pause([TopicPartition(self._topic, partition)])
        return found


@dataclass(frozen=True, slots=True)
class Compaction:
    """One partition of a compacted topic: how long the broker keeps its tombstones, and which records are younger."""

    tombstones_s: float
    """Least seconds for which the broker keeps a tombstone (``delete.retention.ms``)."""
    recent: Position
    """Position of the first record whose timestamp is at most ``tombstones_s`` old; ``end`` if there is none."""
    end: Position
    """Position after the partition's last record."""

    def old_beyond(self, position: Position) -> Position:
        """Return the end of the range of offsets, from ``position`` on, in which tombstones may have been removed.

        Such a range ends at the first record that is young enough (``recent``).  If that record lies before
        ``position``, timestamps do not ascend and prove nothing: the range goes to ``end``.  If the range is empty,
        the result is at or below ``position``.
        """
        return self.end if self.recent < position else self.recent


CONFIG_S = 60.0
"""Seconds between two reads of a topic's configuration.  People change the configuration, and rarely."""


@dataclass(slots=True, eq=False)
class KafkaCompaction:
    """Questions about the compaction of one topic.

    A person may have to act before the configuration can be read, for example by granting this user the right.  Then
    ``report`` is called with ``"compaction"`` and the error, and the topic counts as not compacted.
    """

    inspector: TopicInspector
    topic: str
    clock: Clock
    report: Callable[[str, object], None]
    _tombstones_s: float = math.inf
    _again_at: float = float("-inf")

    def of_each(self, highs: Mapping[int, Position]) -> dict[int, Compaction | None]:
        """Return the compaction of each partition; None for each if the topic is not compacted.  ``highs`` are the
        partitions' ends.  Raises ``KafkaUnavailable`` if no broker answers.
        """
        if not highs:
            return {}
        if self.clock.monotonic() >= self._again_at:
            self._tombstones_s = self._ask()
            self._again_at = self.clock.monotonic() + CONFIG_S
        if math.isinf(self._tombstones_s):
            return dict.fromkeys(highs)
        since_ms = self.clock.now_ms() - int(self._tombstones_s * 1000)
        recent = self.inspector.since(self.topic, highs, since_ms)
        ends = {p: high if (first := recent[p]) is None else first for p, high in highs.items()}
        return {p: Compaction(self._tombstones_s, ends[p], high) for p, high in highs.items()}

    def _ask(self) -> float:
        try:
            return self.inspector.configuration(self.topic).tombstones_s
        except ActionNeeded as error:
            self.report("compaction", error)
            return math.inf
