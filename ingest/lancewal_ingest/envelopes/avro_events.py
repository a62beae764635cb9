"""Debezium's envelope in Avro: the row is found in the bytes, and decoded as an Avro datum of its own.

1. The schema of the envelope has a field ``op``, a text, and ``after``, a record or null.  Other fields are passed over, but
   for the numbers of ``event_columns``: a long, an int, or null.
2. The bytes of ``after`` are a datum of its record.  So rows and refusals are those of ``avro`` for that record.
3. What stands around the row is read at all cursors at once, and payload by payload where that cannot decide.
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
from lancewal_core.table.contract import TRUNCATE
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
from lancewal_ingest.envelopes.debezium_json import LETTERS, ROWS, kind_of_names
from lancewal_ingest.envelopes.envelope import NO_FIELD, TRUNCATED, EnvelopeRules, row_of
from lancewal_ingest.envelopes.event_columns import CHANGED, EventColumns
from lancewal_ingest.envelopes.unavailable import UnavailableValues

_LETTERS = pa.array([letter.encode() for letter in sorted(LETTERS)], pa.binary())
_LETTER_OF = np.array([*sorted(LETTERS), "?"])
"""The letter of each of these, and a mark for any other text."""
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
    unknown: Sequence[str] = ()
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
        self.numbers = {name: (np.zeros(count, np.int64), np.zeros(count, np.bool_)) for name in numbers}


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
        self.unknown: Sequence[str] = () if rows is None else rows.unknown
        self.fills: Collection[str] = () if rows is None else rows.fills
        self.growth = (0, 0) if rows is None else rows.growth

    def decode(self, payloads: Payloads, ops: Ops) -> DecodedValues:
        """Return the rows, the refusals, and what has no row.  All ``ops`` are upserts."""
        found = _Found(len(payloads.starts), self._columns.numbers)
        refused = self._open(payloads, found)
        at = {letter: np.flatnonzero(found.letters == letter) for letter in np.unique(found.letters).tolist()}
        at.pop("", None)  # refused
        changed_ms = self._changed_ms(
            payloads, max((int(at[letter][-1]) for letter in "cud" if letter in at), default=-1)
        )
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
            return DecodedValues([], refused, {}, {}, passed_over, deletes, changed_ms)
        starts = payloads.starts[chosen]
        datums = Payloads(payloads.data, starts + found.starts[chosen], starts + found.ends[chosen])
        decoded = self._rows.decode(datums, np.zeros(len(chosen), np.uint8))
        refused += [replace(one, place=int(chosen[one.place])) for one in decoded.refused]
        others, parts = Counter(decoded.other_names), list[DecodedPart]()
        for part in decoded.parts:
            parts.append(self._kept(replace(part, indexes=chosen[part.indexes]), found, others, refused))
        return DecodedValues(parts, refused, others, decoded.new_fields, passed_over, deletes, changed_ms)

    def _changed_ms(self, payloads: Payloads, last: int) -> int:
        """Return the time of the last change, which is at the place ``last``; 0 for -1, or if it tells no time."""
        if last < 0:
            return 0
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
        for chosen, cursors in chunks(payloads, STEPS_MAX):
            self._read_all(chosen, cursors, found)
            doubtful = chosen[cursors.doubtful | (cursors.at != cursors.ends)]
            for place in doubtful.tolist():
                data = payloads.data[payloads.starts[place] : payloads.ends[place]].tobytes()
                try:
                    self._read_one(place, Datum(data), found)
                except Refusal as refusal:
                    found.letters[place] = ""
                    refused.append(RefusedValue(place, refusal.kind, str(refusal), refusal.found))
        return refused

    def _read_all(self, chosen: Indexes, cursors: Cursors, found: _Found) -> None:
        begin = cursors.at.copy()
        for name, type_ in self._fields:
            if name == "op":
                letters = read_all(TextCell(name, pa.string()), cursors)
                places = pc.index_in(letters.cast(pa.binary()), value_set=_LETTERS).fill_null(len(_LETTERS)).to_numpy()
                found.letters[chosen] = _LETTER_OF[places]
                continue
            if name in self._numbers:
                array = read_all(self._numbers[name], cursors)
                of_all, has = found.numbers[name]
                of_all[chosen] = array.fill_null(0).to_numpy(zero_copy_only=False)
                has[chosen] = array.is_valid().to_numpy(zero_copy_only=False)
                continue
            union = _record_or_null(name, type_)
            if union is None:
                read_all(SkippedCell(type_, name), cursors)
                continue
            record, number, null = union
            branch = cursors.numbers(None)
            live: Mask = branch == number
            cursors.doubtful |= ~live & (branch != null)
            starts = cursors.at - begin
            read_all(SkippedCell(record, name), cursors, live)
            if name == "before":
                found.has_before[chosen] = live
            else:
                found.has_row[chosen], found.starts[chosen], found.ends[chosen] = live, starts, cursors.at - begin

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
