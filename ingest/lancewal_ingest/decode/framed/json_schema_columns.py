"""Column types for the properties of a JSON Schema, for ``lancewal config init``.  They do not validate values.

A column takes the values that the JSON decoder reads from it.  A property with several types, or without any, gets no
column: a person must choose.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson
import pyarrow as pa

from lancewal_ingest.decode.framed.new_columns import NESTING_MAX, possible, struct_of_all
from lancewal_ingest.decode.framed.payloads import SchemaUnusable

_PLAIN = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
_FORMATS = {
    "date-time": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "uuid": pa.uuid(),
}
_STEPS_MAX = 100_000
_CHOICES = ("oneOf", "anyOf")


def columns_of(text: str) -> Iterator[tuple[str, pa.DataType | None]]:
    """Yield the name of each property and the type of a column for it.  The type is None if no column can hold the
    property.

    Raises ``SchemaUnusable`` if the text is not JSON, or has no properties.
    """
    try:
        schema = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise SchemaUnusable("the text is not JSON") from None
    types = _Types(schema)
    properties = types.resolved(schema).get("properties")
    if not isinstance(properties, dict):
        raise SchemaUnusable("expected an object with properties, which are columns")
    for name, given in properties.items():
        yield name, possible(types.of(given, NESTING_MAX))


class _Types:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._left = _STEPS_MAX

    def of(self, given: Any, depth_left: int) -> pa.DataType | None:
        self._left -= 1
        schema = self.resolved(given)
        if depth_left == 0 or self._left < 0:
            return None
        match self._kind(schema):
            case "object":
                return self._object(schema, depth_left - 1)
            case "array":
                item = self.of(schema.get("items"), depth_left - 1)
                return None if item is None or item == pa.uuid() else pa.list_(item)
            case "string" if schema.get("contentEncoding") == "base64":
                return pa.binary()
            case "string":
                known = _FORMATS.get(str(schema.get("format")), pa.string())
                return pa.string() if known == pa.uuid() and depth_left < NESTING_MAX else known
            case kind:
                return _PLAIN.get(kind)

    def resolved(self, given: Any) -> Mapping[str, Any]:
        """Return the schema that a reference leads to, or the other schema in a choice between one and null.  Return
        an empty mapping if there is none.
        """
        for _ in range(NESTING_MAX):
            if not isinstance(given, dict):
                return {}
            reference = given.get("$ref")
            if isinstance(reference, str):
                given = self._referred(reference)
                continue
            choices = next((given[name] for name in _CHOICES if isinstance(given.get(name), list)), None)
            if choices is None:
                return given
            others = [one for one in choices if not (isinstance(one, dict) and one.get("type") == "null")]
            if len(others) != 1:
                return {}
            given = others[0]
        return {}

    def _referred(self, reference: str) -> Any:
        found = self._root if reference.startswith("#") else None
        for name in filter(None, reference[1:].split("/")):
            found = found.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
        return found

    def _kind(self, schema: Mapping[str, Any]) -> str:
        kind = schema.get("type")
        if isinstance(kind, list):
            kinds = [one for one in kind if one != "null"]
            kind = kinds[0] if len(kinds) == 1 else None
        return kind if isinstance(kind, str) else ""

    def _object(self, schema: Mapping[str, Any], depth_left: int) -> pa.DataType | None:
        properties, more = schema.get("properties"), schema.get("additionalProperties")
        if not isinstance(properties, dict):
            value = self.of(more, depth_left)
            return None if value is None else pa.map_(pa.string(), value)
        return struct_of_all((name, self.of(given, depth_left)) for name, given in properties.items())
