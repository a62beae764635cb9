"""The list of runbooks, with the first sentence of each."""

from __future__ import annotations

import re
from pathlib import Path

from watch.alerts.table import ALERTS

_HEAD = """\
# Runbooks

One page for each alert: what it means, whether data are at risk, what to look at, what to do, and how you know that it is
over. [Watch](../how-to/watch.md) says how Prometheus gets the alerts, and [metrics](../reference/metrics.md)
lists all metrics.

| alert | severity | says |
|---|---|---|
"""


def index_text(runbooks: Path) -> str:
    """Return the text of the list of runbooks, with the first sentence of each page in the folder ``runbooks``."""
    rows = [
        f"| [{alert.name}]({alert.runbook}) | {alert.severity} | {_first_sentence(runbooks / alert.runbook)} |\n"
        for alert in ALERTS
    ]
    return _HEAD + "".join(rows)


def _first_sentence(page: Path) -> str:
    _, _, text = page.read_text().partition("## What it means\n\n")
    return re.split(r"\.\s|: |\.$", " ".join(text.partition("\n\n")[0].split()))[0]
