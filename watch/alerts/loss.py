"""Alerts on whether records may be lost, and on damage and violated invariants."""

from __future__ import annotations

from watch.alerts.alert import Alert, counted

ALERTS = (
    Alert(
        "LancewalRetentionHorizonShort",
        # No horizon is longer than the retention: a topic that keeps records for less than the threshold needs its own.
        """
        lancewal_ingest_retention_horizon_seconds{@} < %threshold%
        unless lancewal_ingest_retention_horizon_seconds{@} >= %share% * lancewal_ingest_retention_seconds{@}
        """,
        "In {{ $value | humanizeDuration }} Kafka deletes records of {{ $labels.table }} that are not durable yet",
        "Raise the topic's retention.ms now; this takes effect within a minute. Then find out what delays the partitions.",
        severity="critical",
        values={"threshold": 21600, "share": 0.5},
    ),
    Alert(
        "LancewalRetentionReserveShrinks",
        """
        lancewal_ingest_lag_records{@} > lancewal_ingest_retention_reserve_offsets{@}
        and predict_linear(lancewal_ingest_retention_reserve_offsets{@}[%window%], %horizon%) < 0
        """,
        "Partition {{ $labels.partition }} of {{ $labels.table }}: Kafka deletes records faster than they become durable",
        "Raise the topic's retention.bytes. See whether somebody deletes records, and why the partition is slow.",
        pending="15m",
        values={"horizon": 21600, "window": "1h"},
    ),
    Alert(
        "LancewalDeadLettersArrive",
        f"sum by (namespace, table, kind) {counted('lancewal_ingest_dead_letters_total', 'ingest')} > %threshold%",
        'Records of {{ $labels.table }} become dead letters ({{ $labels.kind }}): {{ $value | printf "%.0f" }} in %window%',
        "Read the dead-letter topic: each letter's headers say what is wrong. Then fix the producer.",
        pending="0s",
        values={"threshold": 0, "window": "10m"},
    ),
    Alert(
        "LancewalWrongFormat",
        f"""
        sum by (namespace, table) {counted("lancewal_ingest_dead_letters_total", "ingest", "wrong_format")} > %threshold%
        or sum by (namespace, table) {counted("lancewal_ingest_records_ignored_total", "ingest", "wrong_format")}
        > %threshold%
        """,
        "Records in another format come to a partition of {{ $labels.table }} that already has rows: "
        '{{ $value | printf "%.0f" }} in %window%',
        "Find the producer that writes another format into the topic, and correct it.",
        pending="0s",
        values={"threshold": 0, "window": "10m"},
    ),
    Alert(
        "LancewalDeadLettersFail",
        "increase(lancewal_ingest_dead_letter_failures_total{@}[%window%]) > %threshold%",
        "{{ $labels.instance }} cannot write dead letters of {{ $labels.table }}; the records after them wait",
        "See whether the dead-letter topic exists, and whether ingest may write to it.",
        values={"threshold": 3, "window": "10m"},
    ),
    Alert(
        "LancewalInvariantViolated",
        """
        lancewal_ingest_invariant_violations_total{@} > 0
        or lancewal_flusher_invariant_violations_total{@} > 0
        """,
        "{{ $labels.instance }} saw a violated invariant of {{ $labels.table }}: {{ $labels.kind }}",
        "Pause the flusher, keep all logs, and run `lancewal verify` before anything else.",
        severity="critical",
        pending="0s",
    ),
    Alert(
        "LancewalDamaged",
        "lancewal_flusher_damaged_partitions{@} > 0",
        "{{ $value }} partitions of {{ $labels.table }} are not merged: something they need is damaged or lost",
        "/readyz of {{ $labels.instance }} names the object; `lancewal verify` finds further damage. The runbook has repairs.",
        severity="critical",
        pending="2m",
    ),
    Alert(
        "LancewalKeysInConflict",
        "lancewal_flusher_keys_in_conflict{@} > 0",
        "{{ $value }} primary keys of {{ $labels.table }} came through two partitions and wait for a decision",
        "`lancewal conflict list` shows them; all other keys are merged and read.",
    ),
)
