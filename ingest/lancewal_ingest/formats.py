"""Choice of the decoders for a table's record values and keys, by the formats that its contract names."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from lancewal_core.record_keys.key_format import has_region_key
from lancewal_core.rows.schema import RowSchema
from lancewal_core.settings.sections import ValueFormat
from lancewal_core.table.contract import Contract
from lancewal_ingest.decode.avro.decoder import AvroFormat
from lancewal_ingest.decode.connect.decoder import ConnectDecoder
from lancewal_ingest.decode.framed.decoder import NOTHING_ACCEPTED, FramedDecoder
from lancewal_ingest.decode.framed.json_schema import JsonSchemaFormat
from lancewal_ingest.decode.json.decoder import JsonDecoder
from lancewal_ingest.decode.naming import PLAIN, Naming, key_naming_of
from lancewal_ingest.decode.record_keys import ComparedKeys, EncodedKeys, RecordKeys
from lancewal_ingest.decode.value_decoder import NO_SCHEMAS, Schemas, ValueDecoder


def value_decoder(
    value_format: ValueFormat,
    rows: RowSchema,
    naming: Naming = PLAIN,
    schemas: Schemas = NO_SCHEMAS,
    accepted: Mapping[str, int] = NOTHING_ACCEPTED,
) -> ValueDecoder:
    """Return the decoder of a format for the columns of ``rows``.  ``InvalidSchema`` if the format cannot hold a column, or a
    default is not a value of its column."""
    match value_format:
        case "json":
            return JsonDecoder(rows, naming)
        case "connect-json":
            return ConnectDecoder(rows, naming)
        case "avro":
            return FramedDecoder(AvroFormat(rows, naming), rows, naming, schemas, accepted)
        case "json-schema":
            return FramedDecoder(JsonSchemaFormat(rows, naming), rows, naming, schemas, accepted)


def record_keys(contract: Contract) -> RecordKeys | None:
    """Return the reader of the contract's record keys; None if they cannot be decoded."""
    rows, called = contract.rows, contract.record_rows
    if contract.key_codec is not None:
        return EncodedKeys(contract.key_codec, rows, compared=not contract.rows_tell_partition)
    if not has_region_key(contract.key_format):
        return None
    columns = pa.schema([called.columns.field(name) for name in called.region_key])
    naming = key_naming_of(contract)
    names = dict(zip(called.region_key, rows.region_key, strict=True))
    former = {} if naming.names is None else naming.names.former
    return ComparedKeys(
        value_decoder("json", RowSchema(columns, called.region_key, called.region_key), naming),
        rows,
        {**names, **{name: names[present] for name, present in former.items()}},
    )
