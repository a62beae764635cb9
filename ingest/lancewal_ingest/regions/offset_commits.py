"""Durable positions committed to the consumer group: a hint for lag tools, so a failure is only noted.

Guarantees
 1. A committed position was durable, and this process has reached it since it opened the partition last.
 2. A position that the coordinator did not take is committed again when the next commit is due, unless a newer one is.
 3. The loop does not wait for a coordinator that says nothing: commits run beside it, except the last one.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from lancewal_core.names.ids import Position, Region
from lancewal_core.process.clock import Clock
from lancewal_core.process.failpoints import point
from lancewal_ingest.kafka.source import KafkaSource
from lancewal_ingest.observer import Observer


class OffsetCommits:
    """Called by the loop's thread only."""

    def __init__(self, clock: Clock, source: KafkaSource, observer: Observer, every_s: float) -> None:
        self._clock = clock
        self._source = source
        self._observer = observer
        self._every_s = every_s
        self._committed_at = clock.monotonic()
        self._reached: dict[Region, Position] = {}
        """Durable positions that the group has not been told."""
        self._told: dict[Region, Position] | None = None
        """Positions of the commit under way."""

    def reached(self, region: Region, position: Position) -> None:
        """In place of whatever was noted of the partition before."""
        self._reached[region] = position

    def forget(self, region: Region) -> None:
        """Forget a partition that another owner has."""
        self._reached.pop(region, None)
        if self._told is not None:
            self._told.pop(region, None)

    def commit_due(self, open_: Container[Region]) -> None:
        """Now and then, of the partitions that are open: what others have now is theirs to tell."""
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
        """Commit the offsets of these partitions, at once; waits for the coordinator."""
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
        self._observer.failed("offset-commit", "the group coordinator did not take it")
