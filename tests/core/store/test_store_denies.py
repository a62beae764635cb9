"""A store that denies a request (expired credentials, a revoked right) is one that does not answer: the error is ours, is
tried again, and names the object."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lancewal_core.errors import StoreUnavailable
from lancewal_core.store.object_store import ObjectStore, PutUnknown, Unknown, put_once
from lancewal_core.store.obstore import open_store


@pytest.fixture(params=[401, 403])
def store(request: pytest.FixtureRequest) -> Iterator[ObjectStore]:
    class Denying(BaseHTTPRequestHandler):
        def _deny(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(request.param)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _deny  # noqa: N815 # the names that the class looks for

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Denying)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    options = {
        "aws_endpoint": f"http://127.0.0.1:{server.server_address[1]}", "allow_http": "true", "aws_region": "us-east-1",
        "aws_access_key_id": "old", "aws_secret_access_key": "old",
    }  # fmt: skip
    yield open_store("s3://bucket/table", options)
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    "act",
    [
        lambda store: store.get("some/object"),
        lambda store: store.get_range("some/object", 0, 1),
        lambda store: store.list("some/object/"),
        lambda store: store.delete(["some/object"]),
    ],
)
def test_it_is_unavailable(store: ObjectStore, act: Callable[[ObjectStore], object]) -> None:
    with pytest.raises(StoreUnavailable, match="some/object"):
        act(store)


def test_a_put_has_no_verdict(store: ObjectStore) -> None:
    assert isinstance(store.put_if_absent("some/object", b"1"), PutUnknown)
    assert isinstance(put_once(store, "some/object", b"1"), Unknown)
