"""Whole numbers that Python programs give."""

from __future__ import annotations

from operator import index
from typing import SupportsIndex

from lancewal_core.store.json_object import is_whole


def whole_of(given: object, low: int = 0) -> int | None:
    """A whole number from ``low`` on as an ``int``, numpy's too; None for all else, also True, False and 3.0."""
    if isinstance(given, bool) or not isinstance(given, SupportsIndex):
        return None
    try:
        number = index(given)
    except TypeError:  # an array of several, numpy's True
        return None
    return number if is_whole(number, low) else None
