"""How old the oldest record is that is not durable, per partition, from the moment a partition is assigned.

Guarantees
 1. 0 while nothing waits that can be read in Kafka: a quiet topic is fresh, however old its newest record.
 2. What waits has the age of the oldest record of it, by that record's own time in Kafka, where that is known: it was
    consumed, or fetched for its time.
 3. Else it has waited since it was first seen that something does at this durable position; of a partition that is not open
    yet, and of which nothing is known, since it was assigned.  So who takes over and is stuck is seen from then on.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from lancewal_core.ids import Position
from lancewal_ingest.retention.horizon import Oldest


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the worker is, and what it knows of Kafka."""

    waiting: Collection[int]
    """Partitions that are ours and not open yet."""
    durable: Mapping[int, Position]
    """Durable position of each open partition."""
    oldest_consumed_ms: Mapping[int, int]
    """Kafka's time of the first consumed record of each that is not durable."""
    ends: Mapping[int, Position]
    """Behind the last record that can be read, as far as known."""
    oldest: Mapping[int, Oldest]
    """Records that were fetched for their time."""


class Freshness:
    """Told at every look what is so; keeps since when."""

    def __init__(self) -> None:
        self._since: dict[int, tuple[Position | None, float]] = {}
        """Where each stands of which something waits, None before it is open, and monotonic seconds."""

    def look(self, now: float, now_ms: int, at: Progress) -> dict[int, float]:
        """Seconds of each partition."""
        before, self._since = self._since, {}
        found: dict[int, float] = {}
        for partition in at.waiting:
            found[partition] = self._known_for(now, before, partition, None)
        for partition, position in at.durable.items():
            consumed_ms = at.oldest_consumed_ms.get(partition)
            if consumed_ms is None and at.ends.get(partition, position) <= position:
                found[partition] = 0.0
                continue
            known_s = self._known_for(now, before, partition, position)
            fetched = at.oldest.get(partition)
            if consumed_ms is None and fetched is not None and fetched.position == position:
                consumed_ms = fetched.timestamp_ms
            found[partition] = known_s if consumed_ms is None else max(0.0, (now_ms - consumed_ms) / 1000)
        return found

    def _known_for(
        self, now: float, before: Mapping[int, tuple[Position | None, float]], partition: int, position: Position | None
    ) -> float:
        """Guarantee 3.  What waited while it was not open waits still."""
        known = before.get(partition)
        since = now if known is None or (known[0] is not None and known[0] != position) else known[1]
        self._since[partition] = position, since
        return now - since
