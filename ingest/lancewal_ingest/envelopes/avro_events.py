"""Debezium's envelope in Avro: the row is found in the bytes, and decoded as an Avro datum of its own.

1. The schema of the envelope has a field ``op``, a text, and ``after``, a record or null.  Other fields are passed over, but
   for the numbers of ``event_columns``: a long, an int, or null.
2. The bytes of ``after`` are a datum of its record.  So rows and refusals are those of ``avro`` for that record.
3. What stands around the row is read at all cursors at once, and payload by payload where that cannot decide.  Ends that
   are alike are not read but compared (``tails``): such a payload has its row up to there, or the strict reader decides.
4. A schema without ``op`` is that of heartbeats or of transactions, which are passed over, or no value of it is an event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.rows.schema import RowSchema
from lancewal_core.table.contract import TRUNCATE, UNAVAILABLE_VALUE
from lancewal_core.wal.writer_schemas import WriterSchema
from lancewal_ingest.decode.avro.cells import Cell, ChoiceCell, NumberCell, SkippedCell, TextCell, is_null
from lancewal_ingest.decode.avro.columnar import STEPS_MAX
from lancewal_ingest.decode.avro.columnar import read_cell as read_all
from lancewal_ingest.decode.avro.decoder import AvroFormat, AvroPayloads, parse_record
from lancewal_ingest.decode.avro.schema import AvroField, AvroPlain, AvroRecord, AvroType, AvroUnion
from lancewal_ingest.decode.avro.strict import Datum, malformed
from lancewal_ingest.decode.avro.strict import read_cell as read_one
from lancewal_ingest.decode.framed.cursors import Cursors
from lancewal_ingest.decode.framed.payloads import PayloadDecoder, Payloads, SchemaUnusable
from lancewal_ingest.decode.framed.typed import chunks
from lancewal_ingest.decode.naming import Naming, OtherName
from lancewal_ingest.decode.outcomes import ENVELOPE, WRONG_FORMAT, Refusal
from lancewal_ingest.decode.part import DecodedPart
from lancewal_ingest.decode.value_decoder import DecodedValues, Indexes, Mask, Ops, RefusedValue
from lancewal_ingest.envelopes.avro_tails import shape_of
from lancewal_ingest.envelopes.debezium_json import LETTERS, ROWS, kind_of_names
from lancewal_ingest.envelopes.envelope import NO_FIELD, TRUNCATED, EnvelopeRules, row_of
from lancewal_ingest.envelopes.event_columns import CHANGED, EventColumns
from lancewal_ingest.envelopes.tails import FEW, Shape, Shapes
from lancewal_ingest.envelopes.unavailable import UnavailableValues

_LETTERS = pa.array([letter.encode() for letter in sorted(LETTERS)], pa.binary())
_LETTER_OF = np.array([*sorted(LETTERS), "?"])
"""The letter of each of these, and a mark for any other text."""
_CHUNK_BYTES = 4 << 20
"""Most of these bytes are passed over."""
_LETTER_OF_BYTE = np.array([letter if (letter := chr(byte)) in LETTERS else "?" for byte in range(256)])
_NO_ENVELOPE = (
    "expected the schema of Debezium's envelope, with the fields op, source and after. If the "
    "connector unwraps rows (ExtractNewRecordState), set table.format.envelope to debezium-unwrapped"
)


class AvroEventFormat(AvroFormat):
    """``FramedFormat`` of Debezium's envelope in Avro."""

    tells_operations = True

    def __init__(self, rows: RowSchema, naming: Naming, envelope: EnvelopeRules) -> None:
        super().__init__(rows, naming)
        self._unavailable = envelope.unavailable(rows)
        self._columns = envelope.columns(rows)
        self._envelope = envelope

    def decoder(self, schema: WriterSchema, path: tuple[int, ...]) -> PayloadDecoder:  # type: ignore[override] # of events
        writer = parse_record(schema, self._naming)
        names = [field.name for field in writer.fields] if isinstance(writer, AvroRecord) else []
        kind = kind_of_names(names)
        if kind is not None:
            return BesideRows(kind)
        if not isinstance(writer, AvroRecord) or not {"op", "source"} <= {*names}:
            raise SchemaUnusable(_NO_ENVELOPE, WRONG_FORMAT)
        row = row_of(writer)
        rows = None if row is None else AvroPayloads(row, self._rows, self._naming)
        return AvroEvents(writer, rows, self._unavailable, self._columns, self._envelope)


