"""How long the oldest record has waited that is not durable, per partition, from the moment a partition is assigned.

A record's time is its producer's word: a backfill has old times.  What a producer cannot touch is where the partition ended
at a look: a record at or above that end came later.

Guarantees
 1. 0 while nothing waits that can be read in Kafka: a quiet topic is fresh, however old its newest record.
 2. No record counts as older than the last look at which the partition ended at or below it.  Of many looks some are
    kept, so that the age is at most a sixteenth too large.
 3. Within that, a record has the age of its own time in Kafka, where that is known: it was consumed, or fetched for its time.
    A time in the future says nothing.  One older than the retention cannot be when the record came; a record that was there
    at the first look then waits since that look.
 4. Without a time the record has waited since it was first seen that something does at this durable position; of a
    partition that is not open yet, and of which nothing is known, since it was assigned.  So who takes over and is stuck is
    seen from then on.

Pure.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from lancewal_core.names.ids import Position, Region
from lancewal_ingest.kafka.source import Positions
from lancewal_ingest.retention.horizon import Oldest

_SHARE = 16
"""Looks that are kept lie at least such a part of the time apart that they span."""


@dataclass(frozen=True, slots=True)
class IngestProgress:
    """How far the worker is, and what it knows of Kafka."""

    waiting: Collection[Region]
    """Partitions that are ours and not open yet."""
    durable: Positions
    """Durable position of each open partition."""
    oldest_consumed_ms: Mapping[Region, int]
    """Kafka's time of the first consumed record of each that is not durable."""
    ends: Positions
    """Position after the last record that can be read, as far as known."""
    oldest: Mapping[Region, Oldest]
    """Records that were fetched for their time."""
    looked_at: float | None = None
    """Monotonic seconds before Kafka was asked for the ends; None before its first answer."""
    retention_s: float = math.nan
    """Seconds that the topic keeps records; infinite, or NaN while unknown."""


_Since = dict[Region, tuple[Position | None, float]]


class _Look(NamedTuple):
    """End of a partition at one look."""

    end: Position
    at: float
    """Monotonic seconds."""


class Freshness:
    """Freshness of each partition, from what is reported at every look; keeps since when things are as they are."""

    def __init__(self) -> None:
        self._since: _Since = {}
        """Position of each partition with waiting records, None before it is open, and since when in monotonic seconds."""
        self._looks: dict[Region, list[_Look]] = {}
        """Looks at each open partition, oldest first.  Of those at or below its durable position only the last one is
        kept."""

    def look(self, now: float, now_ms: int, at: IngestProgress) -> dict[Region, float]:
        """Return the freshness of each partition, in seconds."""
        before, self._since = self._since, {}
        found: dict[Region, float] = {}
        for region in at.waiting:
            found[region] = self._known_for(now, before, region, None)
        self._looks = {r: self._looks_of(r, position, at) for r, position in at.durable.items()}
        for region, position in at.durable.items():
            told_ms = at.oldest_consumed_ms.get(region)
            if told_ms is None and at.ends.get(region, position) <= position:
                found[region] = 0.0
                continue
            known_s = self._known_for(now, before, region, position)
            fetched = at.oldest.get(region)
            if told_ms is None and fetched is not None and fetched.position == position:
                told_ms = fetched.timestamp_ms
            if told_ms is None or told_ms > now_ms:
                found[region] = known_s
                continue
            told_s, first = (now_ms - told_ms) / 1000, next(iter(self._looks[region]), None)
            if first is not None and (first.end <= position or told_s > at.retention_s):
                told_s = min(told_s, now - first.at)
            found[region] = told_s
        return found

    def _looks_of(self, region: Region, position: Position, at: IngestProgress) -> list[_Look]:
        """Guarantee 2."""
        looks, end = self._looks.get(region, []), at.ends.get(region)
        if end is not None and at.looked_at is not None and (not looks or at.looked_at > looks[-1].at):
            if len(looks) > 1 and (at.looked_at - looks[-2].at) * _SHARE < at.looked_at - looks[0].at:
                del looks[-1]
            looks.append(_Look(end, at.looked_at))
        while len(looks) > 1 and looks[1].end <= position:
            del looks[0]
        return looks

    def _known_for(self, now: float, before: _Since, region: Region, position: Position | None) -> float:
        """Guarantee 4.  What waited while it was not open waits still."""
        known = before.get(region)
        since = now if known is None or (known[0] is not None and known[0] != position) else known[1]
        self._since[region] = position, since
        return now - since
