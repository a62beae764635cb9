"""A TCP proxy that knows nothing of what it carries and damages connections the ways networks do.

Of each new connection it is drawn whether it gets damaged, in which direction, and after how many bytes:

* ``cut``: both sides see the end of the stream (FIN), whatever was under way;
* ``reset``: both sides see a reset (RST), as after the restart of a machine or of a firewall in between;
* ``silence``: from there on this direction's bytes vanish, and the connection stays open;
* ``trickle``: from there on this direction carries ``TRICKLE_BYTES_S``.

What has really happened is counted in ``happened``: a damage that lies behind a connection's last byte is none.
``reset_all`` ends every open connection at once, the idle ones of a client's pool among them.
"""

from __future__ import annotations

import contextlib
import random
import socket
import socketserver
import struct
import threading
import time
from collections import Counter
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self, get_args
from urllib.parse import urlsplit

Kind = Literal["cut", "reset", "silence", "trickle"]
Direction = Literal["request", "answer"]
KINDS: tuple[Kind, ...] = get_args(Kind)
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
TRICKLE_BYTES_S = 4_000
_CHUNK = 1 << 16
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Damage:
    kind: Kind
    direction: Direction
    after: int
    """Bytes of this direction that still pass."""


class TcpFaultProxy:
    """Runs inside ``with``, in threads of this process; ``endpoint`` is what clients are given."""

    def __init__(self, upstream: str, seed: int) -> None:
        address = urlsplit(upstream)
        assert address.hostname is not None
        assert address.port is not None
        self.upstream = (address.hostname, address.port)
        self.scheme = address.scheme
        self.probability = 0.0
        """Of a damage, for each connection that is opened from now on."""
        self.within = 6_000
        """Damage comes after fewer bytes of its direction than that."""
        self._rng = random.Random(f"tcp proxy {seed}")
        self._lock = threading.Lock()
        self._happened: Counter[tuple[Kind, Direction]] = Counter()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="tcp-fault-proxy")

    @property
    def endpoint(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self._server.server_address[1]}"

    @property
    def happened(self) -> Counter[tuple[Kind, Direction]]:
        with self._lock:
            return Counter(self._happened)

    def reset_all(self) -> int:
        """Reset every open connection; how many there were."""
        return self._server.reset_all()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.reset_all()
        self._server.server_close()
        self._thread.join()

    # -- for the connections -------------------------------------------------------------------------------------

    def draw(self) -> Damage | None:
        """What is to happen to a new connection."""
        with self._lock:
            if self._rng.random() >= self.probability:
                return None
            # A head of a request or of an answer has some hundred bytes: half of the damage falls into one.
            after = self._rng.randrange(self._rng.choice((600, self.within)))
            return Damage(self._rng.choice(KINDS), self._rng.choice(DIRECTIONS), after)

    def note(self, damage: Damage) -> None:
        with self._lock:
            self._happened[damage.kind, damage.direction] += 1


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, proxy: TcpFaultProxy) -> None:
        self.proxy = proxy
        self._pairs: set[_Pair] = set()
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Connection)

    def opened(self, pair: _Pair) -> None:
        with self._lock:
            self._pairs.add(pair)

    def closed(self, pair: _Pair) -> None:
        with self._lock:
            self._pairs.discard(pair)

    def reset_all(self) -> int:
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            pair.end(by_reset=True)
        return len(pairs)

    def handle_error(self, request: object, client_address: object) -> None:
        """Connections end in all kinds of ways here; the tests look at what came of it."""


class _Pair:
    """The two connections that are one to the client and the server."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server

    def end(self, *, by_reset: bool) -> None:
        for side in (self.client, self.server):
            with contextlib.suppress(OSError):  # closed by the other thread already
                if by_reset:
                    side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                    # A blocked recv of the other thread holds the socket open beyond close().
                    side.shutdown(socket.SHUT_RD)
                    side.close()
                else:
                    side.shutdown(socket.SHUT_RDWR)


class _Connection(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        proxy = self.server.proxy
        damage = proxy.draw()
        with socket.create_connection(proxy.upstream) as upstream:
            pair = _Pair(self.request, upstream)
            for side in (pair.client, pair.server):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.server.opened(pair)
            back = threading.Thread(target=_pump, args=(proxy, pair, "answer", damage), daemon=True)
            back.start()
            _pump(proxy, pair, "request", damage)
            back.join()
            self.server.closed(pair)


def _pump(proxy: TcpFaultProxy, pair: _Pair, direction: Direction, damage: Damage | None) -> None:
    """Carry one direction to its end."""
    source, sink = (pair.client, pair.server) if direction == "request" else (pair.server, pair.client)
    mine = damage if damage is not None and damage.direction == direction else None
    passed = 0
    begun = False
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK):
            whole = len(data) if mine is None else min(len(data), max(0, mine.after - passed))
            sink.sendall(data[:whole])
            passed += whole
            rest = data[whole:]
            if mine is None or not rest:
                continue
            if not begun:
                begun = True
                proxy.note(mine)
            match mine.kind:
                case "cut" | "reset":
                    pair.end(by_reset=mine.kind == "reset")
                    return
                case "silence":
                    pass
                case "trickle":
                    _trickle(sink, rest)
        sink.shutdown(socket.SHUT_WR)


def _trickle(sink: socket.socket, data: bytes) -> None:
    step = TRICKLE_BYTES_S // 20
    for at in range(0, len(data), step):
        sink.sendall(data[at : at + step])
        time.sleep(step / TRICKLE_BYTES_S)
