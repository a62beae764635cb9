"""docs/reference/metrics.md lists every metric of the services, as their tables declare them.

``python -m tests.deploy.test_metrics_page`` writes the page's tables.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lancewal_core.process.metric_table import Declaration, MetricTable
from lancewal_flusher.service.metric_table import FlusherMetricTable
from lancewal_ingest.service.metric_table import IngestMetricTable

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "metrics.md"
HEADER = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
TABLES: dict[str, type[MetricTable]] = {"## Ingest": IngestMetricTable, "## Flusher": FlusherMetricTable}


def line(metric: Declaration) -> str:
    return f"| `{metric.name}` | {metric.kind} | {', '.join(metric.labels)} | {metric.meaning} |"


def section(table: type[MetricTable]) -> list[str]:
    return ["", *HEADER, *map(line, table.declared()), ""]


def made(page: str) -> str:
    """The page with the tables as they are declared."""
    lines = page.splitlines()
    for heading, table in TABLES.items():
        begin = lines.index(heading) + 1
        end = next((i for i in range(begin, len(lines)) if lines[i].startswith("## ")), len(lines))
        lines[begin:end] = section(table)
    return "\n".join(lines) + "\n"


def test_the_page_has_every_metric_as_it_is_declared() -> None:
    assert PAGE.read_text() == made(PAGE.read_text())


@pytest.mark.parametrize("table", TABLES.values())
def test_a_scrape_shows_what_is_declared(table: type[MetricTable]) -> None:
    shown = {family.name: (family.type, family.documentation) for family in table().registry.collect()}
    declared = {m.name.removesuffix("_total").removesuffix("_info"): (m.kind, m.meaning) for m in table.declared()}
    assert shown == declared
    assert all(name.startswith(f"{table.prefix}_") for name in shown)


if __name__ == "__main__":
    PAGE.write_text(made(PAGE.read_text()))
