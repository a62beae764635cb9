"""Watch which partitions must stop because too many of their keys are in conflict.  The newest table version names
them.

Guarantees
 1. Only the flusher stops a partition, in the commit of a merge (``Conflicts.stopped``), and a person's decision ends
    the stop.  Ingest learns of both within ``POLL_S`` and a few requests.
 2. While the store does not answer, or the merged positions are unknown, the last known answer holds.
 3. The loop never waits for the store.

Only tables whose rows do not tell their partition can have keys in conflict.  For other tables the store is not asked.
A look costs the requests of ``Watermarks.newest_known``.
"""

from __future__ import annotations

from collections.abc import Mapping

from lancewal_core.errors import LancewalError, RegionConflict
from lancewal_core.names.ids import Region
from lancewal_core.process.clock import Clock
from lancewal_core.process.tasks import Task
from lancewal_ingest.context import IngestContext

POLL_S = 5.0


class ConflictWatch:
    """Periodic look at one table's keys in conflict.  Only the loop's thread may call."""

    def __init__(self, context: IngestContext) -> None:
        self.stopped: Mapping[Region, RegionConflict] = {}
        """Partitions of the table that must stop, with the error that says why; as of the newest answer of the
        store."""
        self._context = context
        self._clock: Clock = context.clock
        self._again_at = context.clock.monotonic()
        self._asked: Task[Mapping[Region, RegionConflict]] | None = None

    def look(self) -> None:
        if self._context.contract.rows_tell_partition:
            return
        now = self._clock.monotonic()
        if self._asked is not None and self._asked.done():
            asked, self._asked = self._asked, None
            self._again_at = now + POLL_S
            self.stopped = asked.result()
        elif self._asked is None and now >= self._again_at:
            self._asked = self._context.tasks.start(self._look)

    def _look(self) -> Mapping[Region, RegionConflict]:
        try:
            in_force = self._context.watermarks.newest_known()[1]
        except LancewalError:
            return self.stopped
        if in_force is None:
            return self.stopped
        answers = {region: in_force.why_stopped(region) for region in self._context.contract.regions}
        return {region: error for region, error in answers.items() if error is not None}
