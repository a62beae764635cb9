"""A store that lets nobody in: its code and text are in the message, and what to set."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lancewal_core.errors import StoreUnavailable
from lancewal_core.store.object_store import PutUnknown
from lancewal_core.store.obstore import TableStore, open_store
from lancewal_core.store.refusal import what_to_set

XML = '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{}</Code><Message>{}</Message><RequestId>1</RequestId></Error>'


@contextmanager
def refusing(status: int, code: str, text: str) -> Iterator[str]:
    """A server that gives this answer to everything."""
    body = XML.format(code, text).encode()

    class Refuses(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815 # the names that the class looks for

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Refuses) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def store_at(endpoint: str, **options: str) -> TableStore:
    given = {"aws_access_key_id": "key", "aws_secret_access_key": "canary", "aws_region": "here", "allow_http": "true"}
    return open_store("s3://bucket/trips", {"aws_endpoint": endpoint, **given, **options})


def refusals(store: TableStore) -> tuple[str, str]:
    """What a read and a put say."""
    with pytest.raises(StoreUnavailable) as raised:
        store.get("x")
    outcome = store.put_if_absent("x", b"1")
    assert isinstance(outcome, PutUnknown)
    return str(raised.value), outcome.cause


@pytest.mark.parametrize(
    ("status", "code", "named"),
    [
        (403, "AccessDenied", "grant these credentials the rights"),
        (403, "SignatureDoesNotMatch", "correct storage.options aws_secret_access_key"),
        (403, "InvalidAccessKeyId", "correct storage.options aws_access_key_id"),
        (404, "NoSuchBucket", "correct table.uri or storage.options aws_endpoint"),
        (400, "InvalidBucketName", "correct table.uri"),
        (400, "AuthorizationHeaderMalformed", "set storage.options aws_region"),
    ],
)
def test_a_refusal_has_the_stores_code_and_text_and_what_to_set(status: int, code: str, named: str) -> None:
    with refusing(status, code, "Not\nlike this.") as endpoint:
        for text in refusals(store_at(endpoint)):
            assert f"{code}: Not like this." in text
            assert text.endswith(named) or named in text.rpartition("; ")[2]
            assert "s3://bucket/trips" in text
            assert endpoint in text
            assert "<" not in text
            assert "canary" not in text


def test_http_without_allow_http_names_the_setting() -> None:
    for text in refusals(store_at("http://127.0.0.1:9", allow_http="false")):
        assert "http:// needs storage.options allow_http: 'true'" in text


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1", "http://nobody.invalid:1"])
def test_a_wrong_host_names_the_endpoint_option(endpoint: str) -> None:
    for text in refusals(store_at(endpoint)):
        assert "correct storage.options aws_endpoint" in text


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (
            "Error performing PUT http://169.254.169.254/latest/api/token - error sending request: connection refused",
            "there are no credentials: set storage.options aws_access_key_id and aws_secret_access_key",
        ),
        ("Server returned non-2xx status code: 503 Service Unavailable: SlowDown: please", None),
        ("operation timed out", None),
    ],
)
def test_missing_credentials_are_named_and_what_may_pass_gets_no_advice(text: str, named: str | None) -> None:
    assert what_to_set(text) == "" if named is None else named in what_to_set(text)
