"""Ask the broker about the topic at intervals, in a task beside the loop.

A consumer does not notice that a topic was recreated.  It does not learn the end of a paused partition, and learns of
deleted records only when it is too late.

A *look* is one such round of requests.

Steps of one look
 1. Check that the topic is still the topic of the contract.
 2. Ask for the end of each partition, its high watermark, and the first offset that Kafka still has.
 3. Ask how long the topic keeps records, and deletes if it is compacted.  This is asked again every ``CONFIG_S``.
 4. Find the time of the oldest record that is not durable, for each partition that has one.  The time is known if the
    worker has consumed the record, or from the previous look, if nothing became durable since.  Otherwise the record
    itself is fetched.  If no record comes, the time that is known from the previous look stays: it is older.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from lancewal_core.errors import ActionNeeded, KafkaForbidden, KafkaUnavailable
from lancewal_core.names.ids import Position, Region
from lancewal_core.process.clock import Clock
from lancewal_core.process.tasks import Task, Tasks
from lancewal_ingest.kafka.source import DescribedTopics, Positions
from lancewal_ingest.retention.horizon import Oldest, RetentionFacts
from lancewal_kafka.retention import CONFIG_S
from lancewal_kafka.topic import TopicConfig

TOPIC_CHECK_S = 5.0


class WatchedTopics(DescribedTopics, Protocol):
    """Source of facts about topics and about where their partitions end."""

    def ends(self, regions: Collection[Region]) -> dict[Region, Position]:
        """Ask the broker for the position after the last committed record of each partition.  Any thread may call."""

    def high_watermarks(self, regions: Collection[Region]) -> dict[Region, Position]:
        """Ask the broker for the position after the last record of each partition, including open transactions.  Any
        thread may call.
        """

    def highs(self) -> dict[Region, Position]:
        """Return the high watermarks of started partitions as of the last fetches; they may be stale."""


class Retention(Protocol):
    """Source of facts about the topic's retention (``lancewal_kafka.retention``).  Any thread may call."""

    def config(self) -> TopicConfig: ...

    def lows(self, regions: Collection[Region]) -> dict[Region, Position]: ...

    def timestamps(self, positions: Positions) -> dict[Region, int]: ...


class WorkerPositions(Protocol):
    """Positions of the worker's partitions."""

    @property
    def durable(self) -> dict[Region, Position]:
        """Durable position of each open partition."""

    @property
    def oldest_consumed_ms(self) -> dict[Region, int]:
        """Kafka's time, in milliseconds since 1970, of the first consumed record of each partition that is not
        durable."""


@dataclass(frozen=True, slots=True)
class TopicAnswers:
    """Answers of the broker in one look (module docstring)."""

    ends: Positions = field(default_factory=dict)
    """Position after the last readable record of each partition."""
    high_watermarks: Positions = field(default_factory=dict)
    """Position after the last record of each partition, open transactions included."""
    retention: RetentionFacts = field(default_factory=RetentionFacts)
    asked_at: float | None = None
    """Monotonic seconds just before the broker was asked; None before the first look."""


@dataclass(slots=True, eq=False)
class TopicWatch:
    """Watch of one topic."""

    check: Callable[[], None]
    """Function that raises an error if the topic is no longer the topic of the contract (step 1)."""
    source: WatchedTopics
    kept: Retention
    tasks: Tasks
    clock: Clock
    report: Callable[[str, object], None]
    """Function that is told of an error after which the watch goes on: the name of the operation, and the cause."""
    silent: KafkaUnavailable | KafkaForbidden | None = None
    """Why the newest look had no answer; None if it had one."""
    last: TopicAnswers = field(default_factory=TopicAnswers)
    """Answers of the newest look that had some."""
    _retention_s: float = math.nan
    _tombstones_s: float = math.inf
    _retention_again_at: float = float("-inf")
    _asked: Task[TopicAnswers] | None = None
    _again_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._again_at = self.clock.monotonic() + TOPIC_CHECK_S

    def look(self, worker: WorkerPositions) -> None:
        """Begin a look if it is time, and take the results of one that has ended.  Never waits.

        Raises ``TopicReplaced``, ``PartitionCountChanged`` or ``TopicMissing`` if step 1 of the look found that.
        """
        if self._asked is None and self.clock.monotonic() >= self._again_at:
            durable, consumed_ms = worker.durable, worker.oldest_consumed_ms
            self._asked = self.tasks.start(lambda: self._ask(durable, consumed_ms))
        if self._asked is None or not self._asked.done():
            return
        asked, self._asked = self._asked, None
        self._again_at = self.clock.monotonic() + TOPIC_CHECK_S
        try:
            self.last = asked.result()
            self.silent = None
        except (KafkaUnavailable, KafkaForbidden) as error:
            self.silent = error

    def highs(self) -> dict[Region, Position]:
        """Return the newest known high watermark of each partition."""
        fetched, asked = self.source.highs(), self.last.high_watermarks
        return {p: max(fetched.get(p, high), high) for p, high in {**fetched, **asked}.items()}

    def _ask(self, durable: Positions, consumed_ms: Mapping[Region, int]) -> TopicAnswers:
        asked_at = self.clock.monotonic()
        # Step 1
        self.check()
        if not durable:
            facts = RetentionFacts(self._retention_s, tombstones_s=self._tombstones_s)
            return TopicAnswers(retention=facts, asked_at=asked_at)
        # Step 2
        ends, lows = self.source.ends(durable), self.kept.lows(durable)
        # Ask after the ends: a transaction that commits meanwhile then cannot make an end pass its high watermark.
        highs = self.source.high_watermarks(durable)
        try:
            # Step 3
            self._read_retention()
            # Step 4
            behind = {p: at for p, at in durable.items() if ends[p] > at >= lows[p]}
            oldest = self._oldest(behind, consumed_ms)
        except ActionNeeded as error:  # a right is missing: consuming goes on without the figure
            self.report("retention", error)
            return TopicAnswers(ends, highs, RetentionFacts(math.nan, durable, lows), asked_at)
        moved_ms = self._moved(durable)
        facts = RetentionFacts(self._retention_s, durable, lows, oldest, self._tombstones_s, moved_ms)
        return TopicAnswers(ends, highs, facts, asked_at)

    def _read_retention(self) -> None:
        now = self.clock.monotonic()
        if now >= self._retention_again_at:
            config = self.kept.config()
            self._retention_s, self._tombstones_s = config.retention_s, config.tombstones_s
            self._retention_again_at = now + CONFIG_S

    def _moved(self, durable: Positions) -> dict[Region, int]:
        before, now_ms = self.last.retention, self.clock.now_ms()
        return {
            p: before.moved_ms.get(p, now_ms) if before.durable.get(p) == at else now_ms for p, at in durable.items()
        }

    def _oldest(self, behind: Positions, consumed_ms: Mapping[Region, int]) -> dict[Region, Oldest]:
        before, now_ms = self.last.retention.oldest, self.clock.now_ms()
        # A record that is still at the same position was first seen at an earlier look.
        seen = {
            p: now_ms if (was := before.get(p)) is None or was.position != at or was.seen_ms is None else was.seen_ms
            for p, at in behind.items()
        }
        found = {p: Oldest(at, consumed_ms[p], seen[p]) for p, at in behind.items() if p in consumed_ms}
        found |= {
            p: before[p] for p, at in behind.items() if p not in found and p in before and before[p].position == at
        }
        fetched = self.kept.timestamps({p: at for p, at in behind.items() if p not in found})
        found |= {p: Oldest(behind[p], at_ms, seen[p]) for p, at_ms in fetched.items()}
        return {p: before[p] for p in behind if p in before} | found
