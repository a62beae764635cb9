"""Schemas of Kafka Connect, as JsonConverter writes them, read as types of ``avro.schema``.

Guarantees
1. ``parse_schema`` returns a record, or raises ``SchemaUnusable``, which says the place in the schema by numbers.  A
   schema is a part of its value, so messages hold no name of it.  If the contract names its records, the name is
   looked at first: a schema of another name is of another record, whatever type it has.
2. A logical name that is unknown, or that does not fit its type, changes nothing.
3. Defaults, versions and documentation change nothing: the payload has all values.
4. A schema has at most ``SCHEMA_BYTES_MAX`` bytes, and nests as deep as JSON may (``strict.DEPTH_MAX``).

A map whose keys are not strings comes as a list of pairs, and there is no column for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from lancewal_core.wal.writer_schemas import SCHEMA_BYTES_MAX
from lancewal_ingest.decode.avro.schema import (
    CONNECT_DECIMAL,
    CONNECT_NAMES,
    CONNECT_PRECISION,
    AvroArray,
    AvroField,
    AvroMap,
    AvroPlain,
    AvroRecord,
    AvroType,
    AvroUnion,
    Logical,
    Primitive,
    described,
)
from lancewal_ingest.decode.framed.payloads import SchemaUnusable, check_record
from lancewal_ingest.decode.json.strict import parse_object
from lancewal_ingest.decode.naming import PLAIN, Naming
from lancewal_ingest.decode.outcomes import Refusal

_PLAIN: Mapping[str, Primitive] = {
    "boolean": "boolean",
    "int8": "int8",
    "int16": "int16",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "bytes",
}
_NOTHING = AvroPlain("null")
_INTEGER = re.compile("-?[0-9]{1,9}")
_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair, which JSON can write.  A string in Arrow cannot hold it."""


def parse_schema(text: bytes, naming: Naming = PLAIN) -> AvroRecord:
    """Return the record that a schema defines; its name is empty if the schema has none.  Raises ``SchemaUnusable``
    if the schema is not valid or not a struct, or if ``naming`` requires another name.
    """
    if len(text) > SCHEMA_BYTES_MAX:
        raise SchemaUnusable(f"the schema has more than {SCHEMA_BYTES_MAX} bytes")
    try:
        given = parse_object(text)
    except Refusal as refusal:
        raise SchemaUnusable(f"the schema: {refusal}", refusal.kind) from None
    name = given.get("name")
    name = name if isinstance(name, str) else ""
    check_record(name, naming)
    if _SURROGATE.search(name):
        raise SchemaUnusable("schema: the name has a lone surrogate, which is no Unicode")
    found = _required(given, "schema")
    if not isinstance(found, AvroRecord):
        raise SchemaUnusable(f"expected a struct, whose fields are columns; the schema is {described(found)}")
    found.name = name
    return found


def _type(given: object, where: str) -> AvroType:
    found = _required(given, where)
    optional = isinstance(given, dict) and given.get("optional") is True
    return AvroUnion((_NOTHING, found)) if optional else found


def _required(given: object, where: str) -> AvroType:
    if not isinstance(given, dict):
        raise SchemaUnusable(f"{where}: expected an object with the name of a type")
    match given.get("type"):
        case "struct":
            return _struct(given, where)
        case "array":
            return AvroArray(_type(given.get("items"), f"{where}, items"))
        case "map":
            keys = _required(given.get("keys"), f"{where}, keys")
            values = _type(given.get("values"), f"{where}, values")
            # JsonConverter writes an object only if keys are strings, whatever their name is.
            texts = isinstance(keys, AvroPlain) and keys.kind == "string"
            return AvroMap(values) if texts else AvroPlain("other", said="map whose keys are not strings")
        case str() as kind if kind in _PLAIN:
            return _plain(kind, given, where)
    raise SchemaUnusable(f"{where}: expected a member 'type' with the name of a type")


def _struct(given: Mapping[str, object], where: str) -> AvroRecord:
    fields = given.get("fields")
    if not isinstance(fields, list):
        raise SchemaUnusable(f"{where}: expected an array of fields")
    return AvroRecord("", tuple(_fields(fields, where)))


def _fields(given: Sequence[object], where: str) -> Iterator[AvroField]:
    seen = set()
    for number, one in enumerate(given):
        name = one.get("field") if isinstance(one, dict) else None
        if not isinstance(name, str):
            raise SchemaUnusable(f"{where}, field {number}: expected an object with the name of a field")
        place = f"{where}, field {number}"
        if _SURROGATE.search(name):
            raise SchemaUnusable(f"{place}: the name has a lone surrogate, which is no Unicode")
        if name in seen:
            raise SchemaUnusable(f"{place}: there are two fields of this name")
        seen.add(name)
        yield AvroField(name, _type(one, place))


def _plain(kind: str, given: Mapping[str, object], where: str) -> AvroPlain:
    name = given.get("name")
    plain = AvroPlain(_PLAIN[kind], said=kind)
    if not isinstance(name, str):
        return plain
    if kind == "bytes" and name == CONNECT_DECIMAL:
        logical = _decimal(given.get("parameters"), where)
        return replace(plain, logical=logical, said=f"{name} of scale {logical.scale}")
    logical_name = CONNECT_NAMES.get((_PLAIN[kind], name))
    return plain if logical_name is None else replace(plain, logical=Logical(logical_name), said=f"{kind}, a {name}")


def _decimal(parameters: object, where: str) -> Logical:
    given = parameters if isinstance(parameters, dict) else {}
    scale, precision = given.get("scale"), given.get(CONNECT_PRECISION, "0")
    if not (isinstance(scale, str) and _INTEGER.fullmatch(scale)):
        raise SchemaUnusable(f"{where}: expected a parameter 'scale' of the decimal, a string with an integer")
    if not (isinstance(precision, str) and _INTEGER.fullmatch(precision)):
        precision = "0"
    return Logical("decimal", max(int(precision), 0), int(scale))
