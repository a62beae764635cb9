"""The dashboard of the flusher and the table: merges, the state of the table, and upkeep."""

from __future__ import annotations

from watch.dashboards.panel import Board, Panel, Section, q, rate

_BY_PARTITION = "{{table}} {{partition}}"

MERGES = Section(
    "Merges",
    (
        Panel(
            "Oldest unmerged generation",
            "How long each partition's oldest sealed or flushed generation has waited for its merge.",
            "All partitions: no flusher, a pause, or failing rounds. Only some: damage, or too many keys in conflict.",
            [q("max by (table, partition) (lancewal_flusher_oldest_unmerged_seconds{@part})", _BY_PARTITION)],
            "flusher_paused",
            ("LancewalMergesDoNotLand", "LancewalDamaged"),
            unit="s",
        ),
        Panel(
            "Unmerged generations",
            "Generations of each partition that have ended and are not merged.",
            "Growing: strong reads get slower. See failures, conflicts and the time of rounds.",
            [q("sum by (table, partition) (lancewal_flusher_unmerged_generations{@part})", _BY_PARTITION)],
            "flusher_paused",
            ("LancewalMergesDoNotLand",),
        ),
        Panel(
            "Unmerged rows",
            "Changed keys in flushes that are not merged yet.",
            "A strong read must read these rows in addition to the table.",
            [q("sum by (table, partition) (lancewal_flusher_unmerged_rows{@part})", _BY_PARTITION)],
            "flusher_paused",
            ("LancewalMergesDoNotLand",),
        ),
        Panel(
            "Rows of older columns",
            "Rows in unmerged flushes, and of keys in conflict, that were written before the newest change of columns.",
            "They get the present columns when they are merged. Keys in conflict wait for a decision.",
            [q("max by (table) (lancewal_flusher_older_contract_rows{@})", "{{table}}")],
            "columns_changed",
            ("LancewalMergesDoNotLand", "LancewalKeysInConflict"),
        ),
        Panel(
            "Durable and not merged",
            "Offsets between the durable and the merged position of each partition.",
            "Eventual reads and plain Lance lag by so many offsets.",
            [
                q(
                    "max by (table, partition) (lancewal_ingest_durable_position{@part})"
                    " - max by (table, partition) (lancewal_flusher_merged_position{@part})",
                    _BY_PARTITION,
                )
            ],
            "flusher_paused",
        ),
        Panel(
            "Merged up to",
            "How long ago the newest merged generation was sealed: rows that were durable then are in the table.",
            "Also grows on idle partitions. If there are unmerged generations, merges do not land.",
            [q("time() - max by (table, partition) (lancewal_flusher_merged_timestamp_seconds{@part})", _BY_PARTITION)],
            "load",
            ("LancewalMergesDoNotLand",),
            unit="s",
        ),
        Panel(
            "Merges and conflicts",
            "Merges that landed, and merges that were planned again by reason, since the flusher started.",
            "Many conflicts: another program commits to the table all the time.",
            [
                q("sum by (table) (lancewal_flusher_merges_total{@})", "merges {{table}}"),
                q("sum by (reason) (lancewal_flusher_conflicts_total{@})", "conflicts {{reason}}"),
            ],
            "load",
            ("LancewalMergesDoNotLand",),
        ),
        Panel(
            "Time of a round",
            "Mean duration of a round of the flusher.",
            "Longer than flusher.merge_interval_s: rounds run without a pause. Give more threads, or use Spark.",
            [
                q(
                    "sum by (table) (rate(lancewal_flusher_round_seconds_sum{@}[$__rate_interval]))"
                    " / sum by (table) (rate(lancewal_flusher_round_seconds_count{@}[$__rate_interval]))",
                    "{{table}}",
                )
            ],
            "load",
            ("LancewalRoundsFail",),
            unit="s",
        ),
        Panel(
            "Last round that ended well",
            "Time since the last round that succeeded.",
            "Grows: every round fails, or one runs for very long. The panel of failures has the kind.",
            [q("time() - max by (table) (lancewal_flusher_last_round_timestamp_seconds{@})", "{{table}}")],
            "flusher_paused",
            ("LancewalRoundsFail",),
            unit="s",
        ),
        Panel(
            "Failures",
            "Failed rounds, partitions in rounds, and turns of upkeep, per minute and kind.",
            "The log line of each failure has the cause; the page of errors explains the kinds.",
            [q("60 * sum by (kind) (rate(lancewal_flusher_failures_total{@}[$__rate_interval]))", "{{kind}}")],
            "store_down",
            ("LancewalRoundsFail", "LancewalStoreErrors"),
        ),
        Panel(
            "What merges do",
            "Rows per second that merges adopt unchanged, write, hide, and patch in place.",
            "Many written: many patches, or generations that are combined.",
            [
                rate("lancewal_flusher_adopted_rows_total", "table", "", "adopted {{table}}"),
                rate("lancewal_flusher_written_rows_total", "table", "", "written {{table}}"),
                rate("lancewal_flusher_replaced_rows_total", "table", "", "hidden {{table}}"),
                rate("lancewal_flusher_in_place_rows_total", "table", "", "in place {{table}}"),
            ],
            "churn",
            unit="rowsps",
        ),
        Panel(
            "Fragments scanned for keys",
            "Fragments that merges scanned because the key index does not cover them.",
            "Rises after appends and rewrites by other programs. All the time: others write most of the table.",
            [q("sum by (table) (lancewal_flusher_fragments_scanned_total{@})", "{{table}}")],
            "foreign",
        ),
        Panel(
            "Keys in conflict",
            "Primary keys that came through two partitions and wait for a decision.",
            "lancewal conflict list shows them.",
            [q("sum by (table) (lancewal_flusher_keys_in_conflict{@})", "{{table}}")],
            "keys_at_odds",
            ("LancewalKeysInConflict",),
            limit=1,
        ),
    ),
)

