"""An entry of a WAL segment, and the rules that it keeps.

1. An entry holds all records of one region in ``[first, next)``: each offset is a row, a rejected record, or no record
   at all (a gap).
2. The offsets of its rows lie in that range, and no row has a null where its column must have a value.  Its rejected
   offsets ascend in that range.
3. The segment's writer and the kinds of rejections are words (``names.words``), and the entry names a contract version.

An entry that breaks these rules raises ``InvalidInput``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from lancewal_core.errors import InvalidInput
from lancewal_core.names.ids import Position, Region
from lancewal_core.names.words import NoWord, word
from lancewal_core.rows.record_times import RecordTimes, part_starts
from lancewal_core.rows.row_range import RowRange
from lancewal_core.rows.schema import OFFSET, OP, Op

FIRST_RECORDS = 100
"""Number of first records by which ``on_wrong_format: stop`` recognises a topic of another format.  A partition stops
before its hundredth record if none of them is a row, and all are bad of one kind (not misrouted).  Records count from
the table's start; deletes do not count as rows.  The number is high enough that a few bad records stop no partition.
It is low enough that a person can look through the dead letters."""


@dataclass(frozen=True, slots=True)
class RejectedOffset:
    """A bad or misrouted record that the entry lists, since it did not become a row.  It is a dead letter, unless the
    policy for its kind ignores it."""

    offset: int
    kind: str


@dataclass(frozen=True, slots=True)
class NoRowYet:
    """Summary of the rejected records in some entries of a region.  None of these entries has a row other than a
    delete.

    Deletes do not count as rows here: a record without a value is a delete, whatever format values have."""

    rejected: int = 0
    """Number of rejected records."""
    kind: str = ""
    """Kind of all these records; empty if there are no records, or records of several kinds."""

    @classmethod
    def of(cls, entries: Iterable[Described]) -> NoRowYet | None:
        """Return the summary of these entries; None if one of them has a row other than a delete."""
        found: NoRowYet | None = cls()
        for entry in entries:
            found = found and found.then(entry)
        return found

    def then(self, entry: Described) -> NoRowYet | None:
        """Return the summary with one more entry; None if that entry has a row other than a delete."""
        if entry.row_count and not entry.deletes_only:
            return None
        kinds = {record.kind for record in entry.rejected}
        return self.plus(NoRowYet(len(entry.rejected), kinds.pop() if len(kinds) == 1 else ""))

    def joined(self, more: NoRowYet | None) -> NoRowYet | None:
        """Return the summary with the entries that ``more`` sums up.

        ``more`` is None if one of those entries has a row other than a delete.  Then the result is None too."""
        return None if more is None else self.plus(more)

    def plus(self, more: NoRowYet) -> NoRowYet:
        """Return the summary with the rejected records of ``more``."""
        if not more.rejected:
            return self
        same = not self.rejected or self.kind == more.kind
        return NoRowYet(self.rejected + more.rejected, more.kind if same else "")


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """The records of one region in one segment: all records from position ``first`` to before ``next``."""

    region: Region
    first: Position
    """First position; also the entry's id."""
    next: Position
    contract_version: int
    held: pa.RecordBatch | RowRange
    """The entry's rows: a batch with the columns of ``rows.RowSchema.wal``, or a range of rows in such a batch.  An
    entry without rows still moves the region's durable position."""
    rejected: tuple[RejectedOffset, ...]
    """Bad and misrouted records, by ascending offsets."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entry) and self._values() == other._values() and self.rows.equals(other.rows)

    def _values(self) -> tuple[object, ...]:
        return self.region, self.first, self.next, self.contract_version, self.rejected

    @property
    def range(self) -> RowRange:
        """The entry's rows, as a part of their batch."""
        return self.held if isinstance(self.held, RowRange) else RowRange.whole(self.held)

    @property
    def rows(self) -> pa.RecordBatch:
        """Rows of the entry.  A part of a batch is sliced at each access."""
        return self.range.rows

    @property
    def row_count(self) -> int:
        return self.held.row_count if isinstance(self.held, RowRange) else int(self.held.num_rows)

    @property
    def deletes_only(self) -> bool:
        """Whether the entry has rows, and all of them are deletes."""
        held = self.range
        (only,) = only_deletes(held.batch.column(OP).slice(held.begin, held.row_count), [held.row_count])
        return only


@dataclass(frozen=True, slots=True)
class EntryHeader:
    """Header of an entry: its positions, contract version and number of rows, without the rows.  The segment's
    trailer has the headers of all its entries."""

    region: Region
    first: Position
    next: Position
    contract_version: int
    row_count: int
    record_times: RecordTimes | None
    """Times of the entry's rows; None if it has none."""
    rejected: tuple[RejectedOffset, ...]
    nbytes: int
    """Estimate of the compressed bytes of the entry's rows.  The bytes of a shared record batch are divided by
    numbers of rows."""
    deletes_only: bool = False
    """Whether the entry has rows, and all of them are deletes; False in segments of release 0.1.0."""


