"""What a service's registry shows of its metrics."""

from __future__ import annotations

import re

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from lancewal_core.process.metric_table import MetricTable


def not_shown(scrape: str, table: type[MetricTable]) -> set[str]:
    """Metrics that are declared, in the table or in those that it extends, and not in the scrape, by name and kind."""
    declared = {
        (metric.name, "gauge" if metric.kind == "info" else metric.kind)
        for cls in table.__mro__
        if issubclass(cls, MetricTable) and cls is not MetricTable
        for metric in cls.declared()
    }
    return {name for name, _ in declared - set(re.findall(r"^# TYPE (\S+) (\S+)$", scrape, re.M))}


def by_table(registry: CollectorRegistry, name: str) -> dict[str, float]:
    """Return a sample's value for each table.  Each family of metrics must be there once."""
    families = list(text_string_to_metric_families(generate_latest(registry).decode()))
    assert len({family.name for family in families}) == len(families)
    return {s.labels["table"]: s.value for family in families for s in family.samples if s.name == name}
