"""Find a pause of the consumer so long that deletes of a compacted topic may be gone, before the consumer goes on.

Opening a region asks the same (``regions.open``).  But a partition that was only paused, by an operator, by full
memory or by a store that did not answer, is not opened again.

Guarantees
 1. A pause shorter than ``ASK_AFTER_S`` asks nobody, and one that tombstones outlive costs one question to the broker.
 2. A turn asks about no further partition after ``turn_s``: the rest waits, paused, for the next turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from lancewal_core.errors import RetentionLost
from lancewal_core.names.ids import Position, Region
from lancewal_ingest.context import IngestContext
from lancewal_ingest.kafka.source import Offsets
from lancewal_ingest.retention.tombstones import lost_tombstones

ASK_AFTER_S = 60.0
"""No topic is meant to keep its tombstones for less."""


class LongPause:
    """``offsets`` asks the broker about a partition."""

    def __init__(self, context: IngestContext, offsets: Callable[[Region], Offsets], turn_s: float) -> None:
        self._context = context
        self._offsets = offsets
        self._turn_s = turn_s
        self._began_ms = 0
        self._read: frozenset[Region] = frozenset()
        """Partitions that were consumed until the pause began, and are to go on there.  Of others their segments tell how long
        nobody has."""
        self._safe: set[Region] = set()

    def begin(self, consumed: Iterable[Region]) -> None:
        """The consumer is paused now."""
        self._began_ms, self._read = self._context.clock.now_ms(), frozenset(consumed)
        self._safe.clear()

    def opened(self, regions: Iterable[Region]) -> None:
        """They begin anew where they are durable: what was read beyond that until the pause began is read again."""
        anew = frozenset(regions)
        self._read -= anew
        self._safe -= anew

    def lost(self, reached: Mapping[Region, Position]) -> dict[Region, RetentionLost] | None:
        """Return which of the partitions that are to go on where they were must not; None: call again, not all are asked.

        ``KafkaUnavailable``, ``StoreUnavailable``: try again later.
        """
        clock = self._context.clock
        paused_s = (clock.now_ms() - self._began_ms) / 1000
        found: dict[Region, RetentionLost] = {}
        if paused_s < ASK_AFTER_S:
            return found
        until = clock.monotonic() + self._turn_s
        tombstones_s: float | None = None
        for region, position in reached.items():
            read = region in self._read
            if region in self._safe or (read and tombstones_s is not None and paused_s <= tombstones_s):
                continue
            if clock.monotonic() > until:
                return found or None
            compaction = self._offsets(region).compaction
            if compaction is None:
                return found
            tombstones_s = compaction.tombstones_s
            index = self._context.indexes.read([region]).get(region)
            problem = lost_tombstones(self._context, index, position, compaction, self._began_ms if read else None)
            if problem is None:
                self._safe.add(region)
            else:
                found[region] = problem
        return found
