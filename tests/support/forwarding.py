"""Requests for a store, passed on by a server of a test."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

_OF_ONE_CONNECTION = {"connection", "transfer-encoding", "keep-alive", "date", "server", "content-length"}


class Forwarding(BaseHTTPRequestHandler):
    """A handler that passes on what it does not answer itself."""

    protocol_version = "HTTP/1.1"

    def serve(self, body: bytes) -> None:
        """Answer one request, whatever its method."""
        raise NotImplementedError

    def do_GET(self) -> None:
        self.serve(self.rfile.read(int(self.headers.get("content-length") or 0)))

    do_POST = do_PUT = do_DELETE = do_HEAD = do_GET  # noqa: N815 # names that the base class calls

    def pass_on(
        self,
        upstream: str,
        body: bytes,
        without: str = "",
        changed: Callable[[bytes], bytes] = lambda body: body,
        told: Callable[[int], object] = lambda status: None,
    ) -> None:
        """Ask ``upstream``, and answer with its answer.  ``without``: a header that it does not get.

        ``told`` gets the status before the client gets the answer."""
        store = http.client.HTTPConnection(urlsplit(upstream).netloc, timeout=60)
        headers = {name: value for name, value in self.headers.items() if name.lower() != without}
        store.request(self.command, self.path, body or None, headers)
        found = store.getresponse()
        content = changed(found.read())
        told(found.status)
        length = found.getheader("content-length", "0") if self.command == "HEAD" else None
        self.answer(found.status, content, dict(found.getheaders()), length)
        store.close()

    def answer(
        self, status: int, body: bytes, headers: Mapping[str, str] | None = None, length: str | None = None
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            if name.lower() not in _OF_ONE_CONNECTION:
                self.send_header(name, value)
        self.send_header("content-length", length or str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...
