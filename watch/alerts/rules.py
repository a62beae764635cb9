"""The alerts as a rules file of Prometheus, and as what the chart's template makes a PrometheusRule of."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from watch.alerts.alert import Alert, Value
from watch.alerts.table import ALERTS

GROUP = "lancewal"
RUNBOOKS = "docs/runbooks"
"""Base of the runbooks' addresses where nobody says another: their folder in the project."""
_HEADER = """\
# Alerts on lancewal for a Prometheus without the operator, whose jobs are called lancewal-ingest and lancewal-flusher.
# Made by `python -m watch` from watch/alerts; what each means, and what to do: docs/runbooks.
"""

Changed = Callable[[Alert], Mapping[str, Value]]


def rule(alert: Alert, changed: Mapping[str, Value], runbooks: str) -> dict[str, Any]:
    """``changed`` has values of the alert, and ``for``."""
    return {
        "alert": alert.name,
        "expr": alert.plain(changed),
        "for": str(changed.get("for", alert.pending)),
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.said(alert.summary, changed),
            "description": alert.said(alert.advice, changed),
            "runbook_url": f"{runbooks}/{alert.runbook}",
        },
    }


def plain_rules(changed: Changed = lambda _: {}, runbooks: str = RUNBOOKS) -> dict[str, Any]:
    """A rules file; ``changed`` says for an alert which of its values are others."""
    return {"groups": [{"name": GROUP, "rules": [rule(alert, changed(alert), runbooks) for alert in ALERTS]}]}


def plain_text() -> str:
    return _HEADER + yaml.safe_dump(plain_rules(), sort_keys=False, width=200, allow_unicode=True)


def chart_values() -> dict[str, dict[str, Value | bool]]:
    """What the chart's values have below ``alerts.rules`` unless somebody changes it."""
    return {
        alert.name: {"enabled": True, "severity": alert.severity, "for": alert.pending, **alert.values}
        for alert in ALERTS
    }


def chart_text() -> str:
    """The file that the chart's template reads."""
    found = [
        {
            "alert": alert.name,
            "expr": " ".join(alert.expression.split()),
            "summary": alert.summary,
            "description": alert.advice,
            "runbook": alert.runbook,
        }
        for alert in ALERTS
    ]
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"
