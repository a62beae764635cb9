"""The overview dashboard: is it fresh, is anything lost, is anything stuck, what does it cost?"""

from __future__ import annotations

from watch.dashboards.panel import Board, Panel, Section, q, quantile, rate

_VISIBLE = """
sum(rate(lancewal_flusher_visible_seconds_bucket{le=~"2(\\\\.0)?",@}[$__rate_interval]))
/ (sum(rate(lancewal_flusher_visible_seconds_count{@}[$__rate_interval]))
 + sum(rate(lancewal_flusher_visibility_failures_total{reason="timeout",@}[$__rate_interval])))
"""

FRESH = Section(
    "Is it fresh?",
    (
        Panel(
            "Oldest record not durable",
            "How long the oldest record that is not durable has waited in Kafka, over all partitions; 0 if none waits.",
            "Above table.freshness_target_s, see dashboard ingest: which partition, and whether store or memory is the cause.",
            [q("max(lancewal_ingest_freshness_seconds{@part})")],
            "ingest_paused",
            ("LancewalRowsLate", "LancewalPartitionStands"),
            unit="s",
            kind="number",
            width=6,
            height=5,
            limit=60,
        ),
        Panel(
            "Oldest generation not merged",
            "How long the oldest sealed or flushed generation has waited for its merge, by the stored state.",
            "Above some minutes, see dashboard flusher: failures, conflicts, and whether it runs and is not paused.",
            [q("max(lancewal_flusher_oldest_unmerged_seconds{@part})")],
            "flusher_paused",
            ("LancewalMergesDoNotLand",),
            unit="s",
            kind="number",
            width=6,
            height=5,
            limit=1800,
        ),
        Panel(
            "Visible within 2 s",
            "Share of measurements in which a strong reader saw within 2 s what was in Kafka (flusher.visibility_interval_s). "
            "A measurement that timed out counts as later.",
            "Below the objective (99 %): the two panels before this one show whether ingest or the flusher is slow.",
            [q(_VISIBLE)],
            "store_slow",
            ("LancewalVisibilityBurnsFast", "LancewalVisibilityBurnsSlowly"),
            unit="percentunit",
            kind="number",
            width=6,
            height=5,
        ),
        Panel(
            "Services that answer",
            "Processes of each service that Prometheus reaches.",
            "Fewer than you run: see why the others do not start or keep ending.",
            [q("sum by (service) (lancewal_build_info{@process})", "{{service}}")],
            "ingest_gone",
            ("LancewalIngestDown", "LancewalFlusherDown", "LancewalProcessDown"),
            kind="number",
            width=6,
            height=5,
        ),
        Panel(
            "Freshness by partition",
            "How long the oldest record of each partition that is not durable has waited.",
            "Only one partition: it does not move, or has a hot key. All of them: too few processes, or the store.",
            [q("max by (table, partition) (lancewal_ingest_freshness_seconds{@part})", "{{table}} {{partition}}")],
            "ingest_paused",
            ("LancewalRowsLate",),
            unit="s",
            limit=60,
        ),
        Panel(
            "From Kafka to a strong reader",
            "Time from asking Kafka for its ends until a strong reader's positions reach them.",
            "Rises with freshness: see that panel. Rises alone: many rows are unmerged, or the store answers readers slowly.",
            [quantile(0.5, "lancewal_flusher_visible_seconds"), quantile(0.99, "lancewal_flusher_visible_seconds")],
            "load",
            ("LancewalVisibilityBurnsFast",),
            unit="s",
            limit=2,
        ),
        Panel(
            "Rows durable and merged",
            "Rows made durable, and rows that merges brought into the table, per second.",
            "Merged below durable for long: the flusher does not keep up, or keys change several times between merges.",
            [
                rate("lancewal_ingest_rows_total", "table", "part", "durable {{table}}"),
                rate("lancewal_flusher_adopted_rows_total", "table", "", "merged {{table}}"),
            ],
            "load",
            ("LancewalMergesDoNotLand",),
            unit="rowsps",
        ),
    ),
)

LOST = Section(
    "Is anything lost?",
    (
        Panel(
            "Time until Kafka deletes what is not durable",
            "The least time, over all partitions, until Kafka deletes a record that lancewal has not made durable.",
            "Short: raise the topic's retention.ms first, then find out what delays the partition.",
            [q("min by (table) (lancewal_ingest_retention_horizon_seconds{@})", "{{table}}")],
            "ingest_paused",
            ("LancewalRetentionHorizonShort", "LancewalRetentionReserveShrinks"),
            unit="s",
            kind="number",
            width=6,
            height=5,
        ),
        Panel(
            "Dead letters",
            "Records that became dead letters since the processes started, by kind.",
            "Growing: read the dead-letter topic, whose headers say what is wrong, and fix the producer.",
            [q("sum by (kind) (lancewal_ingest_dead_letters_total{@part}) or vector(0)", "{{kind}}")],
            "bad_records",
            ("LancewalDeadLettersArrive", "LancewalWrongFormat", "LancewalDeadLettersFail"),
            kind="number",
            width=6,
            height=5,
            limit=1,
        ),
        Panel(
            "Damaged partitions",
            "Partitions that are not merged because an object that they need is damaged or lost.",
            "Above 0: /readyz of the flusher names the object, and the runbook says how to repair it.",
            [q("sum(lancewal_flusher_damaged_partitions{@})")],
            "damage",
            ("LancewalDamaged",),
            kind="number",
            width=6,
            height=5,
            limit=1,
        ),
        Panel(
            "Invariants violated",
            "States that must never occur: positions that fell, or merged rows that are not durable.",
            "Above 0: pause the flusher, keep the logs, verify the table.",
            [
                q(
                    "sum(lancewal_ingest_invariant_violations_total{@})"
                    " + sum(lancewal_flusher_invariant_violations_total{@})"
                )
            ],
            "never",
            ("LancewalInvariantViolated",),
            kind="number",
            width=6,
            height=5,
            limit=1,
        ),
    ),
)

