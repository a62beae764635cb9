"""The settings that ``lancewal config init`` proposes for a table, from a schema of a registry or of a file.

1. The text is a settings file.  What a schema does not say stands in it as a comment, with the value that is most likely.
   With these lines taken, ``lancewal config check`` accepts the file.
2. Each field becomes a column in the type of ``on_unknown_column: add``, or is a comment that says why not.  A field whose
   name no column can have gets another name for its column.
3. The key's schema, in the subject beside that of the values, says the keys if its fields are columns.
4. Nothing is written, and no secret of the settings is shown.
"""

from __future__ import annotations

import itertools
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lancewal_core.errors import InvalidInput, InvalidSchema, InvalidSettings, counted

if TYPE_CHECKING:
    import pyarrow as pa

    from lancewal_core.settings.load import Settings
    from lancewal_core.settings.sections import ValueFormat
    from lancewal_core.wal.writer_schemas import WriterSchema

    Fields = Sequence[tuple[str, pa.DataType | None]]

_VALUE, _KEY = "-value", "-key"
_SHOWN = 100
_NOT_TAKEN_MAX = 100
"""Most fields without a column that are listed."""


class _Schema(NamedTuple):
    format: ValueFormat
    name: str
    """Name of the records; empty if they have none."""
    fields: Fields


def proposed_settings(settings: Settings, subject: str, file: Path | None) -> str:
    """Return a settings file for the values of a subject's newest schema, or of the schema in a file."""
    if file is not None:
        return _text(_of_file(file), f"the schema in {file.name}")
    if not settings.registry.url:
        raise InvalidSettings("--from-subject asks a schema registry, and the setting registry.url names none")
    from lancewal_ingest.registry.confluent import ConfluentRegistry

    registry = ConfluentRegistry(settings.registry)
    found = registry.newest(subject)
    if found is None:
        raise InvalidInput(f"--from-subject {subject[:_SHOWN]!a}: the registry has no such subject")
    topic = subject.removesuffix(_VALUE) if subject.endswith(_VALUE) else ""
    key = registry.newest(f"{topic}{_KEY}") if topic else None
    shown = settings.masked()["registry"]
    own = {name: shown[name] for name in ("url", "context") if shown[name]}
    return _text(_of_writer(found), f"the newest schema of subject {subject}", topic, key, own)


def _of_file(file: Path) -> _Schema:
    import orjson

    from lancewal_core.wal.writer_schemas import SCHEMA_BYTES_MAX, WriterSchema

    try:
        if file.stat().st_size > SCHEMA_BYTES_MAX:
            raise InvalidInput(f"{file}: a schema has at most {SCHEMA_BYTES_MAX} bytes")
        data = file.read_bytes()
    except OSError as error:
        raise InvalidInput(f"--from-schema {file}: {error.strerror}") from None
    try:
        if file.suffix == ".proto":
            return _of_writer(WriterSchema("protobuf", data.decode()))
        given = orjson.loads(data)
    except (orjson.JSONDecodeError, UnicodeDecodeError):
        raise InvalidInput(
            f"{file}: expected a schema of Avro, JSON Schema or Kafka Connect, which is JSON, or a file .proto"
        ) from None
    if isinstance(given, dict) and given.keys() == {"schema", "payload"}:
        return _of_connect(orjson.dumps(given["schema"]))
    if isinstance(given, dict) and given.get("type") == "struct":
        return _of_connect(orjson.dumps(given))
    properties = isinstance(given, dict) and not {"$schema", "properties", "$ref"}.isdisjoint(given)
    return _of_writer(WriterSchema("json-schema" if properties else "avro", data.decode()))


def _of_connect(text: bytes) -> _Schema:
    from lancewal_ingest.decode.avro.column_of import AvroColumnTypes
    from lancewal_ingest.decode.connect.schema import parse_schema
    from lancewal_ingest.decode.framed.payloads import SchemaUnusable

    try:
        name, record = parse_schema(text)
    except SchemaUnusable as unusable:
        raise InvalidInput(str(unusable)) from None
    types = AvroColumnTypes()
    return _Schema("connect-json", name, [(one.name, types.of(one.type)) for one in record.fields])


