"""Alerts whose fault is not made, in Prometheus' own unit test: made-up series set each off, and others do not."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.ops.faults import BY_SERIES
from tests.ops.tools import program
from watch.alerts.rules import plain_rules

_JOB = 'job="lancewal-flusher",instance="f"'


@dataclass(frozen=True, slots=True)
class Case:
    """Of one series: values, a minute apart, in promtool's notation; until ``quiet`` it does not fire, at ``loud`` it does."""

    series: str
    values: str
    quiet: str
    loud: str


CASES: Mapping[str, Case] = {
    "LancewalInvariantViolated": Case(
        f'lancewal_flusher_invariant_violations_total{{table="t",kind="merged_position_fell",{_JOB}}}',
        "0x10 1x20",
        "9m",
        "12m",
    ),
}


def run_cases(folder: Path) -> list[str]:
    """What is wrong; empty if each fires when it must and not before."""
    assert CASES.keys() == BY_SERIES.keys()
    (folder / "rules-plain.yml").write_text(yaml.safe_dump(plain_rules()))
    wrong = []
    for alert, case in CASES.items():
        for when, fires in ((case.quiet, False), (case.loud, True)):
            if _fires(folder, alert, case, when) is not fires:
                wrong.append(f"{alert} at {when}: {'does not fire' if fires else 'fires'}")
    return wrong


def _fires(folder: Path, alert: str, case: Case, when: str) -> bool:
    """promtool compares whole alerts; whether there is one at all is what its complaint says."""
    test = {
        "rule_files": ["rules-plain.yml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": case.series, "values": case.values}],
                "alert_rule_test": [{"eval_time": when, "alertname": alert, "exp_alerts": []}],
            }
        ],
    }
    (folder / "unit.yml").write_text(yaml.safe_dump(test))
    done = subprocess.run(
        [program("promtool"), "test", "rules", folder / "unit.yml"], capture_output=True, text=True, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0 or f"alertname: {alert}" in said, said
    return done.returncode != 0
