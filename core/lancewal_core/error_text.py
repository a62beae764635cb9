"""What a library's error says, in one line for a message of ours."""

from __future__ import annotations

import re

_SOURCE_PLACE = re.compile(r"(,( location:)? \S+\.rs:\d+:\d+)+$")
"""Where in a Rust library's own source an error arose, and went through."""
_LENGTH_MAX = 400


def first_line(error: BaseException) -> str:
    """The first line without the library's source place, cut at a bearable length; the type's name if there is none."""
    lines = str(error).strip().splitlines()
    return _SOURCE_PLACE.sub("", lines[0])[:_LENGTH_MAX] if lines else type(error).__name__
