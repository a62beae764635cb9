"""Consumed records of a region that are in no segment yet, and what they take in memory."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from lancewal_core.ids import Position
from lancewal_ingest.decode.records import Records

RECORD_OVERHEAD = 200
"""Bytes that a consumed record costs beside what is in it: Python objects for value, key, headers and list places."""
_HEADER_OVERHEAD = 200
"""The same for each header of a record: a tuple, a text and bytes."""


@dataclass(slots=True)
class Pending:
    """All of a region from its durable position up to ``next``; may be no records."""

    records: Records
    next: Position
    nbytes: int = 0


def joined(pending: Pending | None, more: Records, next_: Position) -> Pending:
    """``pending`` with the records that come behind it."""
    size = _nbytes(more)
    if pending is None or not len(pending.records):
        return Pending(more, next_, size)
    pending.records.extend(more)
    return Pending(pending.records, next_, pending.nbytes + size)


def _nbytes(records: Records) -> int:
    headers = list(chain.from_iterable(filter(None, records.headers)))
    return (
        sum(map(len, filter(None, records.values)))
        + sum(map(len, filter(None, records.keys)))
        + sum(len(name) + len(value or b"") for name, value in headers)
        + _HEADER_OVERHEAD * len(headers)
        + RECORD_OVERHEAD * len(records)
    )
