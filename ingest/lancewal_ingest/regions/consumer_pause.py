"""The pause of the consumer: its partitions deliver no records, and stay ours.

Guarantees
 1. After a long pause a partition that may have missed deletes (``retention.long_pause``) stops before more is read.
 2. All partitions stay paused until this is known of all of them.  If the broker does not answer, it is asked again
    after ``retry_s``.
"""

from __future__ import annotations

from collections.abc import Collection

from lancewal_core.errors import Retry
from lancewal_core.names.ids import Region
from lancewal_ingest.context import IngestContext
from lancewal_ingest.kafka.source import KafkaSource
from lancewal_ingest.observer import Observer
from lancewal_ingest.regions.partitions import Partitions
from lancewal_ingest.retention.long_pause import LongPause


class ConsumerPause:
    """Pause of the consumer; called by the loop's thread only.  ``turn_s``: see ``LongPause``."""

    def __init__(
        self,
        context: IngestContext,
        source: KafkaSource,
        observer: Observer,
        partitions: Partitions,
        *,
        retry_s: float,
        turn_s: float,
    ) -> None:
        self.on = False
        """Whether the consumer is paused now."""
        self._clock = context.clock
        self._source = source
        self._observer = observer
        self._partitions = partitions
        self._retry_s = retry_s
        self._long_pause = LongPause(context, lambda region: source.offsets(region), turn_s)
        self._again_at = float("-inf")

    def set(self, wanted: bool) -> None:
        """Pause or resume the consumer as ``wanted``; called at every turn.

        A pause ends only once no partition may have missed deletes, or those have stopped."""
        if wanted and not self.on:
            consuming = self._partitions.consuming
            self._source.pause(consuming)
            self._long_pause.begin(consuming)
        elif self.on and not wanted:
            if not self._may_end():
                return
            self._source.resume(self._partitions.consuming)
        self.on = wanted

    def opened(self, regions: Collection[Region]) -> None:
        """Note that these partitions were opened again, and begin at their durable positions."""
        self._long_pause.opened(regions)

    def _may_end(self) -> bool:
        """Stop the partitions that may have missed deletes; return whether all partitions are known to be safe."""
        if self._clock.monotonic() < self._again_at:
            return False
        try:
            ours = self._partitions
            lost = self._long_pause.lost({region: ours.open[region].fetched for region in ours.consuming})
        except Retry as error:
            self._again_at = self._clock.monotonic() + self._retry_s
            self._observer.failed("resume", error)
            return False
        for region, problem in (lost or {}).items():
            self._partitions.stop(region, problem)
        return lost == {}  # else check again: partitions that have stopped are not checked any more
