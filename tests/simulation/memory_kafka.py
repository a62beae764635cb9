"""Kafka in memory: a topic, a consumer group, and members that satisfy ingest's ``KafkaSource``.

Offsets have gaps (compaction, aborted records), and markers may follow the last record.  A topic
with ``tombstones_s`` is compacted: ``Partition.clean`` removes what newer records of the same Kafka key supersede, and old
tombstones.  Assignment is cooperative: a
member gives up what is not meant for it at its next poll, inside which the listener is called; only then can another get
it.  A member that does not poll for long is *expelled*: its partitions go to others at once, and it learns that at its
next poll (``lost``), or some time later, where it reaches the partitions and not the coordinator; until then it believes
that it owns them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from lancewal_core.errors import KafkaUnavailable, LancewalError
from lancewal_core.names.ids import Position, Region, TopicId
from lancewal_ingest.kafka.source import Offsets, Polled, PollListener, Positions
from lancewal_kafka.records import Records
from lancewal_kafka.retention import Compaction
from lancewal_kafka.topic import TopicFacts
from tests.simulation.oracle import Record
from tests.twins.scheduler import Scheduler
from tests.twins.sim_clock import EPOCH_MS


@dataclass(slots=True)
class Partition:
    """The log of one partition; ``high`` is the position behind everything, markers included.

    Retention has removed what lies below ``low``, and ``lost`` are gone with a tail; ``records`` keeps them, for those who
    want to know what they were.
    """

    records: list[Record] = field(default_factory=list)
    high: int = 0
    low: int = 0
    lost: set[int] = field(default_factory=set)
    """Offsets of records that Kafka has lost with its tail.  No record comes at them again, so that it stays clear what a row
    was made of."""
    survived: set[int] = field(default_factory=set)
    """Of these, those that are durable all the same: somebody had consumed them."""
    cleaned: set[int] = field(default_factory=set)
    """Offsets of records that compaction has removed.  What they did to a row stays done."""
    _reached: int = 0
    """Where the partition ended before it lost its tail."""

    @property
    def end(self) -> int:
        """The position behind the last record that Kafka has."""
        return next((r.offset + 1 for r in reversed(self.records) if r.offset not in self.lost), 0)

    def between(self, first: int, next_: int) -> list[Record]:
        """Records with offsets in [first, next), but for what is lost for good."""
        gone = self.lost - self.survived
        return [r for r in self.records if first <= r.offset < next_ and r.offset not in gone]

    def held(self, first: int, next_: int) -> list[Record]:
        """Those of them that Kafka has."""
        return [r for r in self.between(first, next_) if r.offset not in self.lost and r.offset not in self.cleaned]

    def clean(self, tombstones_before_ms: int) -> None:
        """Keep the newest record of each Kafka key, and of those no tombstone that is older."""
        newest = {r.key: r.offset for r in self.held(0, self.high)}
        for r in self.held(0, self.high):
            if newest[r.key] != r.offset or (r.value is None and r.timestamp < tombstones_before_ms):
                self.cleaned.add(r.offset)

    def lose_tail(self, high: int, durable: int) -> None:
        """An unclean leader election: the partition ends at ``high`` now; what lies below ``durable`` is so."""
        self._reached = max(self._reached, self.high)
        tail = {r.offset for r in self.held(high, self.high)}
        self.lost |= tail
        self.survived |= {offset for offset in tail if offset < durable}
        self.high = high

    def grow_again(self) -> None:
        """It ends where it ended before it lost its tail, without a record there."""
        self.high = max(self.high, self._reached)


class MemoryTopic:
    def __init__(self, name: str, topic_id: str, partitions: int) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = [Partition() for _ in range(partitions)]
        self.tombstones_s: float | None = None
        """For how long a compacted topic keeps tombstones; None: it is not compacted."""

    def append(self, partition: int, make: Callable[[int], Record], gap: int = 0, markers: int = 0) -> Record:
        """A record behind ``gap`` missing offsets, followed by ``markers``."""
        log = self.partitions[partition]
        log.grow_again()
        record = make(log.high + gap)
        log.records.append(record)
        log.high = record.offset + 1 + markers
        return record


class MemoryGroup:
    """The coordinator.  ``committed_check`` is told each position that it takes."""

    def __init__(self, partitions: int, committed_check: Callable[[int, int], None]) -> None:
        self.target: dict[int, str | None] = dict.fromkeys(range(partitions))
        self.owner: dict[int, str | None] = dict.fromkeys(range(partitions))
        self.members: set[str] = set()
        self.committed: dict[int, int] = {}
        self.hears_at: dict[str, float] = {}
        """When a member that was expelled hears of it, where not at once."""
        self._check = committed_check

    def expel(self, member: str, hears_at: float = 0.0) -> None:
        """The member's session timed out; it cannot reach the coordinator, and so not know it, before ``hears_at``."""
        self.members.discard(member)
        self.hears_at[member] = hears_at
        for assigned in (self.owner, self.target):
            for partition in [p for p, m in assigned.items() if m == member]:
                assigned[partition] = None

    def balance(self, rng: Random) -> None:
        """Every partition that is meant for nobody goes to some member."""
        for partition, member in self.target.items():
            if member is None and self.members:
                self.target[partition] = rng.choice(sorted(self.members))

    def commit(self, member: str, positions: Mapping[int, int]) -> bool:
        if member not in self.members:
            return False
        for partition, position in positions.items():  # whoever is a member may commit any partition
            self._check(partition, position)
            self.committed[partition] = position
        return True


