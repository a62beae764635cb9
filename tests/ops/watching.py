"""One fault after the other: what each panel showed before and during it, and how soon each alert fired and cleared."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tests.ops.faults import Fault
from tests.ops.prometheus import Prometheus
from tests.ops.stage import Stage
from watch.dashboards.panel import Board, Panel
from watch.dashboards.table import BOARDS

PATIENCE_S = 240.0
"""For a panel to move, an alert to fire or to clear: what is waited for is that, and this is when it is given up."""
_BASELINE = 6
"""Looks at a panel before the fault: what it does by itself is between them."""
_MARGIN = 0.05

Values = Mapping[str, float]


@dataclass(slots=True)
class Shown:
    """What one series of a panel showed; None: there was no series, or it is not known yet."""

    board: str
    panel: str
    fault: str
    before: float | None = None
    during: float | None = None
    after_s: float | None = None
    """Seconds from the fault until it showed something else."""
    problem: str = ""


@dataclass(slots=True)
class Fired:
    alert: str
    fault: str
    fired_s: float | None = None
    cleared_s: float | None = None


@dataclass(slots=True)
class Results:
    shown: list[Shown] = field(default_factory=list)
    fired: list[Fired] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        wrong = [f"{s.board}, {s.panel}: {s.problem}" for s in self.shown if s.problem]
        wrong += [f"{f.alert} did not fire in {f.fault}" for f in self.fired if f.fired_s is None]
        return wrong + [f"{f.alert} did not clear" for f in self.fired if f.fired_s is not None and f.cleared_s is None]


def expressions(panel: Panel) -> Iterator[str]:
    """With values in place of Grafana's variables."""
    for query in panel.queries:
        filled = query.filled.replace("$__rate_interval", "5s")
        yield re.sub(r"\$(namespace|table|partition)", ".*", filled)


def values(prometheus: Prometheus, panel: Panel) -> Values:
    return {
        f"{number} {labels}": value
        for number, expression in enumerate(expressions(panel))
        for labels, value in prometheus.query(expression).items()
    }


def panels_of(fault: str) -> list[tuple[Board, Panel]]:
    return [(board, panel) for board in BOARDS for panel in board.panels if panel.moved_by == fault]


def try_fault(fault: Fault, stage: Stage, prometheus: Prometheus, results: Results) -> None:
    watched = [(panel, Shown(board.title, panel.title, fault.name)) for board, panel in panels_of(fault.name)]
    alerts = [Fired(name, fault.name) for name in fault.alerts]
    results.shown += [shown for _, shown in watched]
    results.fired += alerts
    fault.before(stage)
    ranges = [_baseline(prometheus, panel) for panel, _ in watched]
    started = time.monotonic()
    fault.begin(stage)

    def all_seen() -> bool:
        # What is made may take long: an alert may have fired and cleared before it is looked for.
        firing = prometheus.fired_within(time.monotonic() - started)
        for alert in alerts:
            if alert.fired_s is None and alert.alert in firing:
                alert.fired_s = time.monotonic() - started
        for (panel, shown), known in zip(watched, ranges, strict=True):
            if shown.after_s is None and (found := moved(known, values(prometheus, panel))) is not None:
                shown.before, shown.during = found
                shown.after_s = time.monotonic() - started
        return all(a.fired_s is not None for a in alerts) and all(s.after_s is not None for _, s in watched)

    _within(all_seen)
    for panel, shown in watched:
        if shown.after_s is None:
            shown.problem = "shows nothing else during the fault" if values(prometheus, panel) else "has no data"
    ended = time.monotonic()
    fault.end(stage)

    def all_clear() -> bool:
        firing = prometheus.firing()
        for alert in alerts:
            if alert.fired_s is not None and alert.cleared_s is None and alert.alert not in firing:
                alert.cleared_s = time.monotonic() - ended
        return all(a.cleared_s is not None for a in alerts if a.fired_s is not None)

    _within(all_clear)


def unmoved(fault: str, why: str, prometheus: Prometheus, results: Results) -> None:
    """Panels that nothing moves here show a value."""
    for board, panel in panels_of(fault):
        found = values(prometheus, panel)
        shown = Shown(board.title, panel.title, why, problem="" if found else "has no data")
        shown.before = shown.during = next(iter(found.values()), None)
        results.shown.append(shown)


def _baseline(prometheus: Prometheus, panel: Panel) -> dict[str, tuple[float, float]]:
    """Least and largest value of each series within some seconds."""
    found: dict[str, tuple[float, float]] = {}
    for _ in range(_BASELINE):
        for name, value in values(prometheus, panel).items():
            low, high = found.get(name, (value, value))
            found[name] = (min(low, value), max(high, value))
        time.sleep(0.5)
    return found


def moved(known: Mapping[str, tuple[float, float]], now: Values) -> tuple[float | None, float] | None:
    """Of the series that has left its range furthest, what it showed before and what it shows now."""
    best: tuple[float, float | None, float] | None = None
    for name, value in now.items():
        low, high = known.get(name, (0.0, 0.0))
        beyond = max(low - value, value - high) / max(abs(high), abs(low), 1e-9)
        if beyond > _MARGIN and (best is None or beyond > best[0]):
            best = (beyond, high if name in known else None, value)
    gone = [high for name, (_, high) in known.items() if name not in now and high]
    if best is None and gone and now:
        best = (1.0, gone[0], 0.0)
    return None if best is None else (best[1], best[2])


def _within(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.5)
