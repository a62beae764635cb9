"""What ingest shows to people: JSON log lines and Prometheus metrics, from the worker's reports.

Guarantees
 1. No payload and no secret: only names, numbers and the messages of our own errors.
 2. Series of partitions that are no longer ours vanish.
 3. A fault that repeats is counted each time and logged at most every ``REPEAT_LOG_S``.
"""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Mapping, Sequence
from importlib import metadata

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.metrics import MetricWrapperBase

from lancewal_core import paths
from lancewal_core.errors import LancewalError
from lancewal_core.ids import OwnerId, Position, Region
from lancewal_core.process.clock import Clock
from lancewal_core.process.gauges import show_only
from lancewal_core.region.index import GenerationRecord
from lancewal_core.region.snapshot import Snapshot
from lancewal_core.rows.schema import TIMESTAMP
from lancewal_core.store.object_store import ObjectInfo, ObjectStore, PutOutcome
from lancewal_core.table.contract import Contract
from lancewal_core.table.control import Until
from lancewal_core.wal.segment import Entry, Fence
from lancewal_core.wal.writer import Durable
from lancewal_ingest.service.standstill import Still

REPEAT_LOG_S = 10.0
_LATENCY_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_REGION = ("topic", "partition")


class IngestMetrics:
    """The worker's ``Observer``.  ``registry`` holds every metric; nothing is registered globally."""

    def __init__(self, clock: Clock, memory_budget: int) -> None:
        self._clock = clock
        self._log = structlog.get_logger("lancewal.ingest")
        self._failure_logged: dict[str, float] = {}
        self._newest_ms: dict[Region, int] = {}
        self._durable: dict[Region, Position] = {}
        self._regions: Mapping[int, Region] = {}
        self.registry = CollectorRegistry()
        self._rows = self._counter("rows", "Rows made durable.", _REGION)
        self._rejected = self._counter(
            "records_rejected", "Bad records, by kind; each is a dead letter.", (*_REGION, "kind")
        )
        self._segments = self._counter("segments", "WAL segments stored.")
        self._segment_bytes = self._counter("segment_bytes", "Bytes of WAL segments stored.")
        self._sealed = self._counter("generations_sealed", "Generations sealed, hand-overs included.")
        self._flushed = self._counter("generations_flushed", "Generations written as snapshots.")
        self._failures = self._counter(
            "failures", "Passing faults of store or broker; the act is tried again.", ("act",)
        )
        self._fences = self._counter("fences", "Times that another process ended our log.")
        self._losses = self._counter("ownership_losses", "Regions that another owner claimed while we had them open.")
        self._position = self._gauge("durable_position", "Next Kafka offset that is not yet durable.", _REGION)
        self._lag = self._gauge("lag_records", "Offsets between the durable position and Kafka's end.", _REGION)
        self._fresh = self._gauge(
            "freshness_seconds",
            "Wall clock minus Kafka timestamp of the newest durable row; 0 while nothing more is readable in Kafka.",
            _REGION,
        )
        self._standing = self._gauge(
            "standing_seconds",
            "How long the durable position has not moved though records wait, of open transactions too; 0 while none do.",
            _REGION,
        )
        self._stopped = self._gauge("partition_stopped", "1 for a partition that stopped, by kind.", (*_REGION, "kind"))
        self._unflushed = self._gauge("unflushed_generations", "Sealed generations that wait to be flushed.")
        self._open = self._gauge("open_regions", "Regions that this process owns.")
        self._memory = self._gauge("memory_bytes", "Bytes of rows and records in memory, Kafka's queue not included.")
        self._gauge("memory_budget_bytes", "Value of memory_bytes at which consumption pauses.").set(memory_budget)
        self._paused = self._gauge("paused", "1 while consumption is paused because memory is full.")
        self._by_operator = self._gauge(
            "paused_by_operator", "1 while `lancewal pause ingest` holds: nothing is consumed, and lag grows."
        )
        self._pause: Until | None = None
        self._horizon = self._gauge(
            "retention_horizon_seconds",
            "Least time until Kafka deletes a record that is not durable, over the open partitions; +Inf where the topic "
            "retains without end or nothing is open, NaN while unknown.",
        )
        self._horizon.set(math.nan)
        self._reserve = self._gauge(
            "retention_reserve_offsets",
            "Offsets between the first that Kafka still has and the durable position.",
            _REGION,
        )
        self._short: set[int] = set()
        self._append = self._histogram(
            "append_latency_seconds", "From the Kafka timestamp of an entry's last row until the entry is durable."
        )
        self._put = self._histogram("put_seconds", "Duration of the PUT of a WAL segment or fence.")
        self._info = Info("lancewal_ingest_build", "Version and what is ingested.", registry=self.registry)

    def started(self, contract: Contract, group: str, owner: OwnerId) -> None:
        """Say once what this process is."""
        try:
            version = metadata.version("lancewal")
        except metadata.PackageNotFoundError:
            version = "unknown"
        what = {"topic": contract.topic, "table": contract.table_uuid, "group": group, "owner": owner}
        self._info.info({"version": version, "python": platform.python_version(), **what})
        self._log.info("started", version=version, contract=contract.version, partitions=contract.partitions, **what)

    # -- Observer ------------------------------------------------------------------------------------------------

    def opened(self, region: Region, record: GenerationRecord) -> None:
        self._log.info("opened", region=region.name, generation=record.generation, position=record.first)

    def appended(self, entry: Entry) -> None:
        topic, partition = entry.region.topic, str(entry.region.partition)
        self._rows.labels(topic, partition).inc(entry.rows.num_rows)
        for rejected in entry.rejected:
            self._rejected.labels(topic, partition, rejected.kind).inc()
        if entry.rows.num_rows:
            newest = entry.rows.column(TIMESTAMP)[-1].value
            self._newest_ms[entry.region] = newest
            self._append.observe(max(0.0, (self._clock.now_ms() - newest) / 1000))

    def segment(self, stored: Durable, rejected: int) -> None:
        self._segments.inc()
        self._segment_bytes.inc(stored.size)
        if rejected:
            self._log.warning("records rejected", count=rejected, segment=stored.sequence)

    def sealed(self, region: Region, record: GenerationRecord) -> None:
        self._sealed.inc()
        self._log.info("sealed", region=region.name, generation=record.generation, next=record.next)

    def flushed(self, region: Region, snapshot: Snapshot) -> None:
        self._flushed.inc()
        self._log.info(
            "flushed", region=region.name, generation=snapshot.generation, rows=snapshot.rows, object=snapshot.key
        )

    def fenced(self, fence: Fence) -> None:
        self._fences.inc()
        self._log.error("fenced", log=fence.log, segment=fence.sequence, by=fence.writer)

    def ownership_lost(self, region: Region, error: LancewalError) -> None:
        self._losses.inc()
        self._log.warning("ownership lost", region=region.name, reason=str(error))

    def stopped(self, region: Region, error: LancewalError) -> None:
        self._stopped.labels(region.topic, str(region.partition), error.kind).set(1)
        self._log.error("partition stopped", region=region.name, kind=error.kind, reason=str(error), **_where(error))

    def failed(self, act: str, cause: object) -> None:
        self._failures.labels(act).inc()
        now = self._clock.monotonic()
        if now - self._failure_logged.get(act, float("-inf")) >= REPEAT_LOG_S:
            self._failure_logged[act] = now
            kind = cause.kind if isinstance(cause, LancewalError) else "fault"
            self._log.warning("failed, will be tried again", act=act, kind=kind, reason=str(cause))

    def memory(self, used: int, paused: bool) -> None:
        self._memory.set(used)
        self._paused.set(paused)

    def positions(self, regions: Mapping[int, Region], durable: Mapping[int, Position], unflushed: int) -> None:
        self._regions = regions
        now_open = {regions[p]: position for p, position in durable.items()}
        for region in self._durable.keys() - now_open.keys():
            self._newest_ms.pop(region, None)
            for gauge in (self._position, self._lag, self._fresh, self._reserve, self._standing):
                _forget(gauge, region)
        for region, position in now_open.items():
            if self._durable.get(region) != position:
                self._position.labels(region.topic, str(region.partition)).set(position)
        self._durable = now_open
        self._unflushed.set(unflushed)
        self._open.set(len(now_open))

    # -- now and then --------------------------------------------------------------------------------------------

    def refresh(self, highs: Mapping[int, Position], stopped: Mapping[int, LancewalError]) -> None:
        """Set what follows from Kafka's ends and from the clock; ``stopped`` is all that is stopped now."""
        now_ms = self._clock.now_ms()
        # Also those that could not be opened.
        show_only(self._stopped, {(self._regions[p].topic, str(p), error.kind): 1 for p, error in stopped.items()})
        for region, position in self._durable.items():
            labels = (region.topic, str(region.partition))
            high = highs.get(region.partition)
            if high is None:
                continue
            lag = max(0, high - position)
            self._lag.labels(*labels).set(lag)
            newest_ms = self._newest_ms.get(region)
            if newest_ms is not None:
                self._fresh.labels(*labels).set(max(0.0, (now_ms - newest_ms) / 1000) if lag else 0.0)

    def standing(self, waiting: Mapping[int, Still]) -> None:
        """Show how long partitions of which records wait have been where they are."""
        now = self._clock.monotonic()
        for region in self._durable:
            still = waiting.get(region.partition)
            seconds = 0.0 if still is None else now - still.since
            self._standing.labels(region.topic, str(region.partition)).set(seconds)

    def paused_by_operator(self, until: Until | None) -> None:
        """Note the pause in force, or that there is none."""
        self._by_operator.set(until is not None)
        if until != self._pause:
            self._pause = until
            self._log.warning("paused by an operator" if until is not None else "pause has ended", until=until)

    def retention(self, horizons: Mapping[int, float], reserves: Mapping[int, int]) -> None:
        """Seconds until each open partition loses records, and durable offsets that Kafka has still."""
        unknown = any(math.isnan(left_s) for left_s in horizons.values())
        self._horizon.set(math.nan if unknown else min(horizons.values(), default=math.inf))
        for partition, offsets in reserves.items():
            self._reserve.labels(self._regions[partition].topic, str(partition)).set(offsets)

    def retention_short(self, short: Mapping[int, float]) -> None:
        """Partitions that are about to lose records, and the seconds left; logged as they come and go."""
        for partition in sorted(short.keys() - self._short):
            self._log.warning(
                "retention horizon is short: Kafka is about to delete records that are not durable, no further partition "
                "is opened",
                region=self._regions[partition].name,
                horizon_s=round(short[partition], 1),
            )
        for partition in sorted(self._short - short.keys()):
            self._log.info("retention horizon is no longer short", region=self._regions[partition].name)
        self._short = set(short)

    def put_took(self, seconds: float) -> None:
        self._put.observe(seconds)

    def event(self, name: str, **what: object) -> None:
        """One log line of the service itself."""
        self._log.info(name, **what)

    def warning(self, name: str, **what: object) -> None:
        self._log.warning(name, **what)

    # -- details -------------------------------------------------------------------------------------------------

    def _counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        return Counter(f"lancewal_ingest_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
        return Gauge(f"lancewal_ingest_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(f"lancewal_ingest_{name}", text, buckets=_LATENCY_S, registry=self.registry)


def _forget(metric: MetricWrapperBase, region: Region) -> None:
    metric.remove_by_labels({"topic": region.topic, "partition": str(region.partition)})


def _where(error: LancewalError) -> dict[str, object]:
    return {name: value for name, value in error.where.items() if name in ("topic", "partition", "offset", "object")}


class TimedStore:
    """An object store whose PUTs into logs are timed."""

    def __init__(self, store: ObjectStore, metrics: IngestMetrics) -> None:
        self._store = store
        self._metrics = metrics

    def get(self, key: str) -> bytes | None:
        return self._store.get(key)

    def get_range(self, key: str, start: int, end: int) -> bytes | None:
        return self._store.get_range(key, start, end)

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        if not key.startswith(paths.wal_prefix()):
            return self._store.put_if_absent(key, data)
        began = time.perf_counter()
        try:
            return self._store.put_if_absent(key, data)
        finally:
            self._metrics.put_took(time.perf_counter() - began)

    def list(self, prefix: str, limit: int | None = None, after: str | None = None) -> Sequence[ObjectInfo]:
        return self._store.list(prefix, limit, after)

    def delete(self, keys: Sequence[str]) -> None:
        self._store.delete(keys)
