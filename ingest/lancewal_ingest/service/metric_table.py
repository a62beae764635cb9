"""Every metric of ingest: name, kind, labels, meaning.  docs/reference/metrics.md is generated from this module."""

from __future__ import annotations

from lancewal_core.process.metric_table import MetricTable, counter, gauge, histogram
from lancewal_core.process.service_metrics import ServiceMetricTable
from lancewal_core.rows.schema import Op
from lancewal_core.store.observed import StoreMetricTable
from lancewal_ingest.decode.outcomes import PASSED_OVER

_LATENCY_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


OPERATIONS = (
    *("append", "open", "seal", "flush", "hand-over"),
    *("offset-commit", "kafka", "retention", "compaction", "contract", "schema", "resume", "leave-group"),
)
"""Operations that may fail and are tried again."""


class KafkaMetricTable(MetricTable, prefix="lancewal_kafka"):
    """Figures that ingest's Kafka client reports about itself, every 5 s (``statistics.interval.ms``)."""

    connected_brokers = gauge("Brokers to which there is a connection.")
    round_trip_seconds = gauge("Time that the slowest broker took to answer, 99th percentile of the last interval.")
    throttle_seconds = gauge("Longest time that a broker throttled the consumer in the last interval.")
    request_failures = counter("Requests to brokers that were not sent, not answered in time, or not readable.")
    received_bytes = counter("Bytes received from brokers.")
    received_records = counter(
        "Records received from brokers, including records fetched again and records that ingest leaves out."
    )
    fetch_queue_bytes = gauge("Bytes of records that the client has fetched and ingest has not consumed yet.")
    fetch_queue_records = gauge("Records that the client has fetched and ingest has not consumed yet.")
    rebalances = counter("Number of rebalances in which the group changed this member's partitions.")
    poll_age_seconds = gauge("Time since the consumer was last polled: Kafka removes a member that does not poll.")


class IngestMetricTable(KafkaMetricTable, StoreMetricTable, ServiceMetricTable, prefix="lancewal_ingest"):
    """Metrics of ingest.  ``partition`` is Kafka's; ``kind`` is the stable kind of an error."""

    contract_version = gauge("Version of the table's contract that this process follows.")
    rows = counter("Rows made durable.", "partition")
    row_operations = counter(
        "Rows made durable, by operation. With `table.format.envelope` an update of a source is a `patch` if it leaves values "
        "out, else an `upsert`.",
        "kind",
        known=tuple(op.name.lower() for op in Op),
    )
    dead_letters = counter("Records that became dead letters, by kind.", "partition", "kind")
    records_ignored = counter("Records passed over because the contract ignores them, by kind.", "partition", "kind")
    records_passed_over = counter(
        "Records that are neither a row nor an error, by kind: heartbeats, transactions and messages of a connector. "
        "Also counted are records of another name than `table.format.record` under `table.on_other_record: ignore`.",
        "kind",
        known=tuple(PASSED_OVER),
    )
    other_names = counter(
        "Members of rows that have a former name of a column, or a dropped or unknown one. Kind `not_utf8`: keys or headers "
        "that the string column `field` cannot hold. Kind `unavailable`: values that a connector could not read. "
        "Beyond 100 the field is `...`.",
        "field",
        "kind",
    )
    columns_added = counter(
        "Columns that this process added to the table, by the field of records that each was added for.", "field"
    )
    segments = counter("WAL segments stored.")
    segment_bytes = counter("Bytes of WAL segments stored.")
    generations_sealed = counter("Generations sealed, hand-overs included.")
    generations_flushed = counter("Sealed generations that were flushed.")
    failures = counter(
        "Transient errors of store, broker or schema registry; the operation is retried.",
        "operation",
        known=OPERATIONS,
    )
    dead_letter_failures = counter(
        "Failed attempts to write dead letters. Ingest retries them; meanwhile later records of the partition wait."
    )
    claims = counter(
        "Attempts to take over a partition: won, lost (another owner claimed it first), or failed.",
        "outcome",
        known=("won", "lost", "failed"),
    )
    replayed_rows = counter(
        "Rows of generations that were not in memory, and were read back from the WAL to be flushed."
    )
    fences = counter("Times that another process ended this process's WAL.")
    ownership_losses = counter("Partitions that another owner claimed while this process had them open.")
    durable_position = gauge("First offset that is not durable.", "partition")
    lag_records = gauge("Offsets between the durable position and Kafka's end.", "partition")
    end_position = gauge(
        "Position after the last readable record in Kafka, as of the last request to the broker.", "partition"
    )
    durable_timestamp_seconds = gauge(
        "Kafka's timestamp of the newest record that this process made durable; absent before the first.", "partition"
    )
    freshness_seconds = gauge(
        "How long the oldest record that is not durable has waited; 0 while none waits. The time counts from the record's "
        "Kafka timestamp, at most since this process last saw the partition end before the record. So a backfill of old "
        "times is not late. Without a timestamp it counts since this process has known that a record waits. If the "
        "partition is not open yet, it counts since the assignment.",
        "partition",
    )
    standing_seconds = gauge(
        "How long the durable position has not moved although records wait, open transactions included; 0 while none wait.",
        "partition",
    )
    partition_stopped = gauge("1 for a partition that stopped, by kind.", "partition", "kind")
    unflushed_generations = gauge("Sealed generations that wait to be flushed.")
    open_partitions = gauge("Partitions that this process owns.")
    assigned_partitions = gauge("Partitions that Kafka has assigned to this process, open or not.")
    memory_bytes = gauge("Bytes of rows and records in memory, Kafka's queue not included.")
    memory_budget_bytes = gauge("Value of memory_bytes at which consumption is throttled.")
    throttled = gauge("1 while nothing is consumed because memory is full.")
    paused = gauge("1 while `lancewal pause ingest` holds: nothing is consumed, and lag grows.")
    retention_horizon_seconds = gauge(
        "Shortest time until Kafka deletes a record that is not durable, over the open partitions. +Inf if the topic "
        "retains records without limit or no partition is open, NaN while unknown."
    )
    retention_seconds = gauge(
        "Least time for which Kafka retains every record, including deletes of a compacted topic: the largest possible "
        "horizon. +Inf if the topic retains records without limit, NaN while unknown."
    )
    retention_reserve_offsets = gauge(
        "Offsets between the first one that Kafka still has and the durable position.", "partition"
    )
    append_latency_seconds = histogram(
        "Time from the Kafka timestamp of an entry's last row until the entry is durable. Meaningless in a backfill of old "
        "times.",
        _LATENCY_S,
    )
    source_latency_seconds = histogram(
        "Time from a change in the source database until it is durable, of one of the newest changes of each segment. For "
        "tables with `table.format.envelope: debezium` alone. Rows of snapshots are left out. The times are those of two "
        "clocks, and a negative difference is 0.",
        (*_LATENCY_S, 1800, 7200, 43200),
    )
    open_seconds = histogram("Time from the assignment of a partition until it is open.", _LATENCY_S)
    replay_seconds = histogram(
        "Time to read a generation back from the WAL and write its flush; the mean if several are flushed together.",
        _LATENCY_S,
    )
    invariant_violations = counter(
        "Times that this process saw a state that must never occur, by kind: a durable position that fell.",
        "kind",
        known=("durable_position_fell",),
    )
