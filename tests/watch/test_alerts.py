"""Alerts as they are declared: PromQL about metrics that there are, a runbook each, and written files that are up to date."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.watch.declared import series, undeclared
from watch.alerts.alert import JOBS, Alert, fill, selected
from watch.alerts.rules import plain_rules
from watch.alerts.table import ALERTS, BY_NAME
from watch.files import ROOT, made
from watch.promql import parts

RUNBOOKS = ROOT / "docs" / "runbooks"
HEADINGS = (
    "## What it means",
    "## Are data at risk?",
    "## What to look at",
    "## What to do",
    "## How you know that it is over",
)
_PLACES = re.compile(r"%(\w+)%")

each = pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)


@pytest.mark.parametrize(("file", "text"), list(made()), ids=lambda part: part.name if isinstance(part, Path) else "")
def test_a_written_file_is_what_the_code_makes(file: Path, text: str) -> None:
    assert file.read_text() == text, "run python -m watch"


@each
def test_it_names_metrics_and_labels_that_are_exported(alert: Alert) -> None:
    assert undeclared(alert.plain()) == []


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [
        ("lancewal_ingest_row_total > 0", "there is no metric lancewal_ingest_row_total"),
        ('lancewal_ingest_paused{partition="1"}', "lancewal_ingest_paused has no label partition"),
        ("sum by (partition) (lancewal_ingest_paused)", "nothing here has the label partition"),
        ("lancewal_flusher_round_seconds > 1", "there is no metric lancewal_flusher_round_seconds"),
    ],
)
def test_a_name_that_nothing_exports_is_seen(expression: str, wrong: str) -> None:
    assert undeclared(expression) == [wrong]


@each
def test_its_texts_name_labels_that_its_series_have(alert: Alert) -> None:
    known, found = series(), parts(alert.plain())
    having = frozenset().union(*(known[metric] for metric in found.metrics))
    aggregated = re.match(r"(sum|max|min|avg) by \(([\w, ]+)\)", alert.plain())
    if aggregated:
        having = frozenset(aggregated[2].split(", "))
    assert set(re.findall(r"\$labels\.(\w+)", alert.summary + alert.advice)) <= having


@each
def test_every_selector_has_a_place_for_the_release(alert: Alert) -> None:
    marked = selected(alert.expression, dict.fromkeys(JOBS, 'here="1"'))
    for selection in parts(fill(" ".join(marked.split()), alert.values)).selections:
        assert "here" in selection.labels, f"{selection.metric} would be of every release"


@each
def test_its_values_have_their_places_and_no_others(alert: Alert) -> None:
    assert set(_PLACES.findall(alert.expression)) == set(alert.values)
    assert set(_PLACES.findall(alert.summary + alert.advice)) <= set(alert.values)
    assert re.fullmatch(r"[0-9]+[smh]", alert.pending)


@each
def test_it_has_a_runbook_that_answers_what_one_asks_at_night(alert: Alert) -> None:
    lines = (RUNBOOKS / alert.runbook).read_text().splitlines()
    assert lines[0] == f"# {alert.name}"
    assert tuple(line for line in lines if line.startswith("#"))[1:] == HEADINGS
    sections = "\n".join(lines[1:]).split("\n## ")[1:]
    assert all(len(section.partition("\n")[2].strip()) > 2 for section in sections)


def test_there_is_no_runbook_without_an_alert() -> None:
    assert {file.stem for file in RUNBOOKS.glob("*.md")} == {*BY_NAME, "README"}
    listed = re.findall(r"\((\w+)\.md\)", (RUNBOOKS / "README.md").read_text())
    assert listed == [alert.name for alert in ALERTS]


@pytest.mark.parametrize("file", sorted(RUNBOOKS.glob("*.md")), ids=lambda file: file.stem)
def test_a_runbook_leads_to_pages_and_metrics_that_there_are(file: Path) -> None:
    text = file.read_text()
    for target in re.findall(r"\]\(([^)]+)\)", text):
        page, _, anchor = target.partition("#")
        found = (file.parent / page).read_text()
        headings = {
            re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-")
            for line in found.splitlines()
            if line.startswith("#")
        }
        assert not anchor or anchor in headings, target
    named = set(re.findall(r"`(lancewal_\w+)`", text))
    bases = {re.sub(r"_(bucket|sum|count)$", "", name) for name in series()}
    assert named <= bases | set(series())


def test_names_are_states_and_none_is_there_twice() -> None:
    assert len(BY_NAME) == len(ALERTS)
    assert all(re.fullmatch(r"Lancewal([A-Z][a-z]+)+", name) for name in BY_NAME)


def test_values_of_a_rules_file_can_be_others() -> None:
    changed = plain_rules(lambda alert: {"threshold": 7, "for": "1s"} if "threshold" in alert.values else {}, "b")
    rules = {rule["alert"]: rule for rule in changed["groups"][0]["rules"]}
    assert rules["LancewalRowsLate"]["expr"].startswith("lancewal_ingest_freshness_seconds > 7 ")
    assert rules["LancewalRowsLate"]["for"] == "1s"
    assert rules["LancewalDamaged"]["for"] == BY_NAME["LancewalDamaged"].pending
    assert rules["LancewalDamaged"]["annotations"]["runbook_url"] == "b/LancewalDamaged.md"
