"""Decoder of Debezium's envelope in plain JSON and in Kafka Connect's JSON with schemas (``connect-json``).

1. Created, updated and read rows are upserts of the row in ``after``.  The code that decodes rows without an
   envelope decodes them.
2. A delete names no row: the record's key does (``DecodedValues.deletes``).  The row in ``before`` is not looked at,
   since it may hold the defaults of columns instead of their values.
3. A truncate is refused as ``truncate``.  The contract says what follows (``on_truncate``).
4. Heartbeats, transactions and messages are passed over.  Rows of snapshots are passed over too if the contract
   skips them.
5. ``event_rows`` completes the decoded rows, as for other formats.
6. ``DecodedValues.changed_ms`` is the time of one of the newest changes.
7. The result for a value depends on the value alone.  ``debezium_json.read_strictly`` defines it, and two quicker
   ways give the same result.  Ends that are alike are compared (``tails``).  ``debezium_json.read`` reads other
   values, and leaves the rest to ``read_strictly``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from lancewal_core.rows.schema import RowSchema
from lancewal_ingest.decode.avro.schema import AvroRecord
from lancewal_ingest.decode.connect.decoder import ConnectDecoder, TextDecoder
from lancewal_ingest.decode.connect.rows import ConnectRows
from lancewal_ingest.decode.json.decoder import JsonDecoder
from lancewal_ingest.decode.json.foreign import wrong_format
from lancewal_ingest.decode.naming import Naming
from lancewal_ingest.decode.outcomes import ENVELOPE, Refusal
from lancewal_ingest.decode.value_decoder import (
    NO_HEADERS,
    DecodedValues,
    HeaderValues,
    Indexes,
    NamesNoSchema,
    Ops,
    Places,
    RefusedValue,
    joined,
)
from lancewal_ingest.decode.weight import lengths
from lancewal_ingest.envelopes.debezium_json import (
    LETTERS,
    NO_BEFORE,
    SOURCE,
    OtherEvent,
    RowEvent,
    read,
    read_strictly,
)
from lancewal_ingest.envelopes.envelope import NO_FIELD, EnvelopeRules, row_of
from lancewal_ingest.envelopes.event_rows import CHANGED, DELETE, ROW, EventFacts, EventRows, Numbers
from lancewal_ingest.envelopes.json_tails import shape_of, whole_numbers
from lancewal_ingest.envelopes.tails import Shape, Shapes, starting
from lancewal_kafka.headers import HeaderList

_NOT_READ = ("not_json", "not_an_object")
"""Kinds of refusals of a row whose text may have been cut out at the wrong place, by ``read`` or by a shape."""
_NO_JSON = "member 'after': expected a row in JSON"


@dataclass(slots=True)
class _WithoutRow:
    """Values that hold no row to decode."""

    kinds: dict[str, list[int]] = field(default_factory=dict)
    """Indexes of the values that are deletes or are passed over, by kind."""
    refused: list[RefusedValue] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Values that hold a row, with the JSON text of each row and the facts of its event."""

    at: Indexes
    """Index of each row's value among all values, in ascending order."""
    texts: list[bytes]
    facts: EventFacts

    def beside(self, others: _Rows) -> _Rows:
        """Return these rows and others, in the order of their places."""
        if not others.texts:
            return self
        at = np.concatenate([self.at, others.at])
        order = np.argsort(at)
        texts = [*self.texts, *others.texts]
        facts = self.facts.followed_by(others.facts).some(order)
        return _Rows(at[order], [texts[place] for place in order.tolist()], facts)


