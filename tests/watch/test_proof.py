"""What `python3 dev.py check-ops` makes covers every panel and every alert, and what did not happen is a problem."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ops.faults import BY_SERIES, FAULTS, SHORTENED, UNMOVED
from tests.ops.kept import Kept
from tests.ops.page import page
from tests.ops.series import CASES
from tests.ops.watching import Fired, Results, Shown, moved
from watch.alerts.table import BY_NAME
from watch.dashboards.table import BOARDS


def test_every_panel_is_moved_by_a_fault_that_there_is() -> None:
    movers = {panel.moved_by for board in BOARDS for panel in board.panels}
    assert movers - {fault.name for fault in FAULTS} == set(UNMOVED)


def test_every_alert_has_a_fault_or_made_up_series() -> None:
    made = [name for fault in FAULTS for name in fault.alerts]
    assert {*made, *BY_SERIES} == BY_NAME.keys()
    assert set(made) & BY_SERIES.keys() == set()
    assert CASES.keys() == BY_SERIES.keys()


def test_what_is_shortened_are_values_of_alerts() -> None:
    for name, values in SHORTENED.items():
        assert values.keys() <= {"for", *BY_NAME[name].values}, name


@pytest.mark.parametrize(
    ("known", "now", "expected"),
    [
        ({"a": (1.0, 2.0)}, {"a": 2.05}, None),
        ({"a": (1.0, 2.0)}, {"a": 2.5}, (2.0, 2.5)),
        ({"a": (1.0, 2.0)}, {"a": 0.5}, (2.0, 0.5)),
        ({"a": (0.0, 0.0)}, {"a": 0.0}, None),
        ({"a": (0.0, 0.0)}, {"a": 0.001}, (0.0, 0.001)),
        ({}, {"a": 3.0}, (None, 3.0)),
        ({}, {}, None),
        ({"a": (3.0, 3.0), "b": (1.0, 1.0)}, {"b": 1.0}, (3.0, 0.0)),
        ({"a": (3.0, 3.0)}, {}, None),
    ],
)
def test_moved_is_what_has_left_its_range(
    known: dict[str, tuple[float, float]], now: dict[str, float], expected: tuple[float | None, float] | None
) -> None:
    assert moved(known, now) == expected


def test_whatever_did_not_happen_is_a_problem(tmp_path: Path) -> None:
    results = Results(
        [Shown("b", "p", "f", problem="has no data"), Shown("b", "q", "f", 1, 2, 3)],
        [Fired("A", "f"), Fired("B", "f", 1.0), Fired("C", "f", 1.0, 2.0)],
    )
    assert results.problems == ["b, p: has no data", "A did not fire in f", "B did not clear"]
    kept = Kept(tmp_path / "kept.json")
    kept.keep("load", results, 60.0)
    kept.keep_objects(15)
    made = page(kept)
    assert "| A | `f` | not | not |" in made
    assert "all 15 objects" in made
    assert "`churn`" in made.partition("No run has made these yet: ")[2].partition("\n")[0]
    assert "was opened in" not in made
    kept.keep_browser("Chromium/1")
    assert "was opened in Chromium/1" in page(Kept(tmp_path / "kept.json"))
