"""Recognise values of other formats among values that gave no row, so that the reason can name the format.

1. Only refused values are looked at.  A value that the table's format takes is a row, whatever it looks like.
2. A value is recognised by marks that no honest value of the table's format has by chance: a frame's first bytes, a
   header that names a schema, or members that together make an envelope and of which the table has no column.
3. Bare Avro and bare Protobuf have no marks: they are not guessed at.

| format | marks |
|---|---|
| Confluent's frame | byte 0, then a schema's id of 4 bytes, the highest first |
| Apicurio's frame | byte 0, then a schema's id of 8 bytes, of which the first 4 are 0 |
| ids in headers | the header ``__value_schema_id`` (Confluent), or one that begins with ``apicurio.value.`` |
| Avro container file | ``Obj`` and byte 1 |
| Kafka Connect's JSON with schemas | an object of ``schema`` and ``payload`` alone, the schema with a ``type`` or null |
| Debezium's envelope | an object with ``op`` of one letter, an object ``source``, and ``before`` or ``after`` |
| Maxwell's envelope | an object with ``database``, ``table``, a text ``type``, and an object ``data`` |
| Canal's envelope | an object with ``database``, ``table``, a text ``type``, and ``isDdl`` |
| Oracle GoldenGate's envelope | an object with ``table``, ``op_type`` and ``pos`` |
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import orjson

from lancewal_core.settings.sections import Envelope
from lancewal_ingest.decode.json.strict import BLANKS
from lancewal_ingest.decode.operations import Headers

_MAGIC, _FRAME_BYTES, _APICURIO_BYTES = 0, 5, 9
_AVRO_FILE = b"Obj\x01"
_CONFLUENT_HEADER, _APICURIO_HEADERS = "__value_schema_id", "apicurio.value."
_DEBEZIUM_OPS = frozenset("crudtm")
_ADVICE = "table.format.value is json: have the producer write plain JSON, or take a topic of plain JSON"
_CONNECT = "JSON of Kafka Connect with a schema (schema and payload)"
_CONNECT_ADVICE = "table.format.value is json: make the table with connect-json, or have the producer write plain JSON"
_DEBEZIUM = "Debezium's envelope (op, source, before, after)"
_DEBEZIUM_ADVICE = "Set table.format.envelope to debezium, or have the connector write plain rows"
_OTHERS = {
    "Canal's envelope (database, table, type, isDdl)": ("database", "table", "type", "isDdl"),
    "Maxwell's envelope (database, table, type, data)": ("database", "table", "type", "data"),
    "Oracle GoldenGate's envelope (table, op_type, pos)": ("table", "op_type", "pos"),
}
"""Envelopes that lancewal does not support, by name: the members that make each of them."""


def wrong_format(
    value: bytes, headers: Headers, columns: Collection[str], *, envelope: Envelope = "none"
) -> str | None:
    """Return a message that names the format of a refused value and the setting to change; None if no other format is
    recognised.

    ``columns``: the names of the table's columns.  ``envelope``: the table's own envelope, which does not count as
    another format.
    """
    found = framed_format(value, headers) or _enveloped(value, columns, envelope)
    if found is None:
        return None
    wanted = "Debezium's envelope in plain JSON" if envelope == "debezium" else "plain JSON"
    advice = {_CONNECT: _CONNECT_ADVICE, _DEBEZIUM: _DEBEZIUM_ADVICE}.get(found, _ADVICE)
    return f"expected {wanted}; the value is {found}. {advice}"


def framed_format(value: bytes, headers: Headers) -> str | None:
    """Return a description of a value that a registry's serializer wrote, or of an Avro file; None for any other value."""
    return _in_headers(headers) or _framed(value)


def _in_headers(headers: Headers) -> str | None:
    for name, _ in headers or ():
        if name == _CONFLUENT_HEADER:
            return f"of a schema registry, with the schema's id in header {name}"
        if name.startswith(_APICURIO_HEADERS):
            return f"of a schema registry, with the schema's id in a header whose name begins with {_APICURIO_HEADERS}"
    return None


def _framed(value: bytes) -> str | None:
    if value.startswith(_AVRO_FILE):
        return "an Avro container file"
    if len(value) < _FRAME_BYTES or value[0] != _MAGIC:
        return None
    if any(value[1:_FRAME_BYTES]):
        return "of a schema registry, framed by byte 0 and a schema's id of 4 bytes (Confluent's wire format)"
    if len(value) >= _APICURIO_BYTES and any(value[_FRAME_BYTES:_APICURIO_BYTES]):
        return "of a schema registry, framed by byte 0 and a schema's id of 8 bytes (Apicurio's wire format)"
    return None


def _enveloped(value: bytes, columns: Collection[str], envelope: Envelope) -> str | None:
    if not value.lstrip(BLANKS).startswith(b"{"):
        return None
    try:
        read = orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
    if read.keys() == {"schema", "payload"} and not {"schema", "payload"} & {*columns}:
        schema, payload = read["schema"], read["payload"]
        if schema is None or (isinstance(schema, dict) and "type" in schema):
            inner = _debezium(payload, ()) if isinstance(payload, dict) else None
            return f"{_CONNECT}, and in it {inner}" if inner else _CONNECT
    return None if envelope == "debezium" else _debezium(read, columns) or other_envelope(read, columns)


def _debezium(read: Mapping[str, object], columns: Collection[str]) -> str | None:
    if {"op", "source"} & {*columns}:
        return None
    op, source = read.get("op"), read.get("source")
    known = isinstance(op, str) and op in _DEBEZIUM_OPS and isinstance(source, dict)
    return _DEBEZIUM if known and {"before", "after"} & read.keys() else None


def other_envelope(read: Mapping[str, object], columns: Collection[str]) -> str | None:
    """Return the name of an envelope that lancewal does not support; None if the object is not in such an envelope.

    ``columns``: the names of the table's columns.  The envelope is recognised only if none of its members is a column.
    """
    for name, members in _OTHERS.items():
        if read.keys() >= {*members} and not {*members} & {*columns} and isinstance(read.get("type", ""), str):
            return name
    return None
