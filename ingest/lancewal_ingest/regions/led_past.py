"""Reopen stopped partitions whose position a command (``lancewal offset ...``) has moved past the cause of the stop.

Guarantees
 1. A stopped partition is opened again if another owner has moved its position and has handed it over.  The opening
    reads its next record, so a partition that must still stop does.
 2. No two processes open a partition in turn without end: each time its position must have grown.
 3. The loop never waits for the store.  Without a stopped partition the store is not asked.

A *look* reads the states of all stopped partitions.  It costs one request for each page that has one
(``RegionStates``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from lancewal_core.errors import LancewalError
from lancewal_core.names.ids import Position, Region
from lancewal_core.process.tasks import Task
from lancewal_core.region.state import RegionState
from lancewal_ingest.regions.partitions import Partitions

Found = Mapping[Region, RegionState | LancewalError | None]


class LedPast:
    """Finder of stopped partitions that a person has moved past their error.  Only the loop's thread may call."""

    def __init__(self, partitions: Partitions, every_s: float) -> None:
        self._partitions = partitions
        self._every_s = every_s
        self._stopped_at: dict[Region, Position] = {}
        """Positions with which later looks compare: the durable position of each stopped partition, or a lower one."""
        self._looked_at = frozenset[Region]()
        """Regions whose states the newest look has read, or reads now."""
        self._asked: Task[Found] | None = None
        self._again_at = 0.0

    def advance(self) -> None:
        """Begin to read the states of the stopped partitions.  When they have been read, reopen the partitions that a
        person has moved past their error.  No segment and no seal may be in flight.
        """
        context, stopped = self._partitions.context, self._partitions.stopped
        known = {region: at for region, at in self._stopped_at.items() if region in stopped}
        at_work = {r: one.memtable.position for r, one in self._partitions.open.items() if r in stopped}
        self._stopped_at = known | at_work
        now = context.clock.monotonic()
        if self._asked is not None:
            if self._asked.done():
                asked, self._asked = self._asked, None
                self._again_at = now + self._every_s
                self._partitions.open_again(self._led_past(asked.result()))
        elif stopped and (now >= self._again_at or not stopped.keys() <= self._looked_at):
            self._looked_at = frozenset(stopped)
            self._asked = context.tasks.start(partial(self._look, list(stopped)))
        elif not stopped:
            self._looked_at = frozenset()

    def _look(self, regions: Collection[Region]) -> Found:
        try:
            return self._partitions.context.states.read_each(regions)
        except LancewalError as error:
            return dict.fromkeys(regions, error)

    def _led_past(self, found: Found) -> list[Region]:
        """Return the regions whose position has grown since they stopped, and which no owner holds now."""
        moved = []
        for region, state in found.items():
            if isinstance(state, LancewalError) or region not in self._partitions.stopped:
                continue
            newest = None if state is None else state.newest
            first, ends = (Position(0), None) if newest is None else (newest.first, newest.next)
            # A partition that could not be opened has moved if it moves after the first look.
            at = self._stopped_at.setdefault(region, first if ends is None else ends)
            if ends is not None and ends > at:
                moved.append(region)
        return moved
