"""Debezium's envelope over JSON, with schemas (``connect-json``) and without: rows are decoded by the same code as others.

1. Created, updated and read rows are upserts of the row in ``after``.
2. A delete names no row: the record's key does (``DecodedValues.deletes``).  The row in ``before`` is not looked at, since it
   may hold the defaults of columns instead of their values.
3. A truncate is refused as ``truncate``, and the contract decides about it.
4. Heartbeats, transactions and messages are passed over, and so are rows of snapshots if the contract skips them.
5. Values that the connector could not read are left alone (``unavailable``), and columns of events filled (``event_columns``).
6. One of the last changes tells its time (``DecodedValues.changed_ms``).
7. The result for a value depends on the value alone: each way to look at it gives what ``debezium_json`` does (``tails``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.rows.schema import RowSchema
from lancewal_core.table.contract import TRUNCATE
from lancewal_ingest.decode.avro.schema import AvroRecord
from lancewal_ingest.decode.connect.decoder import ConnectDecoder, TextDecoder
from lancewal_ingest.decode.connect.rows import ConnectRows
from lancewal_ingest.decode.json.decoder import JsonDecoder
from lancewal_ingest.decode.json.foreign import wrong_format
from lancewal_ingest.decode.naming import Naming, OtherName
from lancewal_ingest.decode.outcomes import ENVELOPE, Refusal
from lancewal_ingest.decode.part import DecodedPart
from lancewal_ingest.decode.value_decoder import (
    NO_HEADERS,
    DecodedValues,
    HeaderValues,
    Indexes,
    Mask,
    NamesNoSchema,
    Ops,
    Places,
    RefusedValue,
)
from lancewal_ingest.decode.weight import lengths
from lancewal_ingest.envelopes.debezium_json import (
    LETTERS,
    NO_BEFORE,
    NO_ROWS,
    ROWS,
    SOURCE,
    OtherEvent,
    RowEvent,
    read,
    read_strictly,
)
from lancewal_ingest.envelopes.envelope import NO_FIELD, TRUNCATED, EnvelopeRules, row_of
from lancewal_ingest.envelopes.event_columns import CHANGED, EventColumns, Numbers
from lancewal_ingest.envelopes.json_tails import shape_of, whole_numbers
from lancewal_ingest.envelopes.tails import Shape, Shapes, starting
from lancewal_ingest.envelopes.unavailable import UnavailableValues
from lancewal_kafka.headers import HeaderList

_NOT_READ = ("not_json", "not_an_object")
"""Kinds of rows that ``read`` may have found in a wrong place."""


@dataclass(slots=True)
class _Sorted:
    """Values by what they are.  Numbers are places among the values."""

    deletes: list[int] = field(default_factory=list)
    passed_over: dict[str, list[int]] = field(default_factory=dict)
    refused: list[RefusedValue] = field(default_factory=list)
    new_fields: dict[str, pa.DataType] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Values with rows."""

    at: Indexes
    """Their places among the values."""
    texts: list[bytes]
    letters: npt.NDArray[np.str_]
    with_old: Mask
    numbers: Mapping[str, Numbers]

    def beside(self, others: _Rows) -> _Rows:
        """Return these rows and others, in the order of their places."""
        if not others.texts:
            return self
        at = np.concatenate([self.at, others.at])
        order = np.argsort(at)
        texts = [*self.texts, *others.texts]
        numbers = {
            name: (np.concatenate([own[0], other[0]])[order], np.concatenate([own[1], other[1]])[order])
            for name, own in self.numbers.items()
            for other in [others.numbers[name]]
        }
        letters = np.concatenate([self.letters, others.letters])[order]
        with_old = np.concatenate([self.with_old, others.with_old])[order]
        return _Rows(at[order], [texts[place] for place in order.tolist()], letters, with_old, numbers)