def _of_writer(schema: WriterSchema) -> _Schema:
    from lancewal_ingest.decode.avro.column_of import AvroColumnTypes
    from lancewal_ingest.decode.avro.schema import AvroRecord, described, parse_schema
    from lancewal_ingest.decode.framed.json_schema_columns import columns_of
    from lancewal_ingest.decode.framed.payloads import SchemaUnusable
    from lancewal_ingest.decode.framed.protobuf.column_of import ColumnTypes
    from lancewal_ingest.decode.framed.protobuf.schema import message_of

    try:
        if schema.kind == "json-schema":
            return _Schema("json-schema", "", list(columns_of(schema.text)))
        if schema.kind == "protobuf":
            message = message_of(schema, (0,))
            types = ColumnTypes()
            return _Schema("protobuf", message.full_name, [(one.name, types.of(one)) for one in message.fields])
        record = parse_schema(schema)
    except SchemaUnusable as unusable:
        raise InvalidInput(f"the schema cannot be used: {unusable}") from None
    if not isinstance(record, AvroRecord):
        raise InvalidInput(f"expected a record, whose fields are columns; the schema is {described(record)}")
    of_avro = AvroColumnTypes()
    return _Schema("avro", record.name, [(one.name, of_avro.of(one.type)) for one in record.fields])


def _text(
    schema: _Schema,
    source: str,
    topic: str = "",
    key: WriterSchema | None = None,
    registry: Mapping[str, str] | None = None,
) -> str:
    columns, left_out = _columns(schema.fields)
    lines = [
        f"# Proposed from {_said(source)}. Take what applies of the lines that begin with #.",
        "table:",
        "  # uri: s3://bucket/tables/orders          # The folder of the table.",
        f"  topic: {_flow(topic)}" if topic else "  # topic: orders",
        "  format:",
        f"    value: {schema.format}",
    ]
    if schema.format == "json-schema":
        lines.append(
            "    # value: json                          # In place of the line above, for JSON without a frame."
        )
    keyed = _keyed_by(key, columns)
    if keyed is not None:
        lines.append(f"    key: {keyed.format}")
    if schema.name:
        lines.append(f"    # record: {_flow(schema.name)}    # Only records of this name, in a topic of several types.")
    if key is not None and keyed is None:
        lines.append(
            f"    # key: {key.kind}    # The key's subject has a schema, which is no record of some of these columns."
        )
    lines += _key_lines(keyed, columns)
    lines.append("  columns:" if columns else "  columns: {}    # The schema has no field that can be a column.")
    for name, (type_, field) in columns.items():
        text = _type_text(type_)
        lines.append(
            textwrap.indent(_block({name: text if field is None else {"type": text, "field": field}}), " " * 4)
        )
    lines += [f"    # No column for field {_said(name)}: {why}" for name, why in left_out[:_NOT_TAKEN_MAX]]
    if left_out[_NOT_TAKEN_MAX:]:
        lines.append(f"    # No column for {counted(len(left_out) - _NOT_TAKEN_MAX, 'further field')}.")
    if left_out:
        lines.append("  # on_unknown_column: ignore    # Without it, records with these fields are no rows.")
    if schema.format != "connect-json":
        lines.append(_block({"registry": dict(registry)}) if registry else '# registry: {url: "http://127.0.0.1:8081"}')
    lines.append('# kafka: {bootstrap_servers: "127.0.0.1:9092"}')
    return "\n".join(lines)


_Columns = dict[str, tuple["pa.DataType", str | None]]
"""Type of each column, and the name in records if that is another one."""


