"""An HTTP proxy between the client of a store and its server that damages chosen PUTs the ways networks do.

Requests and answers are forwarded byte for byte, the Host that the client has signed included.  Only PUTs whose path
contains ``part`` are damaged, and listings whose prefix does:

* ``cut``: the PUT lands, then the connection ends without an answer (by FIN or RST, in turns);
* ``refuse``: the connection ends before the server gets the PUT;
* ``unavailable``: the answer is 503, the server does not get the PUT;
* ``conflict``: the answer is 409, as a store gives while another request for the key is under way; the server does not get it;
* ``partial``: of a listing (ListObjectsV2, or Azure's List Blobs) some lines are missing, at the front, at the end, anywhere
  or all of them, the others come in any order, and the answer says that it is complete;
* ``delay_s``: whatever happens to a PUT happens later, by a random part of it;
* ``late_s``: and by all of this.  A client that has given up meanwhile is no reason not to: the PUT may land after it.

All requests, also those that nothing else happens to, wait for ``distance_s`` of the proxy.

``unconditional`` makes of the server behind it one that ignores ``If-None-Match``: the header is signed and cannot be taken
out, so such a PUT is given to the function, as path and body, and answered as stored.

``hold`` keeps the next PUT of a path back until ``release``, to look at what goes on meanwhile.  A PUT that was refused is
treated the same a few times over, so that a client's own repetitions do not hide it.
"""

from __future__ import annotations

import contextlib
import random
import re
import socket
import socketserver
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Protocol, Self
from urllib.parse import parse_qs, unquote, urlsplit

