"""The chart's PrometheusRule: the alerts of the plain rules file, about this release's pods alone, with the values set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.deploy.helm_program import Refused, Rendered, render
from watch.alerts.alert import selected
from watch.alerts.rules import plain_rules
from watch.alerts.table import ALERTS, BY_NAME

ON: Mapping[str, Any] = {"podMonitor": {"enabled": True}, "alerts": {"enabled": True}}
OURS = {
    name: f'namespace="default",pod=~"r-lancewal-{component}-.*"'
    for name, component in {
        "ingest": "ingest",
        "flusher": "flusher",
        "both": "(ingest|flusher)",
        "": "(ingest|flusher)",
    }.items()
}

Rules = Mapping[str, Mapping[str, Any]]


def rules_of(rendered: Rendered) -> Rules:
    (group,) = rendered.one("PrometheusRule", "r-lancewal")["spec"]["groups"]
    found = {rule["alert"]: rule for rule in group["rules"]}
    assert len(found) == len(group["rules"])
    return found


@pytest.fixture(scope="module")
def rules() -> Rules:
    return rules_of(render("smallest", ON))


@pytest.fixture(scope="module")
def changed() -> Rules:
    return rules_of(render("everything"))


def test_they_are_those_of_the_plain_file_about_this_release(rules: Rules) -> None:
    """Both come from one declaration; only the selectors differ."""
    (group,) = plain_rules()["groups"]
    assert list(rules) == [alert.name for alert in ALERTS]
    for plain in group["rules"]:
        alert, rule = BY_NAME[plain["alert"]], dict(rules[plain["alert"]])
        expression = selected(" ".join(alert.expression.split()), OURS)
        for key, value in alert.values.items():
            # A large number is written in Helm's way.
            expression = expression.replace(f"%{key}%", value if isinstance(value, str) else f"{value:g}")
        assert rule == {**plain, "expr": expression}


def test_each_can_be_switched_off_and_set_otherwise(changed: Rules) -> None:
    assert "LancewalProcessDown" not in changed
    assert len(changed) == len(ALERTS) - 1
    assert changed["LancewalRetentionHorizonShort"]["expr"].partition(" unless ")[0].endswith("} < 7200")
    assert changed["LancewalPaused"]["for"] == "30m"
    assert changed["LancewalPaused"]["labels"] == {"severity": "info", "team": "data"}
    assert changed["LancewalDamaged"]["labels"] == {"severity": "critical", "team": "data"}
    url = changed["LancewalDamaged"]["annotations"]["runbook_url"]
    assert url == "https://pages.example/runbooks/LancewalDamaged.md"


def test_no_place_is_left_open(changed: Rules) -> None:
    for rule in changed.values():
        assert "@" not in rule["expr"]
        assert "%" not in rule["expr"] + rule["annotations"]["description"]


def test_a_large_threshold_is_still_a_number() -> None:
    rules = {"LancewalCleanUpBehind": {"threshold": 30_000_000}}
    found = rules_of(render("smallest", {**ON, "alerts": {"enabled": True, "rules": rules}}))
    assert float(found["LancewalCleanUpBehind"]["expr"].rpartition("> ")[2]) == 30_000_000


@pytest.mark.parametrize(
    ("alerts", "wrong"),
    [
        ({"rules": {"LancewalRowLate": {"enabled": False}}}, "LancewalRowLate"),
        ({"rules": {"LancewalRowsLate": {"treshold": 3}}}, "treshold"),
        ({"rules": {"LancewalRowsLate": {"for": "ten minutes"}}}, "for"),
        ({"rules": {"LancewalRowsLate": {"threshold": "300s"}}}, "threshold"),
        ({"freshnessSeconds": 3}, "freshnessSeconds"),
    ],
)
def test_a_rule_that_there_is_not_is_refused(alerts: Mapping[str, Any], wrong: str) -> None:
    with pytest.raises(Refused, match=wrong):
        render("smallest", {**ON, "alerts": {"enabled": True, **alerts}})


def test_alerts_need_the_monitor_that_gives_series_their_labels() -> None:
    with pytest.raises(Refused, match=r"podMonitor\.enabled"):
        render("smallest", {"alerts": {"enabled": True}})
    assert not [o for o in render("smallest").objects if o["kind"] == "PrometheusRule"]
