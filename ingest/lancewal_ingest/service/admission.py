"""Hold back further partitions while Kafka is about to delete records of running ones; show the retention horizon."""

from __future__ import annotations

from collections.abc import Mapping

from lancewal_core.names.ids import Region
from lancewal_core.process.clock import Clock
from lancewal_ingest.retention.horizon import AdmissionPolicy
from lancewal_ingest.retention.topic_watch import TopicWatch
from lancewal_ingest.service.metrics import IngestMetrics
from lancewal_ingest.service.worker import IngestWorker


class Admission:
    """Decision whether the worker may open further partitions, from the facts about retention.

    While a running partition is about to lose records, the worker opens none."""

    def __init__(
        self, policy: AdmissionPolicy, worker: IngestWorker, watch: TopicWatch, metrics: IngestMetrics, clock: Clock
    ) -> None:
        self.short: Mapping[Region, float] = {}
        """Running partitions that are about to lose records, and the seconds left for each."""
        self._policy = policy
        self._worker = worker
        self._watch = watch
        self._metrics = metrics
        self._clock = clock

    def decide(self) -> None:
        """Decide by the present facts, tell the worker, and set the metrics."""
        facts = self._watch.retention
        open_ = self._worker.durable
        horizons = {r: left_s for r, left_s in facts.horizons(self._clock.now_ms()).items() if r in open_}
        self._metrics.retention(facts.kept_s, horizons, {r: n for r, n in facts.reserves.items() if r in open_})
        # A stopped partition waits for a person: holding back others would not help it.
        running = {r: left_s for r, left_s in horizons.items() if r not in self._worker.stopped}
        self.short = self._policy.short(running, facts.kept_s)
        self._metrics.retention_short(self.short)
        self._worker.admit(not self.short)
