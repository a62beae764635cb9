"""A service's ``/status``: what it answers, and what a request costs."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from lancewal_core.process.health import Health, HealthServer
from lancewal_core.process.status.board import IDLE_S, LOOKED_AT_S, StatusBoard
from lancewal_core.process.status.facts import PartitionFacts, TableFacts, WaitingGeneration
from lancewal_core.process.status.report import Figures, partitions_of
from tests.support.scripted import ManualClock
from tests.support.shown_status import HOSTILE, NOW, shown_status


@pytest.mark.parametrize(
    ("facts", "seconds"),
    [
        (PartitionFacts("t", 0, merged=5), 0.0),
        (
            PartitionFacts(
                "t", 0, merged=5, unmerged=WaitingGeneration(2, NOW - 9_000), sealed=WaitingGeneration(3, NOW - 4_000)
            ),
            9.0,
        ),
        (PartitionFacts("t", 0, flushed=5, sealed=WaitingGeneration(3, NOW - 4_000)), 4.0),
        (PartitionFacts("t", 0, merged=5, unmerged=WaitingGeneration(2)), None),  # since when is not known
        (PartitionFacts("t", 0, durable=5), None),  # of merges nothing is known
    ],
)
def test_what_waits_for_its_merge_is_as_old_as_the_oldest_of_it(facts: PartitionFacts, seconds: float | None) -> None:
    (found,) = partitions_of(TableFacts(NOW, "t"), [Figures(facts)])
    assert found.unmerged_s == seconds


def get(port: int, path: str, accept: str = "*/*") -> tuple[int, dict[str, str], bytes]:
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Accept": accept})
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        with opener.open(asked, timeout=60) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def test_the_port_answers_with_the_status_as_json() -> None:
    clock = ManualClock()
    board = StatusBoard(clock)
    with HealthServer("127.0.0.1", 0, CollectorRegistry(), Health(clock, list), board.answer) as server:
        code, headers, _ = get(server.port, "/")
        assert (code, headers["Location"]) == (302, "/status")
        assert get(server.port, "/status")[0] == 503
        board.show(shown_status(2, HOSTILE))
        for accept in ("text/html,application/xhtml+xml;q=0.9,*/*;q=0.8", "application/json"):
            code, headers, body = get(server.port, "/status", accept)
            assert (code, headers["Content-Type"]) == (200, "application/json")
            assert headers["X-Content-Type-Options"] == "nosniff"  # or a browser could take a topic's name for markup
            found = json.loads(body)
            assert found["seen_by"] == "ingest"
            assert [one["diagnosis"]["state"] for one in found["partitions"]] == ["waits", "idle"]
            assert found["topic"] == HOSTILE


def test_requests_make_no_work_beyond_a_status_a_second() -> None:
    clock = ManualClock()
    board = StatusBoard(clock)
    assert board.due()
    board.show(shown_status(1))
    assert not board.due()
    clock.sleep(LOOKED_AT_S)
    assert not board.due()  # there are no requests
    for _ in range(100):
        board.answer()
    assert board.due()
    first = board.answer().body
    assert board.answer().body is first  # encoded once
    board.show(shown_status(1))
    for _ in range(100):
        board.answer()
    assert not board.due()
    clock.sleep(60 + LOOKED_AT_S)
    board.show(shown_status(1))
    clock.sleep(IDLE_S / 2)
    assert not board.due()
    clock.sleep(IDLE_S / 2)
    assert board.due()


def test_a_process_without_a_status_answers_404() -> None:
    with HealthServer("127.0.0.1", 0, CollectorRegistry(), Health(ManualClock(), list)) as server:
        assert get(server.port, "/status")[0] == 404
