"""Time as a parameter: protocol code asks a ``Clock``, never the machine's clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Source of time for code that must not read the machine's clock itself."""

    def now_ms(self) -> int:
        """Time of the wall clock, in milliseconds since 1970 (UTC)."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""

    def sleep(self, seconds: float) -> None:
        """Return after ``seconds`` have passed on this clock."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


_ASK_S = 0.2


def sleep_unless(stopping: Callable[[], bool], clock: Clock, seconds: float) -> None:
    """Wait for ``seconds``, or until ``stopping`` returns True.  ``stopping`` is called every ``_ASK_S``."""
    until = clock.monotonic() + seconds
    while not stopping() and (left := until - clock.monotonic()) > 0:
        clock.sleep(min(left, _ASK_S))


def ms_since_1970(moment: datetime) -> int:
    """Return the milliseconds from 1970 to ``moment``, a time with a zone, rounded down; negative for earlier times."""
    return (moment - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)


def moment_of(text: str) -> datetime | None:
    """Return the time that an ISO 8601 text with a zone names; None for any other text."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if moment.tzinfo is None else moment


def utc_text(ms: int) -> str:
    """Return the time ``ms`` after 1970 in a form for people: ``2026-01-31T00:00:00Z``, with milliseconds unless they
    are 0.

    A time outside of Python's calendar is given as ``... ms since 1970``.
    """
    seconds, rest = divmod(ms, 1000)
    try:
        text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms since 1970"
    return f"{text}.{rest:03d}Z" if rest else f"{text}Z"
