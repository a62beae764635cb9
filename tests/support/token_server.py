"""A server that hands out tokens of identities: Azure's for machines and workloads, Google's for machines.

Tokens are JSON Web Tokens without a signature.  ``life_s`` is how long one is good, and ``said_s`` how long the server says
that it is; None: as long.

With ``upstream``, all other requests are passed on to that store, for which a token is needed that is still good.  So a
store that asks nobody becomes one that asks.  Azurite checks tokens by itself.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from tests.support.forwarding import Forwarding

AUDIENCE = "https://storage.azure.com"
_OVER = b"<?xml version='1.0'?><Error><Code>AuthenticationRequired</Code><Message>over</Message></Error>"


@dataclass(frozen=True, slots=True)
class Handed:
    """A token, and how it was asked for."""

    path: str
    asked: Mapping[str, str]
    """Query, or form."""
    headers: Mapping[str, str]
    until: float


@dataclass
class TokenServer:
    """Runs inside ``with``."""

    life_s: float
    said_s: float | None = None
    upstream: str = ""
    status: int = 200
    """Status of the answer to a request for a token."""
    handed: list[Handed] = field(default_factory=list)
    bearers: set[str] = field(default_factory=set)
    """Tokens that came with requests for the store."""

    def __post_init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def endpoint(self) -> str:
        return f"http://{self.host}"

    def hand_out(self, path: str, asked: Mapping[str, str], headers: Mapping[str, str]) -> Mapping[str, object]:
        now = time.time()
        said_s = self.life_s if self.said_s is None else self.said_s
        self.handed.append(Handed(path, asked, headers, now + self.life_s))
        times = {"iat": now - 5, "nbf": now - 5, "exp": now + self.life_s, "number": len(self.handed)}
        token = (
            _part({"alg": "none"})
            + "."
            + _part({"aud": AUDIENCE, "iss": "https://sts.windows.net/us/", **times})
            + ".x"
        )
        return {
            "access_token": token,
            "expires_on": str(int(now + said_s)),
            "expires_in": int(said_s),
            "token_type": "Bearer",
        }

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def claims(token: str) -> dict[str, Any]:
    """What a JSON Web Token says, with its header; empty for a text that is none."""
    try:
        header, body = (json.loads(base64.urlsafe_b64decode(part + "==")) for part in token.split(".")[:2])
    except ValueError:
        return {}
    return {**header, **body}


def _part(content: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


def _handler(tokens: TokenServer) -> type[Forwarding]:
    class Handler(Forwarding):
        def serve(self, body: bytes) -> None:
            address = urlsplit(self.path)
            if not address.path.endswith("/token"):
                self._with_token(body)
            elif tokens.status == 200:
                asked = {name: values[0] for name, values in parse_qs(address.query or body.decode()).items()}
                headers = {name.lower(): value for name, value in self.headers.items()}
                self.answer(200, json.dumps(tokens.hand_out(address.path, asked, headers)).encode())
            else:
                self.answer(tokens.status, b'{"error":"invalid_request","error_description":"Identity not found"}')

        def _with_token(self, body: bytes) -> None:
            token = self.headers.get("authorization", "").removeprefix("Bearer ")
            tokens.bearers.add(token)
            if claims(token).get("exp", 0.0) < time.time():
                self.answer(401, _OVER)
            else:
                self.pass_on(tokens.upstream, body, without="authorization")

    return Handler
