"""Find out, before a paused consumer goes on, whether deletes of a compacted topic may be gone because of the pause.

Opening a region makes the same check (``regions.open``).  But a partition that was only paused, by an operator, by full
memory or by a store that did not answer, is not opened again.

Guarantees
 1. After a pause shorter than ``ASK_AFTER_S`` nobody is asked.  After one shorter than the topic keeps deletes, the
    broker is asked once.
 2. After ``turn_s`` a turn asks about no further partition.  The other partitions stay paused until the next turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from lancewal_core.errors import RetentionLost
from lancewal_core.names.ids import Position, Region
from lancewal_ingest.context import IngestContext
from lancewal_ingest.kafka.source import Offsets
from lancewal_ingest.retention.tombstones import lost_tombstones

ASK_AFTER_S = 60.0
"""Seconds of a pause that need no check: a topic is expected to keep deletes for longer."""


class LongPause:
    """Check of the partitions after a pause.  ``offsets`` asks the broker for the offsets of a partition.

    ``turn_s``: seconds after which a call of ``lost`` asks about no further partition."""

    def __init__(self, context: IngestContext, offsets: Callable[[Region], Offsets], turn_s: float) -> None:
        self._context = context
        self._offsets = offsets
        self._turn_s = turn_s
        self._began_ms = 0
        self._read: frozenset[Region] = frozenset()
        """Partitions that were consumed until the pause began, and go on at the same position.  For other partitions the
        time of their newest segment shows since when nobody has read."""
        self._safe: set[Region] = set()

    def begin(self, consumed: Iterable[Region]) -> None:
        """Note that the consumer is paused from now on; the partitions ``consumed`` were read until now."""
        self._began_ms, self._read = self._context.clock.now_ms(), frozenset(consumed)
        self._safe.clear()

    def opened(self, regions: Iterable[Region]) -> None:
        """Note that these partitions were opened again, and begin at their durable positions."""
        anew = frozenset(regions)
        self._read -= anew
        self._safe -= anew

    def lost(self, reached: Mapping[Region, Position]) -> dict[Region, RetentionLost] | None:
        """Return the partitions whose deletes may be gone, with the error; ``reached`` has the positions to go on at.

        None: ``turn_s`` is over and not all partitions are checked; call again.  ``KafkaUnavailable`` or
        ``StoreUnavailable``: try again later.
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
