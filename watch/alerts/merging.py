"""Alerts on whether the flusher keeps up with merges, compaction, indexes and clean-up."""

from __future__ import annotations

from watch.alerts.alert import Alert, counted

ALERTS = (
    Alert(
        "LancewalMergesDoNotLand",
        """
        max by (namespace, table, partition) (
          max_over_time(lancewal_flusher_oldest_unmerged_seconds{@}[%window%])
        ) > %threshold%
        """,
        "Partition {{ $labels.partition }} of {{ $labels.table }}: a generation has waited for its merge for"
        " {{ $value | humanizeDuration }}",
        "See whether a flusher runs, is paused, or fails: its failures by kind, and its /readyz.",
        pending="10m",
        values={"threshold": 1800, "window": "10m"},
    ),
    Alert(
        "LancewalRoundsFail",
        """
        time() - (
          lancewal_flusher_last_round_timestamp_seconds{@}
          or 0 * lancewal_flusher_paused{@} + on (job, instance) group_left () process_start_time_seconds{@flusher}
        ) > %threshold%
        unless on (job, instance) lancewal_flusher_paused{@} == 1
        """,
        "No round of the flusher of {{ $labels.table }} has succeeded for {{ $value | humanizeDuration }}",
        "lancewal_flusher_failures_total has the kind of failure, the log the cause; /readyz names damaged objects.",
        values={"threshold": 1800},
    ),
    Alert(
        "LancewalCompactionBehind",
        "lancewal_flusher_hidden_ratio{@} > %ratio% or lancewal_flusher_deletion_debt_bytes{@} > %debtBytes%",
        "Files of {{ $labels.table }} have many hidden rows or deletion vectors: compaction does not keep up",
        "See on dashboard flusher whether compactions land. To catch up, run `lancewal compact` at a quiet time.",
        pending="2h",
        values={"ratio": 0.4, "debtBytes": 100_000_000_000},
    ),
    Alert(
        "LancewalWideningOpen",
        "max by (namespace, table) (lancewal_flusher_open_widening_seconds{@}) > %threshold%",
        "A column of {{ $labels.table }} has waited for its wider type for {{ $value | humanizeDuration }}",
        "The flusher's /status says under widenings what the flusher has done for the column, or why the column waits.",
        pending="10m",
        values={"threshold": 3600},
    ),
    Alert(
        "LancewalIndexesBehind",
        f"sum by (namespace, table, index) {counted('lancewal_flusher_index_refusals_total', 'flusher')} > %threshold%",
        "Index {{ $labels.index }} of {{ $labels.table }} could not be extended"
        ' {{ $value | printf "%.0f" }} times in %window%',
        "The log line has the cause. Queries by the index stay correct and get slower; fuzzy text queries miss new rows.",
        pending="10m",
        values={"threshold": 2, "window": "1h"},
    ),
    Alert(
        "LancewalCleanUpBehind",
        "min_over_time(lancewal_flusher_gc_waiting_objects{@}[%window%]) > %threshold%",
        "{{ $value }} objects of {{ $labels.table }} wait to be deleted: garbage collection does not keep up",
        "See whether garbage collection fails, and whether the store's rights allow listing and deleting.",
        pending="1h",
        values={"threshold": 100000, "window": "1h"},
    ),
    Alert(
        "LancewalSubscriptionLags",
        "lancewal_flusher_subscription_lag_ratio{@} > %threshold%",
        "Subscription {{ $labels.subscription }} of {{ $labels.table }} lags: {{ $value | humanizePercentage }} of"
        " table.subscription_hold_s_max is used up",
        "Start its consumer or make it faster before all of this time is used up. If nobody needs the subscription, drop it.",
        pending="15m",
        values={"threshold": 0.5},
    ),
    Alert(
        "LancewalCutHeldBack",
        "min by (namespace, cut) (lancewal_flusher_cut_age_seconds{@}) > %threshold%",
        "Moving cut {{ $labels.cut }} has not caught up with its topics for {{ $value | humanizeDuration }}",
        "lancewal_flusher_cut_held_seconds names the tables that hold it back. If there are none, the log event"
        " cut_not_published says why.",
        pending="1m",
        values={"threshold": 600},
    ),
    Alert(
        "LancewalPaused",
        "lancewal_ingest_paused{@} == 1 or lancewal_flusher_paused{@} == 1",
        "{{ $labels.instance }} ({{ $labels.table }}) is paused by an operator",
        "`lancewal status` says until when. Ask the operator, and resume the service unless the reason still holds.",
        pending="1h",
    ),
)
