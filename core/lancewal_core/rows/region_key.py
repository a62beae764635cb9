"""The canonical encoding of a region key: the bytes that producers use as Kafka key.  It decides the partition.

1. Two equal region keys have the same encoding, two different ones (of one table) different encodings.
2. One column: a string is its UTF-8, a binary its bytes, an integer its decimal text, a boolean ``true`` or ``false``,
   a date ``YYYY-MM-DD``, a uuid its 36 characters in lower case.
3. Several columns: a JSON array in ``region_key`` order, without spaces.  Strings are escaped as in RFC 8785, dates are
   and uuids are strings, binaries are strings of padded standard base64.
4. Decoding accepts exactly the bytes that encoding gives.

Types: (large_)string, int8 to uint64, bool, date32 (years 1 to 9999), (large_)binary, fixed_size_binary, uuid.
Everything else is refused.
"""

from __future__ import annotations

import binascii
import datetime
import json
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.errors import ActionNeeded, InvalidInput, InvalidSchema
from lancewal_core.rows.byte_view import byte_view, uuid_texts
from lancewal_core.rows.column_types import integer_range

_EPOCH = datetime.date(1970, 1, 1)
_FIRST_DAY = (datetime.date.min - _EPOCH).days
_LAST_DAY = (datetime.date.max - _EPOCH).days

_NEEDS_ESCAPE = re.compile(rb'[\x00-\x1f"\\]')
_ESCAPES = {bytes([code]): b"\\u%04x" % code for code in range(0x20)} | {
    b"\b": rb"\b",
    b"\t": rb"\t",
    b"\n": rb"\n",
    b"\f": rb"\f",
    b"\r": rb"\r",
    b'"': rb"\"",
    b"\\": rb"\\",
}


class _Kind(Enum):
    """How a column's values are written."""

    STRING = auto()
    INTEGER = auto()
    BOOLEAN = auto()
    DATE = auto()
    BINARY = auto()
    UUID = auto()

    @property
    def quoted(self) -> bool:
        """Whether a JSON array holds the value as a string."""
        return self not in (_Kind.INTEGER, _Kind.BOOLEAN)


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    type: pa.DataType
    kind: _Kind
    integers: range
    """Allowed values, if it is an integer column."""

    @staticmethod
    def of(field: pa.Field) -> _Column:
        kind = _kind_of(field.type)
        if kind is None:
            raise InvalidSchema(
                f"table.region_key: column {field.name!r} has type {field.type}; "
                "region keys are strings, integers, booleans, dates (date32), uuids or binaries"
            )
        integers = integer_range(field.type) if kind is _Kind.INTEGER else range(0)
        return _Column(field.name, field.type, kind, integers)

    def accepts(self, value: object) -> bool:
        """Return whether a Python value has the column's type and range."""
        if _kind_of_value(value) is not self.kind:
            return False
        if pa.types.is_fixed_size_binary(self.type):
            return isinstance(value, bytes) and len(value) == self.type.byte_width
        return not isinstance(value, int) or self.kind is _Kind.BOOLEAN or int(value) in self.integers


