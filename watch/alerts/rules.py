"""The alerts as a rules file of Prometheus, and as the file from which the chart's template makes a PrometheusRule."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from watch.alerts.alert import Alert, Value
from watch.alerts.table import ALERTS

GROUP = "lancewal"
RUNBOOKS = "docs/runbooks"
"""Default base of the runbooks' addresses: their folder in the project."""
_HEADER = """\
# Alerts on lancewal for a Prometheus without the operator, whose jobs are called lancewal-ingest and lancewal-flusher.
# Made by `python -m watch` from watch/alerts; what each means, and what to do: docs/runbooks.
"""

Changed = Callable[[Alert], Mapping[str, Value]]


def rule(alert: Alert, changed: Mapping[str, Value], runbooks: str) -> dict[str, Any]:
    """Return an alert as a Prometheus rule.  ``changed`` replaces values of the alert, and ``for``."""
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
    """Return the content of a rules file; ``changed`` returns the values to replace in an alert."""
    return {"groups": [{"name": GROUP, "rules": [rule(alert, changed(alert), runbooks) for alert in ALERTS]}]}


def plain_text() -> str:
    return _HEADER + yaml.safe_dump(plain_rules(), sort_keys=False, width=200, allow_unicode=True)


def chart_values() -> dict[str, dict[str, Value | bool]]:
    """Return the default values of the chart below ``alerts.rules``."""
    return {
        alert.name: {"enabled": True, "severity": alert.severity, "for": alert.pending, **alert.values}
        for alert in ALERTS
    }


def chart_text() -> str:
    """Return the text of the file ``alerts.json``, which the chart's template reads."""
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
