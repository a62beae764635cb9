"""Find partitions that do not move: records wait in Kafka, and the durable position stays the same.

The high watermark shows whether records wait, so records after an open transaction count, although nobody can read
them yet.  Any cause shows here: a stopped partition, a store that takes nothing, a broker that delivers nothing, a
transaction that is never ended.  The module has no side effects.
"""

from __future__ import annotations

from dataclasses import dataclass

from lancewal_core.names.ids import Position, Region
from lancewal_ingest.kafka.source import Positions

STANDS_S = 60.0
"""Seconds without movement that count as a problem: a healthy ingest makes every record durable sooner."""


@dataclass(frozen=True, slots=True)
class Still:
    """A partition with waiting records."""

    position: Position
    """Durable position of the partition."""
    since: float
    """Monotonic seconds at which records were first seen to wait at this position."""
    high: Position
    """Kafka's high watermark."""
    transaction: bool
    """Whether all waiting records come after the beginning of an open transaction, so that nobody can read them yet."""

    def text(self, region: Region, now: float) -> str:
        why = ", after a transaction that is still open" if self.transaction else ""
        waits = f"records up to {self.high} wait{why}"
        return f"partition {region.partition} at {self.position} for {now - self.since:.0f} s ({waits})"


class Standstill:
    """Finder of partitions that do not move.  It remembers how long each partition has been at its position."""

    def __init__(self) -> None:
        self.waiting: dict[Region, Still] = {}
        """Partitions with waiting records."""
        self.now = 0.0
        """Monotonic time in seconds of the newest call of ``look``."""

    def look(self, now: float, durable: Positions, highs: Positions, ends: Positions) -> None:
        """Note the durable positions at the monotonic time ``now``.

        ``highs`` are high watermarks.  ``ends`` are the positions after the last readable records.  A partition without
        a high watermark is left out.  If a partition has no end, all its waiting records count as part of an open
        transaction.
        """
        before, self.waiting, self.now = self.waiting, {}, now
        for region, position in durable.items():
            high, end = highs.get(region, position), ends.get(region, position)
            if high <= position:
                continue
            known = before.get(region)
            since = now if known is None or known.position != position else known.since
            self.waiting[region] = Still(position, since, high, transaction=end <= position)

    @property
    def problem(self) -> str | None:
        """A line that names the partitions that have not moved for ``STANDS_S``; None if there are none."""
        texts = [
            one.text(region, self.now)
            for region, one in sorted(self.waiting.items())
            if self.now - one.since >= STANDS_S
        ]
        return f"positions do not move: {', '.join(texts)}" if texts else None
