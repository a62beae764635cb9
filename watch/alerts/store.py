"""Does the object store answer, and soon enough?"""

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
        "The logs have the store's own code: rights, quota, or no answer. Each request is tried again.",
        values={"threshold": 0.05, "window": "5m"},
    ),
    Alert(
        "LancewalStoreSlow",
        """
        histogram_quantile(0.99, sum by (namespace, table, le) (
          rate(lancewal_store_request_seconds_bucket{operation="put",object="segment",@}[%window%])
        )) > %threshold%
        """,
        "PUTs of segments of {{ $labels.table }} take {{ $value | humanizeDuration }} (99th percentile): rows are as late",
        "See on dashboard store whether all requests are slow or PUTs alone, and the store's own figures.",
        pending="10m",
        values={"threshold": 2, "window": "10m"},
    ),
)
