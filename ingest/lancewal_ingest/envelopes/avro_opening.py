"""Opening of Avro events in Debezium's envelope: find the operation of each event, and the bytes of its row.

1. The strict reader reads one payload.  It defines what is found, or why the payload is refused.
2. A quicker reader reads one field of all payloads of a chunk at a time.  The strict reader decides on payloads on
   which this reader cannot.
3. Ends that are alike are not read but compared (``tails``).  The bytes before the end are then taken as the row.
   Only the decoder of rows sees whether they are one datum.  If it refuses them, the caller lets the strict reader
   decide.
4. All other fields are passed over, except integers that fill columns (``event_rows``): a long, an int, or null.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_ingest.decode.avro.cells import AvroNumber, Cell, ChoiceCell, SkippedCell, is_null
from lancewal_ingest.decode.avro.columnar import STEPS_MAX
from lancewal_ingest.decode.avro.columnar import read_cell as read_all
from lancewal_ingest.decode.avro.schema import AvroField, AvroPlain, AvroRecord, AvroType, AvroUnion
from lancewal_ingest.decode.avro.strict import Datum
from lancewal_ingest.decode.avro.strict import read_cell as read_one
from lancewal_ingest.decode.framed.assembly import malformed
from lancewal_ingest.decode.framed.cells import TextCell
from lancewal_ingest.decode.framed.cursors import Cursors
from lancewal_ingest.decode.framed.payloads import Payloads, SchemaUnusable
from lancewal_ingest.decode.framed.typed import Chunk, chunks
from lancewal_ingest.decode.outcomes import ENVELOPE, Refusal
from lancewal_ingest.decode.value_decoder import Indexes, Mask, RefusedValue
from lancewal_ingest.envelopes.avro_tails import shape_of
from lancewal_ingest.envelopes.debezium_json import LETTERS
from lancewal_ingest.envelopes.event_rows import CHANGED, EventFacts, EventRows
from lancewal_ingest.envelopes.tails import FEW, Shape, Shapes

OTHER_LETTER = "?"
"""Letter that stands for any text that names no operation."""
_LETTERS = pa.array([letter.encode() for letter in sorted(LETTERS)], pa.binary())
_LETTER_OF = np.array([*sorted(LETTERS), OTHER_LETTER])
"""Letter for each index in ``_LETTERS``, and ``OTHER_LETTER`` for any other text."""
_LETTER_OF_BYTE = np.array([letter if (letter := chr(byte)) in LETTERS else OTHER_LETTER for byte in range(256)])
_CHUNK_BYTES = 4 << 20
"""Bytes of a chunk.  Chunks of rows are smaller: most bytes of events are passed over."""


class RecordOrNull(NamedTuple):
    """The type of the field ``before`` or ``after``: a union of a record and null."""

    record: AvroRecord
    branch: int
    """Index of the record in the union: 0 or 1."""

    def chosen(self, cursors: Cursors) -> Mask:
        """Read the branches of all payloads, and return a mask of the payloads that have the record."""
        branches = cursors.numbers(None)
        cursors.doubtful |= (branches != 0) & (branches != 1)
        found: Mask = branches == self.branch
        return found

    def is_next(self, datum: Datum, cell: SkippedCell) -> bool:
        """Read the branch of one payload, and return whether it is the record."""
        branch = datum.number(cell)
        if branch not in (0, 1):
            malformed(cell, "a branch that its union has")
        return branch == self.branch


class OpenedEvents:
    """Operations and rows of some payloads, by the payloads' indexes."""

    def __init__(self, count: int, members: Sequence[str]) -> None:
        self.facts = EventFacts.none(count, members)
        self.starts = np.zeros(count, np.int64)
        """Index, within each payload, of the first byte of its row; the same as in ``ends`` if there is no row."""
        self.ends = np.zeros(count, np.int64)
        self.has_row = np.zeros(count, np.bool_)
        self.by_shape = np.zeros(count, np.bool_)
        """Whether the end of the payload was compared, and its row not read (guarantee 3)."""
        self.refused: dict[int, RefusedValue] = {}
        """Refusals, by the index of the payload.  The operation of a refused payload is empty."""
        self.chunks: list[tuple[Indexes, Indexes, Cursors]] = []
        """Chunks of payloads: the indexes of their payloads, the indexes of their first bytes in the buffer, and
        their cursors."""

    def rows(self, chosen: Indexes) -> Iterator[Chunk]:
        """Yield chunks of the bytes of rows, for the chosen payloads.  Each chunk has cursors at the starts of its
        rows.
        """
        for places, begins, cursors in self.chunks:
            first, end = np.searchsorted(chosen, [places[0], places[-1] + 1]).tolist()
            some = chosen[first:end] - places[0]
            few = cursors.some(some, begins[some] + self.starts[chosen[first:end]])
            few.ends = begins[some] + self.ends[chosen[first:end]]
            few.steps_left = STEPS_MAX
            if len(some):
                yield np.arange(first, end), few


