"""docs/reference/metrics.md lists every metric of the services, as their tables declare them, and all follow one set of rules.

``python -m tests.deploy.test_metrics_page`` writes the page's tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lancewal_core.process.metric_table import Declaration, MetricTable
from lancewal_core.process.service_metrics import ServiceMetricTable
from lancewal_core.store.observed import StoreMetricTable
from lancewal_flusher.service.metric_table import FlusherMetricTable
from lancewal_ingest.service.metric_table import IngestMetricTable, KafkaMetricTable
from tests.public.rules import NOT_IN_NAMES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "metrics.md"
HEADER = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
TABLES: dict[str, type[MetricTable]] = {
    "## Both services": ServiceMetricTable,
    "## Object store": StoreMetricTable,
    "## Ingest": IngestMetricTable,
    "## Kafka": KafkaMetricTable,
    "## Flusher": FlusherMetricTable,
}
LABELS = frozenset(
    {
        "table",
        "partition",
        "kind",
        "operation",
        "reason",
        "outcome",
        "object",
        "index",
        "field",
        "subscription",
        "cut",
        "cut_table",
    }
)
"""None is without bound, and none is a key, an offset, a generation or the name of an object."""
INFO_LABELS = frozenset({"service", "version", "table", "topic", "topic_id", "uri"})
UNITS = frozenset({"seconds", "bytes", "rows", "ratio"})
OTHER_UNITS = frozenset({"s", "ms", "milliseconds", "minutes", "hours", "kb", "kib", "mb", "mib", "percent", "share"})
NOT_HERE = NOT_IN_NAMES | frozenset(
    {"count", "covered", "keep", "kept", "operator", "rejected", "tag", "tail", "watermarks", "writer"}
)
"""Words for which there are others, in names and in what is said of them."""


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
    shown = {family.name: (family.type, family.documentation) for family in table("orders").registry.collect()}
    of_all = {
        m for cls in table.__mro__ if issubclass(cls, MetricTable) and cls is not MetricTable for m in cls.declared()
    }
    declared = {m.name.removesuffix("_total").removesuffix("_info"): (m.kind, m.meaning) for m in of_all}
    assert shown == declared
    assert all(m.name.startswith(f"{table.prefix}_") for m in table.declared())


def wrong_with(metric: Declaration) -> Iterator[str]:
    """What a name, its labels and its meaning have that the rules for all metrics do not allow."""
    name, words = metric.name, re.findall("[a-z]+", metric.name)
    if not re.fullmatch(r"lancewal(_[a-z]+)+", name):
        yield "is not snake case"
    if metric.kind == "info":
        if not re.fullmatch(r"lancewal_[a-z]+_info", name):
            yield "an info is of the process, not of a part"
    elif not re.match(r"lancewal_(ingest|flusher|store|kafka|registry)_", name):
        yield "names no part"
    if name.endswith("_total") != (metric.kind == "counter") or "total" in words[:-1]:
        yield "ends with _total if and only if it is a counter"
    unit_at = len(words) - 1 - (words[-1] in ("total", "max"))
    if UNITS & {word for at, word in enumerate(words) if at != unit_at} or OTHER_UNITS & set(words):
        yield "has its unit last, and a base unit"
    if "timestamp" in words and not name.endswith("_timestamp_seconds"):
        yield "is a time in seconds"
    if avoided := NOT_HERE & {*words, *metric.labels, *re.findall("[a-z]+", metric.meaning.lower())}:
        yield f"says {sorted(avoided)}"
    allowed = INFO_LABELS if metric.kind == "info" else LABELS
    if set(metric.labels) - allowed or (metric.kind != "info" and metric.labels[0] != "table"):
        yield "has the labels of the list, and table first"
    if len(set(metric.labels)) != len(metric.labels):
        yield "has a label once"
    if not metric.meaning.endswith("."):
        yield "has a meaning that is a sentence"


def test_every_metric_follows_the_rules() -> None:
    metrics = [metric for table in TABLES.values() for metric in table.declared()]
    assert [f"{metric.name}: {wrong}" for metric in metrics for wrong in wrong_with(metric)] == []
    assert len({metric.name for metric in metrics}) == len(metrics)


@pytest.mark.parametrize(
    ("broken", "wrong"),
    [
        (Declaration("lancewal_ingest_Rows", "gauge", ("table",), "Rows."), "is not snake case"),
        (Declaration("lancewal_worker_rows", "gauge", ("table",), "Rows."), "names no part"),
        (Declaration("lancewal_ingest_build_info", "info", (), "A."), "an info is of the process, not of a part"),
        (
            Declaration("lancewal_ingest_rows", "counter", ("table",), "Rows."),
            "ends with _total if and only if it is a counter",
        ),
        (
            Declaration("lancewal_ingest_rows_total", "gauge", ("table",), "Rows."),
            "ends with _total if and only if it is a counter",
        ),
        (
            Declaration("lancewal_flusher_rows_hidden", "gauge", ("table",), "Rows."),
            "has its unit last, and a base unit",
        ),
        (
            Declaration("lancewal_flusher_rows_hidden_total", "counter", ("table",), "Rows."),
            "has its unit last, and a base unit",
        ),
        (Declaration("lancewal_flusher_round_ms", "gauge", ("table",), "Time."), "has its unit last, and a base unit"),
        (Declaration("lancewal_flusher_round_timestamp", "gauge", ("table",), "Time."), "is a time in seconds"),
        (Declaration("lancewal_flusher_watermark", "gauge", ("table",), "End."), "says ['watermark']"),
        (Declaration("lancewal_flusher_files", "gauge", ("table",), "Of the tail."), "says ['tail']"),
        (
            Declaration("lancewal_flusher_files", "gauge", ("table", "offset"), "Files."),
            "has the labels of the list, and table first",
        ),
        (
            Declaration("lancewal_flusher_files", "gauge", ("kind", "table"), "Files."),
            "has the labels of the list, and table first",
        ),
        (Declaration("lancewal_build_info", "info", ("key",), "A."), "has the labels of the list, and table first"),
        (Declaration("lancewal_flusher_files", "gauge", ("table", "table"), "Files."), "has a label once"),
        (Declaration("lancewal_flusher_files", "gauge", ("table",), "Files"), "has a meaning that is a sentence"),
    ],
)
def test_a_broken_rule_is_seen(broken: Declaration, wrong: str) -> None:
    assert list(wrong_with(broken)) == [wrong]


if __name__ == "__main__":
    PAGE.write_text(made(PAGE.read_text()))
