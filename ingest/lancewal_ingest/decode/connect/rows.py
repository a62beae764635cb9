"""Decoder of the payloads of one schema, for the columns of one contract.

Guarantees, beside those of ``value_decoder`` for each payload and operation
1. A payload is read by the JSON decoder, in the types that the schema says (``wire``), and converted (``lift``).  A
   payload that disagrees with its schema is refused, even if its column could hold the value.  A member that the
   schema does not have is ``malformed``.  Only a field of the schema can be an unknown column.
2. A column without a field in the schema, or whose member is absent, is null, or has its default in an upsert.  A
   member that is null gives null.
3. A patch has the columns of the members that its payload holds.
4. A struct within payloads can be decoded alone.  The caller gives the struct's part of the schema, and the texts of
   the struct as payloads.
5. If the schema has a field without a column, all payloads are refused, and ``new_fields`` has the types of such
   fields (guarantee 4 of ``framed.payloads``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from lancewal_core.rows.schema import RowSchema
from lancewal_ingest.decode.avro.mapping import mapped
from lancewal_ingest.decode.avro.schema import AvroRecord
from lancewal_ingest.decode.connect.lift import Fault, lifted
from lancewal_ingest.decode.connect.wire import wire_naming, wire_rows
from lancewal_ingest.decode.json.decoder import JsonDecoder
from lancewal_ingest.decode.json.defaults import Defaults
from lancewal_ingest.decode.naming import Naming
from lancewal_ingest.decode.part import DecodedPart
from lancewal_ingest.decode.value_decoder import DecodedValues, Ops, RefusedValue


class ConnectRows:
    """Decoder of the payloads of one schema.  Raises ``SchemaUnusable`` if such payloads cannot fill the columns."""

    def __init__(self, schema: AvroRecord, rows: RowSchema, naming: Naming) -> None:
        called = rows.called(naming.fields)
        self._mapped = mapped(schema, called, naming)
        self._cells = {place: cell for cell, place in self._mapped.members if place is not None}
        self._types = rows.columns.types
        self._defaults = Defaults(called, naming)
        if self._mapped.refusal is None:
            self._json = JsonDecoder(wire_rows(rows, self._cells), wire_naming(schema, called, self._cells, naming))

    def decode(self, payloads: Sequence[bytes], ops: Ops) -> DecodedValues:
        """Return the rows and the refusals of ``payloads``.  ``ops`` has the operation of each payload."""
        refused_alike = self._mapped.all_refused(len(payloads))
        if refused_alike is not None:
            return refused_alike
        found = self._json.decode(payloads, ops)
        refused, parts = [_disagrees(one) for one in found.refused], list[DecodedPart]()
        for part in found.parts:
            parts.append(self._part(part, payloads, refused))
        return DecodedValues(parts, refused, self._mapped.uses(sum(len(part.indexes) for part in parts)))

    def _part(self, part: DecodedPart, payloads: Sequence[bytes], refused: list[RefusedValue]) -> DecodedPart:
        faults: list[Fault] = []
        columns = [
            lifted(self._cells[place], part.columns[place], faults)
            if place in self._cells
            else pa.nulls(len(part.indexes), type_)
            for place, type_ in enumerate(self._types)
        ]
        part = replace(part, columns=columns)
        if faults:
            good = np.ones(len(part.indexes), np.bool_)
            for fault in faults:
                refused += [RefusedValue.of(n, fault.why) for n in part.indexes[fault.rows & good].tolist()]
                good &= ~fault.rows
            part = part.where(good)
        if self._defaults.cells:
            values = [payloads[place] for place in part.indexes.tolist()]
            part = replace(part, columns=self._defaults.fill(part.columns, part.ops.to_numpy(), values))
        return part


def _disagrees(refused: RefusedValue) -> RefusedValue:
    """Return the refusal of a payload, as ``malformed`` if a member is unknown.  Each field of the schema has a
    column here, so the payload has a member that its schema lacks.
    """
    return replace(refused, kind="malformed") if refused.kind == "unknown_column" else refused
