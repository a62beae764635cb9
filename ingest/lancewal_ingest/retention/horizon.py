"""Time until Kafka deletes records that are not durable here: pure figures from what the broker and the worker say.

The horizon of a partition is the time until the topic's ``retention.ms`` has passed over the oldest record that is
not durable.  Kafka deletes whole segments, once their newest record is that old, and looks every few minutes.  The
record may therefore live longer, but never shorter for its age.

In a compacted topic a delete goes ``delete.retention.ms`` after it was cleaned, at the earliest.  The horizon is at
most the rest of that time.  The time counts from when the durable position last moved, or when the oldest record
came, whichever is later.  A process that reads old records all the time loses nothing.

A timestamp is a producer's word.  It may have been older than the retention when this process first saw the record as
the oldest, or in the future.  Then it says nothing about when Kafka deletes the record.  The horizon counts from that
first sight instead, so that a backfill of old times holds back no partition.

The horizon cannot tell when ``retention.bytes`` or somebody's DeleteRecords will strike.  The offsets that are left
between the first one and the durable position (*reserve*) show that.

Guarantees
 1. No horizon is longer than the retention itself: that is what a record has that comes now.
 2. A partition whose oldest record that is not durable is gone already has the horizon 0.
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
    """The record at ``position``, a durable position, or the first one behind it."""

    position: Position
    timestamp_ms: int
    """Kafka's, milliseconds since 1970; a producer may have set it to anything."""
    seen_ms: int | None = None
    """When this process first saw the record as the oldest, by its own clock; None where only the timestamp counts."""


@dataclass(frozen=True, slots=True)
class RetentionFacts:
    """Facts known at one look."""

    retention_s: float = math.nan
    """Seconds that the topic keeps records; infinite, or NaN while unknown."""
    durable: Positions = field(default_factory=dict)
    """Durable position of each partition that the process owns."""
    lows: Positions = field(default_factory=dict)
    """First offset that Kafka still has, for each of these partitions."""
    oldest: Mapping[Region, Oldest] = field(default_factory=dict)
    """Partitions with a record that is not durable, as far as its time is known."""
    tombstones_s: float = UNLIMITED
    """Seconds that a compacted topic keeps deletes; infinite for others."""
    moved_ms: Mapping[Region, int] = field(default_factory=dict)
    """When each durable position was first seen where it is, milliseconds since 1970."""

    def horizons(self, now_ms: int) -> dict[Region, float]:
        """Return the seconds until Kafka deletes records of each partition that are not durable.

        0: Kafka has already deleted some.  NaN: the retention is unknown.
        """
        return {region: self._horizon(region, now_ms) for region in self.durable}

    @property
    def kept_s(self) -> float:
        """Seconds that the topic keeps everything at least."""
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
        """Seconds that the record has waited: since its timestamp where that can be true, else since it was seen."""
        seen_ms = oldest.timestamp_ms if oldest.seen_ms is None else oldest.seen_ms
        told_s = (seen_ms - oldest.timestamp_ms) / 1000
        since_ms = oldest.timestamp_ms if 0 <= told_s <= self.retention_s else seen_ms
        return max(0.0, (now_ms - since_ms) / 1000)


@dataclass(frozen=True, slots=True)
class AdmissionPolicy:
    """Whether a process may take more work: not while a partition that it has is about to lose records.

    ``floor_s`` holds at most for ``share`` of the retention: with a short retention a healthy process would never be
    above it.
    """

    floor_s: float
    share: float = 0.25

    def floor(self, retention_s: float) -> float:
        """The horizon below which nothing more is taken."""
        return min(self.floor_s, retention_s * self.share) if math.isfinite(retention_s) else self.floor_s

    def short(self, horizons: Mapping[Region, float], retention_s: float) -> dict[Region, float]:
        """Partitions whose horizon is below the floor; unknown ones are not."""
        floor = self.floor(retention_s)
        return {region: left_s for region, left_s in horizons.items() if left_s < floor}