class EventTexts:
    """Decoder of JSON texts in Debezium's envelope.

    ``rows`` decodes the rows in them.  ``events`` completes the decoded rows.
    """

    def __init__(self, rows: TextDecoder, events: EventRows) -> None:
        self._rows = rows
        self._event_rows = events
        self._undecoded = LETTERS - events.decoded
        self._letter_of = np.array([letter if (letter := chr(byte)) in events.decoded else "" for byte in range(256)])
        """For each value of a byte, the operation that it names; empty if the byte names none whose rows are decoded.
        """
        self._shapes = Shapes()

    def decode(self, payloads: Sequence[bytes], ops: Ops) -> DecodedValues:
        """Return the rows, the refusals, the deletes and the events that are passed over.  ``ops`` must all be upserts."""
        others = _WithoutRow()
        by_shape, places = self._by_shape(payloads)
        rows = by_shape.beside(self._one_by_one(payloads, places, others, strictly=False))
        changed_ms = _changed_ms(payloads, rows, others.kinds.get(DELETE, ()))
        decoded = self._decoded(rows)
        doubtful = [one.place for one in decoded.refused if one.kind in _NOT_READ]
        if doubtful:
            again = self._decoded(self._one_by_one(payloads, doubtful, others, strictly=True))
            wrong = [RefusedValue(one.place, ENVELOPE, _NO_JSON) for one in again.refused if one.kind in _NOT_READ]
            decoded = joined([_certain(decoded), _certain(again), DecodedValues([], wrong)])
        kinds = {kind: np.array(of_kind, np.int64) for kind, of_kind in others.kinds.items()}
        return replace(
            decoded,
            refused=[*decoded.refused, *others.refused],
            deletes=kinds.pop(DELETE, np.zeros(0, np.int64)),
            passed_over=kinds,
            changed_ms=changed_ms,
        )

    def _decoded(self, rows: _Rows) -> DecodedValues:
        found = self._rows.decode(rows.texts, np.zeros(len(rows.at), np.uint8))
        return self._event_rows.finished(found, rows.facts).at(rows.at)

    def _by_shape(self, values: Sequence[bytes]) -> tuple[_Rows, Sequence[int]]:
        """Return the rows of values whose ends have shapes, and the indexes of the other values."""
        count, members, begin = len(values), self._event_rows.members, len(NO_BEFORE)
        sizes = lengths(values)
        data, ends = np.frombuffer(b"".join(values), np.uint8), np.cumsum(sizes)
        begins = ends - sizes
        # A row that begins after the end of its value leaves no room for a shape.
        firsts = begins + np.where(starting(data, begins, ends, NO_BEFORE), begin, sizes + 1)
        facts, tails = EventFacts.none(count, members), np.zeros(count, np.int64)

        def make(place: int) -> Shape | None:
            value = values[place]
            event = read(value, self._undecoded, members)
            return (
                shape_of(value[value.rfind(SOURCE) :], members) if event is not None and not event.has_before else None
            )

        for shape, places in self._shapes.found(data, firsts, ends, make):
            starts = ends[places] - len(shape.lows)
            facts.letters[places], tails[places] = self._letter_of[data[starts + shape.letter]], len(shape.lows)
            for name in shape.numbers:
                of_all, has = facts.numbers[name]
                of_all[places], has[places] = whole_numbers(data, starts, shape, name), True
        is_row = facts.letters != ""
        at = np.flatnonzero(is_row)
        others: Sequence[int] = ()
        if len(at) < count:
            others = np.flatnonzero(~is_row).tolist()
            values, tails, facts = [values[place] for place in at.tolist()], tails[at], facts.some(at)
        texts = [value[begin:-size] for value, size in zip(values, tails.tolist(), strict=True)]
        return _Rows(at, texts, facts), others

    def _one_by_one(
        self, values: Sequence[bytes], places: Iterable[int], others: _WithoutRow, *, strictly: bool
    ) -> _Rows:
        """Read the values at ``places`` one by one.  Return those with rows, and add the others to ``others``.

        ``strictly``: whether ``read_strictly`` reads all of them.  If false, it reads those that ``read`` leaves to
        it.
        """
        at, found = list[int](), list[RowEvent]()
        for place in places:
            quick = None if strictly else read(values[place], self._undecoded, self._event_rows.members)
            # Nearly every event.
            if quick is not None and quick.row is not None and quick.letter not in self._undecoded:
                at.append(place)
                found.append(quick)
                continue
            try:
                event = quick or read_strictly(values[place], self._event_rows.members)
                if isinstance(event, OtherEvent):
                    others.kinds.setdefault(event.kind, []).append(place)
                    continue
                kind = self._event_rows.what(event.letter, has_row=event.row is not None, word="member")
            except Refusal as refusal:
                others.refused.append(RefusedValue.of(place, refusal))
                continue
            if kind == ROW:
                at.append(place)
                found.append(event)
            else:
                others.kinds.setdefault(kind, []).append(place)
        numbers = {
            name: _numbers([event.numbers[n] for event in found]) for n, name in enumerate(self._event_rows.members)
        }
        letters = np.array([event.letter for event in found], "<U1")
        has_before = np.array([event.has_before for event in found], np.bool_)
        texts = [event.row or b"" for event in found]
        return _Rows(np.array(at, np.int64), texts, EventFacts(letters, has_before, numbers))


def _certain(decoded: DecodedValues) -> DecodedValues:
    """Return a result without the refusals of rows that may have been cut out at the wrong place."""
    return replace(decoded, refused=[one for one in decoded.refused if one.kind not in _NOT_READ])


def _numbers(found: Sequence[int | None]) -> Numbers:
    has = np.array([number is not None for number in found], np.bool_)
    return np.array([number or 0 for number in found], np.int64), has


def _changed_ms(payloads: Sequence[bytes], rows: _Rows, deletes: Sequence[int]) -> int:
    """Return the time of the last change among the payloads, in milliseconds since 1970.  Return 0 if there is no
    change, or if it tells no time.
    """
    last = max([*rows.at[rows.facts.letters != "r"][-1:].tolist(), *deletes[-1:]], default=None)
    if last is None:
        return 0
    try:
        event = read(payloads[last], LETTERS, (CHANGED,)) or read_strictly(payloads[last], (CHANGED,))
    except Refusal:
        return 0
    return 0 if isinstance(event, OtherEvent) else event.numbers[0] or 0


class JsonEvents(NamesNoSchema):
    """``ValueDecoder`` of Debezium's envelope in plain JSON.  Raises ``InvalidSchema`` for columns that have no JSON
    form.
    """

    tells_operations = True

    def __init__(self, rows: RowSchema, naming: Naming, envelope: EnvelopeRules) -> None:
        decoder = JsonDecoder(rows, naming)
        self._texts = EventTexts(decoder, EventRows(rows, envelope))
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
    events = EventRows(rows, envelope)

    def texts_of(record: AvroRecord) -> TextDecoder:
        row = row_of(record)
        return EventTexts(_NoRows() if row is None else ConnectRows(row, rows, naming), events)

    return ConnectDecoder(rows, naming, texts_of)
