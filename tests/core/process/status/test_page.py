"""The status page: it is whole, escapes everything, loads nothing, shows problems first; and what a view of it costs."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from lancewal_core.process.health import Health, HealthServer
from lancewal_core.process.status.board import IDLE_S, LOOKED_AT_S, StatusBoard
from lancewal_core.process.status.causes import Step
from lancewal_core.process.status.facts import PartitionFacts, TableFacts, Waiting
from lancewal_core.process.status.page import REFRESH_S, nothing_yet, status_page
from lancewal_core.process.status.report import Figures, TableStatus, partitions_of
from tests.support.scripted import ManualClock
from tests.support.shown_status import HOSTILE, NOW, shown_status

VOID = {"meta", "br", "img", "link", "input", "hr"}
ALLOWED = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "main",
        "header",
        "section",
        "footer",
        "div",
        "span",
        "p",
        "h1",
    ),
    *("h2", "strong", "code", "ol", "ul", "li", "dl", "dt", "dd", "table", "thead", "tbody", "tr", "th", "td"),
}
ATTRIBUTES = {"lang", "charset", "name", "content", "http-equiv", "class", "title"}


class Page(HTMLParser):
    """Every tag is closed in order; texts, tags and attributes as a browser would take them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def said(self, *tags: str) -> list[str]:
        return [text for tag, text in self.texts if tag in tags]

    @property
    def text(self) -> str:
        return " ".join(text for tag, text in self.texts if tag != "style")


def rows_of(page: str) -> Sequence[str]:
    """The partitions of the table, as they are listed."""
    return re.findall(r"<tr class=\w+><td class=n>(\d+)</td>", page)


@pytest.mark.parametrize("status", [shown_status(64), shown_status(1), shown_status(0)], ids=["64", "1", "0"])
def test_the_page_is_whole_and_holds_nothing_but_plain_markup(status: TableStatus) -> None:
    text = status_page(status)
    page = Page(text)
    assert page.open == []
    assert text.startswith("<!DOCTYPE html>\n")
    assert {tag for tag, _ in page.tags} <= ALLOWED
    assert {name for _, attributes in page.tags for name in attributes} <= ATTRIBUTES
    assert ("meta", {"http-equiv": "refresh", "content": str(REFRESH_S)}) in page.tags
    assert Page(nothing_yet("ingest")).open == []


def test_nothing_that_somebody_else_has_named_is_markup() -> None:
    """In every text of the status stand markup, quotes, entities, and signs that turn a line around."""
    status = shown_status(3, HOSTILE)
    text = status_page(status)
    page = Page(text)
    assert page.open == []
    assert {tag for tag, _ in page.tags} <= ALLOWED
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert "\\u202e" in text
    assert page.text.count("<script>alert(1)</script>") >= 10  # as text: shown, not run
    assert len(page.tags) == len(Page(status_page(shown_status(3, "plain"))).tags)


def test_problems_come_first_and_each_is_named_with_what_to_do() -> None:
    status = shown_status(64)
    text = status_page(status)
    page = Page(text)
    assert rows_of(text)[:2] == ["3", "11"]
    assert len(rows_of(text)) == 64
    assert text.index("all_rejected") < text.index("<h2>Partitions</h2>")
    assert any("lancewal offset reject" in said for said in page.said("code"))
    here = re.findall(r"<li class=here>(\w+)</li>", text)
    assert here[0] == Step.DECODED.value
    assert "Kafka does not answer" in page.text
    assert "400" in page.said("td")


def test_a_column_of_which_nothing_is_known_takes_no_room() -> None:
    status = shown_status(2)
    heads = Page(status_page(status)).said("th")
    assert "consumed" in heads
    assert "merged" not in heads
    known = replace(status, partitions=tuple(replace(found, merged=7) for found in status.partitions))
    assert "merged" in Page(status_page(known)).said("th")


def test_how_old_is_what_waits_stands_beside_it() -> None:
    said = Page(status_page(shown_status(12))).said("td")
    assert "3.2 s" in said
    assert "11 s" in said
    status = shown_status(1)
    (found,) = status.partitions
    page = Page(status_page(replace(status, partitions=(replace(found, freshness_s=None, unmerged_s=125.0),))))
    assert "oldest not durable" not in page.said("th")
    assert "125 s" in page.said("td")


@pytest.mark.parametrize(
    ("facts", "seconds"),
    [
        (PartitionFacts("t", 0, merged=5), 0.0),
        (PartitionFacts("t", 0, merged=5, unmerged=Waiting(2, NOW - 9_000), sealed=Waiting(3, NOW - 4_000)), 9.0),
        (PartitionFacts("t", 0, flushed=5, sealed=Waiting(3, NOW - 4_000)), 4.0),
        (PartitionFacts("t", 0, merged=5, unmerged=Waiting(2)), None),  # since when is not known
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


def test_the_port_shows_the_page_and_the_same_as_json() -> None:
    clock = ManualClock()
    board = StatusBoard("ingest", clock)
    with HealthServer("127.0.0.1", 0, CollectorRegistry(), Health(clock, list), board.answer) as server:
        code, headers, _ = get(server.port, "/")
        assert (code, headers["Location"]) == (302, "/status")
        code, headers, body = get(server.port, "/status")
        assert (code, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert b"knows nothing of its table yet" in body
        assert get(server.port, "/status", "application/json")[0] == 503
        status = shown_status(2, HOSTILE)
        board.show(status)
        browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
        code, headers, body = get(server.port, "/status", browser)
        assert (code, body.decode()) == (200, status_page(status))
        policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
        (style,) = Page(body.decode()).said("style")
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        assert policy == {
            "default-src": "'none'",
            "style-src": f"'sha256-{digest}'",
            "base-uri": "'none'",
            "form-action": "'none'",
            "frame-ancestors": "'none'",
        }
        assert headers["X-Content-Type-Options"] == "nosniff"
        code, headers, body = get(server.port, "/status", "application/json")
        assert (code, headers["Content-Type"]) == (200, "application/json")
        found = json.loads(body)
        assert found["seen_by"] == "ingest"
        assert [one["diagnosis"]["state"] for one in found["partitions"]] == ["waits", "idle"]
        assert found["topic"] == HOSTILE


def test_views_make_no_work_beyond_a_status_a_second() -> None:
    clock = ManualClock()
    board = StatusBoard("ingest", clock)
    assert board.due()
    board.show(shown_status(1))
    assert not board.due()
    clock.sleep(LOOKED_AT_S)
    assert not board.due()  # nobody looks
    for _ in range(100):
        board.answer("")
    assert board.due()
    first = board.answer("text/html").body
    assert board.answer("text/html").body is first  # written once
    board.show(shown_status(1))
    for _ in range(100):
        board.answer("")
    assert not board.due()
    clock.sleep(60 + LOOKED_AT_S)
    board.show(shown_status(1))
    clock.sleep(IDLE_S / 2)
    assert not board.due()
    clock.sleep(IDLE_S / 2)
    assert board.due()


def test_a_process_without_a_status_has_no_page() -> None:
    with HealthServer("127.0.0.1", 0, CollectorRegistry(), Health(ManualClock(), list)) as server:
        assert get(server.port, "/status")[0] == 404
