"""Metrics and log events that every service has.  Each service adds its own.

Guarantees
 1. No payload and no secret: only names, numbers and the messages of our own errors.
 2. A failure that repeats is counted each time and logged at most every ``REPEAT_LOG_S``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from importlib import metadata
from typing import ClassVar

from prometheus_client import CollectorRegistry, Gauge, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.metrics_core import Metric

from lancewal_core.process.clock import Clock
from lancewal_core.process.metric_table import MetricTable, info
from lancewal_core.process.service_events import ServiceEvents

REPEAT_LOG_S = 10.0


class ProcessRegistry(CollectorRegistry):
    """Metrics of a process (memory, processor time, file descriptors, Python's garbage collector) and of its tables.

    A metric that several tables have is exported as one metric family.
    """

    def __init__(self) -> None:
        super().__init__()
        ProcessCollector(registry=self)
        PlatformCollector(registry=self)
        GCCollector(registry=self)

    def collect(self) -> Iterator[Metric]:
        found: dict[str, Metric] = {}
        for family in super().collect():
            same = found.setdefault(family.name, family)
            if same is not family:
                # Tables say the same of the process they share.
                same.samples += [s for s in family.samples if family.type != "info" or s not in same.samples]
        yield from found.values()


class ServiceMetricTable(MetricTable, prefix="lancewal"):
    """Base class for the metric table of every service."""

    build = info("The service that this process is, and its release.", "service", "version")
    table = info(
        "The table that the service works on, with the table's topic and address.",
        *("table", "topic", "topic_id", "uri"),
    )


class ServiceMetrics:
    """Metrics and log events of a service.  ``paused`` is the gauge that shows an operator's pause.  ``table`` is a
    label of the metrics, and a field of every event."""

    service: ClassVar[str]

    def __init__(
        self, clock: Clock, table: str, events: ServiceEvents, shown: ServiceMetricTable, paused: Gauge
    ) -> None:
        self.registry = shown.registry
        self.events = events
        self._clock = clock
        self._table = table
        self._infos = shown
        self._paused = paused
        self.port: int | None = None
        """Port on which the service listens, set by the code that opens it."""
        self._pause: object = None
        self._failure_logged: dict[Hashable, float] = {}

    def called(self, table: str) -> None:
        """Set the table's name in metrics and events, once its contract is known."""
        self._table = table
        self._infos.called(table)
        self.events = type(self.events)(table=table)

    def started(self, contract: int, partitions: int, topic_id: str, uri: str, what: Mapping[str, str]) -> None:
        """Record which service this process is, and which table it works on.

        ``contract`` is the contract version.  ``what`` has fields of the log event: ``topic`` and ``table`` (its
        uuid), and optionally ``group``, ``owner`` and ``runner``.
        """
        try:
            version = metadata.version("lancewal")
        except metadata.PackageNotFoundError:
            version = "unknown"
        self._infos.build.labels(self.service, version).info({})
        self._infos.table.labels(self._table, what["topic"], topic_id, uri).info({})
        self.events.service_started(
            release=version,
            contract_version=contract,
            partitions=partitions,
            topic=what["topic"],
            table_uuid=what["table"],
            group=what.get("group"),
            owner=what.get("owner"),
            runner=what.get("runner"),
            port=self.port,
        )

    def paused_by_operator(self, until: object) -> None:
        """Record until when an operator's pause lasts; None: there is no pause.  A change is logged."""
        self._paused.set(until is not None)
        if until != self._pause:
            self._pause = until
            if until is None:
                self.events.service_resumed()
            else:
                self.events.service_paused(until=until)

    def _to_be_logged(self, failure: Hashable) -> bool:
        """Return whether to log a failure now: at most every ``REPEAT_LOG_S`` (guarantee 2).  If so, the caller must
        log it."""
        now = self._clock.monotonic()
        if now - self._failure_logged.get(failure, float("-inf")) < REPEAT_LOG_S:
            return False
        self._failure_logged[failure] = now
        return True
