"""Alerts on whether each process runs.  They use Prometheus' own series, because a dead process exports nothing."""

from __future__ import annotations

from watch.alerts.alert import Alert

ALERTS = (
    Alert(
        "LancewalIngestDown",
        "absent(up{@ingest} == 1)",
        "No ingest process answers: nothing of the topic becomes durable",
        "See why the processes do not run or cannot be reached; Kafka keeps the records for as long as it retains them.",
        severity="critical",
        pending="2m",
    ),
    Alert(
        "LancewalFlusherDown",
        "absent(up{@flusher} == 1)",
        "No flusher answers: nothing is merged into the table",
        "See why the process does not run or cannot be reached. Strong reads stay right and get slower.",
        severity="critical",
        pending="5m",
    ),
    Alert(
        "LancewalProcessDown",
        "up{@both} == 0",
        "{{ $labels.instance }} ({{ $labels.job }}) does not answer Prometheus",
        "See how the process ended, and its log. Other processes of its service, if there are any, do its work meanwhile.",
        pending="10m",
    ),
    Alert(
        "LancewalProcessCrashLoops",
        "changes(process_start_time_seconds{@both}[%window%]) > %threshold%",
        '{{ $labels.instance }} ({{ $labels.job }}) restarted {{ $value | printf "%.0f" }} times in %window%',
        "See how its last runs ended: the end of the log, the exit code (137: memory), and what it was doing.",
        pending="0s",
        values={"threshold": 3, "window": "2h"},
    ),
)
