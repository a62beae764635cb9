"""Integers that Python programs pass."""

from __future__ import annotations

from operator import index
from typing import SupportsIndex

from lancewal_core.store.json_object import is_whole


def whole_of(given: object, low: int = 0) -> int | None:
    """Return an integer that is at least ``low`` as an ``int``; NumPy integers are accepted.  Return None for anything
    else, such as True or 3.0.
    """
    if isinstance(given, bool) or not isinstance(given, SupportsIndex):
        return None
    try:
        number = index(given)
    except TypeError:  # an array of several, numpy's True
        return None
    return number if is_whole(number, low) else None
