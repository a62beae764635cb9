"""The page of the proof: what was made, what panels showed, how soon alerts fired and cleared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.ops.faults import BY_SERIES, FAULTS
from tests.ops.kept import Kept

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "watch-proof.md"
_HEAD = """\
# Proof of dashboards and alerts

Made by `python3 dev.py check-ops`, which runs a broker, an S3 server, two ingest processes, a flusher, another flusher for a
table whose topic is keyed by others, and a Prometheus with the alerts of the chart, makes each load and fault below, and
looks: each panel must show something else than in the seconds before, each alert must fire, and clear once the fault is
over. Times of alerts (`for`, windows) are shortened to seconds, some thresholds are lowered to what a small stage reaches;
expressions are those of the chart.

"""


def page(kept: Kept) -> str:
    results, lines = kept.results(), [_HEAD.rstrip("\n"), ""]
    if kept.objects:
        lines += [
            f"A real Kubernetes API server with the definitions of the Prometheus Operator took all {kept.objects} objects of",
            "the chart with everything on, unknown fields refused.",
            "",
        ]
    lines += [
        f"All faults together took {kept.minutes:.0f} minutes; of each stands here what its last run came to.",
        "",
    ]
    if kept.missing:
        lines += [f"No run has made these yet: {', '.join(f'`{name}`' for name in kept.missing)}.", ""]
    lines += ["## Faults", "", *table(("fault", "what is done"), [(f"`{f.name}`", f.says) for f in FAULTS])]
    fired = [(f.alert, f"`{f.fault}`", seconds(f.fired_s), seconds(f.cleared_s)) for f in results.fired]
    lines += ["", "## Alerts", "", *table(("alert", "fault", "fires after", "clears after"), fired)]
    lines += ["", "Not made for real, but run by Prometheus' own unit test on made-up series:", ""]
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
    lines += ["", "## Panels", "", "Of the series that changed most; `-`: there was no such series.", ""]
    lines += table(("dashboard", "panel", "fault", "before", "during"), sorted(shown))
    return "\n".join(lines) + "\n"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def seconds(found: float | None) -> str:
    return "not" if found is None else f"{found:.0f} s"


def value(found: float | None) -> str:
    return "-" if found is None else f"{found:.4g}"