Described: TypeAlias = Entry | EntryHeader
"""An entry, or its description in a segment's table."""


def kept_bytes(entries: Iterable[Entry]) -> int:
    """Return the bytes of memory that the rows of these entries keep from being freed.

    An entry with a part of a record batch keeps the whole batch in memory.  So each batch counts once, with all its
    bytes.  To count the parts of a batch separately would take longer than decoding them."""
    batches = {id(held.batch): held.batch for held in (entry.range for entry in entries) if held.row_count}
    by_address = {batch.column(OFFSET).buffers()[1].address: batch for batch in batches.values()}  # slices of one, too
    return sum(int(batch.get_total_buffer_size()) for batch in by_address.values())


def is_chain(entries: Iterable[Described], first: Position, next_: Position) -> bool:
    """Return whether these entries follow each other from ``first`` to ``next_`` without a gap.

    Then they are all entries between the two positions, since the positions of a region in a log never go back."""
    at = first
    for entry in entries:
        if entry.first != at:
            return False
        at = entry.next
    return at == next_


def only_deletes(ops: pa.Array, counts: Sequence[int]) -> list[bool]:
    """Return for each part of the rows whether it has rows, and all of them are deletes.

    ``ops``: the operations of all rows.  ``counts``: the number of rows of each part; the parts follow each other."""
    if not len(ops):
        return [False] * len(counts)
    found = iter(np.logical_and.reduceat(ops.to_numpy() == Op.DELETE, part_starts(counts)).tolist())
    return [bool(count) and next(found) for count in counts]


def check_entries(writer: str, entries: Iterable[Described]) -> None:
    """Check the entries of one segment, except their rows (``check_rows``).  Raise ``InvalidInput`` if an entry breaks
    its rules, or if a region has two entries."""
    entries = tuple(entries)
    check_words(writer, entries)
    seen: set[Region] = set()
    for entry in entries:
        if entry.region in seen:
            raise InvalidInput(f"region {entry.region.name!r} has two entries in one segment", region=entry.region.name)
        seen.add(entry.region)
        _check_positions(entry)


def _check_positions(entry: Described) -> None:
    region = entry.region
    if not 0 <= entry.first < entry.next < 1 << 63:
        raise InvalidInput(
            f"an entry of region {region.name!r} has an impossible range of positions, {entry.first} to {entry.next}",
            region=region.name,
        )
    if entry.contract_version < 1:
        raise InvalidInput(
            f"an entry of region {region.name!r} names an impossible contract version, {entry.contract_version}"
        )
    if not entry.rejected:
        return
    offsets = [entry.first - 1, *(record.offset for record in entry.rejected), entry.next]
    if any(later <= earlier for earlier, later in pairwise(offsets)):
        raise InvalidInput(
            f"rejected offsets of region {region.name!r} do not ascend from {entry.first} to before {entry.next}",
            region=region.name,
        )


def check_rows(rows: pa.RecordBatch, entries: Sequence[Described]) -> None:
    """Check ``rows``, which hold the rows of the entries one after the other.  Raise ``InvalidInput`` for a forbidden
    null, or an offset outside its entry."""
    holders = [entry for entry in entries if entry.row_count]
    starts = np.array([0, *accumulate(entry.row_count for entry in holders)])
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if not field.nullable and column.null_count:
            at = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            region = holders[int(np.searchsorted(starts, at, side="right")) - 1].region
            raise InvalidInput(
                f"rows of region {region.name!r} have nulls in column {field.name!r}, which must not be null",
                region=region.name,
            )
    if not holders:
        return
    offsets = rows.column(OFFSET).to_numpy()
    lows, highs = np.minimum.reduceat(offsets, starts[:-1]), np.maximum.reduceat(offsets, starts[:-1])
    firsts, nexts = np.array([entry.first for entry in holders]), np.array([entry.next for entry in holders])
    outside = np.flatnonzero((lows < firsts) | (highs >= nexts))
    if len(outside):
        wrong = int(outside[0])
        entry = holders[wrong]
        raise InvalidInput(
            f"rows of region {entry.region.name!r} have offsets {lows[wrong]} to {highs[wrong]}, outside {entry.first} "
            f"to {entry.next}, the positions of their entry",
            region=entry.region.name,
        )


def check_words(writer: str, entries: Iterable[Described]) -> None:
    """Raise ``InvalidInput`` unless the writer of a segment and the kinds of its rejected records are valid
    identifiers.
    """
    try:
        word(writer, "writer")
        for kind in {record.kind for entry in entries for record in entry.rejected}:
            word(kind, "kind of a rejected record")
    except NoWord as error:
        raise InvalidInput(str(error)) from error
