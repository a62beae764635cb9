"""The pause of the consumer: its partitions deliver nothing, and stay ours.

Guarantees
 1. A partition that has lost something in a long pause (``retention.long_pause``) stops before anything more is read of it.
 2. While that is not known of all, or the broker does not answer, all stay paused; it is asked again after ``retry_s``.
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
    """Called by the loop's thread only.  ``turn_s`` is ``LongPause``'s."""

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
        """The consumer is told so."""
        self._clock = context.clock
        self._source = source
        self._observer = observer
        self._partitions = partitions
        self._retry_s = retry_s
        self._long_pause = LongPause(context, lambda region: source.offsets(region), turn_s)
        self._again_at = float("-inf")

    def set(self, wanted: bool) -> None:
        """Begin a pause, or end it if that may be; called at every turn."""
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
        """Note that these partitions begin again where they are durable."""
        self._long_pause.opened(regions)

    def _may_end(self) -> bool:
        """Stop what has lost something; False if that is not known of all yet."""
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
        return lost == {}  # else again: what has stopped is not asked about any more
