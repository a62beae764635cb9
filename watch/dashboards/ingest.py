"""The dashboard of ingest, from Kafka to durable rows: throughput, lag, memory, ownership, retention."""

from __future__ import annotations

from watch.dashboards.panel import Board, Panel, Section, q, quantile, rate

_BY_PARTITION = "{{table}} {{partition}}"

THROUGHPUT = Section(
    "Throughput",
    (
        Panel(
            "Rows made durable",
            "Rows per second and partition.",
            "Uneven over partitions: keys are uneven. Below the producers' rate: lag grows, see the next panel.",
            [rate("lancewal_ingest_rows_total", "table, partition", "part")],
            "load",
            ("LancewalRowsLate",),
            unit="rowsps",
        ),
        Panel(
            "Lag",
            "Offsets between the durable position and Kafka's end.",
            "Falling: ingest catches up, wait. Growing: add processes, or find the cause.",
            [q("sum by (table, partition) (lancewal_ingest_lag_records{@part})", _BY_PARTITION)],
            "ingest_paused",
            ("LancewalRowsLate", "LancewalPartitionStands"),
        ),
        Panel(
            "Durable position",
            "First offset of each partition that is not durable.",
            "A flat line while lag is above 0: the partition does not move.",
            [q("max by (table, partition) (lancewal_ingest_durable_position{@part})", _BY_PARTITION)],
            "load",
            ("LancewalPartitionStands",),
        ),
        Panel(
            "End of the partitions in Kafka",
            "Position after the last readable record.",
            "Flat: nothing is produced, or a transaction is open.",
            [q("max by (table, partition) (lancewal_ingest_end_position{@part})", _BY_PARTITION)],
            "load",
        ),
        Panel(
            "From Kafka to durable",
            "Time from the Kafka timestamp of an entry's last row until the entry is durable.",
            "Far above ingest.linger_ms and the time of a PUT: records wait in Kafka or memory, or a backfill has old times.",
            [
                quantile(0.5, "lancewal_ingest_append_latency_seconds"),
                quantile(0.99, "lancewal_ingest_append_latency_seconds"),
            ],
            "store_slow",
            ("LancewalStoreSlow", "LancewalRowsLate"),
            unit="s",
        ),
        Panel(
            "From the source to durable",
            "Time from a change in the source database until it is durable, of one of the newest changes of each segment. "
            "Only tables with Debezium's envelope have it.",
            "Far above the previous panel: the connector is late. Clocks that differ change it too.",
            [
                quantile(0.5, "lancewal_ingest_source_latency_seconds"),
                quantile(0.99, "lancewal_ingest_source_latency_seconds"),
            ],
            "connector_gone",
            ("LancewalSourceSilent",),
            unit="s",
        ),
        Panel(
            "Newest durable record",
            "How long ago, by Kafka's time, the newest durable record of each partition was produced.",
            "Also grows on an idle topic and in a backfill of old times. Freshness shows how long records wait.",
            [q("time() - max by (table, partition) (lancewal_ingest_durable_timestamp_seconds{@part})", _BY_PARTITION)],
            "ingest_paused",
            unit="s",
        ),
        Panel(
            "Rows by operation",
            "Rows per second that insert or replace (upsert), change some columns (patch) or delete.",
            "No deletes from a source that deletes: its connector may drop them.",
            [rate("lancewal_ingest_row_operations_total", "table, kind")],
            "load",
            unit="rowsps",
        ),
        Panel(
            "Dead letters",
            "Records that became dead letters since the processes started, by partition and kind.",
            "Fix the producer; each letter has the kind and place of its record.",
            [
                q(
                    "sum by (partition, kind) (lancewal_ingest_dead_letters_total{@part}) or vector(0)",
                    "{{partition}} {{kind}}",
                )
            ],
            "bad_records",
            ("LancewalDeadLettersArrive", "LancewalWrongFormat", "LancewalDeadLettersFail"),
        ),
        Panel(
            "Segments",
            "WAL segments stored per second.",
            "Many and small: raise ingest.linger_ms, which adds as much latency.",
            [rate("lancewal_ingest_segments_total", "table")],
            "load",
            unit="ops",
        ),
        Panel(
            "Bytes of segments",
            "Bytes of WAL segments stored per second.",
            "Divided by the number of segments (previous panel), this is the size of a segment.",
            [rate("lancewal_ingest_segment_bytes_total", "table")],
            "load",
            unit="Bps",
        ),
    ),
)