class MemorySource:
    """One member's consumer."""

    def __init__(
        self,
        member: str,
        topic: MemoryTopic,
        group: MemoryGroup,
        scheduler: Scheduler,
        rng: Random,
        unavailable: Callable[[], bool],
    ) -> None:
        self.member = member
        self.delivered = 0
        """Records so far."""
        self._topic = topic
        self._regions = [Region(topic.name, TopicId(topic.topic_id), p) for p in range(len(topic.partitions))]
        self._group = group
        self._scheduler = scheduler
        self._rng = rng
        self._unavailable = unavailable
        self._listener: PollListener | None = None
        self._owned: set[int] = set()
        self._positions: dict[int, int] = {}
        """Of started partitions."""
        self._paused: set[int] = set()

    def subscribe(self, listener: PollListener) -> None:
        self._listener = listener
        self._group.members.add(self.member)

    def poll(self, records_max: int, timeout_s: float, gather_s: float = 0.0) -> Polled:
        self._scheduler.switch("kafka.poll")
        self._rebalance()
        if not self._anything():
            self._scheduler.wait(self._anything, timeout_s, "kafka.poll waits")
        delivered: dict[int, Records] = {}
        for partition, position in self._positions.items():
            if partition in self._paused:
                continue
            log = self._topic.partitions[partition]
            if position < log.low and self.member not in self._group.members:
                continue  # others have made durable what retention took; the error comes after the news that it is lost
            waiting = log.held(max(position, log.low), log.high)
            taken = waiting[: self._rng.randint(0, min(len(waiting), records_max, 12))]
            if taken:
                delivered[partition] = _records(taken)
                self.delivered += len(taken)
                self._positions[partition] = taken[-1].offset + 1
            if len(taken) == len(waiting) and self._rng.random() < 0.7:
                self._positions[partition] = log.high
        return Polled(
            {self._regions[p]: records for p, records in delivered.items()},
            {self._regions[p]: Position(n) for p, n in self._positions.items()},
        )

    def start(self, region: Region, position: Position) -> None:
        if region.partition in self._owned:
            self._positions[region.partition] = position
            self._paused.discard(region.partition)

    def stop(self, region: Region) -> None:
        self._positions.pop(region.partition, None)

    def pause(self, regions: Sequence[Region]) -> None:
        self._paused.update(region.partition for region in regions)

    def resume(self, regions: Sequence[Region]) -> None:
        self._paused.difference_update(region.partition for region in regions)

    def facts(self, topic: str) -> TopicFacts:
        self._ask("describe the topic")
        return TopicFacts(self._topic.topic_id, len(self._topic.partitions))

    def offsets(self, region: Region) -> Offsets:
        self._ask("list offsets")
        return self._offsets(region)

    def offsets_of_each(self, regions: Collection[Region]) -> dict[Region, Offsets | LancewalError]:
        self._ask("list offsets")
        return {region: self._offsets(region) for region in regions}

    def ends(self, regions: Collection[Region]) -> dict[Region, Position]:
        self._ask("list offsets")
        return {region: Position(self._topic.partitions[region.partition].high) for region in regions}

    def commit_soon(self, positions: Positions, done: Callable[[bool], None]) -> None:
        done(self.commit(positions))

    def commit(self, positions: Positions) -> bool:
        self._scheduler.switch("kafka.commit")
        told = {region.partition: position for region, position in positions.items()}
        return not self._unavailable() and self._group.commit(self.member, told)

    def close(self) -> None:
        self._scheduler.switch("kafka.close")
        self._group.expel(self.member)

    def _offsets(self, region: Region) -> Offsets:
        log, tombstones_s = self._topic.partitions[region.partition], self._topic.tombstones_s
        low, high = Position(log.low), Position(log.high)
        if tombstones_s is None:
            return Offsets(low, high)
        since_ms = EPOCH_MS + (self._scheduler.now - tombstones_s) * 1000
        recent = next((r.offset for r in log.held(log.low, log.high) if r.timestamp >= since_ms), log.high)
        return Offsets(low, high, Compaction(tombstones_s, Position(recent), high))

    def _ask(self, what: str) -> None:
        self._scheduler.switch(f"kafka.{what}")
        if self._unavailable():
            raise KafkaUnavailable(f"could not {what}")

    def _anything(self) -> bool:
        if not self._deaf and (self.member not in self._group.members or self._meant() != self._owned):
            return True
        return any(n < self._topic.partitions[p].end for p, n in self._positions.items() if p not in self._paused)

    @property
    def _deaf(self) -> bool:
        """Expelled, without a way to hear of it: it reads on from partitions that went to others."""
        group = self._group
        return self.member not in group.members and self._scheduler.now < group.hears_at.get(self.member, 0.0)

    def _meant(self) -> set[int]:
        """What this member owns after its next poll, as things stand."""
        group = self._group
        return {
            p for p, member in group.target.items() if member == self.member and group.owner[p] in (None, self.member)
        }

    def _rebalance(self) -> None:
        listener = self._listener
        if listener is None:
            return
        if self._deaf:
            return
        if self.member not in self._group.members:
            lost, self._owned = sorted(self._owned), set()
            self._forget(lost)
            if lost:
                listener.lost([self._regions[p] for p in lost])
            self._group.members.add(self.member)
            return
        revoked = sorted(self._owned - self._meant())
        if revoked:
            listener.revoked([self._regions[p] for p in revoked])
            self._owned.difference_update(revoked)
            self._forget(revoked)
            for partition in revoked:
                if self._group.owner[partition] == self.member:
                    self._group.owner[partition] = None
        assigned = sorted(self._meant() - self._owned)
        if assigned:
            self._owned.update(assigned)
            for partition in assigned:
                self._group.owner[partition] = self.member
            listener.assigned([self._regions[p] for p in assigned])

    def _forget(self, partitions: Sequence[int]) -> None:
        for partition in partitions:
            self._positions.pop(partition, None)
            self._paused.discard(partition)


def _records(taken: Sequence[Record]) -> Records:
    return Records(
        [r.offset for r in taken],
        [r.timestamp for r in taken],
        [r.key for r in taken],
        [r.value for r in taken],
        [r.headers for r in taken],
    )
