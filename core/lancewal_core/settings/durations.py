"""Times as people write them: ``500ms``, ``90s``, ``10m``, ``2h``, ``7d``."""

from __future__ import annotations

import re

from lancewal_core.errors import InvalidInput

_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_TEXT = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)")
EXPECTED = "expected an integer and ms, s, m, h or d, such as 10m"


def duration_s(text: str) -> float | None:
    """Return the seconds of a duration; None for a text that is not a duration, such as a number without a unit."""
    match = _TEXT.fullmatch(text.strip())
    return None if match is None else int(match[1]) * _SECONDS[match[2]]


def option_s(option: str, text: str) -> float:
    """Return the seconds of the duration that an option of a command gives.  Raises ``InvalidInput`` for another text."""
    seconds = duration_s(text)
    if seconds is None:
        raise InvalidInput(f"{option} {text!r}: {EXPECTED}")
    return seconds
