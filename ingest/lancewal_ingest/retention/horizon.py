"""Time until Kafka deletes records that are not durable here, computed from facts of the broker and the worker.

The horizon of a partition is the time until the topic's ``retention.ms`` has passed over the oldest record that is
not durable.  Kafka deletes whole segments, once their newest record is that old, and checks every few minutes.  Kafka
may therefore keep the record longer, but does not delete it earlier because of its age.

In a compacted topic Kafka removes a delete no earlier than ``delete.retention.ms`` after it was cleaned.  The horizon
is at most the rest of that time.  The time counts from when the durable position last moved, or when the oldest record
came, whichever is later.  A process that reads old records all the time loses nothing.

A producer may set any timestamp.  The timestamp may be in the future, or older than the retention when this process
first saw the record as the oldest.  Then it does not show when Kafka deletes the record.  The horizon counts from that
first sight instead, so that a backfill of old times does not hold back other partitions.

The horizon does not cover deletion by ``retention.bytes`` or DeleteRecords.  The *reserve* shows the danger of these:
the number of offsets between the first that Kafka has and the durable position.

Guarantees
 1. No horizon is longer than the retention, which is the horizon of a record that arrives now.
 2. The horizon is 0 if Kafka has already deleted the partition's oldest record that is not durable.
 3. ``retention.ms`` = -1 on a topic that is not compacted: the horizon is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from lancewal_core.names.ids import Position, Region
from lancewal_ingest.kafka.source import Positions

UNLIMITED = math.inf


@dataclass(frozen=True, slots=True)
class Oldest:
    """The oldest record that is not durable: the one at the durable position ``position``, or the first after it."""

    position: Position
    timestamp_ms: int
    """Kafka's timestamp in milliseconds since 1970; a producer may have set any value."""
    seen_ms: int | None = None
    """When this process first saw the record as the oldest, by its own clock; None where only the timestamp counts."""


@dataclass(frozen=True, slots=True)
class RetentionFacts:
    """Facts about the topic, from one round of requests to the broker (``topic_watch``).  Horizons are computed from
    them."""

    retention_s: float = math.nan
    """Seconds that the topic keeps records; infinite, or NaN while unknown."""
    durable: Positions = field(default_factory=dict)
    """Durable position of each partition that the process owns."""
    lows: Positions = field(default_factory=dict)
    """First offset that Kafka still has, for each of these partitions."""
    oldest: Mapping[Region, Oldest] = field(default_factory=dict)
    """By partition, the oldest record that is not durable; without partitions where all is durable or no time is
    known."""
    tombstones_s: float = UNLIMITED
    """Seconds that a compacted topic keeps deletes; infinite for other topics."""
    moved_ms: Mapping[Region, int] = field(default_factory=dict)
    """Time at which each durable position was first seen at its present value, in milliseconds since 1970."""

    def horizons(self, now_ms: int) -> dict[Region, float]:
        """Return for each partition the seconds until Kafka deletes records that are not durable.

        0: Kafka has already deleted some.  NaN: the retention is unknown.
        """
        return {region: self._horizon(region, now_ms) for region in self.durable}

    @property
    def kept_s(self) -> float:
        """Seconds for which the topic keeps every record, deletes included."""
        return min(self.retention_s, self.tombstones_s)

    @property
    def reserves(self) -> dict[Region, int]:
        """Number of durable offsets that Kafka still has, by partition."""
        return {r: max(0, position - self.lows[r]) for r, position in self.durable.items() if r in self.lows}

    def _horizon(self, region: Region, now_ms: int) -> float:
        if self.lows.get(region, 0) > self.durable[region]:
            return 0.0
        found = self.oldest.get(region)
        age_s = 0.0 if found is None else self._age_s(found, now_ms)
        moved_ms = self.moved_ms.get(region)
        unread_s = age_s if moved_ms is None else min(age_s, max(0.0, (now_ms - moved_ms) / 1000))
        if math.isnan(self.retention_s):
            return math.nan
        return max(0.0, min(self.retention_s - age_s, self.tombstones_s - unread_s))

    def _age_s(self, oldest: Oldest, now_ms: int) -> float:
        """Return for how many seconds the record has waited: since its timestamp if that is plausible, else since it
        was seen."""
        seen_ms = oldest.timestamp_ms if oldest.seen_ms is None else oldest.seen_ms
        told_s = (seen_ms - oldest.timestamp_ms) / 1000
        since_ms = oldest.timestamp_ms if 0 <= told_s <= self.retention_s else seen_ms
        return max(0.0, (now_ms - since_ms) / 1000)


def about_to_lose(horizons: Mapping[Region, float], retention_s: float, floor_s: float) -> dict[Region, float]:
    """Return the partitions whose horizon is below ``floor_s``, with their horizons.  Unknown horizons are left out.

    The floor is at most a quarter of the retention.  Otherwise a healthy process would be below it if the retention is
    short.
    """
    floor_s = min(floor_s, retention_s / 4) if math.isfinite(retention_s) else floor_s
    return {region: left_s for region, left_s in horizons.items() if left_s < floor_s}
