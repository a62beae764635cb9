"""The canonical encoding of a region key: the bytes that producers use as Kafka key.  It decides the partition.

1. Two equal region keys have the same encoding, two different ones (of one table) different encodings.
2. One column: a string is its UTF-8, a binary its bytes, an integer its decimal text, a boolean ``true`` or ``false``,
   a date ``YYYY-MM-DD``, a uuid its 36 characters in lower case.
3. Several columns: a JSON array in ``region_key`` order, without spaces.  Strings are escaped as in RFC 8785.  Dates
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.errors import ActionNeeded, InvalidInput, InvalidSchema
from lancewal_core.rows.byte_view import byte_view, join_texts, uuid_texts
from lancewal_core.rows.column_types import integer_range, is_bytes, is_text

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


@dataclass(frozen=True, slots=True)
class _Kind:
    """How values of related types are written in a region key."""

    of_value: type
    """Python type of the values."""
    text: Callable[[Any], bytes]
    """Return the encoding of a value that is a whole region key."""
    parse: Callable[[bytes], object]
    """Inverse of ``text`` for canonical keys; any value or ``ValueError`` for others."""
    texts: Callable[[pa.Array], pa.Array]
    """Return ``text`` of each value, as a binary array."""
    quoted: bool = True
    """Whether a JSON array holds the value as a string."""


def _utf8(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"the region key text {_shown(value)} is not Unicode: {error.reason}") from None


def _decimal(value: int) -> bytes:
    if not -(1 << 63) <= value < 1 << 64:
        raise InvalidInput("a region key integer has more than 64 bits; no column type can hold it")
    return b"%d" % value


def _as_binary(values: pa.Array) -> pa.Array:
    return values.cast(pa.binary())


def _as_text(values: pa.Array) -> pa.Array:
    return values.cast(pa.string()).cast(pa.binary())


def _dates(values: pa.Array) -> pa.Array:
    days = values.cast(pa.int32())
    inside = pc.and_(pc.greater_equal(days, _FIRST_DAY), pc.less_equal(days, _LAST_DAY))
    return _as_text(pc.if_else(inside, values, None))


def _date(key: bytes) -> datetime.date:
    return datetime.date.fromisoformat(key.decode("ascii"))


_STRING = _Kind(str, _utf8, bytes.decode, _as_binary)
_BINARY = _Kind(bytes, bytes, bytes, _as_binary)
_BOOLEAN = _Kind(bool, lambda value: b"true" if value else b"false", lambda key: key == b"true", _as_text, quoted=False)
_INTEGER = _Kind(int, _decimal, int, _as_text, quoted=False)
_DATE = _Kind(datetime.date, lambda value: value.isoformat().encode(), _date, _dates)
_UUID = _Kind(
    uuid.UUID,
    lambda value: str(value).encode(),
    lambda key: uuid.UUID(key.decode("ascii")),
    lambda values: _as_binary(uuid_texts(values)),
)
_KINDS = (_STRING, _BINARY, _BOOLEAN, _INTEGER, _DATE, _UUID)  # booleans before integers: Python's bool is an int


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    type: pa.DataType
    kind: _Kind
    integers: range
    """Allowed values, if the column has an integer type; otherwise empty."""

    @staticmethod
    def of(field: pa.Field) -> _Column:
        kind = _kind_of(field.type)
        if kind is None:
            raise InvalidSchema(
                f"table.region_key: column {field.name!r} has type {field.type}; "
                "region keys are strings, integers, booleans, dates (date32), uuids or binaries"
            )
        integers = integer_range(field.type) if kind is _INTEGER else range(0)
        return _Column(field.name, field.type, kind, integers)

    def accepts(self, value: object) -> bool:
        """Return whether a Python value has the column's type and range."""
        if _kind_of_value(value) is not self.kind:
            return False
        if pa.types.is_fixed_size_binary(self.type):
            return isinstance(value, bytes) and len(value) == self.type.byte_width
        return not isinstance(value, int) or self.kind is _BOOLEAN or int(value) in self.integers


