"""Clients of an HTTP port that mean no good: connections that ask nothing, ask slowly, too much, or everything at once."""

from __future__ import annotations

import contextlib
import resource
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing

LIMIT_S = 60.0
"""Of a client that would hang otherwise."""


def allow_descriptors(count: int) -> None:
    """This process may open so many, as far as the machine lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def answer(port: int, path: str, timeout_s: float = LIMIT_S) -> tuple[int, str]:
    """Status and body, as an honest client gets them."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=timeout_s) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def connect(port: int, stack: ExitStack) -> socket.socket:
    return stack.enter_context(closing(socket.create_connection(("127.0.0.1", port), LIMIT_S)))


def say(opened: socket.socket, said: bytes) -> None:
    """The other side may have closed it: that is its right."""
    with contextlib.suppress(OSError):
        opened.sendall(said)


@contextlib.contextmanager
def half_open(port: int, count: int) -> Iterator[None]:
    """So many connections with half a request each, while the block runs."""
    allow_descriptors(2 * count + 256)
    with ExitStack() as stack:
        for _ in range(count):
            say(connect(port, stack), b"GET /livez HTTP/1.1\r\nX")
        yield


@contextlib.contextmanager
def slow(port: int, count: int) -> Iterator[None]:
    with ExitStack() as stack:
        opened = [connect(port, stack) for _ in range(count)]
        for byte in b"GET /metrics HTTP/1.1\r\n":
            for one in opened:
                say(one, bytes([byte]))
            time.sleep(0.05)
        yield


@contextlib.contextmanager
def large_headers(port: int, count: int) -> Iterator[None]:
    with ExitStack() as stack:
        for _ in range(count):
            opened = connect(port, stack)
            say(opened, b"GET /livez HTTP/1.1\r\n")
            for i in range(99):
                say(opened, b"X-%d: " % i + b"x" * 65_000 + b"\r\n")
        yield


@contextlib.contextmanager
def pipelining(port: int, count: int) -> Iterator[None]:
    """Requests without end on one connection, whose answers nobody takes."""
    with ExitStack() as stack:
        for _ in range(count):
            opened = connect(port, stack)
            opened.settimeout(1.0)
            say(opened, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 10_000)
        yield


@contextlib.contextmanager
def resetting(port: int, count: int) -> Iterator[None]:
    """Clients that ask and are gone before the answer."""
    for _ in range(count):
        with closing(socket.create_connection(("127.0.0.1", port), LIMIT_S)) as opened:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            say(opened, b"GET /metrics HTTP/1.1\r\n\r\n")
    yield


CLIENTS: Mapping[str, tuple[Callable[[int, int], contextlib.AbstractContextManager[None]], int]] = {
    "half-open connections": (half_open, 992),
    "slow requests": (slow, 40),
    "large headers": (large_headers, 150),
    "pipelined requests": (pipelining, 40),
    "connections that are reset": (resetting, 200),
}
"""And how many of them at a time."""