Kind = Literal["forward", "cut", "refuse", "unavailable", "conflict", "partial"]
FAR_S = 0.03
"""What a store some way off adds to each request."""
_STICKY = 4
_HOLD_MAX_S = 60.0
_ANSWERS: dict[Kind, bytes] = {
    "unavailable": b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
    "conflict": b"HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n",
}
_STORED = b'HTTP/1.1 200 OK\r\nETag: "0"\r\nContent-Length: 0\r\n\r\n'
_NO_BODY = (204, 304)
_DONE = (200, 201)
"""Statuses of a PUT that was stored; the second one is Azure's."""
_LISTED = re.compile(rb"<(Contents|Blob)>.*?</\1>", re.DOTALL)
_MORE_TO_COME = re.compile(rb"<(NextContinuationToken|NextMarker)>.*?</\1>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Faults:
    """Probabilities of what happens to a PUT or, ``partial``, to a listing; the rest is forwarded."""

    cut: float = 0.0
    refuse: float = 0.0
    unavailable: float = 0.0
    conflict: float = 0.0
    partial: float = 0.0
    delay_s: float = 0.0
    late_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Damaged:
    """One request that was not simply forwarded; ``status`` is the server's answer to it, None if it never got it.

    ``path`` of a listing is its prefix.
    """

    kind: Kind
    path: str
    status: int | None


class HttpFaultProxy:
    """Runs inside ``with``, in threads of this process; ``endpoint`` is what clients are given."""

    def __init__(
        self, upstream: str, part: str, seed: int, unconditional: Callable[[str, bytes], object] | None = None
    ) -> None:
        address = urlsplit(upstream)
        assert address.hostname is not None
        assert address.port is not None
        self.upstream = (address.hostname, address.port)
        self.faults = Faults()
        self.distance_s = 0.0
        self.damaged: list[Damaged] = []
        self.put: Counter[str] = Counter()
        """How often a PUT of each path has made or replaced an object.  Parts of objects do not count."""
        self.throttled = 0
        """Number of answers of 429."""
        self.unconditional = unconditional
        self.part = part
        self._rng = random.Random(f"proxy {seed}")
        self._lock = threading.Lock()
        self._sticky: dict[str, tuple[Kind, int]] = {}
        self._hold: str | None = None
        self._held = threading.Event()
        self._go = threading.Event()
        self._then: Kind = "forward"
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="fault-proxy")

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def count(self, kind: Kind, part: str = "") -> int:
        """Damaged requests of a kind; for ``cut`` only those that the server has stored."""
        with self._lock:
            return sum(d.kind == kind and part in d.path and d.status in (None, *_DONE) for d in self.damaged)

    def hold(self, part: str) -> None:
        """Keep the next PUT back whose path contains ``part``."""
        with self._lock:
            self._held.clear()
            self._go.clear()
            self._hold = part

    @property
    def holding(self) -> bool:
        return self._held.is_set()

    def release(self, then: Kind) -> None:
        """Let the PUT that is held back go on, as ``then`` says."""
        self._then = then
        self._go.set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._go.set()
        self._server.shutdown()
        self._server.close_connections()
        self._server.server_close()
        self._thread.join()

    # -- for the connections -------------------------------------------------------------------------------------

    def decide(self, method: str, path: str) -> Kind:
        """What is to happen to a request; returns when it is to happen."""
        time.sleep(self.distance_s)
        if method != "PUT":
            return "forward"
        with self._lock:
            wanted = self._hold is not None and self._hold in path
            if wanted:
                self._hold = None
        if wanted:
            self._held.set()
            assert self._go.wait(_HOLD_MAX_S), "nobody has released the PUT that was held back"
            if self._then in ("refuse", "unavailable"):
                with self._lock:
                    self._sticky[path] = (self._then, _STICKY)
            return self._then
        if self.part not in path:
            return "forward"
        with self._lock:
            faults = self.faults
            delay_s = faults.late_s + self._rng.random() * faults.delay_s
            kind = self._drawn(path, faults)
        time.sleep(delay_s)
        return kind

    def note(self, kind: Kind, path: str, status: int | None) -> None:
        if kind != "forward":
            with self._lock:
                self.damaged.append(Damaged(kind, path, status))

    def answered(self, method: str, path: str, query: str, status: int) -> None:
        with self._lock:
            self.throttled += status == 429
            if method == "PUT" and not query and status in _DONE:
                self.put[path] += 1

    def by_reset(self) -> bool:
        with self._lock:
            return self._rng.random() < 0.5

    def shortened(self, prefix: str, listing: bytes) -> bytes:
        """The body of a listing, with fewer lines if it is to be damaged."""
        with self._lock:
            lines = [found[0] for found in _LISTED.finditer(listing)]
            if self.part not in f"/{prefix}" or not lines or self._rng.random() >= self.faults.partial:
                return listing
            at = self._rng.randrange(len(lines))
            kept = self._rng.choice((lines[:at], lines[at + 1 :], self._rng.sample(lines, at), []))
            self.damaged.append(Damaged("partial", prefix, 200))
        start, end = listing.index(lines[0]), listing.rindex(lines[-1]) + len(lines[-1])
        whole = listing[:start] + b"".join(kept) + listing[end:]
        return _MORE_TO_COME.sub(b"", whole.replace(b"<IsTruncated>true<", b"<IsTruncated>false<"))

    def _drawn(self, path: str, faults: Faults) -> Kind:
        if faults.unavailable >= 1.0:
            return "unavailable"  # an outage lets no try through, however often it is made
        kind, left = self._sticky.get(path, ("forward", 0))
        if left:
            self._sticky[path] = (kind, left - 1)
            return kind
        if path in self._sticky:
            return "forward"
        at = self._rng.random()
        choices: tuple[tuple[Kind, float], ...] = (
            ("cut", faults.cut),
            ("refuse", faults.refuse),
            ("unavailable", faults.unavailable),
            ("conflict", faults.conflict),
        )
        for kind, probability in choices:
            at -= probability
            if at < 0:
                if kind != "cut":
                    self._sticky[path] = (kind, self._rng.randrange(_STICKY))
                return kind
        return "forward"


class _Stream(Protocol):
    def readline(self) -> bytes: ...

    def read(self, size: int, /) -> bytes: ...


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, proxy: HttpFaultProxy) -> None:
        self.proxy = proxy
        self._connections: set[socket.socket] = set()
        self._connections_lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Connection)

    def opened(self, connection: socket.socket) -> None:
        with self._connections_lock:
            self._connections.add(connection)

    def closed(self, connection: socket.socket) -> None:
        with self._connections_lock:
            self._connections.discard(connection)

    def close_connections(self) -> None:
        with self._connections_lock:
            for connection in self._connections:
                _shut(connection)

    def handle_error(self, request: object, client_address: object) -> None:
        """Connections end in all kinds of ways here; the tests look at what came of it."""


