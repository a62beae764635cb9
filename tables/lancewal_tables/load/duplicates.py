"""Policy for a key that comes more than once in the files of a load."""

from __future__ import annotations

from enum import StrEnum


class Duplicates(StrEnum):
    """What a load does with a key that its files have twice.  ``ERROR``: stop before anything is added.  ``LAST``: load
    the last row.
    """

    ERROR = "error"
    LAST = "last"
