"""Alerts on whether the object store answers, and soon enough, and on whether the catalog answers."""

from __future__ import annotations

from watch.alerts.alert import Alert

ALERTS = (
    Alert(
        "LancewalStoreErrors",
        """
        sum by (namespace, table) (rate(lancewal_store_requests_total{outcome=~"failed|unknown",@}[%window%]))
        / sum by (namespace, table) (rate(lancewal_store_requests_total{@}[%window%])) > %threshold%
        """,
        "{{ $value | humanizePercentage }} of the requests of {{ $labels.table }} to the object store fail",
        "The logs have the store's error code: rights, quota, or no answer. Each request is retried.",
        values={"threshold": 0.05, "window": "5m"},
    ),
    Alert(
        "LancewalStoreSlow",
        """
        histogram_quantile(0.99, sum by (namespace, table, le) (
          rate(lancewal_store_request_seconds_bucket{operation="put",object="segment",@}[%window%])
        )) > %threshold%
        """,
        "PUTs of segments of {{ $labels.table }} take {{ $value | humanizeDuration }} (99th percentile): rows are that late",
        "See on dashboard store whether all requests are slow or only PUTs, and see the store's own metrics.",
        pending="10m",
        values={"threshold": 2, "window": "10m"},
    ),
    Alert(
        "LancewalCatalogSilent",
        "max by (namespace, table) (lancewal_flusher_catalog_silent_seconds{@}) > %threshold%",
        "The catalog in PostgreSQL has taken no report of {{ $labels.table }} for {{ $value | humanizeDuration }}",
        "No row is at risk. Names cannot be looked up. The flusher's /status has the fault, such as no answer or a refusal.",
        pending="1m",
        values={"threshold": 300},
    ),
)
