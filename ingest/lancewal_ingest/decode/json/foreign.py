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
"""

from __future__ import annotations

from collections.abc import Collection

import orjson

from lancewal_ingest.decode.operations import Headers

_MAGIC, _FRAME_BYTES, _APICURIO_BYTES = 0, 5, 9
_AVRO_FILE = b"Obj\x01"
_CONFLUENT_HEADER, _APICURIO_HEADERS = "__value_schema_id", "apicurio.value."
_DEBEZIUM_OPS = frozenset("crudtm")
_ADVICE = "table.format.value is json: have the producer write plain JSON, or take a topic of plain JSON"
_CONNECT = "JSON of Kafka Connect with a schema (schema and payload)"
_CONNECT_ADVICE = "table.format.value is json: make the table with connect-json, or have the producer write plain JSON"


def wrong_format(value: bytes, headers: Headers, columns: Collection[str]) -> str | None:
    """Return a message that names the other format of a refused value, and the setting; None if none is recognised.

    ``columns``: names of the table's columns."""
    found = framed_format(value, headers) or _enveloped(value, columns)
    advice = _CONNECT_ADVICE if found == _CONNECT else _ADVICE
    return None if found is None else f"expected plain JSON; the value is {found}. {advice}"


def framed_format(value: bytes, headers: Headers) -> str | None:
    """Return words for a value of a schema registry, or of an Avro file; None if it is none of them."""
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


def _enveloped(value: bytes, columns: Collection[str]) -> str | None:
    if not value.lstrip(b" \t\r\n").startswith(b"{"):
        return None
    try:
        read = orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
    if read.keys() == {"schema", "payload"} and not {"schema", "payload"} & {*columns}:
        schema, payload = read["schema"], read["payload"]
        if schema is None or (isinstance(schema, dict) and "type" in schema):
            inner = _debezium(payload, ())
            return f"{_CONNECT}, and in it {inner}" if inner else _CONNECT
    return _debezium(read, columns)


def _debezium(read: object, columns: Collection[str]) -> str | None:
    if not isinstance(read, dict) or {"op", "source"} & {*columns}:
        return None
    op, source = read.get("op"), read.get("source")
    known = isinstance(op, str) and op in _DEBEZIUM_OPS and isinstance(source, dict)
    return "Debezium's envelope (op, source, before, after)" if known and {"before", "after"} & read.keys() else None
