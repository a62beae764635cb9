"""What rules and dashboards may name: the metrics that services declare, and what Prometheus and its client add."""

from __future__ import annotations

from collections.abc import Iterator

from lancewal_core.process.metric_table import Declaration
from tests.deploy.test_metrics_page import TABLES
from watch.promql import parts

OF_PROMETHEUS = {"up": (), "ALERTS": ("alertname", "severity", "alertstate")}
OF_THE_CLIENT = dict.fromkeys(
    ("process_start_time_seconds", "process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds",
     "process_max_fds", "process_virtual_memory_bytes"),
    (),
)  # fmt: skip
AROUND = frozenset({"job", "instance", "namespace", "pod"})
"""Labels that scraping gives to every series."""
_SERIES: dict[str, dict[str, tuple[str, ...]]] = {
    "histogram": {"_bucket": ("le",), "_sum": (), "_count": ()},
    "counter": {"": ()},
    "gauge": {"": ()},
    "info": {"": ()},
}


def of(declaration: Declaration) -> Iterator[tuple[str, tuple[str, ...]]]:
    for ending, more in _SERIES[declaration.kind].items():
        yield f"{declaration.name}{ending}", (*declaration.labels, *more)


def series() -> dict[str, frozenset[str]]:
    """Name of each series that there is -> its labels."""
    ours = dict(found for table in TABLES.values() for metric in table.declared() for found in of(metric))
    return {name: frozenset(labels) | AROUND for name, labels in {**ours, **OF_PROMETHEUS, **OF_THE_CLIENT}.items()}


def undeclared(expression: str) -> list[str]:
    """What an expression names that nothing exports."""
    known, found = series(), parts(expression)
    wrong = [f"there is no metric {metric}" for metric in sorted(found.metrics - known.keys())]
    for selection in found.selections:
        labels = set(selection.labels) - known.get(selection.metric, frozenset(selection.labels))
        wrong += [f"{selection.metric} has no label {label}" for label in sorted(labels)]
    having = frozenset().union(*(known.get(metric, frozenset()) for metric in found.metrics))
    return wrong + [f"nothing here has the label {label}" for label in sorted(found.labels - having)]
