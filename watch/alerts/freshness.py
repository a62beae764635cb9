"""Alerts on whether rows become durable and visible in time."""

from __future__ import annotations

from watch.alerts.alert import Alert


def _late(window: str) -> str:
    """Return the expression for the share of measurements in which rows were visible too late, or not at all.

    ``window`` is the time over which measurements count."""
    total = f"sum by (namespace, table) (increase(lancewal_flusher_visible_seconds_count{{@}}[{window}]))"
    within = (
        "sum by (namespace, table) "
        f'(increase(lancewal_flusher_visible_seconds_bucket{{le=~"%target%([.]0)?",@}}[{window}]))'
    )
    never = (
        "sum by (namespace, table) "
        f'(increase(lancewal_flusher_visibility_failures_total{{reason="timeout",@}}[{window}]))'
    )
    return f"(({total} - {within} + {never}) / ({total} + {never}))"


_BURNS = f"{_late('%long%')} > %burn% * (1 - %objective%) and {_late('%short%')} > %burn% * (1 - %objective%)"

ALERTS = (
    Alert(
        "LancewalPartitionStopped",
        "max by (namespace, table, partition, kind) (lancewal_ingest_partition_stopped{@}) == 1",
        "Partition {{ $labels.partition }} of {{ $labels.table }} waits for a person: {{ $labels.kind }}",
        "The log line partition_stopped has the cause. Until a person acts, no further record of the partition is stored.",
        severity="critical",
        pending="1m",
    ),
    Alert(
        "LancewalPartitionStands",
        """
        lancewal_ingest_standing_seconds{@} > %threshold%
        unless on (job, instance) lancewal_ingest_paused{@} == 1
        """,
        "Partition {{ $labels.partition }} of {{ $labels.table }}: records wait, and nothing has become durable for"
        " {{ $value | humanizeDuration }}",
        "/readyz of {{ $labels.instance }} names a stop, a silent store or broker, or an open transaction. Dashboard ingest"
        " shows whether its memory is full.",
        values={"threshold": 300},
    ),
    Alert(
        "LancewalRowsLate",
        """
        lancewal_ingest_freshness_seconds{@} > %threshold%
        unless on (job, instance) lancewal_ingest_paused{@} == 1
        """,
        "Partition {{ $labels.partition }} of {{ $labels.table }}: rows become durable {{ $value | humanizeDuration }} late",
        "See whether ingest is throttled, whether the store is slow, and whether there are too few ingest processes.",
        pending="10m",
        values={"threshold": 300},
    ),
    Alert(
        "LancewalIngestThrottled",
        "avg_over_time(lancewal_ingest_throttled{@}[%window%]) > %threshold%",
        "{{ $labels.instance }} consumes nothing for {{ $value | humanizePercentage }} of the time: its memory is full",
        "The store takes rows more slowly than Kafka brings them, or partitions are too large for ingest.memory_bytes_max.",
        values={"threshold": 0.5, "window": "10m"},
    ),
    Alert(
        "LancewalOwnersFight",
        """
        sum by (namespace, table) (increase(lancewal_ingest_fences_total{@}[%window%]))
        + sum by (namespace, table) (increase(lancewal_ingest_ownership_losses_total{@}[%window%]))
        > %threshold%
        """,
        "Ingest processes of {{ $labels.table }} took partitions from each other"
        ' {{ $value | printf "%.0f" }} times in %window%',
        "Members of the group die or leave repeatedly: see restarts, max.poll.interval.ms and session.timeout.ms.",
        values={"threshold": 20, "window": "15m"},
    ),
    Alert(
        "LancewalPartitionsNotOpen",
        """
        sum by (namespace, table) (lancewal_ingest_assigned_partitions{@})
        - sum by (namespace, table) (lancewal_ingest_open_partitions{@}) > %threshold%
        """,
        "{{ $value }} partitions of {{ $labels.table }} are assigned and not open: none of their records becomes durable",
        "/readyz of each process says which of its partitions wait, and for what.",
        pending="10m",
        values={"threshold": 0},
    ),
    Alert(
        "LancewalBrokersUnreachable",
        "lancewal_kafka_connected_brokers{@} == 0",
        "{{ $labels.instance }} has no connection to any Kafka broker",
        "`lancewal status` asks the brokers itself and shows the result; the log has the client's errors.",
        severity="critical",
        pending="2m",
    ),
    Alert(
        "LancewalSourceSilent",
        """
        sum by (namespace, table) (increase(lancewal_ingest_records_passed_over_total{kind="heartbeat",@}[%past%]))
        > %heartbeats%
        and sum by (namespace, table) (lancewal_ingest_end_position{@})
        == sum by (namespace, table) (lancewal_ingest_end_position{@} offset %window%)
        and min by (namespace, table) (min_over_time(lancewal_kafka_connected_brokers{@}[%window%])) > 0
        """,
        "The connector of {{ $labels.table }} has written nothing for %window%, not even a heartbeat",
        "See in Kafka Connect whether the connector and its task run. Changes wait in the log of the source meanwhile.",
        pending="0s",  # the ends of a window ago say it already, also after ingest was away
        values={"past": "1d", "heartbeats": 144, "window": "15m"},
    ),
    Alert(
        "LancewalVisibilityBurnsFast",
        _BURNS,
        "{{ $value | humanizePercentage }} of the measurements of {{ $labels.table }} took longer than %target% s until rows"
        " were visible (%long%)",
        "See on dashboard overview whether rows become durable late, or whether merges are late.",
        severity="critical",
        pending="2m",
        values={"target": 2, "objective": 0.99, "burn": 14.4, "long": "1h", "short": "5m"},
    ),
    Alert(
        "LancewalVisibilityBurnsSlowly",
        _BURNS,
        "{{ $value | humanizePercentage }} of the measurements of {{ $labels.table }} took longer than %target% s until rows"
        " were visible (%long%)",
        "Not urgent: see at which times of day and in which partitions rows are late.",
        pending="15m",
        values={"target": 2, "objective": 0.99, "burn": 6, "long": "6h", "short": "30m"},
    ),
)
