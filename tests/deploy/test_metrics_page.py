"""docs/reference/metrics.md lists every metric of the services, as they describe it themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from lancewal_core.process.clock import SystemClock
from lancewal_flusher.service.metrics import FlusherMetrics
from lancewal_ingest.service.metrics import IngestMetrics

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "metrics.md"
SUFFIXES = {"counter": "_total", "info": "_info"}
REGISTRIES = {
    "ingest": IngestMetrics(SystemClock(), 1).registry,
    "flusher": FlusherMetrics(SystemClock()).registry,
}


def described(registry: CollectorRegistry) -> set[str]:
    """One line of the page for each metric."""
    # A metric with labels has no sample before its first value, so the names of its labels are had only inside it.
    labels = {metric._name: metric._labelnames for metric in registry._collector_to_names}  # type: ignore[attr-defined] # of every metric class, not of the base
    return {
        f"| `{family.name}{SUFFIXES.get(family.type, '')}` | {family.type} | {', '.join(labels[family.name])} | "
        f"{family.documentation} |"
        for family in registry.collect()
    }


@pytest.mark.parametrize("service", REGISTRIES)
def test_every_metric_is_on_the_page(service: str) -> None:
    listed = {line for line in PAGE.read_text().splitlines() if line.startswith(f"| `lancewal_{service}_")}
    # The table of signs names metrics too, in two columns.
    assert {line for line in listed if line.count(" | ") == 3} == described(REGISTRIES[service])
