"""Freshness of each assigned partition: how long its oldest record that is not durable has waited, in seconds.

A producer may set any timestamp, and a backfill has old ones.  But a producer cannot change where the partition ended
when Kafka was asked: a record at or after that end came later.  Each answer of Kafka about a partition's end is a
*look*.

Guarantees
 1. Freshness is 0 while no readable record waits in Kafka, however old the newest record is.
 2. No record counts as older than the last look at which the partition ended at or before it.  Only some of the looks
    are kept, so the age may be a sixteenth too large.
 3. Within that bound, the age counts from the record's timestamp, if it is known because the record was consumed or
    fetched.  A timestamp in the future is ignored.  A timestamp older than the retention cannot be the time of arrival.
    A record that was there at the first look then counts from that look.
 4. Without a timestamp, the age counts from when a record was first seen to wait at this durable position.  For a
    partition that is not open yet it counts from the assignment.  So a process that cannot open a partition shows.

The module has no side effects, and reads no clock.
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
"""Bounds the number of looks.  A new look replaces the newest one, if it came less than 1/16 of the looks' whole time
span after the look before that one."""


@dataclass(frozen=True, slots=True)
class IngestProgress:
    """Positions of the worker's partitions, with facts about their records in Kafka."""

    waiting: Collection[Region]
    """Partitions that are assigned to this process and not open yet."""
    durable: Positions
    """Durable position of each open partition."""
    oldest_consumed_ms: Mapping[Region, int]
    """Kafka's time of the first consumed record of each partition that is not durable, in milliseconds since 1970."""
    ends: Positions
    """Position after the last readable record of each partition, if known."""
    oldest: Mapping[Region, Oldest]
    """Oldest record of each partition that is not durable, if its time was found out."""
    looked_at: float | None = None
    """Monotonic seconds before Kafka was asked for the ends; None before its first answer."""
    retention_s: float = math.nan
    """Seconds that the topic keeps records; infinite, or NaN while unknown."""


_Since = dict[Region, tuple[Position | None, float]]


class _Look(NamedTuple):
    """End of a partition in Kafka at one look."""

    end: Position
    at: float
    """Monotonic time in seconds before Kafka was asked."""


class Freshness:
    """Computation of freshness.  It remembers earlier looks, and since when records wait at each position."""

    def __init__(self) -> None:
        self._since: _Since = {}
        """For each partition with waiting records: its durable position (None before it is open), and the monotonic
        seconds since when they wait there."""
        self._looks: dict[Region, list[_Look]] = {}
        """Looks at each open partition, oldest first.  Of the looks with an end at or before the durable position only
        the last is kept."""

    def look(self, now: float, now_ms: int, at: IngestProgress) -> dict[Region, float]:
        """Return the freshness of each partition in seconds; ``now`` is monotonic, ``now_ms`` milliseconds since
        1970."""
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
        """Return the looks to keep for a partition, with the newest look added (guarantee 2)."""
        looks, end = self._looks.get(region, []), at.ends.get(region)
        if end is not None and at.looked_at is not None and (not looks or at.looked_at > looks[-1].at):
            if len(looks) > 1 and (at.looked_at - looks[-2].at) * _SHARE < at.looked_at - looks[0].at:
                del looks[-1]
            looks.append(_Look(end, at.looked_at))
        while len(looks) > 1 and looks[1].end <= position:
            del looks[0]
        return looks

    def _known_for(self, now: float, before: _Since, region: Region, position: Position | None) -> float:
        """Return for how many seconds records are known to wait at ``position`` (guarantee 4).

        If the partition was not open before, they wait since the assignment."""
        known = before.get(region)
        since = now if known is None or (known[0] is not None and known[0] != position) else known[1]
        self._since[region] = position, since
        return now - since
