"""What is repeated where the store answers 503 or 429: by the client itself a put, but never that of a page's version; and by
lancewal all that was answered 429, after a pause."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import ClassVar
from urllib.parse import unquote

import pytest

from lancewal_core.errors import StoreUnavailable
from lancewal_core.names import paths
from lancewal_core.names.ids import LogId, Page, Sequence, TopicId
from lancewal_core.store import obstore
from lancewal_core.store.object_store import Done, PutUnknown, Stored, put_once
from lancewal_core.store.observed import ObservedStore, StoreMetricTable
from lancewal_core.store.obstore import ObstoreStore, open_store
from tests.support.served import served
from tests.support.store_addresses import at_server

PAGE = paths.page_version(Page("orders", TopicId("id"), 0, None), 3)
SEGMENT = paths.wal_segment(LogId("a"), Sequence(0))


class Busy(BaseHTTPRequestHandler):
    """Answers with the statuses that it is given, one after the other, and then as a store that has done it."""

    answers: ClassVar[list[int]] = []
    asked: ClassVar[list[str]] = []

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.asked.append(self.path.partition("?")[0])
        self.send_response(self.answers.pop(0) if self.answers else 200)
        self.send_header("ETag", '"0"')
        self.send_header("x-goog-generation", "1")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_PUT = do_DELETE = answer  # noqa: N815 # names that the base class calls

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture(params=["s3", "gs", "abfss"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObstoreStore]:
    monkeypatch.setattr(Busy, "answers", [])
    monkeypatch.setattr(Busy, "asked", [])
    monkeypatch.setattr(obstore, "_PAUSES_S", (0.0,) * len(obstore._PAUSES_S))
    with served(Busy) as address:
        opened = open_store(*at_server(request.param, address))
        assert isinstance(opened, ObstoreStore)
        yield opened


def test_a_version_of_a_page_is_sent_once(store: ObstoreStore) -> None:
    Busy.answers = [503] * 10
    assert isinstance(store.put_if_absent(PAGE, b"1"), PutUnknown)
    (path,) = Busy.asked
    assert unquote(path).endswith(f"/bucket/trips/{PAGE}")
    Busy.asked.clear()
    assert isinstance(store.put_if_absent(SEGMENT, b"1"), PutUnknown)
    assert len(Busy.asked) == 3


def test_a_version_of_a_page_that_was_answered_429_is_sent_again(store: ObstoreStore) -> None:
    """The store has done nothing.  So there is a verdict, and no unknown outcome."""
    Busy.answers = [429, 429, 429]
    assert put_once(store, PAGE, b"1") == Done()
    assert len(Busy.asked) == 4


def test_requests_that_are_sent_again_are_counted(store: ObstoreStore) -> None:
    shown = StoreMetricTable("orders")
    observed = ObservedStore(store, shown)
    Busy.answers = [429]
    assert observed.put_if_absent(PAGE, b"1") == Stored()
    Busy.answers = [429] * 7  # the client repeats this put twice by itself
    assert observed.put_if_absent(SEGMENT, b"1") == Stored()
    throttled = shown.registry.get_sample_value
    name = "lancewal_store_too_many_requests_total"
    assert throttled(name, {"table": "orders", "object": "state-page"}) == 1
    assert throttled(name, {"table": "orders", "object": "segment"}) == 2


def test_a_store_that_never_has_time_is_not_asked_for_ever(store: ObstoreStore) -> None:
    Busy.answers = [429] * 100
    outcome = store.put_if_absent(PAGE, b"1")
    assert isinstance(outcome, PutUnknown)
    assert "429 Too Many Requests" in outcome.cause
    assert len(Busy.asked) == 5
    with pytest.raises(StoreUnavailable, match="429 Too Many Requests"):
        store.get("x")
