"""The servers of Azure and Google Cloud Storage behind a proxy that writes down what they are asked, as the small S3 does."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping
from http.server import ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.forwarding import Forwarding
from tests.support.small_s3.requests import StoreRequest

_BATCHED = re.compile(rb"^DELETE /?(\S+)", re.MULTILINE)


class RecordedStore:
    """Runs inside ``with``, in threads of this process.  ``depth``: parts of a path before the key."""

    def __init__(self, upstream: str, depth: int, options: Mapping[str, str], endpoint_option: str) -> None:
        self._upstream, self._depth, self._delay_s = upstream, depth, 0.0
        self._taken: list[StoreRequest] = []
        self._lock = threading.Lock()
        recorded = self

        class Recording(Forwarding):
            def serve(self, body: bytes) -> None:
                recorded._serve(self, body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Recording)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        path = urlsplit(upstream).path
        self.options = {**options, endpoint_option: f"http://127.0.0.1:{self._server.server_address[1]}{path}"}

    def take(self) -> list[StoreRequest]:
        """Return the requests since the last call."""
        with self._lock:
            taken, self._taken = self._taken, []
        return taken

    def delay(self, seconds: float) -> None:
        """Let each request wait from now on."""
        self._delay_s = seconds

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _serve(self, asked: Forwarding, body: bytes) -> None:
        begin = time.monotonic()
        time.sleep(self._delay_s)
        method, key = self._asked_for(asked.command, asked.path, body)

        def note(status: int) -> None:
            with self._lock:
                self._taken.append(StoreRequest(method, key, begin, time.monotonic(), status))

        asked.pass_on(self._upstream, body, told=note)

    def _asked_for(self, method: str, target: str, body: bytes) -> tuple[str, str]:
        address = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        if method == "POST" and query.get("comp") == "batch":
            found = _BATCHED.search(body)
            path = found[1].decode() if found else ""
            return "DELETE", unquote(path).partition("?")[0].lstrip("/").partition("/")[2]
        key = unquote("/".join(address.path.lstrip("/").split("/")[self._depth :]))
        if method == "GET" and not key:
            return "LIST", query.get("prefix", "")
        return method, key
