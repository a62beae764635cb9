"""A server that answers as a schema registry of Confluent's API does, as far as lancewal asks."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

Answer = tuple[int, bytes]


class StubRegistry(ThreadingHTTPServer):
    """A server with an answer for each path; ``asked`` has the requests' paths and headers."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, Answer | Callable[[], Answer]] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def has(self, path: str, schema: str, **more: Any) -> None:
        self.answers[path] = (200, json.dumps({"schema": schema, **more}).encode())


class _Handler(BaseHTTPRequestHandler):
    server: StubRegistry

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        self.server.asked.append((self.path, dict(self.headers.items())))
        answer = self.server.answers.get(path, (404, b'{"error_code": 40403, "message": "Schema not found"}'))
        status, body = answer() if callable(answer) else answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None: ...


@contextmanager
def serving() -> Iterator[StubRegistry]:
    """Run a registry in a thread."""
    with StubRegistry() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
