"""The newest status of a service, kept for whoever looks at its page.

Guarantees
 1. A view asks no store and no broker, and does the loop's work no harm: the loop puts its status here at most every
    ``LOOKED_AT_S`` while somebody looks, else every ``IDLE_S``, however many look.
 2. Each status is written out once for each form.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property

from lancewal_core.process.clock import Clock
from lancewal_core.process.health import Answer
from lancewal_core.process.status.page import nothing_yet, status_page
from lancewal_core.process.status.report import TableStatus
from lancewal_core.process.status.style import CONTENT_SECURITY_POLICY

LOOKED_AT_S = 1.0
IDLE_S = 10.0
_LOOKS_S = 60.0
"""Somebody looks while the last view is no older."""

_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Vary": "Accept",
}


@dataclass(frozen=True)
class _Shown:
    """A status, written out when first asked for."""

    status: TableStatus

    @cached_property
    def html(self) -> bytes:
        return status_page(self.status).encode()

    @cached_property
    def json(self) -> bytes:
        return (json.dumps(asdict(self.status), indent=1) + "\n").encode()


class StatusBoard:
    """``show`` and ``due`` are the loop's, ``answer`` is called by any thread."""

    def __init__(self, service: str, clock: Clock) -> None:
        self._service = service
        self._clock = clock
        self._shown: _Shown | None = None
        self._shown_at = float("-inf")
        self._viewed_at = float("-inf")

    def due(self) -> bool:
        """Whether it is time for another status (guarantee 1)."""
        now = self._clock.monotonic()
        looked_at = now - self._viewed_at <= _LOOKS_S
        return now - self._shown_at >= (LOOKED_AT_S if looked_at else IDLE_S)

    def show(self, status: TableStatus) -> None:
        self._shown, self._shown_at = _Shown(status), self._clock.monotonic()

    def answer(self, accept: str) -> Answer:
        """The newest status: as JSON where ``accept`` names it and no HTML, else as a page."""
        self._viewed_at = self._clock.monotonic()
        shown = self._shown
        as_json = "application/json" in accept.lower() and "text/html" not in accept.lower()
        if as_json:
            body = b"null\n" if shown is None else shown.json
            return Answer(503 if shown is None else 200, "application/json", body, _HEADERS)
        page = nothing_yet(self._service).encode() if shown is None else shown.html
        return Answer(200, "text/html; charset=utf-8", page, _HEADERS)
