"""A 404 that is not about the object says nothing about the object: a proxy, or a bucket or container that is gone."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from lancewal_core.errors import StoreUnavailable
from lancewal_core.store.object_store import PutUnknown
from lancewal_core.store.obstore import TableStore, open_store
from tests.support.served import served
from tests.support.store_addresses import at_server

CODES = (
    ("s3", "NoSuchBucket"),
    ("s3", "XAdminUserNotFound"),
    ("gs", "NoSuchBucket"),
    ("abfss", "ContainerNotFound"),
    ("abfss", "ResourceNotFound"),
)
"""Code of each answer for a missing bucket or container, as the store documents it.  The second ones are versitygw's for a key
and Azurite's for an account that it does not know."""


class Answers404(BaseHTTPRequestHandler):
    code = "NoSuchBucket"

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        body = f"<?xml version='1.0'?><Error><Code>{self.code}</Code></Error>".encode()
        self.send_response(404)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = answer  # noqa: N815 # names that the base class calls

    def do_HEAD(self) -> None:  # as above
        self.send_response(404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture(params=CODES)
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[TableStore]:
    scheme, code = request.param
    monkeypatch.setattr(Answers404, "code", code)
    with served(Answers404) as address:
        yield open_store(*at_server(scheme, address))


def test_without_its_bucket_no_object_is_absent(store: TableStore) -> None:
    with pytest.raises(StoreUnavailable, match="could not read 'x'"):
        store.get("x")
    with pytest.raises(StoreUnavailable, match="could not read 'x'"):
        store.get_range("x", 0, 4)
    with pytest.raises(StoreUnavailable, match="could not read 'x'"):
        store.size("x")


def test_a_listing_and_a_put_get_no_verdict_from_it(store: TableStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for code in (Answers404.code, "NoSuchKey"):
        monkeypatch.setattr(Answers404, "code", code)
        with pytest.raises(StoreUnavailable, match="could not list"):
            store.list("x/")
        assert isinstance(store.put_if_absent("x", b"1"), PutUnknown)


def test_an_object_that_is_absent_is_absent(store: TableStore, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = Answers404.code
    monkeypatch.setattr(Answers404, "code", "NoSuchKey")
    for key in ("x", f"{missing}/x"):
        assert store.get(key) is None
        assert store.get_range(key, 0, 4) is None
        assert store.size(key) is None
