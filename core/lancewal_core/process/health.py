"""The HTTP server of a service: ``/metrics``, ``/livez``, ``/readyz``, ``/status``; ``/`` redirects to ``/status``.

* ``/livez`` is 200 while the loop has run within ``loop_limit_s``, and no task that it has started beside itself
  takes longer.  A loop that hangs longer should be restarted.  The limit does not apply while the loop waits for a
  store or a broker that is known to be silent, nor to a service that has not started yet because of them.  A restart
  would not make them answer, and would lose the rows in memory.
* ``/readyz`` is 200 while nothing is wrong, else 503 with one line ``kind: message`` for each fault (``Problem``).
  If nothing is wrong, the service does its work, or has none, and says so.  Not being ready is no reason for a
  restart.

Anybody who can reach the port costs the service little
 1. At most ``CONNECTIONS_MAX`` connections are open at a time, each with one thread.  One more connection ends the
    oldest one, so that connections which send no request do not keep out one that does.
 2. A connection is ended ``REQUEST_S`` after it began, even if no request has come.  It serves one request.
 3. A request has at most ``HEAD_BYTES_MAX`` of request line and headers; of a body nothing is read.
 4. A fault in a request is one log line.  A client that goes away is logged on the level ``debug`` only.
"""

from __future__ import annotations

import contextlib
import io
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from lancewal_core.errors import InvalidSettings, Problem
from lancewal_core.process.clock import Clock
from lancewal_core.process.library_errors import first_line
from lancewal_core.process.service_events import ServiceEvents

CONNECTIONS_MAX = 16
"""Largest number of connections that are open at a time.  Probes and some scrapers have one each, for some
milliseconds."""
REQUEST_S = 5.0
HEAD_BYTES_MAX = 8 * 1024
_PLACE_S = 1.0
"""Seconds that a new connection waits for the end of the oldest one, whose place it takes."""
_POLL_S = 0.1
LOOP_LIMIT_S = 120.0
"""Seconds after which a loop that has not run once more counts as hung.  One run of ingest's loop may read a long
log, and a hung broker may hold up a commit.  Both take far less than this."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Answer to an HTTP request."""

    status: int
    content_type: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


Page = Callable[[], HttpAnswer]
"""Function that returns a page's answer.  Any thread may call it.  The function asks no store and no broker."""
NO_PAGE = HttpAnswer(404, "text/plain", b"this process has no status\n")


class Health:
    """Liveness and readiness of a service's loop.  The loop calls ``beat``; other threads read."""

    def __init__(
        self,
        clock: Clock,
        problems: Callable[[], Sequence[Problem]],
        loop_limit_s: float = LOOP_LIMIT_S,
        *,
        waits: Callable[[], bool] = lambda: False,
        remark: Callable[[], str] = lambda: "",
        beside: Callable[[], Sequence[tuple[str, float]]] = lambda: (),
    ) -> None:
        """``problems`` returns what is wrong with the service.  ``waits`` returns whether the loop waits for a store
        or broker, so that a restart would not help.  ``remark`` returns a text that is added to the answer of a ready
        service.  ``beside`` returns the tasks that the loop has started and that are still running: the name of each,
        and for how many seconds.
        """
        self.clock = clock
        self.remark = remark
        self._problems = problems
        self._waits = waits
        self._beside = beside
        self._loop_limit_s = loop_limit_s
        self._turned_at = clock.monotonic()
        self._waited_at = float("-inf")

    def beat(self) -> None:
        """Record that the loop has run once more."""
        self._turned_at = self.clock.monotonic()

    def live(self) -> tuple[Problem, ...]:
        """Return the problems that only a restart can solve; empty if there are none."""
        now = self.clock.monotonic()
        if self._waits():  # once the silence is over, the loop has its time again, and so has what is beside it
            self.beat()
            self._waited_at = now
        standing = [("the service's loop has not run", now - self._turned_at)]
        standing += [
            (f"{name}, in parallel with the loop, has been running", min(seconds, now - self._waited_at))
            for name, seconds in self._beside()
        ]
        return tuple(
            Problem("loop_stands", f"{what} for {seconds:.0f} s")
            for what, seconds in standing
            if seconds > self._loop_limit_s
        )

    def ready(self) -> tuple[Problem, ...]:
        """Return all problems of the service; empty if there are none."""
        return (*self.live(), *self._problems())