class EventOpener:
    """Finds the operation and the row in each event of one schema.

    ``writer``: the schema of the envelope.  ``events``: says which members and rows are needed.
    """

    def __init__(self, writer: AvroRecord, events: EventRows, *, compares: bool) -> None:
        """``compares``: whether the end of an event may be compared instead of read.  This needs a decoder that reads
        the row before the end.

        Raises ``SchemaUnusable`` if the operation is not a string.
        """
        types = {field.name: field.type for field in writer.fields}
        if types["op"] != AvroPlain("string"):
            raise SchemaUnusable("field 'op': expected a string, which names the operation", ENVELOPE)
        self._members = events.members
        self._opened = [*_opened(writer)]
        self._fields = self._opened if self._members else writer.fields
        self._numbers = {
            name: cell
            for name, type_ in self._fields
            if name in self._members and (cell := _number(name, type_)) is not None
        }
        names = [name for name, _ in self._fields]
        self._row = record_or_null("after", types["after"]) if "after" in types else None
        at = len(names) if self._row is None else names.index("after")
        self._ahead, self._behind = self._fields[:at], self._fields[at + 1 :]
        """The fields before ``after``, and the fields after it, which are in the end of an event."""
        behind = {name for name, _ in self._behind}
        comparable = compares and {"op", *self._numbers} <= behind and "before" not in behind
        self._shapes = Shapes() if comparable else None
        self._is_decoded = np.array([chr(byte) in events.decoded for byte in range(256)])

    def opened(self, payloads: Payloads) -> OpenedEvents:
        """Return the operation and the row of each payload, or its refusal."""
        found = OpenedEvents(len(payloads.starts), self._members)
        for chosen, cursors in chunks(payloads, STEPS_MAX, _CHUNK_BYTES):
            found.chunks.append((chosen, cursors.at.copy(), cursors))
            self._read_all(chosen, cursors, found)
            doubtful = chosen[cursors.doubtful | (cursors.at != cursors.ends)]
            self.read_each(payloads, doubtful.tolist(), found)
        return found

    def read_each(self, payloads: Payloads, places: Sequence[int], found: OpenedEvents) -> None:
        """Read payloads one by one with the strict reader, and add the results to ``found``."""
        found.by_shape[places] = False
        for place in places:
            data = payloads.data[payloads.starts[place] : payloads.ends[place]].tobytes()
            try:
                self._read_one(place, Datum(data), found)
            except Refusal as refusal:
                found.facts.letters[place] = ""
                found.refused[place] = RefusedValue.of(place, refusal)

    def changed_ms(self, payloads: Payloads, found: OpenedEvents) -> int:
        """Return the time of the last change among the payloads, in milliseconds since 1970.  Return 0 if there is no
        change, or if it has no time.
        """
        changes = np.flatnonzero(np.isin(found.facts.letters, ["c", "u", "d"]))
        if not len(changes):
            return 0
        last = int(changes[-1])
        datum = Datum(payloads.data[payloads.starts[last] : payloads.ends[last]].tobytes())
        for name, type_ in self._opened:
            cell = _number(name, type_) if name == CHANGED else None
            if cell is not None:
                return read_one(cell, datum) or 0
            read_one(SkippedCell(type_, name), datum)
        return 0

    def _read_all(self, chosen: Indexes, cursors: Cursors, found: OpenedEvents) -> None:
        """Open the payloads of a chunk.  The cursors are at the starts of the payloads.

        The strict reader must read each payload whose cursor is doubtful afterwards, or is not at its end.
        """
        begins = cursors.at.copy()
        self._read_fields(self._ahead, chosen, cursors, found)
        if self._row is None:
            return
        row, live = SkippedCell(self._row.record, "after"), self._row.chosen(cursors)
        found.has_row[chosen], found.starts[chosen] = live, cursors.at - begins
        if self._shapes is None:
            self._read_end(row, chosen, cursors, live, found)
            return
        rows = np.flatnonzero(~self._by_shape(self._shapes, row, chosen, cursors, found))
        if len(rows):
            few = cursors.some(rows, cursors.at[rows])
            self._read_end(row, chosen[rows], few, live[rows], found)
            cursors.at[rows] = few.at
            cursors.doubtful[rows] |= few.doubtful

    def _read_end(self, row: SkippedCell, chosen: Indexes, cursors: Cursors, live: Mask, found: OpenedEvents) -> None:
        """Pass over rows, and read the fields after them."""
        before = cursors.at.copy()
        read_all(row, cursors, live)
        found.ends[chosen] = found.starts[chosen] + cursors.at - before
        self._read_fields(self._behind, chosen, cursors, found)

    def _read_fields(self, fields: Sequence[AvroField], chosen: Indexes, cursors: Cursors, found: OpenedEvents) -> None:
        """Read fields that are not the row."""
        for name, type_ in fields:
            if name == "op":
                letters = read_all(TextCell(name, pa.string()), cursors)
                places = pc.index_in(letters.cast(pa.binary()), value_set=_LETTERS).fill_null(len(_LETTERS)).to_numpy()
                found.facts.letters[chosen] = _LETTER_OF[places]
            elif name in self._numbers:
                self._number(name, chosen, cursors, found)
            elif (union := record_or_null(name, type_)) is None:
                read_all(SkippedCell(type_, name), cursors)
            else:
                live = found.facts.has_before[chosen] = union.chosen(cursors)
                if live.any():
                    read_all(SkippedCell(union.record, name), cursors, live)

    def _by_shape(
        self, shapes: Shapes, row: SkippedCell, chosen: Indexes, cursors: Cursors, found: OpenedEvents
    ) -> Mask:
        """Compare the ends of payloads with shapes.  Return a mask of the payloads that need no columnar look.

        The cursors are before the rows.  ``row``: the cell of a row.  A payload whose end has a shape counts if it
        has no row.  It also counts if its row will be decoded, because decoding tells where the row ends.  If at most
        ``FEW`` others are left, their cursors become doubtful instead.
        """
        read = np.zeros(len(chosen), np.bool_)
        has_row = found.has_row[chosen]

        def make(n: int) -> Shape | None:
            datum = Datum(cursors.data[cursors.at[n] : cursors.ends[n]].tobytes())
            try:
                if has_row[n]:
                    read_one(row, datum)
                return shape_of(datum.data[datum.at :], self._behind, self._numbers)
            except Refusal:
                return None

        for shape, rows in shapes.found(cursors.data, cursors.at, cursors.ends, make):
            starts = cursors.ends[rows] - len(shape.lows)
            letters = cursors.data[starts + shape.letter]
            sure = np.where(has_row[rows], self._is_decoded[letters], starts == cursors.at[rows])
            sure &= ~cursors.doubtful[rows]
            rows, starts = rows[sure], starts[sure]
            places, read[rows] = chosen[rows], True
            found.facts.letters[places], found.by_shape[places] = _LETTER_OF_BYTE[letters[sure]], True
            found.ends[places] = found.starts[places] + starts - cursors.at[rows]
            for name, own in shape.numbers.items():
                self._number(name, places, cursors.some(rows, starts + own.start), found)
        if read.any() and len(read) - np.count_nonzero(read) <= FEW:  # the strict reader takes the few that are left
            cursors.doubtful |= ~read
            read[:] = True
        cursors.at[read] = cursors.ends[read]
        return read

    def _number(self, name: str, chosen: Indexes, cursors: Cursors, found: OpenedEvents) -> None:
        array = read_all(self._numbers[name], cursors)
        of_all, has = found.facts.numbers[name]
        of_all[chosen] = array.fill_null(0).to_numpy(zero_copy_only=False)
        has[chosen] = array.is_valid().to_numpy(zero_copy_only=False)

    def _read_one(self, place: int, datum: Datum, found: OpenedEvents) -> None:
        """Open one payload by the strict reader, and add the result to ``found``.  Raises ``Refusal``."""
        for name, type_ in self._fields:
            if name == "op":
                letter = read_one(TextCell(name, pa.string()), datum)
                found.facts.letters[place] = letter if letter in LETTERS else OTHER_LETTER
                continue
            if name in self._numbers:
                number = read_one(self._numbers[name], datum)
                of_all, has = found.facts.numbers[name]
                of_all[place], has[place] = number or 0, number is not None
                continue
            union = record_or_null(name, type_)
            if union is None:
                read_one(SkippedCell(type_, name), datum)
                continue
            is_record = union.is_next(datum, SkippedCell(type_, name))
            start = datum.at
            if is_record:
                read_one(SkippedCell(union.record, name), datum)
            if name == "before":
                found.facts.has_before[place] = is_record
            else:
                found.has_row[place] = is_record
                found.starts[place], found.ends[place] = start, datum.at
        if datum.at != len(datum.data):
            raise Refusal("malformed", "expected one value of the schema, and nothing after it")


