"""What the client repeats by itself where the store answers 503: a put, but never that of a page's version."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lancewal_core.names import paths
from lancewal_core.names.ids import LogId, Page, Sequence, TopicId
from lancewal_core.store.object_store import ObjectStore, PutUnknown
from lancewal_core.store.obstore import open_store

PAGE = paths.page_version(Page("orders", TopicId("id"), 0, None), 3)
SEGMENT = paths.wal_segment(LogId("a"), Sequence(0))


@pytest.fixture
def asked() -> list[str]:
    """Paths of the puts that came."""
    return []


@pytest.fixture
def store(asked: list[str]) -> Iterator[ObjectStore]:
    class Busy(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked.append(self.path)
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Busy)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    options = {
        "aws_endpoint": f"http://127.0.0.1:{server.server_address[1]}", "allow_http": "true", "aws_region": "us-east-1",
        "aws_access_key_id": "a", "aws_secret_access_key": "b",
    }  # fmt: skip
    yield open_store("s3://bucket/table", options)
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_version_of_a_page_is_sent_once(store: ObjectStore, asked: list[str]) -> None:
    assert isinstance(store.put_if_absent(PAGE, b"1"), PutUnknown)
    assert [path.partition("?")[0] for path in asked] == [f"/bucket/table/{PAGE}"]
    asked.clear()
    assert isinstance(store.put_if_absent(SEGMENT, b"1"), PutUnknown)
    assert len(asked) == 3