TABLE = Section(
    "The table",
    (
        Panel(
            "Rows",
            "Live rows of the table, when compaction last looked.",
            "A fall comes from deletes or expired rows.",
            [q("max by (table) (lancewal_flusher_table_rows{@})", "{{table}}")],
            "load",
            width=6,
        ),
        Panel(
            "Fragments",
            "Fragments of the table, when compaction last ran.",
            "Growing for hours: compaction does not keep up or does not land.",
            [q("max by (table) (lancewal_flusher_fragments{@})", "{{table}}")],
            "load",
            ("LancewalCompactionBehind",),
            width=6,
        ),
        Panel(
            "Hidden rows",
            "Deleted or replaced rows that are still in the table's files, when compaction last ran.",
            "Growing for hours: compaction does not keep up. The next panel shows the share of these rows.",
            [q("max by (table) (lancewal_flusher_hidden_rows{@})", "{{table}}")],
            "churn",
            ("LancewalCompactionBehind",),
            width=6,
        ),
        Panel(
            "Share of hidden rows",
            "Share of hidden rows among all rows in the data files.",
            "Scans read these rows and discard them. Above flusher.compaction_deleted_ratio for hours: compact by hand.",
            [q("max by (table) (lancewal_flusher_hidden_ratio{@})", "{{table}}")],
            "churn",
            ("LancewalCompactionBehind",),
            unit="percentunit",
            width=6,
        ),
        Panel(
            "Deletion debt",
            "Bytes of the data files of fragments that have a deletion vector.",
            "Deletion vectors cost readers memory; compaction removes them.",
            [q("max by (table) (lancewal_flusher_deletion_debt_bytes{@})", "{{table}}")],
            "churn",
            ("LancewalCompactionBehind",),
            unit="bytes",
            width=6,
        ),
        Panel(
            "Versions",
            "Newest version of the Lance table.",
            "Steeper than merges and compactions together: another program commits too.",
            [q("max by (table) (lancewal_flusher_table_version{@})", "{{table}}")],
            "load",
            width=6,
        ),
        Panel(
            "Bytes written",
            "Bytes per second that merges adopted from flushes, and that merges and compaction rewrote.",
            "Rewritten divided by adopted bytes is the write amplification on dashboard overview, less 1.",
            [
                rate("lancewal_flusher_adopted_bytes_total", "table", "", "adopted {{table}}"),
                rate("lancewal_flusher_rewritten_bytes_total", "operation"),
            ],
            "churn",
            unit="Bps",
            width=12,
        ),
    ),
)

