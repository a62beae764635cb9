"""The HTTP side of a service: ``/metrics``, ``/livez``, ``/readyz``.

* ``/livez`` is 200 while the loop has turned within ``loop_limit_s``: a loop that hangs longer is to be restarted.
* ``/readyz`` is 200 while nothing is wrong, else 503 with one line for each thing that is.  Not being ready is no reason
  for a restart.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from lancewal_core.clock import Clock
from lancewal_core.errors import SettingsError

LOOP_LIMIT_S = 120.0
"""One turn of ingest's loop may walk a long log, and a hung broker may hold up a commit: far less than this."""


class Health:
    """What the loop says about itself; read by other threads."""

    def __init__(self, clock: Clock, problems: Callable[[], Sequence[str]], loop_limit_s: float = LOOP_LIMIT_S) -> None:
        self._clock = clock
        self._problems = problems
        self._loop_limit_s = loop_limit_s
        self._turned_at = clock.monotonic()

    def beat(self) -> None:
        """The loop has turned."""
        self._turned_at = self._clock.monotonic()

    def live(self) -> tuple[str, ...]:
        """What is wrong so that only a restart helps; empty if nothing."""
        still_s = self._clock.monotonic() - self._turned_at
        return () if still_s <= self._loop_limit_s else (f"the loop has not turned for {still_s:.0f} s",)

    def ready(self) -> tuple[str, ...]:
        """What is wrong, in words; empty if nothing."""
        return (*self.live(), *self._problems())


class HealthServer:
    """Listens inside ``with``; ``port`` 0 takes a free one, ``self.port`` says which."""

    def __init__(self, host: str, port: int, registry: CollectorRegistry, health: Health) -> None:
        try:
            self._server = ThreadingHTTPServer((host, port), _handler(registry, health))
        except OSError as error:
            raise SettingsError(
                f"metrics.host and metrics.port: cannot listen on {host}:{port}: {error.strerror or error}. Another "
                "process may have it; set metrics.port to 0 for a free one"
            ) from error
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="lancewal-health")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(registry: CollectorRegistry, health: Health) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version = "lancewal"
        sys_version = ""

        def do_GET(self) -> None:
            match self.path.partition("?")[0]:
                case "/metrics":
                    encode, content_type = choose_encoder(self.headers.get("Accept") or "")
                    self._answer(200, content_type, encode(registry))
                case "/livez":
                    self._state(health.live())
                case "/readyz":
                    self._state(health.ready())
                case _:
                    self._answer(404, "text/plain", b"/metrics, /livez, /readyz\n")

        def _state(self, problems: Sequence[str]) -> None:
            text = "".join(f"{problem}\n" for problem in problems) or "ok\n"
            self._answer(503 if problems else 200, "text/plain; charset=utf-8", text.encode())

        def _answer(self, status: int, content_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """A request is not worth a log line."""

    return Handler