class _Connection(socketserver.StreamRequestHandler):
    server: _Server
    disable_nagle_algorithm = True

    def handle(self) -> None:
        proxy = self.server.proxy
        self.server.opened(self.connection)
        upstream = socket.create_connection(proxy.upstream)
        upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.server.opened(upstream)
        try:
            with upstream, upstream.makefile("rb") as answers:
                while self._exchange(proxy, upstream, answers):
                    pass
        except OSError:
            pass  # one side has gone away
        finally:
            self.server.closed(upstream)
            self.server.closed(self.connection)

    def _exchange(self, proxy: HttpFaultProxy, upstream: socket.socket, answers: _Stream) -> bool:
        """One request and its answer; False when the connection is to be closed."""
        head = _head(self.rfile)
        if head is None:
            return False
        method, target = head.first.split(" ")[:2]
        path = unquote(urlsplit(target).path)
        body = _body(self.rfile, head)
        kind = proxy.decide(method, path)
        if kind == "refuse":
            proxy.note(kind, path, None)
            self._reset_by_chance(proxy)
            return False
        if kind in _ANSWERS:
            proxy.note(kind, path, None)
            self.wfile.write(_ANSWERS[kind])
            return True
        if proxy.unconditional is not None and method == "PUT" and "if-none-match" in head.headers:
            proxy.unconditional(path, body)
            self.wfile.write(_STORED)
            return True
        upstream.sendall(head.raw + body)
        answer = _head(answers)
        if answer is None:
            return False
        status = int(answer.first.split(" ")[1])
        proxy.answered(method, path, urlsplit(target).query, status)
        if kind == "cut":
            _answer_body(answers, answer, method, status, lambda _: None)
            proxy.note(kind, path, status)
            self._reset_by_chance(proxy)
            return False
        query = parse_qs(urlsplit(target).query)
        if status == 200 and method == "GET" and ("list-type" in query or query.get("comp") == ["list"]):
            return self._listing(proxy, query.get("prefix", [""])[0], answers, answer)
        self.wfile.write(answer.raw)
        return _answer_body(answers, answer, method, status, self.wfile.write)

    def _listing(self, proxy: HttpFaultProxy, prefix: str, answers: _Stream, answer: _Head) -> bool:
        """Pass a listing on, or a part of it."""
        parts: list[bytes] = []
        more = _answer_body(answers, answer, "GET", 200, parts.append)
        if "transfer-encoding" in answer.headers:
            parts = [chunk.removesuffix(b"\r\n") for chunk in parts[1::2]]  # each comes after its size
        body = proxy.shortened(prefix, b"".join(parts))
        length = b"Content-Length: %d" % len(body)
        head = re.sub(rb"(?i)(content-length|transfer-encoding): *\w+", length, answer.raw)
        self.wfile.write(head + body)
        return more

    def _reset_by_chance(self, proxy: HttpFaultProxy) -> None:
        if proxy.by_reset():
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

    def finish(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # reset on purpose
            super().finish()


@dataclass(frozen=True, slots=True)
class _Head:
    first: str
    headers: dict[str, str]
    raw: bytes


def _head(file: _Stream) -> _Head | None:
    """The first line and the headers, and exactly the bytes they came as; None at the end of the stream."""
    lines = [file.readline()]
    if not lines[0].endswith(b"\r\n"):
        return None
    while lines[-1] != b"\r\n":
        lines.append(file.readline())
        if not lines[-1]:
            return None
    pairs = (line.decode("latin-1").partition(":") for line in lines[1:-1])
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    return _Head(lines[0].decode("latin-1").strip(), headers, b"".join(lines))


def _body(file: _Stream, head: _Head) -> bytes:
    assert "transfer-encoding" not in head.headers, "requests in chunks are not expected here"
    return file.read(int(head.headers.get("content-length", "0")))


def _answer_body(file: _Stream, head: _Head, method: str, status: int, take: Callable[[bytes], object]) -> bool:
    """Pass the body of an answer on; False when the server closes the connection behind it."""
    if method == "HEAD" or status in _NO_BODY:
        pass
    elif head.headers.get("transfer-encoding", "").lower() == "chunked":
        while True:
            size = file.readline()
            take(size)
            length = int(size.split(b";")[0], 16)
            take(file.read(length + 2))
            if not length:
                break
    elif "content-length" in head.headers:
        left = int(head.headers["content-length"])
        while left:
            data = file.read(min(left, 1 << 16))
            if not data:
                return False
            take(data)
            left -= len(data)
    else:
        while data := file.read(1 << 16):
            take(data)
        return False
    return head.headers.get("connection", "").lower() != "close"


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # closed by the other side already
        connection.shutdown(socket.SHUT_RDWR)
