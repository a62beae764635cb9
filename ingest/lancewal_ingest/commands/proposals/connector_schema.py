"""Schemas that records of a connector name or hold: the fields of rows, and what Kafka Connect says about them.

1. A schema of an envelope has the fields of the row within it.  Any other schema has the fields of the row itself.
2. Each field has its type by ``schema_fields``, Connect's name of that type, and whether the source's column has a
   DEFAULT.
3. ``InvalidInput`` if no table can have such rows, or the registry is not known or lacks the schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa

from lancewal_core.errors import InvalidInput
from lancewal_ingest.commands.proposals.schema_fields import RecordSchema, of_connect, of_writer
from lancewal_ingest.decode.avro.column_of import AvroColumnTypes
from lancewal_ingest.decode.avro.schema import AvroRecord, parse_schema
from lancewal_ingest.decode.connect.schema import parse_schema as parse_connect
from lancewal_ingest.decode.framed.payloads import SchemaUnusable
from lancewal_ingest.decode.value_decoder import Schemas
from lancewal_ingest.envelopes.debezium_json import kind_of_names
from lancewal_ingest.envelopes.envelope import NO_FIELD, row_of

if TYPE_CHECKING:
    from lancewal_core.names.ids import SchemaKey
    from lancewal_core.wal.writer_schemas import WriterSchema

_ENVELOPE = frozenset({"op", "source"})
_CONNECTOR = "io.debezium.connector."
_MICRO_TIME, _TIMES_BEYOND_A_DAY = "io.debezium.time.MicroTime", ("mysql", "mariadb")
"""Name of a time of day, and the connectors whose times go from -838 to 838 hours."""


@dataclass(frozen=True, slots=True)
class ConnectorSchema:
    """Schema of the values or keys of some records."""

    record: RecordSchema
    """Format, and fields of rows; no fields for values beside rows."""
    enveloped: bool = False
    beside_rows: bool = False
    """Whether such values are heartbeats, transactions or messages."""
    connector: str = ""
    """Name of the connector's database, such as ``postgresql``; empty if the schema does not tell it."""
    names: Mapping[str, str] | None = None
    """Connect's name of each field's type."""
    defaults: tuple[str, ...] = ()
    """Fields with a DEFAULT."""


class ConnectorSchemas:
    """Cache of the schemas of many records. Each is parsed once."""

    def __init__(self, schemas: Schemas | None) -> None:
        """``schemas``: those of the registry; None if the settings name none."""
        self._schemas = schemas
        self._known: dict[SchemaKey | bytes, ConnectorSchema] = {}

    def written_out(self, schema: Mapping[str, Any]) -> ConnectorSchema:
        """Return the schema that a value or key in Kafka Connect's JSON contains."""
        try:
            text = orjson.dumps(schema)
        except orjson.JSONEncodeError:
            raise InvalidInput("the schema of a record is nested deeper than a schema can be") from None
        if text not in self._known:
            self._known[text] = _of_connect(schema, text)
        return self._known[text]

    def named(self, key: SchemaKey) -> ConnectorSchema:
        """Return the schema of a registry that a frame names."""
        if key not in self._known:
            if self._schemas is None:
                raise InvalidInput(
                    "the records have the frame of a schema registry, and registry.url is not set. Set it"
                )
            found = self._schemas.read(key)
            writer = found[-1].writer if found else None
            if writer is None:
                raise InvalidInput(
                    f"the registry does not know schema {key}, which records name. Set registry.url to the registry of the "
                    "producers"
                )
            self._known[key] = _of_writer(writer)
        return self._known[key]