def _opened(writer: AvroRecord) -> Iterator[AvroField]:
    """Yield the fields of an envelope.  The fields of ``source`` come in its place, by names such as ``source.lsn``."""
    for field in writer.fields:
        if field.name == "source" and isinstance(field.type, AvroRecord):
            yield from (AvroField(f"source.{name}", type_) for name, type_ in field.type.fields)
        else:
            yield field


def _number(name: str, type_: AvroType) -> Cell | None:
    """Return a cell that reads an integer, or an integer or null; None for other types."""
    if isinstance(type_, AvroUnion):
        cells = [_number(name, branch) or SkippedCell(branch, name) for branch in type_.branches]
        others = [cell for cell in cells if not is_null(cell)]
        one = len(others) == 1 and isinstance(others[0], AvroNumber)
        return ChoiceCell(name, pa.int64(), cells) if one else None
    if not isinstance(type_, AvroPlain) or type_.kind not in ("int", "long"):
        return None
    return AvroNumber(name, pa.int64(), -(1 << 63), (1 << 63) - 1, long=type_.kind == "long")


def record_or_null(name: str, type_: AvroType) -> RecordOrNull | None:
    """Return the type of ``before`` or ``after`` if it is a union of a record and null; None for any other field or
    type.
    """
    if name not in ("before", "after") or not isinstance(type_, AvroUnion) or len(type_.branches) != 2:
        return None
    others = [(record, n) for n, record in enumerate(type_.branches) if isinstance(record, AvroRecord)]
    return RecordOrNull(*others[0]) if len(others) == 1 == len(type_.others) else None