class RegionKeyCodec:
    """Encodes and decodes the region keys of one table."""

    named = "the canonical encoding"

    def __init__(self, fields: pa.Schema) -> None:
        """``fields`` are the region key's columns in order.  Raises ``InvalidSchema`` if there are none, or for a type
        that is not allowed.
        """
        self._fields = fields
        self._columns = tuple(_Column.of(field) for field in fields)
        if not self._columns:
            raise InvalidSchema("table.region_key is empty: name the columns that producers key by")

    def __reduce__(self) -> tuple[type[RegionKeyCodec], tuple[pa.Schema]]:
        return RegionKeyCodec, (self._fields,)  # a pickled kind would be another object than the kinds of this module

    def encode(self, values: Sequence[object]) -> bytes:
        """Return the encoding of one key, given its values (str, int, bool, date, bytes, UUID).  Raises
        ``InvalidInput`` for a wrong count, type or range.
        """
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
                values: tuple[object, ...] = (self._columns[0].kind.parse(key),)
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

        The encoding is null for a row with a null, or with a date outside the years 1 to 9999.  Raises
        ``InvalidSchema`` if number or types of the columns are not those of the codec.
        """
        check_key_columns(self._fields, columns)
        if len(columns) == 1:
            return self._columns[0].kind.texts(columns[0])
        pieces: list[bytes | pa.Array] = []
        for column, values in zip(self._columns, columns, strict=True):
            quote = b'"' if column.kind.quoted else b""
            pieces += [b"," if pieces else b"[", quote, _item_texts(values, column.kind), quote]
        return join_texts([*pieces, b"]"])


def check_key_columns(fields: pa.Schema | Sequence[pa.Field], columns: Sequence[pa.Array]) -> None:
    """Raise ``InvalidSchema`` unless the columns have the types of the region key's fields."""
    types = [column.type for column in columns]
    if types != [field.type for field in fields]:
        expected = ", ".join(f"{field.name} {field.type}" for field in fields)
        raise InvalidSchema(f"the region key's columns are {expected}; got {', '.join(map(str, types)) or 'none'}")


def canonical_key(*values: object) -> bytes:
    """Return the Kafka key of a row, from its region key's values in order: str, int, bool, datetime.date, bytes,
    uuid.UUID.

    Raise ``InvalidSchema`` for another type or no value.  Raise ``InvalidInput`` for an integer of more than 64 bits,
    or a text that is not Unicode (a lone surrogate).
    """
    if not values:
        raise InvalidSchema("a region key has at least one value; pass the values of the region key's columns")
    if len(values) == 1:
        return _known_kind(values[0]).text(values[0])
    return b"[" + b",".join(map(_item, values)) + b"]"


# -- one value -------------------------------------------------------------------------------------------------


def _kind_of(type_: pa.DataType) -> _Kind | None:
    if is_text(type_):
        return _STRING
    if is_bytes(type_):
        return _BINARY
    if type_ == pa.uuid():
        return _UUID
    if pa.types.is_integer(type_):
        return _INTEGER
    if pa.types.is_boolean(type_):
        return _BOOLEAN
    return _DATE if pa.types.is_date32(type_) else None


def _kind_of_value(value: object) -> _Kind | None:
    for kind in _KINDS:
        if isinstance(value, kind.of_value):
            return None if isinstance(value, datetime.datetime) else kind  # a date, but its time would be lost
    return None


def _known_kind(value: object) -> _Kind:
    kind = _kind_of_value(value)
    if kind is None:
        raise InvalidSchema(
            f"a region key value cannot be a {type(value).__name__}: use str, int, bool, datetime.date, bytes or "
            "uuid.UUID"
        )
    return kind


def _item(value: object) -> bytes:
    """Return the encoding of a value inside a JSON array."""
    kind = _known_kind(value)
    text = kind.text(value)
    if kind is _STRING:
        text = _escape(text)
    elif kind is _BINARY:
        text = binascii.b2a_base64(text, newline=False)
    return b'"' + text + b'"' if kind.quoted else text


def _escape(text: bytes) -> bytes:
    return _NEEDS_ESCAPE.sub(lambda found: _ESCAPES[found[0]], text)


def _shown(value: object) -> str:
    """A value for a message, shortened."""
    if isinstance(value, int) and value.bit_length() > 64:
        return "of more than 64 bits"
    text = ascii(value[:60] if isinstance(value, str | bytes) else value)
    return text if len(text) <= 80 else text[:77] + "..."


def _parse_item(item: object, kind: _Kind) -> object:
    """Return the value of a JSON item; any value or ``ValueError`` for items that are not canonical."""
    if not isinstance(item, str) or not kind.quoted:
        return item
    return binascii.a2b_base64(item, strict_mode=True) if kind is _BINARY else kind.parse(item.encode())


# -- many values -----------------------------------------------------------------------------------------------


def _item_texts(values: pa.Array, kind: _Kind) -> pa.Array:
    """Return the encoding of each value inside a JSON array, without the quotes around it, as a binary array."""
    texts = kind.texts(values)
    if kind is _STRING:
        return _escaped(texts)
    return _base64(texts) if kind is _BINARY else texts


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