MEMORY = Section(
    "Memory and flushes",
    (
        Panel(
            "Memory of rows",
            "Bytes of rows and records in memory, and the budget at which consumption stops.",
            "At the budget: the store takes rows too slowly, or the process has too many partitions.",
            [
                q("max by (instance) (lancewal_ingest_memory_bytes{@})", "{{instance}}"),
                q("min(lancewal_ingest_memory_budget_bytes{@})", "budget"),
            ],
            "store_down",
            ("LancewalIngestThrottled",),
            unit="bytes",
        ),
        Panel(
            "Throttled",
            "1 while a process consumes nothing because its memory is full.",
            "1 most of the time: check the store first. Then add processes, or raise ingest.memory_bytes_max.",
            [q("max by (instance) (lancewal_ingest_throttled{@})", "{{instance}}")],
            "flushes_refused",
            ("LancewalIngestThrottled",),
        ),
        Panel(
            "Generations sealed and flushed",
            "Generations per minute that were sealed, and that were flushed to files for the merge.",
            "Fewer flushed than sealed: flushes fail or are slow, see failures by operation.",
            [
                q(
                    "60 * sum by (table) (rate(lancewal_ingest_generations_sealed_total{@}[$__rate_interval]))",
                    "sealed {{table}}",
                ),
                q(
                    "60 * sum by (table) (rate(lancewal_ingest_generations_flushed_total{@}[$__rate_interval]))",
                    "flushed {{table}}",
                ),
            ],
            "load",
        ),
        Panel(
            "Generations that wait to be flushed",
            "Sealed generations whose files are not written yet.",
            "Growing: the store is slow or refuses writes. Generations in memory stay there until their files are written.",
            [q("sum by (table) (lancewal_ingest_unflushed_generations{@})", "{{table}}")],
            "store_slow",
            ("LancewalIngestThrottled",),
        ),
        Panel(
            "Failures",
            "Faults of store, broker or schema registry per minute, by the operation that is retried.",
            "Only one operation: rights, or one kind of object. All: the store or the broker.",
            [q("60 * sum by (operation) (rate(lancewal_ingest_failures_total{@}[$__rate_interval]))", "{{operation}}")],
            "store_down",
            ("LancewalStoreErrors",),
        ),
        Panel(
            "Rows read back",
            "Rows read from the log per second, to flush generations that a former owner had in memory.",
            "Normal for a while after a takeover. All the time: owners change all the time.",
            [rate("lancewal_ingest_replayed_rows_total", "table")],
            "takeover",
            ("LancewalOwnersFight",),
            unit="rowsps",
        ),
    ),
)

OWNERSHIP = Section(
    "Ownership",
    (
        Panel(
            "Open partitions",
            "Partitions that each process owns.",
            "The sum should be the topic's number of partitions. Otherwise some are not open, or no process has them.",
            [q("sum by (instance) (lancewal_ingest_open_partitions{@})", "{{instance}}")],
            "takeover",
            ("LancewalPartitionsNotOpen",),
        ),
        Panel(
            "Assigned partitions",
            "Partitions that Kafka has assigned to each process.",
            "A process without partitions: there are more processes than partitions.",
            [q("sum by (instance) (lancewal_ingest_assigned_partitions{@})", "{{instance}}")],
            "takeover",
            ("LancewalPartitionsNotOpen",),
        ),
        Panel(
            "Claims",
            "Attempts to take over a partition, by outcome.",
            "Many lost: owners take partitions from each other. Failed: the store, a broker or damage; see /readyz.",
            [q("sum by (outcome) (lancewal_ingest_claims_total{@})", "{{outcome}}")],
            "takeover",
            ("LancewalOwnersFight", "LancewalPartitionsNotOpen"),
        ),
        Panel(
            "Fences and losses",
            "Times that a log was ended by another process, and partitions that another owner claimed.",
            "Some with each restart. A steady rise: the group keeps rebalancing.",
            [
                q("sum by (table) (lancewal_ingest_fences_total{@})", "fences {{table}}"),
                q("sum by (table) (lancewal_ingest_ownership_losses_total{@})", "losses {{table}}"),
            ],
            "frozen",
            ("LancewalOwnersFight",),
        ),
        Panel(
            "Time to open a partition",
            "From the assignment until a partition is open.",
            "Seconds: long logs are read back, or the store is slow. At each restart rows are late by this time.",
            [q("sum(lancewal_ingest_open_seconds_sum{@}) / sum(lancewal_ingest_open_seconds_count{@})", "mean")],
            "takeover",
            unit="s",
        ),
        Panel(
            "Partitions stopped",
            "Partitions that wait for a person, by kind.",
            "The runbook names the page that says what to do for each kind.",
            [
                q(
                    "sum by (partition, kind) (lancewal_ingest_partition_stopped{@part}) or vector(0)",
                    "{{partition}} {{kind}}",
                )
            ],
            "misrouted",
            ("LancewalPartitionStopped",),
            limit=1,
        ),
    ),
)

RETENTION = Section(
    "What Kafka still has",
    (
        Panel(
            "Retention horizon",
            "Time until Kafka deletes a record that is not durable, by process.",
            "Below some hours: raise the topic's retention.ms now.",
            [q("min by (instance) (lancewal_ingest_retention_horizon_seconds{@})", "{{instance}}")],
            "ingest_paused",
            ("LancewalRetentionHorizonShort",),
            unit="s",
            width=12,
        ),
        Panel(
            "Retention reserve",
            "Offsets between the first that Kafka still has and the durable position.",
            "Falling while lag is above 0: Kafka deletes records faster than they become durable.",
            [q("min by (table, partition) (lancewal_ingest_retention_reserve_offsets{@part})", _BY_PARTITION)],
            "load",
            ("LancewalRetentionReserveShrinks",),
            width=12,
        ),
    ),
)

BOARD = Board(
    "lancewal-ingest",
    "lancewal: ingest",
    "From Kafka to durable: throughput, lag, memory, ownership, and what Kafka still has.",
    (THROUGHPUT, MEMORY, OWNERSHIP, RETENTION),
)
