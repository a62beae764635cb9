"""Metrics and events of a service have the table's name once its contract is known."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from lancewal_core.process.clock import SystemClock
from lancewal_core.process.metric_table import gauge
from lancewal_core.process.service_events import ServiceEvents
from lancewal_core.process.service_metrics import ServiceMetrics, ServiceMetricTable


class Shown(ServiceMetricTable, prefix="lancewal_thing"):
    paused = gauge("Whether it is paused.")


class ThingMetrics(ServiceMetrics):
    service = "thing"


def labels(registry: CollectorRegistry) -> set[str]:
    return {s.labels["table"] for family in registry.collect() for s in family.samples if "table" in s.labels}


def test_a_table_is_called_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Shown("orders")
    metrics = ThingMetrics(SystemClock(), "orders", ServiceEvents(table="orders"), shown, shown.paused)
    assert labels(shown.registry) == {"orders"}
    lines: list[object] = []
    monkeypatch.setattr(ServiceEvents, "write", lambda self, event, fields: lines.append(self._log._context["table"]))
    metrics.called("shop.orders")
    metrics.started(1, 4, "id", "s3://lake/orders", {"topic": "t", "table": "uuid"})
    assert labels(shown.registry) == {"shop.orders"}
    assert lines == ["shop.orders"]