class RegionKeyCodec:
    """Encodes and decodes the region keys of one table."""

    named = "the canonical encoding"

    def __init__(self, fields: pa.Schema) -> None:
        """``fields`` are the region key's columns in order.  ``InvalidSchema`` if there are none, or for a type that is
        not allowed."""
        self._columns = tuple(_Column.of(field) for field in fields)
        if not self._columns:
            raise InvalidSchema("table.region_key is empty: name the columns that producers key by")

    def encode(self, values: Sequence[object]) -> bytes:
        """Return the encoding of one key, given its values (str, int, bool, date, bytes, UUID).  ``InvalidInput`` for a
        wrong count, type or range."""
        if len(values) != len(self._columns):
            got = "1 value" if len(values) == 1 else f"{len(values)} values"
            raise InvalidInput(
                f"the region key takes one value for each column of {[c.name for c in self._columns]}; got {got}"
            )
        for column, value in zip(self._columns, values, strict=True):
            if not column.accepts(value):
                raise InvalidInput(
                    f"region key column {column.name!r} of type {column.type} cannot hold "
                    f"a {type(value).__name__} {_shown(value)}; pass a value of the column's type and range"
                )
        return canonical_key(*values)

    def decode(self, key: bytes) -> tuple[object, ...] | None:
        """Return the values whose encoding is ``key``; None for bytes in any other form than the canonical one."""
        try:
            if len(self._columns) == 1:
                values: tuple[object, ...] = (_parse_alone(key, self._columns[0].kind),)
            else:
                parsed = json.loads(key.decode("utf-8"))
                if not isinstance(parsed, list) or len(parsed) != len(self._columns):
                    return None
                values = tuple(_parse_item(i, c.kind) for i, c in zip(parsed, self._columns, strict=True))
            return values if self.encode(values) == key else None
        except (ValueError, RecursionError, ActionNeeded):  # not UTF-8, not JSON, no date, not of the column's range
            return None

    def encode_batch(self, columns: Sequence[pa.Array]) -> pa.Array:
        """Return the encoding of each row as a binary array, given the region key's columns in order, all of equal
        length.

        The encoding is null for a row with a null, or with a date outside the years 1 to 9999.  ``InvalidSchema`` if
        number or types of the columns are not those of the codec.
        """
        types = [column.type for column in columns]
        if types != [column.type for column in self._columns]:
            expected = ", ".join(f"{column.name} {column.type}" for column in self._columns)
            raise InvalidSchema(f"the region key's columns are {expected}; got {', '.join(map(str, types)) or 'none'}")
        if len(columns) == 1:
            return _texts(columns[0], self._columns[0].kind)
        pieces: list[object] = []
        literal = b"["
        for column, values in zip(self._columns, columns, strict=True):
            quote = b'"' if column.kind.quoted else b""
            pieces += [pa.scalar(literal + quote, pa.binary()), _item_texts(values, column.kind)]
            literal = quote + b","
        last = pa.scalar(literal[:-1] + b"]", pa.binary())
        return pc.binary_join_element_wise(*pieces, last, pa.scalar(b"", pa.binary()))


def canonical_key(*values: object) -> bytes:
    """Return the Kafka key of a row, from its region key's values in order: str, int, bool, datetime.date, bytes,
    uuid.UUID.

    Raise ``InvalidSchema`` for another type or no value.  Raise ``InvalidInput`` for an integer of more than 64 bits,
    or a text that is not Unicode (a lone surrogate).
    """
    if not values:
        raise InvalidSchema("a region key has at least one value; pass the values of the region key's columns")
    if len(values) == 1:
        return _alone(values[0])
    return b"[" + b",".join(map(_item, values)) + b"]"


# -- one value -------------------------------------------------------------------------------------------------


def _kind_of(type_: pa.DataType) -> _Kind | None:
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return _Kind.STRING
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_):
        return _Kind.BINARY
    if type_ == pa.uuid():
        return _Kind.UUID
    if pa.types.is_integer(type_):
        return _Kind.INTEGER
    if pa.types.is_boolean(type_):
        return _Kind.BOOLEAN
    return _Kind.DATE if pa.types.is_date32(type_) else None


def _kind_of_value(value: object) -> _Kind | None:
    match value:
        case str():
            return _Kind.STRING
        case bytes():
            return _Kind.BINARY
        case bool():  # before int: Python's bool is one
            return _Kind.BOOLEAN
        case int():
            return _Kind.INTEGER
        case datetime.datetime():  # before date: it is one, but its time would be lost
            return None
        case datetime.date():
            return _Kind.DATE
        case uuid.UUID():
            return _Kind.UUID
        case _:
            return None


def _alone(value: object) -> bytes:
    """Return the encoding of a value that is a whole region key."""
    match value:
        case bytes():
            return value
        case str():
            try:
                return value.encode()
            except UnicodeEncodeError as error:
                raise InvalidInput(f"the region key text {_shown(value)} is not Unicode: {error.reason}") from None
        case bool():
            return b"true" if value else b"false"
        case int():
            if not -(1 << 63) <= value < 1 << 64:
                raise InvalidInput("a region key integer has more than 64 bits; no column type can hold it")
            return b"%d" % value
        case datetime.date() if not isinstance(value, datetime.datetime):
            return value.isoformat().encode()
        case uuid.UUID():
            return str(value).encode()
        case _:
            raise InvalidSchema(
                f"a region key value cannot be a {type(value).__name__}: use str, int, bool, datetime.date, bytes or "
                "uuid.UUID"
            )


