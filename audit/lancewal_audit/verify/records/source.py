"""Types for the records of a region in a source, Kafka or the WAL.

A source has the records of [``begin``, ``end``) and none before; ``end`` is the cut of the read.  Kafka keeps records for
the topic's retention, the WAL for the history window.  The range is *whole* if no record of the region was durable
before ``begin``.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.errors import ContractMismatch
from lancewal_core.names import paths
from lancewal_core.names.ids import LogId, Position, Region
from lancewal_core.names.ids import Sequence as Number
from lancewal_core.rows.schema import OFFSET


@dataclass(frozen=True, slots=True)
class RegionRecords:
    """Consecutive records of one region: a WAL batch of their rows, and the offsets of the rejected records."""

    region: Region
    rows: pa.RecordBatch
    rejected: Sequence[int]


def rows_of_columns(rows: pa.RecordBatch, columns: pa.Schema, where: str) -> pa.RecordBatch:
    """Return ``rows`` if they have the ``columns`` of the contract that they name.  Raises ``ContractMismatch`` if they
    have others.

    ``verify`` does not rely on the checks of the parts that it verifies.  ``where``: the object with the rows, for the
    message.
    """
    for name, type_ in zip(columns.names, columns.types, strict=True):
        found = rows.schema.field(name).type if name in rows.schema.names else "absent"
        if found != type_:
            raise ContractMismatch(
                f"{where} has rows of another contract: column {name!r} is {found}, the table's contract has {type_}"
            )
    if (order := rows.schema.names[: len(columns)]) != columns.names:  # a bit of ``_present`` is a place in this order
        raise ContractMismatch(
            f"{where} has rows of another contract: its columns are {order}, those of the table's contract {columns.names}"
        )
    return rows


@dataclass(slots=True)
class Range:
    """Range of positions of one region that a source has.  Reading the source fills ``rejected`` and ``gaps``."""

    region: Region
    begin: Position
    end: Position
    whole: bool
    why_not_whole: str = ""
    rejected: array[int] = field(default_factory=lambda: array("q"))
    gaps: list[tuple[Position, Position]] = field(default_factory=list)
    """Positions [first, next) that the source must have and lacks.  ``begin`` is after the last of them."""

    @property
    def empty(self) -> bool:
        return self.begin >= self.end

    @property
    def text(self) -> str:
        """The range as text, such as ``[3, 17)``; ``nothing`` if it is empty."""
        return "nothing" if self.empty else f"[{self.begin}, {self.end})"

    def starts_at(self, begin: Position, why: str) -> None:
        """Move the beginning forward to ``begin``.  The range is then incomplete, for the reason ``why``."""
        if begin > self.begin:
            self.begin, self.whole, self.why_not_whole = begin, False, why

    def take(self, taken: RegionRecords) -> pa.RecordBatch:
        """Add the rejected offsets below the end, and return the rows below the end."""
        self.rejected.extend(offset for offset in taken.rejected if offset < self.end)
        rows = taken.rows
        if rows.num_rows and rows.column(OFFSET)[-1].as_py() >= self.end:
            rows = rows.filter(pc.less(rows.column(OFFSET), self.end))
        return rows


Between = Callable[[int | None, int | None], tuple[int, ...]]
"""Function that returns the contract versions, newest first, by which records between two entries may have been
decoded.  The arguments are the contract versions of the entries before and after the records, None if there is no such
entry."""


class EntryPlaces:
    """Segments of the entries of a region, by offset.  It needs few bytes for each entry."""

    def __init__(self) -> None:
        self._logs: list[LogId] = []
        self._rows: list[tuple[int, int, int, int, int]] = []
        self._named: list[tuple[int, int, int]] = []
        self._spans: list[tuple[int, int, int]] = []
        """Positions [first, next) of all entries with their versions, in order; empty until ``versions`` needs them."""

    def add(self, log: LogId, number: Number, first: Position, next_: Position, version: int) -> None:
        """Add an entry; ``version``: the contract version that it names."""
        if not self._logs or self._logs[-1] != log:
            self._logs.append(log)
        self._rows.append((first, next_, len(self._logs) - 1, number, version))

    def add_named(self, first: Position, next_: Position, version: int) -> None:
        """Add the contract version of an entry that cannot be read, but that the trailer of its segment lists."""
        self._named.append((first, next_, version))

    def versions(
        self, first: Position, end: Position, between: Between
    ) -> Iterator[tuple[tuple[int, ...], Position, Position]]:
        """Divide the positions [``first``, ``end``) by the contract versions under which their records may have been taken.

        Positions of an entry have the one version that the entry names.  ``between`` returns the versions for positions
        without an entry.
        """
        if len(self._spans) != len(self._named) + len(self._rows):
            self._spans = sorted([*self._named, *((row[0], row[1], row[4]) for row in self._rows)])
        start = max(bisect_right(self._spans, first, key=itemgetter(0)) - 1, 0)
        at, before = int(first), self._spans[start - 1][2] if start else None
        for place in range(start, len(self._spans)):
            begin, next_, version = self._spans[place]
            if begin >= end:
                if at < end:
                    yield between(before, version), Position(at), end
                return
            if next_ > at:
                if begin > at:
                    yield between(before, version), Position(at), Position(begin)
                yield (version,), Position(max(begin, at)), Position(min(next_, end))
                at = next_
            before = version
        if at < end:
            yield between(before, None), Position(at), end

    def in_order(self) -> list[tuple[Position, Position]]:
        """Return the positions [first, next) of each entry, in order."""
        self._rows.sort()
        return [(Position(first), Position(next_)) for first, next_, *_ in self._rows]

    def around(self, log: LogId, first: int, end: int) -> tuple[int | None, int | None]:
        """Return the segment numbers, in one log, of the last entry before ``first`` and of the first entry from ``end`` on.

        None if there is no such entry."""
        ours = [row for row in self._rows if self._logs[row[2]] == log]
        before = max((row[3] for row in ours if row[1] <= first), default=None)
        return before, min((row[3] for row in ours if row[0] >= end), default=None)

    def object_of(self, offset: int) -> str | None:
        """Return the key of the segment with the entry that covers an offset, or None."""
        self._rows.sort()
        at = bisect_right(self._rows, offset, key=lambda row: row[0]) - 1
        if at < 0 or self._rows[at][1] <= offset:
            return None
        _, _, log, number, _ = self._rows[at]
        return paths.wal_segment(self._logs[log], Number(number))
