"""The positions up to which a strong read that begins now would see, for callers that read no rows.  Repeated calls
are cheap.

If a region's newest generation has ended, the region is visible up to the end of that generation.  If it is OPEN, the
region is visible up to the end of its entries in the log (``wal.tail``).  A strong plan also proves its positions
before it reads; this module does not.  Its positions are never higher than those of a plan, but may be lower for a
moment.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from lancewal_core.names.ids import LogId, Position, Region, Sequence
from lancewal_core.process.clock import Clock
from lancewal_core.region.state import GenerationRecord, GenerationState, RegionState
from lancewal_core.region.states import PageLook, RegionStates
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.wal.tail import LogTail

INDEX_S = 1.0
"""Seconds for which a region state that was read is reused.  A change of the state, such as a hand over, is seen that
much later."""

SELDOM_S = 5.0
"""Seconds after which the state of a busy region has most likely changed."""


@dataclass(slots=True)
class VisiblePositions:
    """Reader of the positions up to which a strong read sees records.  One thread may call."""

    store: ObjectStore
    states: RegionStates
    clock: Clock
    seldom: bool = False
    """Whether calls are many seconds apart.  If so, few requests matter more than few rounds of requests."""
    _read_at: float = float("-inf")
    _known: dict[Region, RegionState] = field(default_factory=dict)
    _tails: dict[LogId, LogTail] = field(default_factory=dict)

    def look(self, wanted: Collection[Region]) -> dict[Region, Position]:
        """Return the visible position of each region in ``wanted`` that a process has claimed."""
        if not wanted:
            return {}
        now = self.clock.monotonic()
        if now - self._read_at >= INDEX_S or not self._known.keys() >= set(wanted):
            look = PageLook.AHEAD
            if self.seldom:
                look = PageLook.AGAIN if now - self._read_at < SELDOM_S else PageLook.SELDOM
            self._known = self.states.read({*self._known, *wanted}, look)  # so the tails of the others' logs stay
            self._read_at = now
        newest = {r: index.newest for r, index in self._known.items() if r in wanted and index.newest is not None}
        open_ = {region: record for region, record in newest.items() if record.state is GenerationState.OPEN}
        self._follow(open_)
        return {
            region: max(record.first, self._tails[record.log].reached.get(region, record.first))
            if region in open_
            else record.next or record.first
            for region, record in newest.items()
        }

    def _follow(self, open_: Mapping[Region, GenerationRecord]) -> None:
        by_log: dict[LogId, dict[Region, Sequence]] = {}  # where the generations begin
        for region, record in open_.items():
            by_log.setdefault(record.log, {})[region] = record.first_sequence
        for log, begin in by_log.items():
            if log not in self._tails:
                self._tails[log] = LogTail(self.store, log)
            self._tails[log].look(begin)
        of_others = {i.newest.log for i in self._known.values() if i.newest is not None}
        for log in self._tails.keys() - by_log.keys() - of_others:
            del self._tails[log]