class BesideRows:
    """``PayloadDecoder`` of a schema whose payloads are all passed over."""

    tells_presence = tells_null = True
    fills: Collection[str] = ()
    growth = 0, 0

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def decode(self, payloads: Payloads, ops: Ops) -> DecodedValues:
        return DecodedValues([], [], passed_over={self._kind: np.arange(len(payloads.starts))})


class _Found:
    """Findings of all payloads, by their places."""

    def __init__(self, count: int, numbers: Collection[str]) -> None:
        self.letters = np.full(count, "", "<U1")
        self.starts = np.zeros(count, np.int64)
        """Index of the first byte of the row among the payload's; the same as ``ends`` without a row."""
        self.ends = np.zeros(count, np.int64)
        self.has_row = np.zeros(count, np.bool_)
        self.has_before = np.zeros(count, np.bool_)
        self.by_shape = np.zeros(count, np.bool_)
        """Whether only the end of the payload was read.  Then the row is what precedes it, if that is one datum."""
        self.numbers = {name: (np.zeros(count, np.int64), np.zeros(count, np.bool_)) for name in numbers}
        self.chunks: list[tuple[Indexes, Indexes, Cursors]] = []
        """The payloads chunk by chunk, with the places in the buffer where they begin."""

    def rows(self, chosen: Indexes) -> Iterator[tuple[Indexes, Cursors]]:
        """Yield the rows of some payloads, by their numbers among these, with cursors before them."""
        for places, begins, cursors in self.chunks:
            first, end = np.searchsorted(chosen, [places[0], places[-1] + 1]).tolist()
            some = chosen[first:end] - places[0]
            few = cursors.some(some, begins[some] + self.starts[chosen[first:end]])
            few.ends = begins[some] + self.ends[chosen[first:end]]
            few.steps_left = STEPS_MAX
            if len(some):
                yield np.arange(first, end), few


