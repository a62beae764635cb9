"""All alerts, in the order of the generated files."""

from __future__ import annotations

from watch.alerts import freshness, loss, merging, presence, store
from watch.alerts.alert import Alert

ALERTS: tuple[Alert, ...] = (*presence.ALERTS, *freshness.ALERTS, *loss.ALERTS, *merging.ALERTS, *store.ALERTS)
BY_NAME = {alert.name: alert for alert in ALERTS}
