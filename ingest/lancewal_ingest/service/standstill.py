"""Partitions that stand still: records wait in Kafka, and the durable position does not move.

The high watermark tells what waits, so records after an open transaction count, though nobody can read them yet.
Every reason shows here, known or not: the partition has stopped, the store takes nothing, the broker delivers
nothing, a transaction is never ended.  Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from lancewal_core.names.ids import Position, Region
from lancewal_ingest.kafka.source import Positions

STANDS_S = 60.0
"""Longer than an ingest at work leaves a record undone."""


@dataclass(frozen=True, slots=True)
class Still:
    """A partition with waiting records."""

    position: Position
    """Durable position of the partition."""
    since: float
    """Monotonic seconds at which it was first seen there while something waited."""
    high: Position
    """Kafka's high watermark."""
    transaction: bool
    """All that waits lies behind the beginning of an open transaction."""

    def text(self, region: Region, now: float) -> str:
        why = ", behind a transaction that is still open" if self.transaction else ""
        waits = f"records up to {self.high} wait{why}"
        return f"partition {region.partition} at {self.position} for {now - self.since:.0f} s ({waits})"


class Standstill:
    """Partitions that do not move; takes their positions at every look, and keeps since when they are there."""

    def __init__(self) -> None:
        self.waiting: dict[Region, Still] = {}
        """Partitions of which records wait."""
        self.now = 0.0
        """Monotonic seconds of the last look."""

    def look(self, now: float, durable: Positions, highs: Positions, ends: Positions) -> None:
        """Note where the partitions are.  ``highs`` are high watermarks, ``ends`` the positions after the last record
        that can be read.

        Nothing is said of a partition without a high watermark.  Without an end all that waits counts as in a
        transaction."""
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
        """Partitions that have stood still for ``STANDS_S``, in one line."""
        texts = [
            one.text(region, self.now)
            for region, one in sorted(self.waiting.items())
            if self.now - one.since >= STANDS_S
        ]
        return f"positions do not move: {', '.join(texts)}" if texts else None