class AvroEvents:
    """``PayloadDecoder`` of one schema of envelopes.  ``rows``: of its record of rows; None if it has none."""

    tells_presence = tells_null = True

    def __init__(
        self,
        writer: AvroRecord,
        rows: AvroPayloads | None,
        unavailable: UnavailableValues,
        columns: EventColumns,
        envelope: EnvelopeRules,
    ) -> None:
        self._opened = [*_opened(writer)]
        self._fields = self._opened if columns.numbers else writer.fields
        self._columns = columns
        self._numbers = {
            name: cell
            for name, type_ in self._fields
            if name in columns.numbers and (cell := _number(name, type_)) is not None
        }
        self._rows = rows
        self._unavailable = unavailable
        self._skips_snapshots = envelope.skips_snapshots
        types = {field.name: field.type for field in writer.fields}
        if types["op"] != AvroPlain("string"):
            raise SchemaUnusable("field op: expected a text, which names the operation", ENVELOPE)
        self.fills: Collection[str] = () if rows is None else rows.fills
        self.growth = (0, 0) if rows is None else rows.growth
        names = [name for name, _ in self._fields]
        behind = {*names[names.index("after") + 1 :]} if rows is not None and not rows.refuses_all else set[str]()
        self._shapes = Shapes() if {"op", *self._numbers} <= behind and "before" not in behind else None
        self._behind = self._fields[len(names) - len(behind) :]
        decoded = ROWS - {"r"} if envelope.skips_snapshots else ROWS
        self._is_decoded = np.array([chr(byte) in decoded for byte in range(256)])

    def decode(self, payloads: Payloads, ops: Ops) -> DecodedValues:
        """Return the rows, the refusals, and what has no row.  All ``ops`` are upserts."""
        found = _Found(len(payloads.starts), self._columns.numbers)
        refused = self._open(payloads, found)
        decoded = self._sorted(payloads, found, [*refused])
        doubted = [one.place for one in decoded.refused if found.by_shape[one.place] and one.kind != UNAVAILABLE_VALUE]
        if not doubted:
            return replace(decoded, changed_ms=self._changed_ms(payloads, found))
        ends = found.ends[doubted].tolist()
        again = self._read_each(payloads, doubted, found)
        gone = {one.place for one in again}
        if any(end != found.ends[place] and place not in gone for place, end in zip(doubted, ends, strict=True)):
            decoded = self._sorted(payloads, found, [*refused, *again])
        else:
            decoded = replace(decoded, refused=[*again, *(one for one in decoded.refused if one.place not in gone)])
        return replace(decoded, changed_ms=self._changed_ms(payloads, found))

    def _sorted(self, payloads: Payloads, found: _Found, refused: list[RefusedValue]) -> DecodedValues:
        """Return what becomes of payloads after they were opened.  ``refused``: those that were refused then."""
        at = {letter: np.flatnonzero(found.letters == letter) for letter in np.unique(found.letters).tolist()}
        at.pop("", None)  # refused
        passed_over = {"message": at.pop("m")} if "m" in at else {}
        if self._skips_snapshots and "r" in at:
            passed_over["snapshot_row"] = at.pop("r")
        deletes = at.pop("d", np.zeros(0, np.int64))
        refused += [RefusedValue(n, TRUNCATE, TRUNCATED) for n in at.pop("t", np.zeros(0, np.int64)).tolist()]
        rows: list[Indexes] = []
        for letter, places in at.items():
            has = found.has_row[places]
            message = f"field after: expected a row, since op is {letter}" if self._rows is not None else NO_FIELD
            if letter not in ROWS:
                has, message = (
                    np.zeros(len(places), np.bool_),
                    f"field op: expected one of {', '.join(sorted(LETTERS))}",
                )
            refused += [RefusedValue(n, ENVELOPE, message) for n in places[~has].tolist()]
            rows.append(places[has])
        chosen = np.sort(np.concatenate([np.zeros(0, np.int64), *rows]))
        if self._rows is None or not len(chosen):
            return DecodedValues([], refused, {}, {}, passed_over, deletes)
        starts = payloads.starts[chosen]
        datums = Payloads(payloads.data, starts + found.starts[chosen], starts + found.ends[chosen])
        decoded = self._rows.decode(datums, np.zeros(len(chosen), np.uint8), found.rows(chosen))
        refused += [replace(one, place=int(chosen[one.place])) for one in decoded.refused]
        others, parts = Counter(decoded.other_names), list[DecodedPart]()
        for part in decoded.parts:
            parts.append(self._kept(replace(part, indexes=chosen[part.indexes]), found, others, refused))
        return DecodedValues(parts, refused, others, decoded.new_fields, passed_over, deletes)

    def _changed_ms(self, payloads: Payloads, found: _Found) -> int:
        """Return the time of the last change; 0 without one, or if it tells no time."""
        changes = np.flatnonzero(np.isin(found.letters, ["c", "u", "d"]))
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

    def _kept(
        self, part: DecodedPart, found: _Found, others: Counter[OtherName], refused: list[RefusedValue]
    ) -> DecodedPart:
        letters = found.letters[part.indexes]
        if self._columns:
            numbers = {name: (of_all[part.indexes], has[part.indexes]) for name, (of_all, has) in found.numbers.items()}
            part = self._columns.filled(part, letters.tolist(), numbers)
        updates: Mask = letters == "u"
        return self._unavailable.kept(part, updates, updates & ~found.has_before[part.indexes], others, refused)

    def _open(self, payloads: Payloads, found: _Found) -> list[RefusedValue]:
        """Find operation and row of each payload, and return the refusals of those that are none."""
        refused: list[RefusedValue] = []
        for chosen, cursors in chunks(payloads, STEPS_MAX, _CHUNK_BYTES):
            found.chunks.append((chosen, cursors.at.copy(), cursors))
            self._read_all(chosen, cursors, found)
            doubtful = chosen[cursors.doubtful | (cursors.at != cursors.ends)]
            refused += self._read_each(payloads, doubtful.tolist(), found)
        return refused

    def _read_each(self, payloads: Payloads, places: Sequence[int], found: _Found) -> list[RefusedValue]:
        """Read some payloads by the strict reader; return the refusals."""
        refused: list[RefusedValue] = []
        found.by_shape[places] = False
        for place in places:
            data = payloads.data[payloads.starts[place] : payloads.ends[place]].tobytes()
            try:
                self._read_one(place, Datum(data), found)
            except Refusal as refusal:
                found.letters[place] = ""
                refused.append(RefusedValue(place, refusal.kind, str(refusal), refusal.found))
        return refused

    def _read_all(self, chosen: Indexes, cursors: Cursors, found: _Found) -> None:
        everything, begin, rows = cursors, cursors.at.copy(), np.arange(len(chosen))
        for name, type_ in self._fields:
            if name == "op":
                letters = read_all(TextCell(name, pa.string()), cursors)
                places = pc.index_in(letters.cast(pa.binary()), value_set=_LETTERS).fill_null(len(_LETTERS)).to_numpy()
                found.letters[chosen] = _LETTER_OF[places]
                continue
            if name in self._numbers:
                self._number(name, chosen, cursors, found)
                continue
            union = _record_or_null(name, type_)
            if union is None:
                read_all(SkippedCell(type_, name), cursors)
                continue
            record, number, null = union
            branch = cursors.numbers(None)
            live: Mask = branch == number
            cursors.doubtful |= ~live & (branch != null)
            if name == "before":
                if live.any():
                    read_all(SkippedCell(record, name), cursors, live)
                found.has_before[chosen] = live
                continue
            found.has_row[chosen], found.starts[chosen] = live, cursors.at - begin
            if self._shapes is not None:
                rows = np.flatnonzero(~self._by_shape(self._shapes, SkippedCell(record, name), chosen, cursors, found))
                if not len(rows):
                    break
                chosen, begin, live, cursors = (
                    chosen[rows],
                    begin[rows],
                    live[rows],
                    cursors.some(rows, cursors.at[rows]),
                )
            read_all(SkippedCell(record, name), cursors, live)
            found.ends[chosen] = cursors.at - begin
        if cursors is not everything:
            everything.at[rows] = cursors.at
            everything.doubtful[rows] |= cursors.doubtful

    def _by_shape(self, shapes: Shapes, row: SkippedCell, chosen: Indexes, cursors: Cursors, found: _Found) -> Mask:
        """Look for payloads whose ends have shapes, with cursors before their rows.  Return those that need no other look.

        ``row``: the cell of a row.  Such a payload has no row, or its row is decoded, which tells where it ends."""
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
            found.letters[places], found.by_shape[places] = _LETTER_OF_BYTE[letters[sure]], True
            found.ends[places] = found.starts[places] + starts - cursors.at[rows]
            for name, own in shape.numbers.items():
                self._number(name, places, cursors.some(rows, starts + own.start), found)
        if read.any() and len(read) - np.count_nonzero(read) <= FEW:
            cursors.doubtful |= ~read
            read[:] = True
        cursors.at[read] = cursors.ends[read]
        return read

    def _number(self, name: str, chosen: Indexes, cursors: Cursors, found: _Found) -> None:
        array = read_all(self._numbers[name], cursors)
        of_all, has = found.numbers[name]
        of_all[chosen] = array.fill_null(0).to_numpy(zero_copy_only=False)
        has[chosen] = array.is_valid().to_numpy(zero_copy_only=False)

    def _read_one(self, place: int, datum: Datum, found: _Found) -> None:
        for name, type_ in self._fields:
            if name == "op":
                letter = read_one(TextCell(name, pa.string()), datum)
                found.letters[place] = letter if letter in LETTERS else "?"
                continue
            if name in self._numbers:
                number = read_one(self._numbers[name], datum)
                of_all, has = found.numbers[name]
                of_all[place], has[place] = number or 0, number is not None
                continue
            union = _record_or_null(name, type_)
            cell: Cell = SkippedCell(type_, name)
            if union is None:
                read_one(cell, datum)
                continue
            record, number, null = union
            branch, start = datum.number(cell), datum.at
            if branch not in (number, null):
                malformed(cell, "a branch that its union has")
            start = datum.at
            if branch == number:
                read_one(SkippedCell(record, name), datum)
            if name == "before":
                found.has_before[place] = branch == number
            else:
                found.has_row[place] = branch == number
                found.starts[place], found.ends[place] = start, datum.at
        if datum.at != len(datum.data):
            raise Refusal("malformed", "expected one value of the schema, and nothing after it")


