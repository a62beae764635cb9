"""Fields of records, and the types of columns for them, from schemas of registries and of Kafka Connect.

1. A field has the column type of ``on_unknown_column: add``.
2. A text that is no schema of a record raises ``InvalidInput``, which says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from lancewal_core.errors import InvalidInput

if TYPE_CHECKING:
    from lancewal_core.settings.sections import ValueFormat
    from lancewal_core.wal.writer_schemas import WriterSchema
    from lancewal_ingest.commands.proposals.settings_text import Fields


class RecordSchema(NamedTuple):
    """Fields of records, with the column type of each; None for a field that no column holds."""

    format: ValueFormat
    name: str
    """Name of the records; empty if they have none."""
    fields: Fields
    others: Sequence[str] = ()
    """Names of further records in the schema, whose fields these are not."""


def of_connect(text: bytes) -> RecordSchema:
    from lancewal_ingest.decode.avro.column_of import AvroColumnTypes
    from lancewal_ingest.decode.connect.schema import parse_schema
    from lancewal_ingest.decode.framed.payloads import SchemaUnusable

    try:
        record = parse_schema(text)
    except SchemaUnusable as unusable:
        raise InvalidInput(str(unusable)) from None
    types = AvroColumnTypes()
    return RecordSchema("connect-json", record.name, [(one.name, types.of(one.type)) for one in record.fields])


def of_writer(schema: WriterSchema) -> RecordSchema:
    from lancewal_ingest.decode.avro.column_of import AvroColumnTypes
    from lancewal_ingest.decode.avro.schema import AvroRecord, described, parse_schema
    from lancewal_ingest.decode.framed.json_schema_columns import columns_of
    from lancewal_ingest.decode.framed.payloads import SchemaUnusable
    from lancewal_ingest.decode.framed.protobuf.column_of import ProtoColumnTypes
    from lancewal_ingest.decode.framed.protobuf.schema import messages_of

    try:
        if schema.kind == "json-schema":
            return RecordSchema("json-schema", "", list(columns_of(schema.text)))
        if schema.kind == "protobuf":
            message, *others = messages_of(schema)
            types = ProtoColumnTypes()
            fields = [(one.name, types.of(one)) for one in message.fields]
            return RecordSchema("protobuf", message.full_name, fields, [one.full_name for one in others])
        record = parse_schema(schema)
    except SchemaUnusable as unusable:
        raise InvalidInput(f"the schema cannot be used: {unusable}") from None
    if not isinstance(record, AvroRecord):
        raise InvalidInput(f"expected an Avro record, whose fields become columns; the schema is {described(record)}")
    of_avro = AvroColumnTypes()
    return RecordSchema("avro", record.name, [(one.name, of_avro.of(one.type)) for one in record.fields])
