"""Avro as a format of framed values: columnar, and datum by datum where that cannot decide.

An Avro datum has all fields of its schema, so it tells nothing about the columns of a patch.  A field that is null gives null.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from lancewal_core.rows.schema import RowSchema
from lancewal_core.wal.writer_schemas import WriterSchema
from lancewal_ingest.decode.avro.cells import growth_of_members
from lancewal_ingest.decode.avro.columnar import STEPS_MAX, read_columns
from lancewal_ingest.decode.avro.mapping import mapped
from lancewal_ingest.decode.avro.schema import AvroType, named, parse_schema
from lancewal_ingest.decode.avro.strict import read_datum
from lancewal_ingest.decode.framed.cursors import Cursors
from lancewal_ingest.decode.framed.payloads import check_record
from lancewal_ingest.decode.framed.typed import TypedFormat, TypedPayloads
from lancewal_ingest.decode.naming import Naming, OtherName


class AvroFormat(TypedFormat):
    """``FramedFormat`` of Avro."""

    name = "Avro"
    paths = False

    def decoder(self, schema: WriterSchema, path: tuple[int, ...]) -> AvroPayloads:
        return AvroPayloads(parse_record(schema, self._naming), self._rows, self._naming)


def parse_record(schema: WriterSchema, naming: Naming) -> AvroType:
    """Return the type that a writer schema defines.  Raises ``SchemaUnusable`` if the schema is not valid, or its
    records cannot be rows of the table.
    """
    writer = parse_schema(schema)
    check_record(named(writer), naming)
    return writer


class AvroPayloads(TypedPayloads):
    """``PayloadDecoder`` of Avro.  Raises ``SchemaUnusable`` in the cases that ``FramedFormat.decoder`` lists."""

    steps_max = STEPS_MAX

    def __init__(self, writer: AvroType, rows: RowSchema, naming: Naming) -> None:
        called = rows.called(naming.fields)
        found = mapped(writer, called, naming)
        self._members = found.members
        held = [place for _, place in self._members if place is not None]
        super().__init__(found, held, growth_of_members(self._members), called, naming)

    def read_columns(self, cursors: Cursors) -> dict[int, pa.Array]:
        return read_columns(self._members, cursors)

    def read_one(self, data: bytes, keys: Mapping[int, str], _: Counter[OtherName]) -> Mapping[int, Any]:
        return read_datum(self._members, data, keys)
