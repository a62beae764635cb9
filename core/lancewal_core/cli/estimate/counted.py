"""Requests that each act sends to the store, read from ``counted.json``.  The test of docs/reference/requests.md counts
them and writes that file.

An act was counted at four sizes.  ``SMALL`` is the first, and each other one is larger than an earlier one in one
thing.  So the cost of one more partition, state page or log is the difference between two sizes.  Other sizes lie on
straight lines through the counted ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

COUNTED = Path(__file__).with_name("counted.json")


@dataclass(frozen=True, slots=True)
class Size:
    """Size of the table on which an act (such as a read) works."""

    partitions: float
    pages: float
    """State pages in which these partitions lie."""
    logs: float
    """Logs that have unmerged rows of these partitions, one for each ingest process."""

    @property
    def name(self) -> str:
        return f"{self.partitions:g} partitions, {self.pages:g} pages, {self.logs:g} logs"


SMALL, MORE_PARTITIONS = Size(4, 1, 1), Size(16, 1, 1)
MORE_PAGES, MORE_LOGS = Size(16, 2, 1), Size(16, 1, 2)
SIZES = (SMALL, MORE_PARTITIONS, MORE_PAGES, MORE_LOGS)


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """Requests of one act, by kind.  ``rounds`` is the number of requests that must be sent one after another."""

    get: float = 0.0
    """Number of GET and HEAD requests."""
    list: float = 0.0
    put: float = 0.0
    """Number of PUT and POST requests, without POSTs that delete."""
    delete: float = 0.0
    """Number of objects deleted, however many one request deletes."""
    rounds: float = 0.0

    @property
    def requests(self) -> float:
        return self.get + self.list + self.put + self.delete

    def __add__(self, other: RequestCounts) -> RequestCounts:
        return RequestCounts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __sub__(self, other: RequestCounts) -> RequestCounts:
        return self + other * -1.0

    def __mul__(self, times: float) -> RequestCounts:
        return RequestCounts(*(getattr(self, f.name) * times for f in fields(self)))


def asked(act: str, size: Size) -> RequestCounts:
    """Return the requests of an act (such as a read) for a table of this size. An act that was measured only at
    ``SMALL`` has the same requests at any size.
    """
    at = counted()[act]
    small = at[SMALL.name]
    if len(at) == 1:
        return small
    found = small + (at[MORE_PARTITIONS.name] - small) * (
        (size.partitions - SMALL.partitions) / (MORE_PARTITIONS.partitions - SMALL.partitions)
    )
    found += (at[MORE_PAGES.name] - at[MORE_PARTITIONS.name]) * (size.pages - SMALL.pages)
    if MORE_LOGS.name in at:
        found += (at[MORE_LOGS.name] - at[MORE_PARTITIONS.name]) * (size.logs - SMALL.logs)
    return RequestCounts(*(max(0.0, getattr(found, f.name)) for f in fields(found)))


@cache
def counted() -> Mapping[str, Mapping[str, RequestCounts]]:
    """Return the counted requests, by act and size."""
    content = json.loads(COUNTED.read_text(encoding="utf-8"))
    return {act: {size: RequestCounts(**found) for size, found in at.items()} for act, at in content.items()}
