"""What every service says of itself alike; its own metrics and log lines come on top.

Guarantees
 1. No payload and no secret: only names, numbers and the messages of our own errors.
 2. A fault that repeats is counted each time and logged at most every ``REPEAT_LOG_S``.
"""

from __future__ import annotations

import platform
from collections.abc import Hashable, Mapping
from importlib import metadata

import structlog
from prometheus_client import Gauge, Info

from lancewal_core.process.clock import Clock

REPEAT_LOG_S = 10.0


class ServiceMetrics:
    """``build`` and ``paused`` are the metrics of the service's table that this sets."""

    def __init__(self, clock: Clock, service: str, build: Info, paused: Gauge) -> None:
        self._clock = clock
        self._log = structlog.get_logger(f"lancewal.{service}")
        self._build = build
        self._paused = paused
        self._pause: object = None
        self._failure_logged: dict[Hashable, float] = {}

    def started(self, contract: int, partitions: int, what: Mapping[str, str]) -> None:
        """Say once what this process is: the version of its contract, and labels of ``build``."""
        try:
            version = metadata.version("lancewal")
        except metadata.PackageNotFoundError:
            version = "unknown"
        self._build.info({"version": version, "python": platform.python_version(), **what})
        self._log.info("started", version=version, contract=contract, partitions=partitions, **what)

    def paused_by_operator(self, until: object) -> None:
        """Note until when the pause in force holds, or that there is none: None."""
        self._paused.set(until is not None)
        if until != self._pause:
            self._pause = until
            self._log.warning("paused by an operator" if until is not None else "pause has ended", until=until)

    def _to_be_logged(self, failure: Hashable) -> bool:
        """Guarantee 2; where it says so, the caller logs it now."""
        now = self._clock.monotonic()
        if now - self._failure_logged.get(failure, float("-inf")) < REPEAT_LOG_S:
            return False
        self._failure_logged[failure] = now
        return True
