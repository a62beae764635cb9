"""Avro of record keys.  A region key of one column may come as a value alone, without a record around it.

Serializers write a key that is a string or a number under the schema of that type.  Its bytes are those of a record with one
field of that type, so such a schema is read as that record.
"""

from __future__ import annotations

import json
from dataclasses import replace

from lancewal_core.rows.schema import RowSchema
from lancewal_core.wal.writer_schemas import WriterSchema
from lancewal_ingest.decode.avro.decoder import AvroFormat, AvroPayloads
from lancewal_ingest.decode.avro.schema import PRIMITIVES
from lancewal_ingest.decode.naming import Naming

_ALONE = PRIMITIVES | {"enum", "fixed"}


class AvroKeyFormat(AvroFormat):
    """``FramedFormat`` of record keys in Avro.

    ``rows``: the columns of the region key.
    """

    def __init__(self, rows: RowSchema, naming: Naming) -> None:
        super().__init__(rows, naming)
        names = rows.columns.names
        self._alone = names[0] if len(names) == 1 else None

    def decoder(self, schema: WriterSchema, path: tuple[int, ...]) -> AvroPayloads:
        return super().decoder(schema if self._alone is None else _as_record(schema, self._alone), path)


def _as_record(schema: WriterSchema, field: str) -> WriterSchema:
    """Return the schema of a record whose only field ``field`` has the type of ``schema``.  Return ``schema`` as it
    is if it is not of a type in ``_ALONE``.
    """
    try:
        type_ = json.loads(schema.text)
        named = type_.get("type") if isinstance(type_, dict) else type_
        if not isinstance(named, list) and not (isinstance(named, str) and named in _ALONE):
            return schema
        record = {"type": "record", "name": "Key", "fields": [{"name": field, "type": type_}]}
        return replace(schema, text=json.dumps(record))
    except (ValueError, RecursionError):
        return schema
