"""Every metric of ingest: name, kind, labels, meaning.  The reference page (docs/reference/metrics.md) is made of it."""

from __future__ import annotations

from lancewal_core.process.metric_table import MetricTable, counter, gauge, histogram, info

_LATENCY_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_REGION = ("topic", "partition")


class IngestMetricTable(MetricTable, prefix="lancewal_ingest"):
    """Labels ``topic`` and ``partition`` name a region of the table; ``kind`` is the stable kind of an error."""

    rows = counter("Rows made durable.", *_REGION)
    records_rejected = counter("Bad records, by kind; each is a dead letter.", *_REGION, "kind")
    segments = counter("WAL segments stored.")
    segment_bytes = counter("Bytes of WAL segments stored.")
    generations_sealed = counter("Generations sealed, hand-overs included.")
    generations_flushed = counter("Generations written as snapshots.")
    failures = counter("Passing faults of store or broker; the act is tried again.", "act")
    fences = counter("Times that another process ended our log.")
    ownership_losses = counter("Regions that another owner claimed while we had them open.")
    durable_position = gauge("Next Kafka offset that is not yet durable.", *_REGION)
    lag_records = gauge("Offsets between the durable position and Kafka's end.", *_REGION)
    freshness_seconds = gauge(
        "Wall clock minus Kafka timestamp of the newest durable row; 0 while nothing more is readable in Kafka.",
        *_REGION,
    )
    standing_seconds = gauge(
        "How long the durable position has not moved though records wait, of open transactions too; 0 while none do.",
        *_REGION,
    )
    partition_stopped = gauge("1 for a partition that stopped, by kind.", *_REGION, "kind")
    unflushed_generations = gauge("Sealed generations that wait to be flushed.")
    open_regions = gauge("Regions that this process owns.")
    memory_bytes = gauge("Bytes of rows and records in memory, Kafka's queue not included.")
    memory_budget_bytes = gauge("Value of memory_bytes at which consumption pauses.")
    paused = gauge("1 while consumption is paused because memory is full.")
    paused_by_operator = gauge("1 while `lancewal pause ingest` holds: nothing is consumed, and lag grows.")
    retention_horizon_seconds = gauge(
        "Least time until Kafka deletes a record that is not durable, over the open partitions; +Inf where the topic "
        "retains without end or nothing is open, NaN while unknown."
    )
    retention_reserve_offsets = gauge(
        "Offsets between the first that Kafka still has and the durable position.", *_REGION
    )
    append_latency_seconds = histogram(
        "From the Kafka timestamp of an entry's last row until the entry is durable.", _LATENCY_S
    )
    put_seconds = histogram("Duration of the PUT of a WAL segment or fence.", _LATENCY_S)
    build = info("Version and what is ingested.")
