"""Protobuf as a format of framed values: columnar, and payload by payload where that cannot decide.

Guarantees, beside those of ``typed``
1. A field with presence that a payload leaves out is missing: its column is null, or has its default in an upsert.  A
   field without presence is zero or empty, as the specification has it.  A vector without items is missing.
2. Payloads tell which columns a patch has if each field of the writer that fills a column outside the primary key has
   presence.  If a record has the header ``lancewal.fields``, the header decides instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from lancewal_core.rows.schema import Op, RowSchema
from lancewal_core.wal.writer_schemas import WriterSchema
from lancewal_ingest.decode.framed.cursors import Cursors
from lancewal_ingest.decode.framed.payloads import check_record
from lancewal_ingest.decode.framed.protobuf.columnar import STEPS_MAX, read_columns
from lancewal_ingest.decode.framed.protobuf.mapping import mapped
from lancewal_ingest.decode.framed.protobuf.schema import message_of
from lancewal_ingest.decode.framed.protobuf.strict import read_message
from lancewal_ingest.decode.framed.typed import TypedFormat, TypedPayloads
from lancewal_ingest.decode.json.defaults import filled
from lancewal_ingest.decode.naming import Naming, OtherName
from lancewal_ingest.decode.part import present_column
from lancewal_ingest.decode.value_decoder import Ops, mask_of

_FIRST_MESSAGE = (0,)


class ProtobufFormat(TypedFormat):
    """``FramedFormat`` of Protobuf."""

    name = "Protobuf"
    paths = True

    def decoder(self, schema: WriterSchema, path: tuple[int, ...]) -> ProtobufPayloads:
        return ProtobufPayloads(schema, path or _FIRST_MESSAGE, self._rows, self._naming)


class ProtobufPayloads(TypedPayloads):
    """``PayloadDecoder`` of Protobuf.  Raises ``SchemaUnusable`` in the cases that ``FramedFormat.decoder`` lists."""

    steps_max = STEPS_MAX

    def __init__(self, schema: WriterSchema, path: tuple[int, ...], rows: RowSchema, naming: Naming) -> None:
        called = rows.called(naming.fields)
        writer = message_of(schema, path)
        check_record(writer.full_name, naming)
        found, self._message = mapped(writer, called, naming)
        fields = {field.place: field for field in self._message.fields if field.place is not None}
        super().__init__(found, list(fields), self._message.growth, called, naming)
        self.tells_presence = all(field.presence for place, field in fields.items() if place not in self._keys)

    def read_columns(self, cursors: Cursors) -> dict[int, pa.Array]:
        return read_columns(self._message, cursors)

    def read_one(self, data: bytes, keys: Mapping[int, str], other_names: Counter[OtherName]) -> Mapping[int, Any]:
        return read_message(self._message, data, keys, other_names)

    def finished(self, columns: dict[int, pa.Array], ops: Ops) -> pa.Array:
        patches = (ops == Op.PATCH) & self.tells_presence
        bits = np.zeros((np.count_nonzero(patches), len(self._rows.columns)), np.bool_)
        for place, column in columns.items():
            if not column.null_count:
                bits[:, place] = True
                continue
            valid = mask_of(column.is_valid())
            bits[:, place] = valid[patches]
            if place in self._defaults:
                columns[place] = filled(column, self._defaults[place], ~valid & (ops == Op.UPSERT))
        return present_column(patches, np.packbits(bits, axis=1, bitorder="little"))
