"""The page of the proof: what was made, what panels showed, how soon alerts fired and cleared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.ops.faults import BY_SERIES, FAULTS
from tests.ops.kept import Kept

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "watch-proof.md"
_HEAD = """\
# Proof of dashboards and alerts

`python3 dev.py check-ops` writes this page. It runs a broker, an S3 server, two ingest processes, a flusher, a second
flusher for a table with `format.key: bytes` (*keyed by others*), a third ingest process for a table of
change events, and a Prometheus
with the alerts of the chart. It causes each load and fault below, and checks two things: each panel must show another
value than in the seconds before, and each alert must fire, and clear once the fault is over. For this test, times of
alerts (`for`, windows) are shortened to seconds, and some thresholds are lowered to values that a small setup reaches.
The expressions are those of the chart.

"""


def page(kept: Kept) -> str:
    results, lines = kept.results(), [_HEAD.rstrip("\n"), ""]
    if kept.objects:
        lines += [
            "A real Kubernetes API server with the definitions of the Prometheus Operator, which refuses unknown fields,",
            f"accepted all {kept.objects} objects of the chart with all options on.",
            "",
        ]
    lines += [
        f"All faults together took {kept.minutes:.0f} minutes. The tables have the result of each fault's last run.",
        "",
    ]
    if kept.missing:
        lines += [f"No run has made these yet: {', '.join(f'`{name}`' for name in kept.missing)}.", ""]
    lines += ["## Faults", "", *table(("fault", "what is done"), [(f"`{f.name}`", f.says) for f in FAULTS])]
    fired = [(f.alert, f"`{f.fault}`", seconds(f.fired_s), seconds(f.cleared_s)) for f in results.fired]
    lines += ["", "## Alerts", "", *table(("alert", "fault", "fires after", "clears after"), fired)]
    lines += [
        "",
        "These alerts were not caused on real services. Prometheus' own unit test ran them on synthetic series:",
        "",
    ]
    lines += table(("alert", "why"), list(BY_SERIES.items()))
    shown = [
        (
            s.board.partition(": ")[2],
            s.panel,
            f"`{s.fault}`" if " " not in s.fault else s.fault,
            value(s.before),
            s.problem or value(s.during),
        )
        for s in results.shown
    ]
    lines += [
        "",
        "## Panels",
        "",
        "Each row has the values of the series that changed most; `-` means that there was no such series.",
        "",
    ]
    lines += table(("dashboard", "panel", "fault", "before", "during"), sorted(shown))
    return "\n".join(lines) + "\n"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def seconds(found: float | None) -> str:
    return "not" if found is None else f"{found:.0f} s"


def value(found: float | None) -> str:
    return "-" if found is None else f"{found:.4g}"
