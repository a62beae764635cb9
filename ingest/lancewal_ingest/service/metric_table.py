"""Every metric of ingest: name, kind, labels, meaning.  The reference page (docs/reference/metrics.md) is made of it."""

from __future__ import annotations

from lancewal_core.process.metric_table import counter, gauge, histogram
from lancewal_core.process.service_metrics import ServiceMetricTable
from lancewal_core.store.request_metrics import StoreMetricTable

_LATENCY_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class IngestMetricTable(StoreMetricTable, ServiceMetricTable, prefix="lancewal_ingest"):
    """``partition`` is Kafka's; ``kind`` is the stable kind of an error."""

    rows = counter("Rows made durable.", "partition")
    dead_letters = counter("Records put aside as dead letters, by kind.", "partition", "kind")
    segments = counter("WAL segments stored.")
    segment_bytes = counter("Bytes of WAL segments stored.")
    generations_sealed = counter("Generations sealed, hand-overs included.")
    generations_flushed = counter("Sealed generations that were flushed.")
    failures = counter("Passing faults of store or broker; the operation is tried again.", "operation")
    fences = counter("Times that another process ended our WAL.")
    ownership_losses = counter("Partitions that another owner claimed while we had them open.")
    durable_position = gauge("First offset that is not durable.", "partition")
    lag_records = gauge("Offsets between the durable position and Kafka's end.", "partition")
    freshness_seconds = gauge(
        "Wall clock minus Kafka timestamp of the newest durable row; 0 while nothing more is readable in Kafka.",
        "partition",
    )
    standing_seconds = gauge(
        "How long the durable position has not moved though records wait, of open transactions too; 0 while none do.",
        "partition",
    )
    partition_stopped = gauge("1 for a partition that stopped, by kind.", "partition", "kind")
    unflushed_generations = gauge("Sealed generations that wait to be flushed.")
    open_partitions = gauge("Partitions that this process owns.")
    memory_bytes = gauge("Bytes of rows and records in memory, Kafka's queue not included.")
    memory_budget_bytes = gauge("Value of memory_bytes at which consumption is throttled.")
    throttled = gauge("1 while nothing is consumed because memory is full.")
    paused = gauge("1 while `lancewal pause ingest` holds: nothing is consumed, and lag grows.")
    retention_horizon_seconds = gauge(
        "Least time until Kafka deletes a record that is not durable, over the open partitions; +Inf where the topic "
        "retains without end or nothing is open, NaN while unknown."
    )
    retention_reserve_offsets = gauge(
        "Offsets between the first that Kafka still has and the durable position.", "partition"
    )
    append_latency_seconds = histogram(
        "From the Kafka timestamp of an entry's last row until the entry is durable.", _LATENCY_S
    )