def _of_connect(schema: Mapping[str, Any], text: bytes) -> ConnectorSchema:
    raw = _listed_fields(schema)
    names = {str(one.get("field")): one for one in raw}
    if not names.keys() >= _ENVELOPE:
        return _plain(of_connect(text), raw, "field")
    if "after" not in names:
        return ConnectorSchema(RecordSchema("connect-json", "", ()), enveloped=True, beside_rows=True)
    source = str(names["source"].get("name"))
    try:
        row = row_of(parse_connect(text))
    except SchemaUnusable as unusable:
        raise InvalidInput(f"the schema of a record: {unusable}") from None
    return _enveloped("connect-json", row, source, _facts(_listed_fields(names["after"]), "field"))


def _listed_fields(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    fields = schema.get("fields")
    return [one for one in fields if isinstance(one, dict)] if isinstance(fields, list) else []


def _of_writer(writer: WriterSchema) -> ConnectorSchema:
    found = of_writer(writer)
    names = {name for name, _ in found.fields}
    if writer.kind != "avro":
        if names >= {*_ENVELOPE, "after"}:
            raise InvalidInput(
                f"the records are Debezium's envelope in {writer.kind}, which no table can have. Have the connector write "
                "JSON or Avro, or unwrap rows by ExtractNewRecordState"
            )
        return _plain(found, (), "name")
    raw = orjson.loads(writer.text)["fields"]
    if not names >= _ENVELOPE:
        return _plain(found, raw, "name")
    if "after" not in names:
        return ConnectorSchema(RecordSchema("avro", "", ()), enveloped=True, beside_rows=True)
    record = parse_schema(writer)
    assert isinstance(record, AvroRecord)  # of_writer has seen it
    source = next((one.type.name for one in record.fields if isinstance(one.type, AvroRecord)), "")
    return _enveloped("avro", row_of(record), source, _facts(_row_in(raw), "name"))


def _plain(found: RecordSchema, raw: Any, named: str) -> ConnectorSchema:
    beside = kind_of_names([name for name, _ in found.fields]) is not None
    names, defaults = _facts(raw, named)
    return ConnectorSchema(found, beside_rows=beside, names=names, defaults=defaults)


def _enveloped(
    format_: Any, row: AvroRecord | None, source: str, facts: tuple[Mapping[str, str], tuple[str, ...]]
) -> ConnectorSchema:
    if row is None:
        raise InvalidInput(f"the schema of a record: {NO_FIELD}")
    types = AvroColumnTypes()
    connector = source.removeprefix(_CONNECTOR).partition(".")[0] if source.startswith(_CONNECTOR) else ""
    names, defaults = facts
    spans = {name for name, said in names.items() if said == _MICRO_TIME and connector in _TIMES_BEYOND_A_DAY}
    fields = [(one.name, pa.duration("us") if one.name in spans else types.of(one.type)) for one in row.fields]
    return ConnectorSchema(
        RecordSchema(format_, row.name, fields), enveloped=True, connector=connector, names=names, defaults=defaults
    )


def _facts(fields: Any, named: str) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """Return Connect's names of the types of fields, and the fields with a DEFAULT.  ``named``: member with a field's
    name."""
    names, defaults = dict[str, str](), list[str]()
    for one in fields:
        if not isinstance(one, dict) or not isinstance(one.get(named), str):
            continue
        name = one[named]
        for said in _types_of(one):
            if isinstance(said, str):
                names[name] = said
        if one.get("default") is not None:
            defaults.append(name)
    return names, tuple(defaults)


def _types_of(field: Mapping[str, Any]) -> Iterator[object]:
    """Yield what Connect calls the type of a field, in its own schema or in one of Avro."""
    yield field.get("name") if "field" in field else None
    branches = field.get("type")
    for branch in branches if isinstance(branches, list) else [branches]:
        if isinstance(branch, dict):
            yield branch.get("connect.name")


def _row_in(fields: Any) -> Any:
    """Return the fields of rows within the text of an envelope in Avro: the record is written out where it comes
    first."""
    for one in fields:
        if one.get("name") in ("before", "after") and isinstance(one.get("type"), list):
            for branch in one["type"]:
                if isinstance(branch, dict) and branch.get("type") == "record":
                    return branch.get("fields") or ()
    return ()