class EventTexts:
    """Decoder of texts of envelopes, whose rows ``rows`` decodes."""

    def __init__(
        self, rows: TextDecoder, unavailable: UnavailableValues, columns: EventColumns, envelope: EnvelopeRules
    ) -> None:
        self._rows = rows
        self._unavailable = unavailable
        self._columns = columns
        self._undecoded = NO_ROWS | {"r"} if envelope.skips_snapshots else NO_ROWS
        self._decoded = ROWS - self._undecoded
        self._letter_of = np.array([letter if (letter := chr(byte)) in self._decoded else "" for byte in range(256)])
        self._shapes = Shapes()

    def decode(self, payloads: Sequence[bytes], ops: Ops) -> DecodedValues:
        """Return the rows, the refusals, and what has no row.  All ``ops`` are upserts."""
        found = _Sorted()
        quick, places = self._by_shape(payloads)
        rows = quick.beside(self._sort(payloads, places, found, strictly=False))
        parts, others = list[DecodedPart](), Counter[OtherName]()
        changed_ms = _changed_ms(payloads, rows, found.deletes)
        doubtful = self._decode(rows, found, parts, others)
        if doubtful:
            rows = self._sort(payloads, doubtful, found, strictly=True)
            found.refused += [
                RefusedValue(place, ENVELOPE, "member after: expected a row in JSON")
                for place in self._decode(rows, found, parts, others)
            ]
        passed_over = {kind: np.array(of_kind, np.int64) for kind, of_kind in found.passed_over.items()}
        deletes = np.array(found.deletes, np.int64)
        return DecodedValues(parts, found.refused, others, found.new_fields, passed_over, deletes, changed_ms)

    def _decode(self, rows: _Rows, found: _Sorted, parts: list[DecodedPart], others: Counter[OtherName]) -> list[int]:
        """Decode rows; return the places of those that are not JSON."""
        decoded = self._rows.decode(rows.texts, np.zeros(len(rows.at), np.uint8))
        for part in decoded.parts:
            letters, placed = rows.letters[part.indexes], replace(part, indexes=rows.at[part.indexes])
            if self._columns:
                numbers = {name: (of[part.indexes], has[part.indexes]) for name, (of, has) in rows.numbers.items()}
                placed = self._columns.filled(placed, letters.tolist(), numbers)
            updates: Mask = letters == "u"
            unclear = updates & ~rows.with_old[part.indexes]
            parts.append(self._unavailable.kept(placed, updates, unclear, others, found.refused))
        others.update(decoded.other_names)
        found.new_fields.update(decoded.new_fields)
        refused = [replace(one, place=int(rows.at[one.place])) for one in decoded.refused]
        found.refused += [one for one in refused if one.kind not in _NOT_READ]
        return [one.place for one in refused if one.kind in _NOT_READ]

    def _by_shape(self, values: Sequence[bytes]) -> tuple[_Rows, Sequence[int]]:
        """Return the rows of values whose ends have shapes, and the places of the other values."""
        count = len(values)
        sizes = lengths(values)
        data, ends = np.frombuffer(b"".join(values), np.uint8), np.cumsum(sizes)
        begins = ends - sizes
        firsts = begins + np.where(starting(data, begins, ends, NO_BEFORE), len(NO_BEFORE), sizes + 1)
        letters, tails = np.full(count, "", "<U1"), np.zeros(count, np.int64)
        numbers = {name: (np.zeros(count, np.int64), np.zeros(count, np.bool_)) for name in self._columns.numbers}
        names = self._columns.numbers

        def make(place: int) -> Shape | None:
            value = values[place]
            event = read(value, self._undecoded, names)
            return shape_of(value[value.rfind(SOURCE) :], names) if event is not None and not event.has_before else None

        for shape, places in self._shapes.found(data, firsts, ends, make):
            starts = ends[places] - len(shape.lows)
            letters[places], tails[places] = self._letter_of[data[starts + shape.letter]], len(shape.lows)
            for name in shape.numbers:
                of_all, has = numbers[name]
                of_all[places], has[places] = whole_numbers(data, starts, shape, name), True
        at = np.flatnonzero(letters != "")
        begin = len(NO_BEFORE)
        if len(at) == count:
            texts = [value[begin:-size] for value, size in zip(values, tails.tolist(), strict=True)]
            return _Rows(at, texts, letters, np.zeros(count, np.bool_), numbers), ()
        texts = [values[place][begin:-size] for place, size in zip(at.tolist(), tails[at].tolist(), strict=True)]
        few = {name: (of_all[at], has[at]) for name, (of_all, has) in numbers.items()}
        others = np.flatnonzero(letters == "").tolist()
        return _Rows(at, texts, letters[at], np.zeros(len(at), np.bool_), few), others

    def _told(self, places: Sequence[int], events: Sequence[RowEvent]) -> _Rows:
        letters = np.array([event.letter for event in events], "<U1")
        with_old = np.array([event.has_before for event in events], np.bool_)
        texts = [event.row or b"" for event in events]
        return _Rows(np.array(places, np.int64), texts, letters, with_old, self._numbers(events))

    def _numbers(self, events: Sequence[RowEvent]) -> dict[str, Numbers]:
        found = {}
        for at, name in enumerate(self._columns.numbers):
            numbers = [event.numbers[at] for event in events]
            has = np.array([number is not None for number in numbers], np.bool_)
            found[name] = np.array([number or 0 for number in numbers], np.int64), has
        return found

    def _sort(self, values: Sequence[bytes], places: Iterable[int], found: _Sorted, *, strictly: bool) -> _Rows:
        """Look at values one by one.  Return those with rows; ``found`` takes the others."""
        at, told = list[int](), list[RowEvent]()
        for place in places:
            quick = None if strictly else read(values[place], self._undecoded, self._columns.numbers)
            if quick is not None and quick.row is not None and quick.letter in self._decoded:  # nearly every event
                at.append(place)
                told.append(quick)
                continue
            try:
                event: RowEvent | OtherEvent = quick or read_strictly(values[place], self._columns.numbers)
                kind = self._passed_over(event)
                if kind is not None:
                    found.passed_over.setdefault(kind, []).append(place)
                elif isinstance(event, RowEvent) and self._has_row(event, place, found):
                    at.append(place)
                    told.append(event)
            except Refusal as refusal:
                found.refused.append(RefusedValue(place, refusal.kind, str(refusal), refusal.found))
        return self._told(at, told)

    def _passed_over(self, event: RowEvent | OtherEvent) -> str | None:
        """Return the kind of a value that is passed over; None for others."""
        match event:
            case OtherEvent(kind=kind):
                return kind
            case RowEvent(letter="m"):
                return "message"
            case RowEvent(letter="r") if "r" in self._undecoded:
                return "snapshot_row"
        return None

    def _has_row(self, event: RowEvent, place: int, found: _Sorted) -> bool:
        """Return whether an event has a row; ``found`` takes a delete."""
        if event.letter == "d":
            found.deletes.append(place)
            return False
        if event.letter not in ROWS:
            raise Refusal(TRUNCATE, TRUNCATED)
        if event.row is None:
            raise Refusal(ENVELOPE, f"member after: expected a row, since op is {event.letter}")
        return True


