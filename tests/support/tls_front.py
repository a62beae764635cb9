"""TLS before a PostgreSQL server that has none: it takes a client's wish for TLS, and passes on what is inside."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator

from tests.support.certificates import KeyPair

_WISH = bytes.fromhex("0000000804d2162f")
"""PostgreSQL's SSLRequest."""


@contextlib.contextmanager
def tls_front(upstream: int, pair: KeyPair) -> Iterator[int]:
    """Run until the block ends.  Yield the port on 127.0.0.1."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)

    class Front(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            if self.request.recv(len(_WISH), socket.MSG_WAITALL) != _WISH:
                return
            self.request.sendall(b"S")
            with (
                contextlib.suppress(OSError),
                context.wrap_socket(self.request, server_side=True) as client,
                socket.create_connection(("127.0.0.1", upstream)) as server,
            ):
                threading.Thread(target=_carry, args=(server, client), daemon=True).start()
                _carry(client, server)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    with Server(("127.0.0.1", 0), Front) as running:
        threading.Thread(target=running.serve_forever, args=(0.05,), daemon=True).start()
        yield running.server_address[1]
        running.shutdown()


def _carry(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
