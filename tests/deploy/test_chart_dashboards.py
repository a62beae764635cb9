"""The chart's dashboards: a ConfigMap each, found by the sidecar, with the runbooks where the values say."""

from __future__ import annotations

import json

from tests.deploy.helm_program import render
from watch.dashboards.board import PUBLIC_RUNBOOKS, text
from watch.dashboards.table import BOARDS

LIMIT = 1 << 20
"""Of Kubernetes, for what a ConfigMap holds."""


def test_each_dashboard_is_a_config_map_that_the_sidecar_finds() -> None:
    rendered = render("everything")
    for board in BOARDS:
        name = f"r-{board.uid}-board"
        found = rendered.one("ConfigMap", name)
        assert found["metadata"]["labels"]["dashboard"] == "grafana"
        assert found["metadata"]["labels"]["team"] == "data"
        assert found["metadata"]["annotations"] == {"folder": "data"}
        (file,) = found["data"]
        assert file == f"{board.uid}.json"
        expected = text(board).replace(PUBLIC_RUNBOOKS, "https://pages.example/runbooks")
        assert json.loads(found["data"][file]) == json.loads(expected)
        assert len(found["data"][file]) < LIMIT / 2


def test_by_default_there_are_none_and_switched_on_they_have_the_usual_label() -> None:
    assert not [o for o in render("smallest").objects if o["metadata"]["name"].endswith("-board")]
    found = render("smallest", {"dashboards": {"enabled": True, "folder": "", "namespace": "monitoring"}})
    boards = [o["metadata"] for o in found.objects if o["metadata"]["name"].endswith("-board")]
    assert len(boards) == len(BOARDS)
    assert {board["labels"]["grafana_dashboard"] for board in boards} == {"1"}
    assert {board["namespace"] for board in boards} == {"monitoring"}
    assert not any("annotations" in board for board in boards)