UPKEEP = Section(
    "Upkeep",
    (
        Panel(
            "Open widening",
            "Time since a command asked for the oldest widening of a column that is not done.",
            "The flusher writes the column again between merges. Its /status says how much is left, or why the column waits.",
            [q("max by (table) (lancewal_flusher_open_widening_seconds{@})", "{{table}}")],
            "columns_changed",
            ("LancewalWideningOpen",),
            unit="s",
        ),
        Panel(
            "Compaction",
            "Compactions that landed, and those that did not, by reason, since the flusher started.",
            "Only conflicts: other commits always come first; compact while other programs pause.",
            [
                q("sum by (reason) (lancewal_flusher_compactions_total{@}) or vector(0)", "{{reason}}"),
                q("sum by (reason) (lancewal_flusher_compaction_conflicts_total{@})", "not landed: {{reason}}"),
            ],
            "churn",
            ("LancewalCompactionBehind",),
        ),
        Panel(
            "Time spent in compaction",
            "Seconds spent in compaction and in updating indexes after it, since the flusher started.",
            "One second per second: the flusher does nothing else. flusher.compaction_round_bytes_max bounds one round.",
            [q("sum by (table) (lancewal_flusher_compaction_seconds_sum{@})", "{{table}}")],
            "churn",
            unit="s",
        ),
        Panel(
            "Rows dropped by compaction",
            "Hidden rows that compaction removed.",
            "0 while hidden rows grow: compaction is off, or the fragments are too large for it.",
            [q("sum by (table) (lancewal_flusher_dropped_rows_total{@})", "{{table}}")],
            "churn",
            ("LancewalCompactionBehind",),
        ),
        Panel(
            "Objects that wait to be deleted",
            "Unreferenced objects whose grace period is not over.",
            "Growing for hours: garbage collection fails, see failures and rights.",
            [q("sum by (table) (lancewal_flusher_gc_waiting_objects{@})", "{{table}}")],
            "load",
            ("LancewalCleanUpBehind",),
        ),
        Panel(
            "Objects deleted",
            "Objects of any kind that garbage collection has deleted: segments, files of flushes, old states and others.",
            "Flat while more and more objects wait: garbage collection fails.",
            [q("sum by (table) (lancewal_flusher_gc_deleted_objects_total{@})", "{{table}}")],
            "load",
            ("LancewalCleanUpBehind",),
        ),
        Panel(
            "Lag of subscriptions",
            "Time since the state of each subscription was the newest, as a part of the time for which it holds the log.",
            "Near 1: its consumer is about to lose changes. Start the consumer, or drop the subscription.",
            [
                q(
                    "max by (table, subscription) (lancewal_flusher_subscription_lag_ratio{@})",
                    "{{table}} {{subscription}}",
                )
            ],
            "left_behind",
            ("LancewalSubscriptionLags",),
            unit="percentunit",
            limit=0.5,
        ),
        Panel(
            "Segments that subscriptions hold",
            "Segments of the log that stay beyond the history window because of each subscription.",
            "Growing: its consumer does not commit. They go when it commits, is dropped, or has reached its bound.",
            [
                q(
                    "max by (table, subscription) (lancewal_flusher_subscription_held_segments{@})",
                    "{{table}} {{subscription}}",
                )
            ],
            "left_behind",
            ("LancewalSubscriptionLags",),
        ),
        Panel(
            "Rows that indexes lack",
            "Rows that each secondary index does not cover, when upkeep last looked.",
            "Queries by the index scan these rows. Growing: the index cannot be extended.",
            [q("max by (table, index) (lancewal_flusher_unindexed_rows{@})", "{{table}} {{index}}")],
            "indexed",
            ("LancewalIndexesBehind",),
        ),
    ),
)

CUTS = Section(
    "Moving cuts",
    (
        Panel(
            "Age of moving cuts",
            "Time since each moving cut last had caught up with its topics.",
            "Above a few times its interval: a table holds it back, or it cannot be published (log event cut_not_published).",
            [q("min by (cut) (lancewal_flusher_cut_age_seconds{@})", "{{cut}}")],
            "ingest_paused",
            ("LancewalCutHeldBack",),
            unit="s",
        ),
        Panel(
            "Tables that hold cuts back",
            "For how long each table has held a moving cut back.",
            "The flusher's /status says why: for example the table lags, is paused or stopped, or cannot be read.",
            [q("max by (cut, cut_table) (lancewal_flusher_cut_held_seconds{@})", "{{cut}} {{cut_table}}")],
            "ingest_paused",
            ("LancewalCutHeldBack",),
            unit="s",
        ),
    ),
)

BOARD = Board(
    "lancewal-flusher",
    "lancewal: flusher and table",
    "From durable to merged rows, the state of the table, and the work that keeps it fast.",
    (MERGES, TABLE, UPKEEP, CUTS),
)
