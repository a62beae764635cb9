"""Observer that turns the worker's reports into JSON log lines and Prometheus metrics.

Guarantees
 1. The guarantees of ``ServiceMetrics`` hold.
 2. Series of partitions that are no longer ours are removed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
from prometheus_client import CollectorRegistry

from lancewal_core.errors import LancewalError, Problem
from lancewal_core.names.ids import Region
from lancewal_core.process.clock import Clock
from lancewal_core.process.library_errors import without_secrets
from lancewal_core.process.metric_table import show_only
from lancewal_core.process.service_events import place_of
from lancewal_core.process.service_metrics import ProcessRegistry, ServiceMetrics
from lancewal_core.region.flushes.manifest import FlushedGeneration
from lancewal_core.region.state import GenerationRecord
from lancewal_core.rows.column_types import format_type
from lancewal_core.rows.schema import OP, TIMESTAMP, Op
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.store.observed import ObservedStore
from lancewal_core.wal.entry import Entry, RejectedOffset
from lancewal_core.wal.segment import Fence
from lancewal_core.wal.writer import Durable
from lancewal_ingest.decode.naming import OtherName
from lancewal_ingest.event_table import IngestEvents
from lancewal_ingest.kafka.source import Positions
from lancewal_ingest.kafka.statistics import NOTHING_TOLD, ClientFigures
from lancewal_ingest.observer import Claim
from lancewal_ingest.service.metric_table import IngestMetricTable
from lancewal_ingest.service.recent_records import RecentRecords
from lancewal_ingest.service.standstill import Still

OTHER_NAMES_MAX = 100
"""Largest number of names, other than current names of columns, that have a metric series of their own: producers
choose these names."""
NAME_LENGTH_MAX, REASON_LENGTH_MAX = 100, 1000
"""Largest number of characters of a field's name in metrics and log lines, and of the reason why it becomes no
column."""
FURTHER = "..."
"""Value of the label ``field`` for all names without a series of their own."""


class IngestMetrics(ServiceMetrics):
    """``Observer`` of one table's worker.  ``registry`` holds every metric; nothing is registered globally."""

    service = "ingest"

    def __init__(
        self,
        clock: Clock,
        table: str,
        memory_budget: int,
        events: IngestEvents,
        *,
        per_partition: bool = True,
        registry: CollectorRegistry | None = None,
    ) -> None:
        self._shown = IngestMetricTable(table, per_partition=per_partition, registry=registry or ProcessRegistry())
        super().__init__(clock, table, events, self._shown, self._shown.paused)
        self.events: IngestEvents = events
        self._told = NOTHING_TOLD
        self._durable: Positions = {}
        self._shown.memory_budget_bytes.set(memory_budget)
        self._shown.retention_horizon_seconds.set(math.nan)
        self._shown.retention_seconds.set(math.nan)
        self._short: frozenset[Region] = frozenset()
        self._other_names = set[OtherName]()
        """Names, other than current names of columns, that have a metric series of their own."""
        self.records = RecentRecords()
        self.append_failed: Problem | None = None
        """Cause of the newest failed try to store a segment; None if no try has failed since the start."""
        self.freshness_s: Mapping[Region, float] = {}
        """Freshness of each partition in seconds, as last reported."""

    def works_by(self, contract_version: int) -> None:
        """Set the metric of the contract version to the one with which the table was opened."""
        self._shown.contract_version.set(contract_version)

    def observed(self, store: ObjectStore) -> ObjectStore:
        """Return a store that counts its requests in these metrics."""
        return ObservedStore(store, self._shown)

    # -- Observer ------------------------------------------------------------------------------------------------

    def claimed(self, region: Region, outcome: Claim) -> None:
        self._shown.claims.labels(outcome).inc()

    def opened(self, region: Region, record: GenerationRecord, seconds: float) -> None:
        self._shown.open_seconds.observe(seconds)
        self.events.partition_opened(**region.place, generation=record.generation, position=record.first)

    def appended(self, entry: Entry, ignored: Sequence[RejectedOffset]) -> None:
        self.records.add(entry, frozenset(ignored), self._clock.monotonic())
        partition = str(entry.region.partition)
        self._shown.rows.labels(partition).inc(entry.row_count)
        for passed in ignored:
            self._shown.records_ignored.labels(partition, passed.kind).inc()
        for rejected in set(entry.rejected).difference(ignored):
            self._shown.dead_letters.labels(partition, rejected.kind).inc()
        if entry.row_count:
            lie = entry.range
            operations = lie.batch.column(OP).slice(lie.begin, lie.row_count).to_numpy()
            for op, count in zip(Op, np.bincount(operations, minlength=len(Op)).tolist(), strict=True):
                self._shown.row_operations.labels(op.name.lower()).inc(count)
            newest = lie.batch.column(TIMESTAMP)[lie.end - 1].value
            self._shown.durable_timestamp_seconds.labels(partition).set(newest / 1000)
            self._shown.append_latency_seconds.observe(max(0.0, (self._clock.now_ms() - newest) / 1000))

    def segment(self, stored: Durable, letters: int) -> None:
        self._shown.segments.inc()
        self._shown.segment_bytes.inc(stored.size)
        if letters:
            self.events.dead_letters_written(records=letters, segment=stored.sequence)

    def sealed(self, region: Region, record: GenerationRecord) -> None:
        self._shown.generations_sealed.inc()
        self.events.generation_sealed(**region.place, generation=record.generation, position=record.next)

    def flushed(self, region: Region, snapshot: FlushedGeneration) -> None:
        self._shown.generations_flushed.inc()
        self.events.generation_flushed(
            **region.place, generation=snapshot.generation, rows=snapshot.rows, object=snapshot.key
        )

    def replayed(self, rows: int, seconds: float) -> None:
        self._shown.replayed_rows.inc(rows)
        self._shown.replay_seconds.observe(seconds)

    def fenced(self, fence: Fence) -> None:
        self._shown.fences.inc()
        self.events.wal_fenced(wal=fence.log, segment=fence.sequence, owner=fence.writer)

    def ownership_lost(self, region: Region, error: LancewalError) -> None:
        self._shown.ownership_losses.inc()
        self.events.ownership_lost(**region.place, kind=error.kind, error=str(error))

    def stopped(self, region: Region, error: LancewalError) -> None:
        self._shown.partition_stopped.labels(str(region.partition), error.kind).set(1)
        place = place_of(error) | region.place
        self.events.partition_stopped(kind=error.kind, error=str(error), **place)

    def taken_up(self, contract_version: int) -> None:
        self._shown.contract_version.set(contract_version)
        self.events.contract_taken_up(contract_version=contract_version)

    def column_added(self, name: str, type_: pa.DataType, contract_version: int) -> None:
        self._shown.columns_added.labels(name[:NAME_LENGTH_MAX]).inc()
        self.events.column_added(column=name, type=format_type(type_), contract_version=contract_version)

    def column_refused(self, name: str, why: str) -> None:
        self.events.column_refused(column=name[:NAME_LENGTH_MAX], error=why[:REASON_LENGTH_MAX])

    def passed_over(self, records: Mapping[str, int]) -> None:
        for kind, count in records.items():
            self._shown.records_passed_over.labels(kind).inc(count)

    def changed(self, source_ms: int) -> None:
        self._shown.source_latency_seconds.observe(max(0.0, (self._clock.now_ms() - source_ms) / 1000))

    def other_names(self, uses: Mapping[OtherName, int]) -> None:
        for one, count in uses.items():
            shown = (
                one
                if one in self._other_names or len(self._other_names) < OTHER_NAMES_MAX
                else one._replace(path=FURTHER)
            )
            if shown not in self._other_names:
                self._other_names.add(shown)
            self._shown.other_names.labels(shown.path[:NAME_LENGTH_MAX], shown.use).inc(count)

    def failed(self, act: str, cause: object) -> None:
        self._shown.failures.labels(act).inc()
        kind, text = (
            (cause.kind, str(cause)) if isinstance(cause, LancewalError) else ("fault", without_secrets(str(cause)))
        )
        if act == "append":
            self.append_failed = Problem(kind, f"{kind}: {text}")
        if self._to_be_logged(act):
            self.events.operation_failed(operation=act, kind=kind, error=text)

    def memory(self, used: int, paused: bool) -> None:
        self._shown.memory_bytes.set(used)
        self._shown.throttled.set(paused)

    def positions(self, durable: Positions, unflushed: int) -> None:
        for region in self._durable.keys() - durable.keys():
            for gauge in (
                self._shown.durable_position,
                self._shown.durable_timestamp_seconds,
                self._shown.end_position,
                self._shown.lag_records,
                self._shown.retention_reserve_offsets,
                self._shown.standing_seconds,
            ):
                gauge.remove_by_labels({"partition": str(region.partition)})
        for region, position in durable.items():
            before = self._durable.get(region, position)
            if before > position:
                self._shown.invariant_violations.labels("durable_position_fell").inc()
                self.events.invariant_violated(kind="durable_position_fell", **region.place, position=position)
            if region not in self._durable or before != position:
                self._shown.durable_position.labels(str(region.partition)).set(position)
        self._durable = durable
        self.records.keep(durable)
        self._shown.unflushed_generations.set(unflushed)
        self._shown.open_partitions.set(len(durable))

    # -- now and then --------------------------------------------------------------------------------------------

    def refresh(self, highs: Positions, stopped: Mapping[Region, LancewalError]) -> None:
        """Set each partition's lag, from Kafka's high watermarks, and whether the partition is stopped."""
        # Partitions that could not be opened are among the stopped ones.
        show_only(self._shown.partition_stopped, {(str(r.partition), error.kind): 1 for r, error in stopped.items()})
        for region, position in self._durable.items():
            high = highs.get(region)
            if high is not None:
                self._shown.lag_records.labels(str(region.partition)).set(max(0, high - position))

    def freshness(self, seconds: Mapping[Region, float], ends: Positions) -> None:
        """Set the freshness in seconds of each partition of this process, and the Kafka ends of the open ones."""
        self.freshness_s = dict(seconds)
        self._shown.assigned_partitions.set(len(seconds))
        show_only(self._shown.freshness_seconds, {(str(region.partition),): s for region, s in seconds.items()})
        for region, end in ends.items():
            self._shown.end_position.labels(str(region.partition)).set(end)

    def kafka(self, told: ClientFigures) -> None:
        """Set the figures that Kafka's client reports of itself."""
        shown, before = self._shown, self._told
        self._told = told
        shown.connected_brokers.set(told.connected_brokers)
        shown.round_trip_seconds.set(told.round_trip_s)
        shown.throttle_seconds.set(told.throttle_s)
        shown.fetch_queue_bytes.set(told.fetch_queue_bytes)
        shown.fetch_queue_records.set(told.fetch_queue_records)
        for counter, now, then in (
            (shown.request_failures, told.request_failures_total, before.request_failures_total),
            (shown.received_bytes, told.received_bytes_total, before.received_bytes_total),
            (shown.received_records, told.received_records_total, before.received_records_total),
            (shown.rebalances, told.rebalances_total, before.rebalances_total),
        ):
            counter.inc(now - then if now >= then else now)  # a new client begins at 0

    def poll_age(self, seconds: Callable[[], float]) -> None:
        """Set the function that returns the seconds since the last poll; called when metrics are scraped."""
        self._shown.poll_age_seconds.set_function(seconds)

    def dead_letters_failed(self) -> None:
        self._shown.dead_letter_failures.inc()

    def standing(self, waiting: Mapping[Region, Still]) -> None:
        """Set for each open partition how long its position has not moved although records wait; 0 if no record
        waits."""
        now = self._clock.monotonic()
        for region in self._durable:
            still = waiting.get(region)
            seconds = 0.0 if still is None else now - still.since
            self._shown.standing_seconds.labels(str(region.partition)).set(seconds)

    def retention(self, kept_s: float, horizons: Mapping[Region, float], reserves: Mapping[Region, int]) -> None:
        """Set how long the topic retains records, the shortest horizon, and each open partition's reserve of
        offsets."""
        self._shown.retention_seconds.set(kept_s)
        unknown = any(math.isnan(left_s) for left_s in horizons.values())
        self._shown.retention_horizon_seconds.set(math.nan if unknown else min(horizons.values(), default=math.inf))
        for region, offsets in reserves.items():
            self._shown.retention_reserve_offsets.labels(str(region.partition)).set(offsets)

    def retention_short(self, short: Mapping[Region, float]) -> None:
        """Log the partitions that are now about to lose records, with the seconds left, and those that no longer
        are."""
        for region in sorted(short.keys() - self._short):
            self.events.retention_shortened(**region.place, horizon_s=round(short[region], 1))
        for region in sorted(self._short - short.keys()):
            self.events.retention_recovered(**region.place)
        self._short = frozenset(short)