def _columns(fields: Fields) -> tuple[_Columns, list[tuple[str, str]]]:
    """Return the columns for fields, and the other fields with why they are none."""
    from lancewal_core.rows.schema import COLUMNS_MAX

    columns: _Columns = {}
    left_out: list[tuple[str, str]] = []
    taken: set[str] = set()
    for name, type_ in fields:
        own = name if _can_be_named(name) and name.lower() not in taken else _other_name(name, taken)
        if type_ is None:
            left_out.append((name, "no column has its type"))
        elif len(columns) == COLUMNS_MAX:
            left_out.append((name, f"a table has at most {COLUMNS_MAX} columns"))
        elif own != name and (not name or "." in name):
            left_out.append((name, "a column cannot have such a name in records"))
        else:
            columns[own] = (type_, None if own == name else name)
            taken.add(own.lower())
    return columns, left_out


def _can_be_named(name: str) -> bool:
    import pyarrow as pa

    from lancewal_core.rows.schema import RowSchema, check_row_schema

    try:
        check_row_schema(RowSchema(pa.schema([(name, pa.int64())]), (name,), ()))
    except InvalidSchema:
        return False
    return True


def _other_name(name: str, taken: set[str]) -> str:
    """Return a name for a column whose name in records no further column can have."""
    plain = re.sub("[^A-Za-z0-9_]", "_", name)
    plain = plain if _can_be_named(plain) else f"field{plain}"
    numbered = (f"{plain}_{number}" for number in itertools.count(2))
    return next(one for one in itertools.chain([plain], numbered) if one.lower() not in taken)


def _keyed_by(key: WriterSchema | None, columns: _Columns) -> _Schema | None:
    """Return the schema of the record keys, if it says which columns these have."""
    if key is None:
        return None
    try:
        found = _of_writer(key)
    except InvalidInput:
        return None  # no record: which column the key is, nobody knows
    names = [name for name, _ in found.fields]
    known = {field or column for column, (_, field) in columns.items()}
    return found if names and known.issuperset(names) and _are_keys(names, columns) else None


def _key_lines(keyed: _Schema | None, columns: _Columns) -> Iterator[str]:
    if keyed is not None:
        by_field = {field or column: column for column, (_, field) in columns.items()}
        names = [by_field[name] for name, _ in keyed.fields]
        yield f"  primary_key: {_flow(names)}"
        yield f"  region_key: {_flow(names)}"
        return
    likely = next((name for name in columns if _are_keys([name], columns)), "id")
    yield f"  # primary_key: {_flow([likely])}    # The columns that identify a row."
    yield f"  # region_key: {_flow([likely])}    # The columns that producers key by, as format.key says."


def _are_keys(names: Sequence[str], columns: _Columns) -> bool:
    """Return whether columns can be the primary key and the region key.  ``names``: those in records."""
    import pyarrow as pa

    from lancewal_core.rows.schema import RowSchema, check_row_schema

    types = {field or column: type_ for column, (type_, field) in columns.items()}
    try:
        rows = pa.schema([(f"key{number}", types[name]) for number, name in enumerate(names)])
        check_row_schema(RowSchema(rows, tuple(rows.names), tuple(rows.names)))
    except (InvalidSchema, KeyError):
        return False
    return True


def _type_text(type_: pa.DataType) -> str:
    from lancewal_core.rows.column_types import format_type

    return format_type(type_)


def _block(value: Mapping[str, object]) -> str:
    """Return a mapping as YAML, over several lines."""
    import yaml

    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=sys.maxsize)
    return text.rstrip("\n")


def _flow(value: object) -> str:
    """Return a text or a list as YAML, on one line."""
    import yaml

    text: str = yaml.safe_dump([value], allow_unicode=True, width=sys.maxsize, default_flow_style=True)
    return text.strip()[1:-1]


def _said(name: str) -> str:
    """Return a text of a schema for a comment, which must not end a line."""
    return ascii(name[:_SHOWN])[1:-1] if name.isprintable() else ascii(name[:_SHOWN])
