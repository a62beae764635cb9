"""Whoever can reach the port of metrics and health takes little from the service: connections, time, memory, log lines."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import re
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest
import structlog
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector

from lancewal_core.cli.logs import LogLevel, configure_logging
from lancewal_core.errors import InvalidSettings
from lancewal_core.process import health as http
from lancewal_core.process.health import CONNECTIONS_MAX, HEAD_BYTES_MAX, REQUEST_S, Health, HealthServer
from tests.support.fuzzing import memory_bound
from tests.support.scripted import ManualClock
from tests.support.whole_path import until

LIMIT_S = 60.0
"""Of a test that would hang otherwise."""
MIB = 1 << 20


class Breaks(Collector):
    """Metrics that cannot be collected."""

    def collect(self) -> Iterator[Metric]:
        raise RuntimeError("first line\nsecond line")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def metrics() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def port(clock: ManualClock, metrics: CollectorRegistry) -> Iterator[int]:
    with HealthServer("127.0.0.1", 0, metrics, Health(clock, list)) as server:
        yield server.port


@pytest.mark.parametrize(("host", "family"), [("2001:db8::1", socket.AF_INET6), ("192.0.2.1", socket.AF_INET)])
def test_an_address_is_listened_on_in_its_family(
    host: str,
    family: socket.AddressFamily,
    clock: ManualClock,
    metrics: CollectorRegistry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Up to ``bind``: no machine has these addresses, and not every one has IPv6."""
    asked: list[tuple[int, object]] = []

    def refuse(server: http._Server) -> None:
        asked.append((server.address_family, server.server_address))
        raise OSError(errno.EADDRNOTAVAIL, "not here")

    monkeypatch.setattr(http._Server, "server_bind", refuse)
    monkeypatch.setattr(socket, "socket", lambda *_: io.BytesIO())
    shown = f"[{host}]" if family is socket.AF_INET6 else host
    with pytest.raises(InvalidSettings, match=re.escape(f"cannot listen on {shown}:0: not here")):
        HealthServer(host, 0, metrics, Health(clock, list))
    assert asked == [(family, (host, 0))]


def connect(port: int, stack: ExitStack, said: bytes = b"GET /livez HTTP/1.1\r\n") -> socket.socket:
    """A connection that has said so much and waits."""
    opened = stack.enter_context(closing(socket.create_connection(("127.0.0.1", port), LIMIT_S)))
    opened.sendall(said)
    return opened


def answer(opened: socket.socket) -> bytes:
    """All that comes until the end."""
    found = b""
    try:
        while piece := opened.recv(65_536):
            found += piece
    except ConnectionResetError:
        pass
    return found


def live(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=LIMIT_S) as found:
        return str(found.read().decode())


@pytest.fixture
def handlers() -> Callable[[], int]:
    """How many threads serve the port; those of servers that earlier tests left to their clients are not among them."""
    others = set(threading.enumerate())

    def count() -> int:
        return sum("process_request_thread" in thread.name for thread in set(threading.enumerate()) - others)

    return count


def test_half_open_connections_keep_nobody_out_and_take_few_threads(
    port: int, handlers: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "_PLACE_S", LIMIT_S)  # threads may be slow here
    with ExitStack() as stack:
        opened = [connect(port, stack) for _ in range(4 * CONNECTIONS_MAX)]
        assert live(port) == "ok\n"
        until(lambda: handlers() <= CONNECTIONS_MAX)  # a thread ends a moment after it gave its place to the next
        assert [answer(one) for one in opened[: -CONNECTIONS_MAX - 1]] == [b""] * (3 * CONNECTIONS_MAX - 1)


def test_a_request_that_is_not_finished_in_time_is_ended(
    port: int, handlers: Callable[[], int], clock: ManualClock
) -> None:
    """Also one of which a byte comes now and then."""
    with ExitStack() as stack:
        opened = connect(port, stack)
        until(lambda: handlers() == 1)
        for _ in range(5):
            clock.seconds += REQUEST_S / 5
            assert live(port) == "ok\n"
            opened.sendall(b"X")
        clock.seconds += 0.1
        assert answer(opened) == b""
    assert live(port) == "ok\n"


def test_long_headers_are_not_read(port: int) -> None:
    with ExitStack() as stack, memory_bound(8 * MIB):
        opened = connect(port, stack)
        with contextlib.suppress(ConnectionError):
            for i in range(300):
                opened.sendall(b"X-%d: " % i + b"x" * 65_000 + b"\r\n")
        answer(opened)
    assert live(port) == "ok\n"


@pytest.mark.parametrize(("more", "status"), [(0, b"200"), (1, b"431")])
def test_the_limit_of_headers(port: int, more: int, status: bytes) -> None:
    request = b"GET /livez HTTP/1.1\r\nX: %s\r\n\r\n"
    request %= b"x" * (HEAD_BYTES_MAX - len(request) + 2 + more)
    assert len(request) == HEAD_BYTES_MAX + more
    with ExitStack() as stack:
        assert answer(connect(port, stack, request)).split()[1] == status


def test_an_error_is_one_line_of_the_log(
    port: int, metrics: CollectorRegistry, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging(LogLevel.INFO)
    structlog.get_logger("before").info("one line before")
    metrics._names_to_collectors["x"] = Breaks()
    metrics._collector_to_names[Breaks()] = ["x"]
    with ExitStack() as stack:
        assert answer(connect(port, stack, b"GET /metrics HTTP/1.1\r\n\r\n")) == b""
        gone = connect(port, stack, b"GET /livez HTTP/1.1\r\n\r\n")
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # it resets the connection
        gone.close()
    assert live(port) == "ok\n"
    shown = capsys.readouterr()
    lines = [json.loads(line) for line in (shown.out + shown.err).splitlines()]
    assert [(line["event"], line.get("error")) for line in lines] == [
        ("one line before", None),
        ("request_failed", "RuntimeError: first line"),
    ]
