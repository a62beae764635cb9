"""Keys that are JSON objects without spaces, with the bytes that Kafka Connect's JsonConverter writes (Jackson).

1. Members are the columns of the region key, in its order: ``{"customer":"acme","id":42}``.
2. Values are strings, integers and booleans.
3. Escapes are Jackson's: ``\\b \\t \\n \\f \\r \\" \\\\``, ``\\u00XX`` with upper-case hex for other characters below 0x20,
   and a pair of ``\\uXXXX`` for each character above U+FFFF.  Everything else is UTF-8 as it is.
4. Decoding accepts exactly the bytes that encoding gives.  Another text of the same JSON is no key here: its bytes give
   another partition.

``JSON.stringify`` writes the same bytes unless a text has one of these rare characters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.errors import InvalidInput, InvalidSchema
from lancewal_core.rows.byte_view import join_texts
from lancewal_core.rows.column_types import integer_range, is_text
from lancewal_core.rows.region_key import check_key_columns

_ESCAPED = re.compile(r'[\x00-\x1f"\\\U00010000-\U0010ffff]')
_ESCAPED_IN_ARRAYS = r'[\x00-\x1f"\\\x{10000}-\x{10ffff}]'
_SHORT = {"\b": r"\b", "\t": r"\t", "\n": r"\n", "\f": r"\f", "\r": r"\r", '"': r"\"", "\\": r"\\"}


class JsonCompactCodec:
    """Encoding of one table's region keys as JSON objects without spaces."""

    named = "the JSON object without spaces, as Kafka Connect writes it,"

    def __init__(self, fields: pa.Schema) -> None:
        """``fields`` are the region key's columns in order.  Raises ``InvalidSchema`` for a type that is not allowed."""
        for field in fields:
            if writes(field.type) is None:
                raise InvalidSchema(
                    f"table.format.key is json-compact: column {field.name!r} of table.region_key has type {field.type}; "
                    "such keys hold strings, integers and booleans. Let the column be a string if the key has a text there, "
                    "such as a uuid or a time; otherwise choose another table.format.key"
                )
        self._fields = list(fields)  # a schema would make its fields anew for each key

    def encode(self, values: Sequence[object]) -> bytes:
        if len(values) != len(self._fields):
            raise InvalidInput(
                f"the region key takes {len(self._fields)} values, one for each column; got {len(values)}"
            )
        for field, value in zip(self._fields, values, strict=True):
            if not _fits(field.type, value):
                raise InvalidInput(
                    f"region key column {field.name!r} of type {field.type} cannot hold a {type(value).__name__}; pass a "
                    "value of the column's type and range"
                )
        return json_key({field.name: value for field, value in zip(self._fields, values, strict=True)})

    def decode(self, key: bytes) -> tuple[object, ...] | None:
        try:
            read = json.loads(key)
            if not isinstance(read, dict) or list(read) != [field.name for field in self._fields]:
                return None
            values = tuple(read.values())
            return values if self.encode(values) == key else None
        except (ValueError, RecursionError, InvalidInput):  # not JSON, or values that no such column holds
            return None

    def encode_batch(self, columns: Sequence[pa.Array]) -> pa.Array:
        check_key_columns(self._fields, columns)
        pieces: list[bytes | pa.Array] = []
        for field, column in zip(self._fields, columns, strict=True):
            quote = b'"' if is_text(field.type) else b""
            pieces += [b"," if pieces else b"{", _text(field.name) + b":" + quote, json_texts(column), quote]
        return join_texts([*pieces, b"}"])


def json_key(members: Mapping[str, object]) -> bytes:
    """Return the JSON key with these members, in their order.  Values are str, int or bool.

    Raises ``InvalidInput`` for a value of another type, or a text that is not valid Unicode.
    """
    for name, value in members.items():
        if not isinstance(value, str | int):
            raise InvalidInput(f"region key column {name!r}: a json-compact key cannot hold a {type(value).__name__}")
    try:
        return b"{" + b",".join(_text(name) + b":" + json_value(value) for name, value in members.items()) + b"}"
    except UnicodeEncodeError as error:
        raise InvalidInput(f"a text of the region key is not Unicode: {error.reason}") from None


def same_json(key: bytes, other: bytes) -> bool:
    """Return whether two texts are the same JSON object, with members in any order."""
    try:
        one, two = json.loads(key), json.loads(other)
    except (ValueError, RecursionError):
        return False
    return isinstance(one, dict) and json.dumps(one, sort_keys=True) == json.dumps(two, sort_keys=True)


def writes(type_: pa.DataType) -> Literal["text", "word"] | None:
    """Return how such keys write a column of this type: as a ``text`` in quotes, or as a ``word`` without quotes.
    None if they cannot hold the type.
    """
    if is_text(type_):
        return "text"
    return "word" if pa.types.is_integer(type_) or pa.types.is_boolean(type_) else None


def _fits(type_: pa.DataType, value: object) -> bool:
    if is_text(type_):
        return isinstance(value, str)
    if pa.types.is_boolean(type_) or isinstance(value, bool):
        return isinstance(value, bool) and bool(pa.types.is_boolean(type_))
    return isinstance(value, int) and int(value) in integer_range(type_)


def json_value(value: object) -> bytes:
    """Return the JSON text of a str, int or bool."""
    if isinstance(value, bool):
        return b"true" if value else b"false"
    return _text(value) if isinstance(value, str) else str(value).encode()


def _text(text: str) -> bytes:
    return b'"' + _ESCAPED.sub(_escape, text).encode() + b'"'


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    if character in _SHORT:
        return _SHORT[character]
    if character < " ":
        return f"\\u{ord(character):04X}"
    pair = character.encode("utf-16-be").hex().upper()
    return f"\\u{pair[:4]}\\u{pair[4:]}"


def json_texts(column: pa.Array) -> pa.Array:
    """Return the JSON text of each string, without the quotes around it, as a binary array."""
    texts = column.cast(pa.string())
    if is_text(column.type):
        needs = pc.match_substring_regex(texts, _ESCAPED_IN_ARRAYS)
        if pc.any(needs).as_py():
            escaped = [_text(text)[1:-1].decode() for text in texts.filter(needs).to_pylist()]
            texts = pc.replace_with_mask(texts, needs.fill_null(False), pa.array(escaped, pa.string()))
    return texts.cast(pa.binary())
