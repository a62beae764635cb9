"""The chart's alerts: metrics that the services have, pods of this release alone, pages that say what to do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from tests.deploy.helm_program import ROOT, render
from tests.deploy.test_metrics_page import PAGE, TABLES

OURS = 'namespace="default",pod=~"r-lancewal-(ingest|flusher)-.*"'


@pytest.fixture(scope="module")
def rules() -> Mapping[str, Mapping[str, Any]]:
    (group,) = render("everything").one("PrometheusRule", "r-lancewal")["spec"]["groups"]
    found = {rule["alert"]: rule for rule in group["rules"]}
    assert len(found) == len(group["rules"])
    return found


def metrics() -> dict[str, tuple[str, ...]]:
    """Names of all metrics with their labels."""
    return {metric.name: metric.labels for table in TABLES.values() for metric in table.declared()}


def test_every_expression_is_about_metrics_of_this_releases_pods(rules: Mapping[str, Mapping[str, Any]]) -> None:
    known = metrics()
    for name, rule in rules.items():
        selected = re.findall(r"(lancewal_\w+)(\{[^}]*\})?", rule["expr"])
        assert selected, name
        for metric, selector in selected:
            assert metric in known, f"{name}: there is no metric {metric}"
            assert selector == f"{{{OURS}}}", name
        assert rule["expr"].count("(") == rule["expr"].count(")"), name


def test_summaries_name_only_labels_that_there_are(rules: Mapping[str, Mapping[str, Any]]) -> None:
    known = metrics()
    for name, rule in rules.items():
        first = re.findall(r"lancewal_\w+", rule["expr"])[0]
        for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
            assert label in (*known[first], "pod"), f"{name}: {first} has no label {label}"


def test_each_says_how_bad_it_is_and_where_to_read_on(rules: Mapping[str, Mapping[str, Any]]) -> None:
    for name, rule in rules.items():
        assert rule["labels"]["severity"] in ("critical", "warning"), name
        assert re.fullmatch(r"[0-9]+[mh]", rule["for"]), name
        page, _, heading = rule["annotations"]["runbook"].partition("#")
        text = (ROOT / page).read_text()
        headings = {line.lstrip("# ").lower().replace(" ", "-") for line in text.splitlines() if line.startswith("#")}
        assert not heading or heading in headings, name


def test_the_page_of_metrics_names_the_same_alerts(rules: Mapping[str, Mapping[str, Any]]) -> None:
    assert set(re.findall(r"`(Lancewal\w+)`", PAGE.read_text())) == set(rules)


def test_the_pages_example_is_the_charts_alert(rules: Mapping[str, Mapping[str, Any]]) -> None:
    (example,) = re.findall(r"```yaml\n(- alert.*?)```", PAGE.read_text(), re.DOTALL)
    for shown in yaml.safe_load(example):
        rule = rules[shown["alert"]]
        ours = rule["expr"].replace(f"{{{OURS}}}", "").replace("7200", "6 * 3600")
        assert (ours.split(), rule["for"], rule["labels"]) == (shown["expr"].split(), shown["for"], shown["labels"])
        assert rule["annotations"]["summary"] == shown["annotations"]["summary"]


def test_thresholds_are_values(rules: Mapping[str, Mapping[str, Any]]) -> None:
    assert rules["LancewalRetentionHorizonShort"]["expr"].endswith("< 7200")
    assert rules["LancewalPaused"]["for"] == "30m"
    assert not [o for o in render("smallest").objects if o["kind"] == "PrometheusRule"]