def _changed_ms(payloads: Sequence[bytes], rows: _Rows, deletes: Sequence[int]) -> int:
    """Return the time of the last change among the payloads; 0 if there is none, or it tells no time."""
    last = max([*rows.at[rows.letters != "r"][-1:].tolist(), *deletes[-1:]], default=None)
    if last is None:
        return 0
    try:
        event = read(payloads[last], LETTERS, (CHANGED,)) or read_strictly(payloads[last], (CHANGED,))
    except Refusal:
        return 0
    return 0 if isinstance(event, OtherEvent) else event.numbers[0] or 0


class JsonEvents(NamesNoSchema):
    """See the module docstring.  Raises ``InvalidSchema`` for columns that have no JSON form."""

    tells_operations = True

    def __init__(self, rows: RowSchema, naming: Naming, envelope: EnvelopeRules) -> None:
        decoder = JsonDecoder(rows, naming)
        self._texts = EventTexts(decoder, envelope.unavailable(rows), envelope.columns(rows), envelope)
        self.names: Sequence[str] = decoder.names
        self.growth = decoder.growth
        self.headers: Sequence[str] = ()

    def other_format(self, value: bytes, headers: HeaderList | None) -> str | None:
        return wrong_format(value, headers, self.names, envelope="debezium")

    def decode(
        self, values: Sequence[bytes], ops: Ops, headers: HeaderValues = NO_HEADERS, places: Places | None = None
    ) -> DecodedValues:
        return self._texts.decode(values, ops)


class _NoRows:
    """Decoder for a schema that has no field for rows."""

    def decode(self, payloads: Sequence[bytes], ops: Ops) -> DecodedValues:
        return DecodedValues([], [RefusedValue(n, ENVELOPE, NO_FIELD) for n in range(len(payloads))])


def connect_events(rows: RowSchema, naming: Naming, envelope: EnvelopeRules) -> ConnectDecoder:
    """Return the decoder of Debezium's envelope in Kafka Connect's JSON with schemas."""
    unavailable, columns = envelope.unavailable(rows), envelope.columns(rows)

    def texts_of(record: AvroRecord) -> TextDecoder:
        row = row_of(record)
        decoder: TextDecoder = _NoRows() if row is None else ConnectRows(row, rows, naming)
        return EventTexts(decoder, unavailable, columns, envelope)

    return ConnectDecoder(rows, naming, texts_of)
