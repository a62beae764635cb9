"""What `python3 dev.py check-ops` makes covers every panel and every alert, and what did not happen is a problem."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lancewal_core.process.clock import SystemClock
from lancewal_ingest.event_table import IngestEvents
from lancewal_ingest.service.metrics import IngestMetrics
from tests.ops.faults import BY_SERIES, FAULTS, SHORTENED, UNMOVED
from tests.ops.kept import Kept
from tests.ops.page import page
from tests.ops.series import CASES
from tests.ops.silence import HEALTHY, MINUTES, WORLDS, World, series_of
from tests.ops.watching import Fired, Results, Shown, moved
from tests.support.regions import region
from tests.watch.declared import undeclared
from watch.alerts.alert import Alert, counted
from watch.alerts.table import ALERTS, BY_NAME
from watch.dashboards.table import BOARDS
from watch.promql import parts


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


_OF_RETENTION = parts(BY_NAME["LancewalRetentionHorizonShort"].plain()).metrics


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_a_healthy_table_has_every_series_that_an_alert_looks_at(alert: Alert) -> None:
    """An alert of which a world has no series would be silent there whatever it says."""
    assert parts(alert.plain()).metrics <= {series.partition("{")[0] for series in HEALTHY}


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_a_made_up_table_has_series_that_services_export(world: World) -> None:
    assert world.fires <= BY_NAME.keys()
    assert world.changed.keys() <= HEALTHY.keys()
    assert [wrong for series in series_of(world) for wrong in undeclared(series)] == []


def test_a_backfill_of_1970_is_late_only_where_ingest_is_behind() -> None:
    """``check-ops`` evaluates the alert itself."""
    threshold = float(BY_NAME["LancewalRowsLate"].values["threshold"])
    (series,) = (name for name in HEALTHY if name.startswith("lancewal_ingest_freshness_seconds"))
    for world in WORLDS:
        values = [value for minute in range(20, MINUTES) if (value := series_of(world)[series](minute)) is not None]
        assert (min(values) > threshold) == ("LancewalRowsLate" in world.fires), world.name


def test_ingest_shows_the_retention_beside_the_horizon() -> None:
    metrics = IngestMetrics(SystemClock(), "t", 1, IngestEvents())
    metrics.retention(3600.0, {region(0): 3598.0}, {})
    shown = [metrics.registry.get_sample_value(name, {"table": "t"}) for name in sorted(_OF_RETENTION)]
    assert shown == [3598.0, 3600.0]


def test_there_are_healthy_tables_and_others() -> None:
    assert len({world.name for world in WORLDS}) == len(WORLDS)
    assert sum(not world.fires for world in WORLDS) > 10
    assert {*counting(), "LancewalRetentionHorizonShort"} <= {alert for world in WORLDS for alert in world.fires}


def test_a_series_that_begins_counts_in_one_way_only() -> None:
    """A series that is new to Prometheus may be as old as its process: an expression of its own would take it for new."""
    assert [alert.name for alert in ALERTS if re.search(r" unless \S+ offset ", alert.expression)] == counting()


def counting() -> list[str]:
    """Names of the alerts that look at what a counter with labels has counted of late."""
    found = ((alert, metric) for alert in ALERTS for metric in parts(alert.plain()).metrics)
    ways = (
        (alert, counted(metric, process, kind))
        for alert, metric in found
        for process in ("ingest", "flusher")
        for kind in ("", "wrong_format")
    )
    return list(dict.fromkeys(alert.name for alert, way in ways if way in alert.expression))


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
