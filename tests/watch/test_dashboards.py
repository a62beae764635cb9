"""Dashboards as they are declared and as Grafana gets them: queries about metrics that there are, and a form that it takes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.watch.declared import undeclared
from watch.alerts.table import BY_NAME
from watch.dashboards.board import PUBLIC_RUNBOOKS, text
from watch.dashboards.panel import Board, Panel, Section, q
from watch.dashboards.table import BOARDS

PANELS = [(board, panel) for board in BOARDS for panel in board.panels]
WIDTH = 24

each_board = pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
each_panel = pytest.mark.parametrize(
    ("board", "panel"), PANELS, ids=lambda part: part.uid if isinstance(part, Board) else part.title
)


def made(board: Board) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text(board))
    return found


def plain(expression: str) -> str:
    """With values in place of Grafana's variables."""
    return re.sub(r"\$(namespace|table|partition)", ".*", expression.replace("$__rate_interval", "1m"))


@each_panel
def test_its_queries_name_metrics_and_labels_that_are_exported(board: Board, panel: Panel) -> None:
    for query in panel.queries:
        assert undeclared(plain(query.filled)) == []
        assert "@" not in query.filled


@each_panel
def test_it_says_what_it_shows_and_what_to_do(board: Board, panel: Panel) -> None:
    assert panel.shows.endswith((".", "'"))
    assert panel.advice.endswith(".")
    assert set(panel.runbooks) <= BY_NAME.keys()
    assert panel.moved_by


@each_panel
def test_a_share_of_measurements_counts_those_that_timed_out(board: Board, panel: Panel) -> None:
    """Else it would show 100 % while every measurement fails."""
    for query in panel.queries:
        if re.search(r"/.*lancewal_flusher_visible_seconds_count", query.filled, re.DOTALL):
            assert 'lancewal_flusher_visibility_failures_total{reason="timeout"' in query.filled


@each_panel
def test_its_legend_names_labels_that_are_left(board: Board, panel: Panel) -> None:
    for query in panel.queries:
        shown = set(re.findall(r"{{(\w+)}}", query.legend))
        aggregated = re.findall(r"\bby \(([\w, ]+)\)", query.filled)
        if shown and aggregated:
            assert any(shown <= set(labels.split(", ")) for labels in aggregated), query


def test_every_alert_has_a_panel_that_leads_to_its_runbook() -> None:
    linked = {name for _, panel in PANELS for name in panel.runbooks}
    assert BY_NAME.keys() - linked == set()


# -- what Grafana gets -------------------------------------------------------------------------------------------


def overlapping(panels: list[dict[str, Any]]) -> Iterator[str]:
    taken: dict[tuple[int, int], str] = {}
    for panel in panels:
        at = panel["gridPos"]
        if at["x"] + at["w"] > WIDTH:
            yield f"{panel['title']} is wider than the board"
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                if (x, y) in taken:
                    yield f"{panel['title']} lies on {taken[x, y]}"
                taken[x, y] = panel["title"]


@each_board
def test_panels_have_their_own_number_and_place(board: Board) -> None:
    panels = made(board)["panels"]
    numbers = [panel["id"] for panel in panels]
    assert len(set(numbers)) == len(numbers) == len(board.panels) + len(board.sections)
    assert sorted(set(overlapping(panels))) == []


def test_panels_on_each_other_are_seen() -> None:
    panels = made(BOARDS[0])["panels"]
    panels[2]["gridPos"] = panels[1]["gridPos"]
    assert list(overlapping(panels))


@each_board
def test_every_query_asks_the_source_that_is_chosen(board: Board) -> None:
    found = made(board)
    names = [variable["name"] for variable in found["templating"]["list"]]
    assert names == ["datasource", "namespace", "topic", "table", "partition"]
    source = {"type": "prometheus", "uid": "${datasource}"}
    for panel in found["panels"]:
        if panel["type"] != "row":
            assert panel["datasource"] == source
            assert all(re.fullmatch("[A-H]", target["refId"]) for target in panel["targets"])
    used = set(re.findall(r"\$(\w+)", " ".join(query.filled for panel in board.panels for query in panel.queries)))
    assert used - {"__rate_interval"} <= set(names)


@each_board
def test_what_lacks_a_label_is_shown_too(board: Board) -> None:
    """Outside Kubernetes nothing has a namespace, and with `metrics.per_partition: false` nothing has a partition."""
    for variable in made(board)["templating"]["list"][1:]:
        assert (variable["includeAll"], variable["allValue"], variable["multi"]) == (True, ".*", True)
        assert undeclared(plain(variable["query"]["query"].removeprefix("label_values(").rpartition(", ")[0])) == []


@each_board
def test_links_lead_to_runbooks(board: Board) -> None:
    for panel in made(board)["panels"]:
        for link in panel.get("links") or ():
            page = link["url"].removeprefix(f"{PUBLIC_RUNBOOKS}/").removesuffix(".md")
            assert page in BY_NAME
            assert link["title"] == page


def test_names_are_unique_and_those_of_the_files() -> None:
    assert [board.uid for board in BOARDS] == [
        "lancewal-overview",
        "lancewal-ingest",
        "lancewal-flusher",
        "lancewal-store",
    ]
    assert len({board.title for board in BOARDS}) == len(BOARDS)
    for board in BOARDS:
        titles = [panel.title for panel in board.panels]
        assert len(set(titles)) == len(titles), board.uid
        assert made(board)["uid"] == board.uid


def test_a_board_with_a_query_of_nothing_would_be_seen() -> None:
    broken = Board("b", "b", "b", (Section("s", (Panel("p", "p.", "p.", [q("sum(lancewal_nothing{@})")], "load"),)),))
    assert undeclared(plain(broken.panels[0].queries[0].filled)) == ["there is no metric lancewal_nothing"]
