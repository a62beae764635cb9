"""Policy for a key that comes more than once in the files of a load."""

from __future__ import annotations

from enum import StrEnum


class Duplicates(StrEnum):
    """Policy for a key that the files have twice.  ``ERROR``: the load stops before it adds anything.  ``LAST``: the
    last row is loaded.
    """

    ERROR = "error"
    LAST = "last"
