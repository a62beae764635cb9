"""Choice of the decoders for a table's record values and keys, by the formats that its contract names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pyarrow as pa

from lancewal_core.errors import InvalidSchema
from lancewal_core.rows.schema import RowSchema
from lancewal_core.settings.sections import ValueFormat
from lancewal_core.table.contract import Contract
from lancewal_ingest.decode.avro.decoder import AvroFormat
from lancewal_ingest.decode.avro.keys import AvroKeyFormat
from lancewal_ingest.decode.connect.decoder import ConnectDecoder
from lancewal_ingest.decode.framed.decoder import NOTHING_ACCEPTED, FramedDecoder, FramedFormat
from lancewal_ingest.decode.framed.json_schema import JsonSchemaFormat
from lancewal_ingest.decode.framed.protobuf.decoder import ProtobufFormat
from lancewal_ingest.decode.json.decoder import JsonDecoder
from lancewal_ingest.decode.naming import PLAIN, Naming, key_naming_of
from lancewal_ingest.decode.record_keys import (
    KEY_SCHEMA_HEADER,
    ComparedKeys,
    EncodedKeys,
    RecordKeys,
    forms_by_name,
    forms_by_text,
)
from lancewal_ingest.decode.value_decoder import NO_SCHEMAS, Schemas, ValueDecoder
from lancewal_ingest.envelopes.avro_events import AvroEventFormat
from lancewal_ingest.envelopes.connector_modes import MODES
from lancewal_ingest.envelopes.envelope import NO_ENVELOPE, EnvelopeRules
from lancewal_ingest.envelopes.json_events import JsonEvents, connect_events
from lancewal_ingest.envelopes.unwrapped import UnwrappedRows

_FRAMED: Mapping[str, Callable[[RowSchema, Naming], FramedFormat]] = {
    "avro": AvroFormat,
    "protobuf": ProtobufFormat,
    "json-schema": JsonSchemaFormat,
}
"""Formats of values that name a schema of a registry, each with the class that decodes it."""
_FRAMED_KEYS = {**_FRAMED, "avro": AvroKeyFormat}


def value_decoder(
    value_format: ValueFormat,
    rows: RowSchema,
    naming: Naming = PLAIN,
    schemas: Schemas = NO_SCHEMAS,
    accepted: Mapping[str, int] = NOTHING_ACCEPTED,
    envelope: EnvelopeRules = NO_ENVELOPE,
) -> ValueDecoder:
    """Return the decoder of a format for the columns of ``rows``.

    Raises ``InvalidSchema`` if the format cannot hold a column or does not support the envelope.  Raises it too if a
    default is not a value of its column.
    """
    if envelope.kind != "none":
        naming = replace(naming, advice=MODES, stand_ins=envelope.stand_ins(rows, naming))
    if envelope.kind == "debezium-unwrapped":
        return UnwrappedRows(
            lambda rows, naming: value_decoder(value_format, rows, naming, schemas, accepted), rows, naming, envelope
        )
    if envelope.kind == "debezium":
        match value_format:
            case "json":
                return JsonEvents(rows, naming, envelope)
            case "connect-json":
                return connect_events(rows, naming, envelope)
            case "avro":
                return FramedDecoder(AvroEventFormat(rows, naming, envelope), rows, naming, schemas, accepted)
        raise InvalidSchema(
            f"table.format.value is {value_format}, which has no envelope {envelope.kind}. Take json, connect-json or avro"
        )
    match value_format:
        case "json":
            return JsonDecoder(rows, naming)
        case "connect-json":
            return ConnectDecoder(rows, naming)
        case _:
            return FramedDecoder(_FRAMED[value_format](rows, naming), rows, naming, schemas, accepted)


def record_keys(contract: Contract, schemas: Schemas = NO_SCHEMAS) -> RecordKeys | None:
    """Return the reader of the contract's record keys; None if keys are any bytes (``format.key: bytes``)."""
    rows, called = contract.rows, contract.record_rows
    if contract.key_codec is not None:
        return EncodedKeys(contract.key_codec, rows, compared=not contract.rows_tell_partition)
    columns = pa.schema([called.columns.field(name) for name in called.region_key])
    naming = key_naming_of(contract)
    if contract.envelope != "none":
        naming = replace(naming, advice=MODES)
    names = dict(zip(called.region_key, rows.region_key, strict=True))
    former = {} if naming.names is None else naming.names.former
    of_key = RowSchema(columns, called.region_key, called.region_key)
    match contract.key_format:
        case "json":
            texts = {**names, **{name: names[present] for name, present in former.items()}}
            return ComparedKeys(JsonDecoder(of_key, naming), rows, texts)
        case "connect-json":
            connect = ConnectDecoder(of_key, naming)
            return ComparedKeys(connect, rows, {}, forms_by_text(connect.schema_texts), contract.key_forms)
    if contract.key_format not in _FRAMED_KEYS:
        return None
    framed = _FRAMED_KEYS[contract.key_format](of_key, naming)
    keys = FramedDecoder(framed, of_key, naming, schemas, contract.schema_versions, KEY_SCHEMA_HEADER)
    return ComparedKeys(keys, rows, {}, forms_by_name(keys.messages_of), contract.key_forms)
