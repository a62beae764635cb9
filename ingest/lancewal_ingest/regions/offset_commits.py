"""Commit durable positions to the consumer group.  They are only a hint for lag tools, so a failure is only reported.

Guarantees
 1. A committed position was durable, and this process reached it after it last opened the partition.
 2. If the coordinator did not take a position, that position or a newer one is committed when the next commit is due.
 3. The loop does not wait for a silent coordinator, except at the last commit.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from lancewal_core.names.ids import Position, Region
from lancewal_core.process.clock import Clock
from lancewal_core.process.failpoints import point
from lancewal_ingest.kafka.source import KafkaSource
from lancewal_ingest.observer import Observer


class OffsetCommits:
    """Committer of durable positions to the group, every ``every_s``.  Only the loop's thread may call."""

    def __init__(self, clock: Clock, source: KafkaSource, observer: Observer, every_s: float) -> None:
        self._clock = clock
        self._source = source
        self._observer = observer
        self._every_s = every_s
        self._committed_at = clock.monotonic()
        self._reached: dict[Region, Position] = {}
        """Durable positions that are not committed yet."""
        self._told: dict[Region, Position] | None = None
        """Positions of the commit under way; None if no commit is under way."""

    def reached(self, region: Region, position: Position) -> None:
        """Note a partition's durable position, for the next commit."""
        self._reached[region] = position

    def forget(self, region: Region) -> None:
        """Forget the positions of a partition that another process owns."""
        self._reached.pop(region, None)
        if self._told is not None:
            self._told.pop(region, None)

    def commit_due(self, open_: Container[Region]) -> None:
        """Commit the positions of open partitions if it is time.  Does not wait.

        Positions of other partitions are dropped, because their new owners commit them.
        """
        now = self._clock.monotonic()
        if self._told is not None or now - self._committed_at < self._every_s or not self._reached:
            return
        self._committed_at = now
        positions = {r: n for r, n in self._reached.items() if r in open_}
        self._reached.clear()
        if positions:
            self._told = dict(positions)
            with point("offset.commit"):
                self._source.commit_soon(positions, self._answered)

    def commit(self, regions: Iterable[Region]) -> None:
        """Commit the noted positions of these partitions now, and wait for the coordinator."""
        known = {**(self._told or {}), **self._reached}
        positions = {r: known[r] for r in regions if r in known}
        if positions:
            with point("offset.commit"):
                if not self._source.commit(positions):
                    self._failed()

    def _answered(self, taken: bool) -> None:
        told, self._told = self._told or {}, None
        if not taken:
            self._reached = {
                **told,
                **self._reached,
            }  # again when it is due: a quiet partition has nothing newer to tell
            self._failed()

    def _failed(self) -> None:
        self._observer.failed("offset-commit", "the group coordinator did not accept the positions")
