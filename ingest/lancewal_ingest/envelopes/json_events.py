"""Debezium's envelope over JSON, with schemas (``connect-json``) and without: rows are decoded by the same code as others.

1. Created, updated and read rows are upserts of the row in ``after``.
2. A delete names no row: the record's key does (``DecodedValues.deletes``).  The row in ``before`` is not looked at, since it
   may hold the defaults of columns instead of their values.
3. A truncate is refused as ``truncate``, and the contract decides about it.
4. Heartbeats, transactions and messages are passed over, and so are rows of snapshots if the contract skips them.
5. Values that the connector could not read are left alone (``unavailable``), and columns of events filled (``event_columns``).
6. One of the last changes tells its time (``DecodedValues.changed_ms``).
7. The result for a value depends on the value alone: how it is looked at (``debezium_json``) follows from its bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
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
    NamesNoSchema,
    Ops,
    Places,
    RefusedValue,
)
from lancewal_ingest.envelopes.debezium_json import NO_ROWS, ROWS, OtherEvent, RowEvent, read, read_strictly
from lancewal_ingest.envelopes.envelope import NO_FIELD, TRUNCATED, EnvelopeRules, row_of
from lancewal_ingest.envelopes.event_columns import CHANGED, EventColumns, Numbers
from lancewal_ingest.envelopes.unavailable import UnavailableValues
from lancewal_kafka.headers import HeaderList

_NOT_READ = ("not_json", "not_an_object")
"""Kinds of rows that ``read`` may have found in a wrong place."""


@dataclass(slots=True)
class _Sorted:
    """Values by what they are.  Numbers are places among the values."""

    at: list[int] = field(default_factory=list)
    told: list[RowEvent] = field(default_factory=list)
    rows: list[bytes] = field(default_factory=list)
    """Text of the row of each value in ``at``."""
    deletes: list[int] = field(default_factory=list)
    passed_over: dict[str, list[int]] = field(default_factory=dict)
    refused: list[RefusedValue] = field(default_factory=list)
    new_fields: dict[str, pa.DataType] = field(default_factory=dict)


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

    def decode(self, payloads: Sequence[bytes], ops: Ops) -> DecodedValues:
        """Return the rows, the refusals, and what has no row.  All ``ops`` are upserts."""
        found = _Sorted()
        self._sort(payloads, range(len(payloads)), found, strictly=False)
        parts, others = list[DecodedPart](), Counter[OtherName]()
        changed_ms = _changed_ms(payloads, found)
        doubtful = self._decode(found, parts, others)
        if doubtful:
            found.at, found.told, found.rows = [], [], []
            self._sort(payloads, doubtful, found, strictly=True)
            found.refused += [
                RefusedValue(place, ENVELOPE, "member after: expected a row in JSON")
                for place in self._decode(found, parts, others)
            ]
        passed_over = {kind: np.array(of_kind, np.int64) for kind, of_kind in found.passed_over.items()}
        deletes = np.array(found.deletes, np.int64)
        return DecodedValues(parts, found.refused, others, found.new_fields, passed_over, deletes, changed_ms)

    def _decode(self, found: _Sorted, parts: list[DecodedPart], others: Counter[OtherName]) -> list[int]:
        """Decode the rows of ``found``; return the places of those that are not JSON."""
        at = np.array(found.at, np.int64)
        decoded = self._rows.decode(found.rows, np.zeros(len(at), np.uint8))
        for part in decoded.parts:
            events = [found.told[place] for place in part.indexes.tolist()]
            updates = np.fromiter((event.letter == "u" for event in events), np.bool_, len(events))
            with_old = np.fromiter((event.has_before for event in events), np.bool_, len(events))
            placed = replace(part, indexes=at[part.indexes])
            if self._columns:
                placed = self._columns.filled(placed, [event.letter for event in events], self._numbers(events))
            parts.append(self._unavailable.kept(placed, updates, updates & ~with_old, others, found.refused))
        others.update(decoded.other_names)
        found.new_fields.update(decoded.new_fields)
        refused = [replace(one, place=found.at[one.place]) for one in decoded.refused]
        found.refused += [one for one in refused if one.kind not in _NOT_READ]
        return [one.place for one in refused if one.kind in _NOT_READ]

    def _numbers(self, events: Sequence[RowEvent]) -> dict[str, Numbers]:
        found = {}
        for at, name in enumerate(self._columns.numbers):
            numbers = [event.numbers[at] for event in events]
            has = np.array([number is not None for number in numbers], np.bool_)
            found[name] = np.array([number or 0 for number in numbers], np.int64), has
        return found

    def _sort(self, values: Sequence[bytes], places: Iterable[int], found: _Sorted, *, strictly: bool) -> None:
        for place in places:
            quick = None if strictly else read(values[place], self._undecoded, self._columns.numbers)
            if quick is not None and quick.row is not None and quick.letter in self._decoded:  # nearly every event
                found.at.append(place)
                found.told.append(quick)
                found.rows.append(quick.row)
                continue
            try:
                event: RowEvent | OtherEvent = quick or read_strictly(values[place], self._columns.numbers)
                kind = self._passed_over(event)
                if kind is not None:
                    found.passed_over.setdefault(kind, []).append(place)
                elif isinstance(event, RowEvent):
                    self._add(event, place, found)
            except Refusal as refusal:
                found.refused.append(RefusedValue(place, refusal.kind, str(refusal), refusal.found))

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

    def _add(self, event: RowEvent, place: int, found: _Sorted) -> None:
        if event.letter == "d":
            found.deletes.append(place)
        elif event.letter not in ROWS:
            raise Refusal(TRUNCATE, TRUNCATED)
        elif event.row is None:
            raise Refusal(ENVELOPE, f"member after: expected a row, since op is {event.letter}")
        else:
            found.at.append(place)
            found.told.append(event)
            found.rows.append(event.row)


def _changed_ms(payloads: Sequence[bytes], found: _Sorted) -> int:
    """Return the time of the last change among the payloads; 0 if there is none, or it tells no time."""
    upserts = (at for at, told in zip(reversed(found.at), reversed(found.told), strict=True) if told.letter != "r")
    last = max([next(upserts, -1), *found.deletes[-1:]])
    if last < 0:
        return 0
    try:
        event = read_strictly(payloads[last], (CHANGED,))  # one in a batch, so it need not be quick
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