class _Server(ThreadingHTTPServer):
    """HTTP server that bounds connections and their time, and logs faults (guarantees 1, 2 and 4)."""

    daemon_threads = True
    request_queue_size = 128  # in the kernel alone: a connection that finds no place there comes a second later

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], clock: Clock) -> None:
        self._clock = clock
        self._places = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self._open: dict[Any, float] = {}
        """Open connections, oldest first, each with the time at which it began (seconds of the monotonic clock)."""
        self._lock = threading.Lock()
        self.address_family = address_family(address[0])
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self._end(1)
            if not self._places.acquire(timeout=_PLACE_S):
                self.shutdown_request(request)
                return
        with self._lock:
            self._open[request] = self._clock.monotonic()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._open.pop(request, None)
            self._places.release()

    def service_actions(self) -> None:
        """End connections that are open for too long.  The server calls this every ``_POLL_S`` while it waits for a
        connection."""
        began_before = self._clock.monotonic() - REQUEST_S
        with self._lock:
            late = sum(began < began_before for began in self._open.values())
        self._end(late)

    def server_close(self) -> None:
        super().server_close()
        self._end(CONNECTIONS_MAX)

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception() or Exception()
        text, events = f"{type(error).__name__}: {first_line(error)}", ServiceEvents()
        if isinstance(error, OSError):
            events.connection_lost(client=client_address[0], error=text)
        else:
            events.request_failed(client=client_address[0], error=text)

    def _end(self, count: int) -> None:
        """End the oldest connections.  Their threads notice it and close them."""
        with self._lock:
            for request in list(self._open)[:count]:
                with contextlib.suppress(OSError):  # its thread was faster, or the client
                    request.shutdown(socket.SHUT_RDWR)


def address_family(host: str) -> socket.AddressFamily:
    """Return the address family of ``host``: IPv6 for an IPv6 address, else IPv4, also for names."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


class HealthServer:
    """HTTP server of a service, which answers inside ``with``.  ``port`` 0 takes a free port; ``self.port`` is the
    port taken."""

    def __init__(
        self, host: str, port: int, registry: CollectorRegistry, health: Health, status: Page = lambda: NO_PAGE
    ) -> None:
        try:
            self._server = _Server((host, port), _handler(registry, health, status), health.clock)
        except OSError as error:
            shown = f"[{host}]" if ":" in host else host
            raise InvalidSettings(
                f"http.host and the service's port (http.ingest_port, http.flusher_port): cannot listen on {shown}:{port}: "
                f"{error.strerror or error}. Another process may have it; set the port to 0 for a free one"
            ) from error
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_POLL_S,), name="lancewal-health")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(registry: CollectorRegistry, health: Health, status: Page) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version = "lancewal"
        sys_version = ""

        def setup(self) -> None:
            super().setup()
            self._head = self._read_head()
            self.rfile = io.BufferedReader(io.BytesIO(self._head))

        def _read_head(self) -> bytes:
            """Return request line and headers, or as much as arrived before the connection ended or the limit was
            reached."""
            head = b""
            while len(head) <= HEAD_BYTES_MAX and b"\r\n\r\n" not in head and b"\n\n" not in head:
                piece = self.connection.recv(HEAD_BYTES_MAX + 1 - len(head))
                if not piece:
                    break
                head += piece
            return head

        def handle(self) -> None:
            if len(self._head) <= HEAD_BYTES_MAX:
                super().handle()
                return
            self.request_version = self.protocol_version
            self.requestline = self.command = ""
            self._answer(HttpAnswer(431, "text/plain", b"request line and headers are too long\n"))

        def do_GET(self) -> None:
            match self.path.partition("?")[0]:
                case "/metrics":
                    encode, content_type = choose_encoder(self.headers.get("Accept") or "")
                    self._answer(HttpAnswer(200, content_type, encode(registry)))
                case "/livez":
                    self._state(health.live())
                case "/readyz":
                    self._state(health.ready(), health.remark())
                case "/status":
                    self._answer(status())
                case "/":
                    self._answer(HttpAnswer(302, "text/plain", b"/status\n", {"Location": "/status"}))
                case _:
                    self._answer(HttpAnswer(404, "text/plain", b"/metrics, /livez, /readyz, /status\n"))

        def _state(self, problems: Sequence[Problem], remark: str = "") -> None:
            text = "".join(f"{problem}\n" for problem in problems) or (f"ok: {remark}\n" if remark else "ok\n")
            self._answer(HttpAnswer(503 if problems else 200, "text/plain; charset=utf-8", text.encode()))

        def _answer(self, answer: HttpAnswer) -> None:
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: a request is not worth a log line."""

    return Handler