STUCK = Section(
    "Is anything stuck?",
    (
        Panel(
            "Partitions stopped",
            "Partitions that wait for a person's decision.",
            "Above 0: the log line partition_stopped has the cause, and the runbook says what to do.",
            [q("sum(lancewal_ingest_partition_stopped{@part}) or vector(0)")],
            "misrouted",
            ("LancewalPartitionStopped",),
            kind="number",
            width=6,
            height=5,
            limit=1,
        ),
        Panel(
            "Partitions assigned and not open",
            "Partitions that Kafka has assigned to a process and that are not open yet.",
            "For longer than a minute: /readyz of the process says what they wait for.",
            [q("sum(lancewal_ingest_assigned_partitions{@}) - sum(lancewal_ingest_open_partitions{@})")],
            "store_down",
            ("LancewalPartitionsNotOpen",),
            kind="number",
            width=6,
            height=5,
            limit=1,
        ),
        Panel(
            "Paused",
            "Processes that an operator has paused.",
            "lancewal status says until when. lancewal resume ends the pause.",
            [q("sum(lancewal_ingest_paused{@})", "ingest"), q("sum(lancewal_flusher_paused{@})", "flusher")],
            "ingest_paused",
            ("LancewalPaused",),
            kind="number",
            width=6,
            height=5,
            limit=1,
        ),
        Panel(
            "Alerts that fire",
            "Alerts on lancewal that fire now.",
            "Each alert has a runbook: open it from the alert, or by the links of these panels.",
            [
                q(
                    'count by (alertname) (ALERTS{alertname=~"Lancewal.*",alertstate="firing"}) or vector(0)',
                    "{{alertname}}",
                )
            ],
            "ingest_gone",
            kind="number",
            width=6,
            height=5,
            limit=1,
        ),
        Panel(
            "Records wait and nothing moves",
            "How long a partition's durable position has not moved although records wait.",
            "Above a minute: /readyz of the process names the partition, and a silent store or broker or an open transaction.",
            [q("max by (table, partition) (lancewal_ingest_standing_seconds{@part})", "{{table}} {{partition}}")],
            "store_down",
            ("LancewalPartitionStands",),
            unit="s",
            limit=300,
        ),
        Panel(
            "Uptime",
            "Time since each process started.",
            "A sawtooth: the process ends again and again. See the end of its log, and its memory.",
            [
                q(
                    "time() - process_start_time_seconds{@process}"
                    " * on (job, instance) group_left (service) lancewal_build_info{@process}",
                    "{{service}} {{instance}}",
                )
            ],
            "ingest_gone",
            ("LancewalProcessCrashLoops",),
            unit="s",
        ),
        Panel(
            "Failures per minute",
            "Faults after which the operation is retried: of ingest by operation, of the flusher by kind.",
            "All the time: see dashboard store if the store is the cause, otherwise the logs.",
            [
                q(
                    "60 * sum by (operation) (rate(lancewal_ingest_failures_total{@}[$__rate_interval]))",
                    "ingest {{operation}}",
                ),
                q(
                    "60 * sum by (kind) (rate(lancewal_flusher_failures_total{@}[$__rate_interval]))",
                    "flusher {{kind}}",
                ),
            ],
            "store_down",
            ("LancewalStoreErrors", "LancewalRoundsFail"),
        ),
    ),
)

COST = Section(
    "What does it cost?",
    (
        Panel(
            "Requests to the store",
            "lancewal's own requests per second, by operation; Lance's requests are not included.",
            "Too many PUTs: raise ingest.linger_ms. Too many GETs: see which objects on dashboard store.",
            [rate("lancewal_store_requests_total", "operation")],
            "load",
            unit="reqps",
            width=6,
        ),
        Panel(
            "Write amplification",
            "Bytes written for each byte adopted from flushes: the flush itself, and what merges and compactions wrote.",
            "Rises with updates all over a large table: use a better region key, or compact less often.",
            [
                q(
                    "1 + sum by (table) (lancewal_flusher_rewritten_bytes_total{@})"
                    " / sum by (table) (lancewal_flusher_adopted_bytes_total{@} > 0)",
                    "{{table}}",
                )
            ],
            "churn",
            width=6,
        ),
        Panel(
            "Size of the table",
            "Bytes of the table's data files, when compaction last looked.",
            "Grows faster than the number of rows: hidden rows wait for compaction, see dashboard flusher.",
            [q("max by (table) (lancewal_flusher_table_bytes{@})", "{{table}}")],
            "load",
            unit="bytes",
            width=6,
        ),
        Panel(
            "Memory of the processes",
            "Resident memory of each process.",
            "Near the limit: lower ingest.memory_bytes_max or flusher.merge_memory_bytes_max, or raise the limit.",
            [
                q(
                    "process_resident_memory_bytes{@process}"
                    " * on (job, instance) group_left (service) lancewal_build_info{@process}",
                    "{{service}} {{instance}}",
                )
            ],
            "ingest_gone",
            unit="bytes",
            width=6,
        ),
    ),
)

BOARD = Board(
    "lancewal-overview",
    "lancewal: overview",
    "Is it fresh, is anything lost, is anything stuck, what does it cost.",
    (FRESH, LOST, STUCK, COST),
)
