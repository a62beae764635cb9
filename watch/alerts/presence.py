"""Does anything run?  These look at what Prometheus itself knows, since who is gone exports nothing."""

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
        "Look at the process' end and its log; others of its kind do its work meanwhile, if there are any.",
        pending="10m",
    ),
    Alert(
        "LancewalProcessCrashLoops",
        "changes(process_start_time_seconds{@both}[%window%]) > %threshold%",
        '{{ $labels.instance }} ({{ $labels.job }}) started anew {{ $value | printf "%.0f" }} times in %window%',
        "See how its last lives ended: the end of its log, the exit code (137: memory), and what it was at.",
        pending="0s",
        values={"threshold": 3, "window": "2h"},
    ),
)
