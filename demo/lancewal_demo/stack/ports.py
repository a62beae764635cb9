"""Free ports on 127.0.0.1 that stay free until they are used, and across a restart of the service.

The kernel's own choice (port 0) comes from the range of outgoing connections.  A client that keeps trying to reach a
killed service on such a port may get the same port as its local end.  Then the client is connected to itself, and the
service cannot start again.  So ports are chosen below that range.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path

_LOWEST = 15000
_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES = 200


def free_ports(count: int) -> list[int]:
    """Return ``count`` different ports on which no program listens now; ``OSError`` if they cannot be found."""
    found: set[int] = set()
    choice = random.SystemRandom()
    highest = _first_outgoing_port() - 1
    for _ in range(_TRIES):
        port = choice.randint(_LOWEST, highest)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.add(port)
        if len(found) == count:
            return sorted(found)
    raise OSError(f"found no {count} free ports between {_LOWEST} and {highest} in {_TRIES} tries")


def listens(port: int) -> bool:
    """Return whether a program accepts connections on this port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _first_outgoing_port() -> int:
    try:
        first = int(_RANGE_FILE.read_text().split()[0])
    except (OSError, ValueError):
        first = 49152  # the first dynamic port by RFC 6335
    return first if first > _LOWEST + 1000 else 65536
