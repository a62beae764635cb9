"""Debezium's envelope in Avro: the row is found in the bytes, and decoded as an Avro datum of its own.

1. The schema of an envelope has the fields ``op``, a string, and ``source``.  Its field ``after`` is a union of a
   record and null, and holds the row.
2. The bytes of ``after`` are a datum of its record.  So rows and refusals are those of ``avro`` for that record.
3. Payloads are passed over if their schema is that of heartbeats or of transactions.  Payloads of any other schema
   without ``op`` or ``source`` are refused.
4. Operations, deletes and values without a row follow the rules of ``json_events``.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from lancewal_core.rows.schema import RowSchema
from lancewal_core.table.contract import UNAVAILABLE_VALUE
from lancewal_core.wal.writer_schemas import WriterSchema
from lancewal_ingest.decode.avro.decoder import AvroFormat, AvroPayloads, parse_record
from lancewal_ingest.decode.avro.schema import AvroRecord
from lancewal_ingest.decode.framed.payloads import PayloadDecoder, Payloads, SchemaUnusable
from lancewal_ingest.decode.naming import Naming
from lancewal_ingest.decode.outcomes import WRONG_FORMAT, Refusal
from lancewal_ingest.decode.value_decoder import DecodedValues, Indexes, Ops, RefusedValue
from lancewal_ingest.envelopes.avro_opening import EventOpener, OpenedEvents, record_or_null
from lancewal_ingest.envelopes.debezium_json import ROWS, kind_of_names
from lancewal_ingest.envelopes.envelope import NO_FIELD, EnvelopeRules
from lancewal_ingest.envelopes.event_rows import DELETE, ROW, EventRows

_NONE: Indexes = np.zeros(0, np.int64)
_NO_ENVELOPE = (
    "expected the schema of Debezium's envelope, with the fields op, source and after. If the "
    "connector unwraps rows (ExtractNewRecordState), set table.format.envelope to debezium-unwrapped"
)


class AvroEventFormat(AvroFormat):
    """``FramedFormat`` of Debezium's envelope in Avro."""

    tells_operations = True

    def __init__(self, rows: RowSchema, naming: Naming, envelope: EnvelopeRules) -> None:
        super().__init__(rows, naming)
        self._event_rows = EventRows(rows, envelope)

    def decoder(self, schema: WriterSchema, path: tuple[int, ...]) -> PayloadDecoder:  # type: ignore[override] # of events
        writer = parse_record(schema, self._naming)
        names = [field.name for field in writer.fields] if isinstance(writer, AvroRecord) else []
        kind = kind_of_names(names)
        if kind is not None:
            return BesideRows(kind)
        if not isinstance(writer, AvroRecord) or not {"op", "source"} <= {*names}:
            raise SchemaUnusable(_NO_ENVELOPE, WRONG_FORMAT)
        after = {field.name: field.type for field in writer.fields}.get("after")
        row = None if after is None else record_or_null("after", after)
        rows = None if row is None else AvroPayloads(row.record, self._rows, self._naming)
        return AvroEvents(writer, rows, self._event_rows)


class BesideRows:
    """``PayloadDecoder`` of a schema all of whose payloads are passed over, such as heartbeats."""

    tells_presence = tells_null = True
    fills: Collection[str] = ()
    growth = 0, 0

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def decode(self, payloads: Payloads, ops: Ops) -> DecodedValues:
        return DecodedValues([], [], passed_over={self._kind: np.arange(len(payloads.starts))})


class AvroEvents:
    """``PayloadDecoder`` of one schema of Debezium's envelope.

    ``rows``: decoder of the rows in it; None if the schema has no rows.
    """

    tells_presence = tells_null = True

    def __init__(self, writer: AvroRecord, rows: AvroPayloads | None, events: EventRows) -> None:
        self._rows = rows
        self._event_rows = events
        self._opener = EventOpener(writer, events, compares=rows is not None and not rows.refuses_all)
        self.fills: Collection[str] = () if rows is None else rows.fills
        self.growth = (0, 0) if rows is None else rows.growth

    def decode(self, payloads: Payloads, ops: Ops) -> DecodedValues:
        """Return the rows, the refusals, the deletes and the events that are passed over.  ``ops`` must all be upserts."""
        found = self._opener.opened(payloads)
        decoded = self._decoded(payloads, found)
        # A row with an unavailable value was read to its end.  Any other refused row may have no end where it was cut.
        doubted = [one.place for one in decoded.refused if found.by_shape[one.place] and one.kind != UNAVAILABLE_VALUE]
        if doubted:
            ends = found.ends[doubted].tolist()
            self._opener.read_each(payloads, doubted, found)
            if any(
                end != found.ends[place] and place not in found.refused
                for place, end in zip(doubted, ends, strict=True)
            ):
                decoded = self._decoded(payloads, found)
            else:  # each row was cut at its end: only the reason may be another one
                decoded = replace(decoded, refused=[found.refused.get(one.place, one) for one in decoded.refused])
        return replace(decoded, changed_ms=self._opener.changed_ms(payloads, found))

    def _decoded(self, payloads: Payloads, found: OpenedEvents) -> DecodedValues:
        """Decode the rows of opened payloads.  Return the rows, the refusals, the deletes and the payloads that are
        passed over.
        """
        refused = [*found.refused.values()]
        places: dict[str, list[Indexes]] = {}  # of the other payloads, by what they are
        for letter in set(found.facts.letters.tolist()) - {""}:
            of_letter = np.flatnonzero(found.facts.letters == letter)
            for has_row in (True, False):
                at = of_letter[found.has_row[of_letter] == has_row]
                try:
                    kind = self._event_rows.what(letter, has_row=has_row, word="field")
                    places.setdefault(kind, []).append(at)
                except Refusal as refusal:
                    no_field = self._rows is None and letter in ROWS
                    message = NO_FIELD if no_field else str(refusal)
                    refused += [RefusedValue(place, refusal.kind, message) for place in at.tolist()]
        by_kind = {kind: np.sort(np.concatenate(parts)) for kind, parts in places.items()}
        chosen, deletes = by_kind.pop(ROW, _NONE), by_kind.pop(DELETE, _NONE)
        passed_over = {kind: at for kind, at in by_kind.items() if len(at)}
        if self._rows is None or not len(chosen):
            return DecodedValues([], refused, {}, {}, passed_over, deletes)
        starts = payloads.starts[chosen]
        datums = Payloads(payloads.data, starts + found.starts[chosen], starts + found.ends[chosen])
        rows = self._rows.decode(datums, np.zeros(len(chosen), np.uint8), found.rows(chosen))
        decoded = self._event_rows.finished(rows.at(chosen), found.facts)
        return replace(decoded, refused=[*refused, *decoded.refused], passed_over=passed_over, deletes=deletes)
