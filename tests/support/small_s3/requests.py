"""What a store was asked, when, and in how many rounds.

A *round* is as much as may be asked at once: the number of rounds of some requests is the length of the longest chain in which
each began after the one before it had ended.  So requests side by side are one round, whatever their number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

ROWS_OF_THE_TABLE = ("data/", "_deletions/", "_indices/")
"""Folders of what a table holds: how often they are asked follows from its size, and not from how it is asked for."""


@dataclass(frozen=True, slots=True)
class StoreRequest:
    """Seconds since the server began."""

    method: str
    """GET, HEAD, PUT, POST, DELETE, or LIST."""
    key: str
    """Of a listing: its prefix."""
    begin: float
    end: float
    status: int
    opened: bool = False
    """It is the first on its connection."""
    by: str = ""
    """Access key of who asks, without a secret."""

    def below(self, folder: str) -> str:
        """The key in a table's folder."""
        return self.key.removeprefix(folder.strip("/") + "/")


def of_the_protocol(requests: Iterable[StoreRequest], folder: str) -> list[StoreRequest]:
    """All but those for rows of the table in this folder."""
    return [request for request in requests if not request.below(folder).startswith(ROWS_OF_THE_TABLE)]


def rounds_of(requests: Iterable[StoreRequest]) -> int:
    """See the module docstring: of intervals the longest chain is had by taking what ends first."""
    rounds, free_at = 0, float("-inf")
    for request in sorted(requests, key=lambda r: r.end):
        if request.begin >= free_at:
            rounds, free_at = rounds + 1, request.end
    return rounds


def by_kind(requests: Iterable[StoreRequest], folder: str) -> Counter[str]:
    """How many of each method and first folders, as ``GET _lancewal/wal``."""
    return Counter(f"{request.method} {_place(request.below(folder))}" for request in requests)


def _place(key: str) -> str:
    parts = key.split("/")
    return "/".join(parts[:2]) if parts[0] == "_lancewal" else parts[0]