def _opened(writer: AvroRecord) -> Iterator[AvroField]:
    """Yield the fields of an envelope, with those of its field ``source`` in place of it."""
    for field in writer.fields:
        if field.name == "source" and isinstance(field.type, AvroRecord):
            yield from (AvroField(f"source.{name}", type_) for name, type_ in field.type.fields)
        else:
            yield field


def _number(name: str, type_: AvroType) -> Cell | None:
    """Return the cell of an integer, or of an integer or null; None for other types."""
    if isinstance(type_, AvroUnion):
        cells = [_number(name, branch) or SkippedCell(branch, name) for branch in type_.branches]
        others = [cell for cell in cells if not is_null(cell)]
        one = len(others) == 1 and isinstance(others[0], NumberCell)
        return ChoiceCell(name, pa.int64(), cells) if one else None
    if not isinstance(type_, AvroPlain) or type_.kind not in ("int", "long"):
        return None
    return NumberCell(name, pa.int64(), type_.kind == "long", -(1 << 63), (1 << 63) - 1)


def _record_or_null(name: str, type_: AvroType) -> tuple[AvroRecord, int, int] | None:
    """Return the record of a field with rows, and the branches of its record and of null; None for any other field."""
    if name not in ("before", "after") or not isinstance(type_, AvroUnion) or len(type_.branches) != 2:
        return None
    null = next((n for n, one in enumerate(type_.branches) if isinstance(one, AvroPlain) and one.kind == "null"), None)
    if null is None:
        return None
    record = type_.branches[1 - null]
    return (record, 1 - null, null) if isinstance(record, AvroRecord) else None
