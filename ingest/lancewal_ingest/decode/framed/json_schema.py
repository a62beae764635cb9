"""JSON after a frame, as serializers of JSON Schema write it.

The value after the frame is decoded as plain JSON, by the same code.  Its schema validates nothing: a producer's serializer
has validated the value, and the contract says what a row is.
"""

from __future__ import annotations

from collections.abc import Collection

from lancewal_core.rows.schema import RowSchema
from lancewal_core.wal.writer_schemas import WriterSchema
from lancewal_ingest.decode.framed.payloads import PayloadDecoder, Payloads, check_writer
from lancewal_ingest.decode.json.decoder import JsonDecoder
from lancewal_ingest.decode.naming import Naming
from lancewal_ingest.decode.value_decoder import DecodedValues, Ops


class JsonPayloads:
    """``PayloadDecoder`` of JSON."""

    tells_presence = tells_null = True

    def __init__(self, decoder: JsonDecoder) -> None:
        self._decoder = decoder
        self.fills: Collection[str] = decoder.names
        self.growth = decoder.growth.bound

    def decode(self, payloads: Payloads, ops: Ops) -> DecodedValues:
        data = payloads.data.tobytes()
        values = [data[start:end] for start, end in zip(payloads.starts.tolist(), payloads.ends.tolist(), strict=True)]
        return self._decoder.decode(values, ops)


class JsonSchemaFormat:
    """``FramedFormat`` of JSON with a JSON Schema."""

    name = "JSON"
    paths = False
    schemas_have_fields = False
    tells_operations = False

    def __init__(self, rows: RowSchema, naming: Naming) -> None:
        self._payloads = JsonPayloads(JsonDecoder(rows, naming))

    def decoder(self, schema: WriterSchema, path: tuple[int, ...]) -> PayloadDecoder:
        check_writer(schema, "json-schema")
        return self._payloads
