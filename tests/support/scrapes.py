"""What a service that runs shows of what its table of metrics declares."""

from __future__ import annotations

import re

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
