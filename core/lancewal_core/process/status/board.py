"""The newest status of a service, which ``/status`` answers as JSON.

Guarantees
 1. A request reads no store and asks no broker.  The service's loop shows a new status every ``LOOKED_AT_S`` if
    there was a request within ``_LOOKS_S``, otherwise every ``IDLE_S``.  The number of requests does not matter.
 2. Each status is encoded at most once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property

from lancewal_core.process.clock import Clock
from lancewal_core.process.health import HttpAnswer
from lancewal_core.process.status.report import TableStatus

LOOKED_AT_S = 1.0
IDLE_S = 10.0
_LOOKS_S = 60.0
"""Seconds after a request in which the status is renewed every ``LOOKED_AT_S``."""

_HEADERS: Mapping[str, str] = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


@dataclass(frozen=True)
class _Shown:
    """A status, encoded as JSON at its first use."""

    status: TableStatus

    @cached_property
    def json(self) -> bytes:
        return (json.dumps(asdict(self.status), indent=1) + "\n").encode()


class StatusBoard:
    """The newest status of a service, for its HTTP server.  The service's loop calls ``show`` and ``due``; any thread
    calls ``answer``.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._shown: _Shown | None = None
        self._shown_at = float("-inf")
        self._viewed_at = float("-inf")

    def due(self) -> bool:
        """Return whether the loop should show another status now (guarantee 1)."""
        now = self._clock.monotonic()
        looked_at = now - self._viewed_at <= _LOOKS_S
        return now - self._shown_at >= (LOOKED_AT_S if looked_at else IDLE_S)

    def show(self, status: TableStatus) -> None:
        self._shown, self._shown_at = _Shown(status), self._clock.monotonic()

    def answer(self) -> HttpAnswer:
        """Return the newest status as JSON; before the first one, ``null`` with HTTP status 503."""
        self._viewed_at = self._clock.monotonic()
        shown = self._shown
        body = b"null\n" if shown is None else shown.json
        return HttpAnswer(503 if shown is None else 200, "application/json", body, _HEADERS)