def _item(value: object) -> bytes:
    """Return the encoding of a value inside a JSON array."""
    match value:
        case bytes():
            return b'"' + binascii.b2a_base64(value, newline=False) + b'"'
        case str():
            return b'"' + _escape(_alone(value)) + b'"'
        case datetime.date() | uuid.UUID():
            return b'"' + _alone(value) + b'"'
        case _:
            return _alone(value)


def _escape(text: bytes) -> bytes:
    return _NEEDS_ESCAPE.sub(lambda found: _ESCAPES[found[0]], text)


def _shown(value: object) -> str:
    """A value for a message, shortened."""
    if isinstance(value, int) and value.bit_length() > 64:
        return "of more than 64 bits"
    text = ascii(value[:60] if isinstance(value, str | bytes) else value)
    return text if len(text) <= 80 else text[:77] + "..."


def _parse_alone(key: bytes, kind: _Kind) -> object:
    """Inverse of ``_alone`` for canonical keys; any value or ``ValueError`` for others."""
    match kind:
        case _Kind.STRING:
            return key.decode("utf-8")
        case _Kind.BINARY:
            return key
        case _Kind.INTEGER:
            return int(key)
        case _Kind.BOOLEAN:
            return key == b"true"
        case _Kind.DATE:
            return datetime.date.fromisoformat(key.decode("ascii"))
        case _Kind.UUID:
            return uuid.UUID(key.decode("ascii"))
        case _:
            assert_never(kind)


def _parse_item(item: object, kind: _Kind) -> object:
    """Return the value of a JSON item; any value or ``ValueError`` for items that are not canonical."""
    if isinstance(item, str) and kind is _Kind.BINARY:
        return binascii.a2b_base64(item, strict_mode=True)
    if isinstance(item, str) and kind is _Kind.DATE:
        return datetime.date.fromisoformat(item)
    if isinstance(item, str) and kind is _Kind.UUID:
        return uuid.UUID(item)
    return item


# -- many values -----------------------------------------------------------------------------------------------


def _texts(values: pa.Array, kind: _Kind) -> pa.Array:
    """Return the encoding of each value as a whole region key, as a binary array."""
    match kind:
        case _Kind.STRING | _Kind.BINARY:
            return values.cast(pa.binary())
        case _Kind.INTEGER | _Kind.BOOLEAN:
            return values.cast(pa.string()).cast(pa.binary())
        case _Kind.DATE:
            days = values.cast(pa.int32())
            inside = pc.and_(pc.greater_equal(days, _FIRST_DAY), pc.less_equal(days, _LAST_DAY))
            return pc.if_else(inside, values, None).cast(pa.string()).cast(pa.binary())
        case _Kind.UUID:
            return uuid_texts(values).cast(pa.binary())
        case _:
            assert_never(kind)


def _item_texts(values: pa.Array, kind: _Kind) -> pa.Array:
    """Return the encoding of each value inside a JSON array, without the quotes around it, as a binary array."""
    match kind:
        case _Kind.STRING:
            return _escaped(values.cast(pa.binary()))
        case _Kind.BINARY:
            return _base64(values.cast(pa.binary()))
        case _Kind.INTEGER | _Kind.BOOLEAN | _Kind.DATE | _Kind.UUID:
            return _texts(values, kind)
        case _:
            assert_never(kind)


def _escaped(texts: pa.Array) -> pa.Array:
    """``_escape`` of each text.  One pass over all bytes finds the few texts that need it."""
    view = byte_view(texts)
    data = view.data[view.borders[0] : view.borders[-1]]
    special = (data < 0x20) | (data == ord('"')) | (data == ord("\\"))
    if not special.any():
        return texts
    needs = np.zeros(len(texts), bool)
    needs[np.searchsorted(view.borders, np.flatnonzero(special) + view.borders[0], side="right") - 1] = True
    mask = pc.and_(pa.array(needs), texts.is_valid())  # a null slot may lie over bytes
    escaped = [_escape(text) for text in texts.filter(mask).to_pylist()]
    return pc.replace_with_mask(texts, mask, pa.array(escaped, pa.binary()))


def _base64(values: pa.Array) -> pa.Array:
    """Padded base64 of each value.  Arrow has no kernel for it, and filling up groups of three by numpy is slower."""
    texts = [None if v is None else binascii.b2a_base64(v, newline=False) for v in values.to_pylist()]
    return pa.array(texts, pa.binary())
