"""The pause of the consumer: its partitions deliver no records, and stay ours.

Deletes of a compacted topic may be gone after a long pause.  Opening a region checks that (``open``).  But a partition
that was only paused, by an operator, by full memory or by a store that did not answer, is not opened again.

Guarantees
 1. After a long pause a partition that may have missed deletes (``retention.tombstones``) stops before more is read.
 2. All partitions stay paused until this is known of all of them.  If the broker does not answer, it is asked again
    after ``WorkerLimits.retry_s``.
 3. After a pause shorter than ``ASK_AFTER_S`` the broker is not asked.  After a pause shorter than the topic keeps
    deletes, it is asked once for all partitions that were consumed when the pause began.
 4. After ``WorkerLimits.open_s`` a turn asks about no further partition.  Other partitions stay paused until the next
    turn.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from lancewal_core.errors import RetentionLost, Retry
from lancewal_core.names.ids import Region
from lancewal_ingest.context import IngestContext
from lancewal_ingest.kafka.source import KafkaSource
from lancewal_ingest.observer import Observer
from lancewal_ingest.regions.partitions import Partitions
from lancewal_ingest.regions.policy import WorkerLimits
from lancewal_ingest.retention.tombstones import lost_tombstones

ASK_AFTER_S = 60.0
"""Seconds of a pause that need no check: a topic is expected to keep deletes for longer."""


@dataclass(slots=True, eq=False)
class ConsumerPause:
    """Pause of the whole consumer.  Only the loop's thread may call."""

    context: IngestContext
    source: KafkaSource
    observer: Observer
    partitions: Partitions
    limits: WorkerLimits
    on: bool = False
    """Whether the consumer is paused now."""
    _again_at: float = float("-inf")
    _began_ms: int = 0
    _read: frozenset[Region] = frozenset()
    """Partitions that were consumed until the pause began, and continue at the same position.  For other partitions the
    time of their newest segment shows since when no process has read them."""
    _safe: set[Region] = field(default_factory=set)
    """Partitions that have missed no deletes."""

    def set(self, wanted: bool) -> None:
        """Pause or resume the consumer, as ``wanted`` says.  The loop calls this in every pass.

        A pause ends only when each partition either has certainly missed no deletes, or has stopped.
        """
        if wanted and not self.on:
            consuming = self.partitions.consuming
            self.source.pause(consuming)
            self._began_ms, self._read = self.context.clock.now_ms(), frozenset(consuming)
            self._safe.clear()
        elif self.on and not wanted:
            if not self._may_end():
                return
            self.source.resume(self.partitions.consuming)
        self.on = wanted

    def opened(self, regions: Collection[Region]) -> None:
        """Record that these partitions were reopened at their durable positions."""
        self._read = self._read.difference(regions)
        self._safe.difference_update(regions)

    def _may_end(self) -> bool:
        """Stop the partitions that may have missed deletes; return whether all partitions are known to be safe."""
        clock = self.context.clock
        if clock.monotonic() < self._again_at:
            return False
        try:
            lost = self._lost()
        except Retry as error:
            self._again_at = clock.monotonic() + self.limits.retry_s
            self.observer.failed("resume", error)
            return False
        for region, problem in (lost or {}).items():
            self.partitions.stop(region, problem)
        return lost == {}  # else check again: partitions that have stopped are not checked any more

    def _lost(self) -> dict[Region, RetentionLost] | None:
        """Return the error of each consuming partition whose deletes Kafka may have removed during the pause.

        Empty: no partition has missed deletes.  None: the check took longer than ``WorkerLimits.open_s``, and has found
        no such partition so far.  Raises ``KafkaUnavailable`` or ``StoreUnavailable`` if broker or store does not
        answer.
        """
        context, clock = self.context, self.context.clock
        paused_s = (clock.now_ms() - self._began_ms) / 1000
        found: dict[Region, RetentionLost] = {}
        if paused_s < ASK_AFTER_S:
            return found
        until = clock.monotonic() + self.limits.open_s
        tombstones_s: float | None = None
        for region in self.partitions.consuming:
            read = region in self._read
            if region in self._safe or (read and tombstones_s is not None and paused_s <= tombstones_s):
                continue
            if clock.monotonic() > until:
                return found or None
            compaction = self.source.offsets(region).compaction
            if compaction is None:
                return found
            tombstones_s = compaction.tombstones_s
            state, position = context.states.read([region]).get(region), self.partitions.open[region].fetched
            began_ms = self._began_ms if read else None
            problem = lost_tombstones(context, region, state, position, compaction, began_ms)
            if problem is None:
                self._safe.add(region)
            else:
                found[region] = problem
        return found
