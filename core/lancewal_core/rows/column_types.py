"""The textual form of column types, in settings files and in the contract.

``int64``, ``string``, ``decimal128(12, 2)``, ``timestamp[us]``, ``timestamp[us, UTC]``, ``list<string>``,
``struct<a: int32, b: list<date32>>``, ``fixed_size_list<float32>[384]``, ``time64[us]``, ``duration[ms]``,
``fixed_size_binary[16]``, ``map<string, int64>``.  A fixed-size list is a vector: of floats, or of bytes that hold
eight bits each.

``parse_type(format_type(t)) == t`` for every type that lancewal accepts.  ``parse_type`` raises ``InvalidSchema`` for
any other text, and names the character that is wrong.  For a type that lancewal does not accept, ``format_type`` raises
``InvalidSchema``, or ``parse_type`` raises it for the text that ``format_type`` returned.

``uuid`` is Arrow's extension type, which many of Arrow's functions refuse.  ``storage`` gives them the 16 bytes.
Only a column can have the type.  If a list or struct contains it, not even an empty table can be made.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

import pyarrow as pa

from lancewal_core.errors import InvalidSchema

_PLAIN: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date32": pa.date32(),
    "large_string": pa.large_string(),
    "large_binary": pa.large_binary(),
    "uuid": pa.uuid(),
}
_LATER = frozenset({pa.large_string(), pa.large_binary(), pa.uuid()})
"""Types without parameters that the first release does not have."""
_NAMES = {type_: name for name, type_ in _PLAIN.items()}
VECTOR_ITEMS = (pa.float32(), pa.float64(), pa.uint8())
"""Item types of the vectors for which Lance can compute distances."""
_WORD = r"[A-Za-z_][A-Za-z0-9_/+\-]*"
_TOKEN = re.compile(rf"\s*({_WORD}|[0-9]+|[<>\[\](),:])")
_DEPTH_MAX = 64
"""Deepest nesting of types: far above what a value may have, far below what ends Python's stack."""
_LIST_SIZE_MAX = 2**31 - 1
FIXED_BYTES_MAX = 1 << 20
"""Highest size of ``fixed_size_binary``, in bytes.  Each row takes the column's full size, null or not."""
_SHOWN = 200
_UNITS = ("s", "ms", "us", "ns")
_TIME_UNITS = {"time32": ("s", "ms"), "time64": ("us", "ns")}

T = TypeVar("T")
_WITH_PARAMETERS = "decimal128 timestamp duration list struct map fixed_size_list fixed_size_binary"
Column: TypeAlias = Any
"""``pyarrow.Array`` or ``pyarrow.ChunkedArray``."""


def parse_type(text: str) -> pa.DataType:
    """Return the Arrow type that ``text`` names.  Raises ``InvalidSchema`` if it names none."""
    parser = _Parser(text)
    type_ = parser.type()
    parser.end()
    return type_


def integer_range(type_: pa.DataType) -> range:
    """Return all values of an integer type.  Test only plain ``int`` values against it: for a value of a subclass
    Python searches the range item by item."""
    bits = type_.bit_width
    return range(-(1 << (bits - 1)), 1 << (bits - 1)) if pa.types.is_signed_integer(type_) else range(1 << bits)


def of_first_release(type_: pa.DataType) -> bool:
    """Return whether the first release has the type, and all types within it."""
    later = (pa.types.is_time, pa.types.is_duration, pa.types.is_fixed_size_binary, pa.types.is_map)
    return not any(one in _LATER or any(is_later(one) for is_later in later) for one in nested_types(type_))


def storage_type(type_: pa.DataType) -> pa.DataType:
    """Return ``fixed_size_binary[16]`` for ``uuid``, and any other type unchanged."""
    return pa.binary(16) if type_ == pa.uuid() else type_


def storage(column: Column) -> Column:
    """Return the 16 bytes of each value of a column of uuids; any other column unchanged."""
    return column.cast(pa.binary(16)) if column.type == pa.uuid() else column


def storage_rows(rows: pa.Table) -> pa.Table:
    """Return the rows with ``storage`` of each column, for functions that sort or group."""
    return pa.table([storage(column) for column in rows.columns], rows.column_names)


def stored_type(type_: pa.DataType) -> pa.DataType:
    """Return the type with integers in place of times, and the 16 bytes in place of uuids, at any depth.

    Python's own times end at microseconds, and at the years 1 and 9999."""
    if pa.types.is_timestamp(type_) or pa.types.is_time64(type_) or pa.types.is_duration(type_):
        return pa.int64()
    if pa.types.is_date32(type_) or pa.types.is_time32(type_):
        return pa.int32()
    if pa.types.is_fixed_size_list(type_):
        return pa.list_(_stored_field(type_.value_field), type_.list_size)
    if pa.types.is_map(type_):
        return pa.map_(type_.key_field, _stored_field(type_.item_field))
    if pa.types.is_list(type_):
        return pa.list_(_stored_field(type_.value_field))
    if pa.types.is_struct(type_):
        return pa.struct([_stored_field(member) for member in type_])
    return storage_type(type_)


def _stored_field(field: pa.Field) -> pa.Field:
    return field.with_type(stored_type(field.type))


def stored_array(values: Sequence[object], type_: pa.DataType) -> pa.Array:
    """Return values in the form of ``stored_type`` as an array of ``type_``."""
    return pa.array(values, stored_type(type_)).cast(type_)


def shown_rows(rows: pa.Table) -> list[dict[str, object]]:
    """Return keys as values for messages and JSON: times and uuids as texts, binaries in hexadecimal."""
    texts = [column.cast(pa.string()) if pa.types.is_temporal(column.type) else column for column in rows.columns]
    return [
        {name: _shown(value) for name, value in zip(rows.column_names, row, strict=True)}
        for row in zip(*(column.to_pylist() for column in texts), strict=True)
    ]


def _shown(value: object) -> object:
    match value:
        case bytes():
            return value.hex()
        case UUID():
            return str(value)
    return value


def has_map(type_: pa.DataType) -> bool:
    """Return whether the type is a map, or contains one."""
    return any(map(pa.types.is_map, nested_types(type_)))


def has_struct(type_: pa.DataType) -> bool:
    """Return whether the type is a struct, or contains one."""
    return any(map(pa.types.is_struct, nested_types(type_)))


def nested_types(type_: pa.DataType) -> Iterator[pa.DataType]:
    """Yield the type, and all types within it."""
    yield type_
    for place in range(type_.num_fields):
        yield from nested_types(type_.field(place).type)


def is_text(type_: pa.DataType) -> bool:
    """Return whether the values are texts."""
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def is_bytes(type_: pa.DataType) -> bool:
    """Return whether the values are bytes, of one size or of any."""
    variable = pa.types.is_binary(type_) or pa.types.is_large_binary(type_)
    return bool(variable or pa.types.is_fixed_size_binary(type_))


def integer_like(type_: pa.DataType) -> bool:
    """Return whether Arrow stores the values as integers that may be keys."""
    times = pa.types.is_timestamp(type_) or pa.types.is_date32(type_) or pa.types.is_time(type_)
    return bool(pa.types.is_integer(type_) or times)


def format_type(type_: pa.DataType) -> str:
    """Return the canonical text of ``type_``.  Raises ``InvalidSchema`` if lancewal has no such type."""
    if type_ in _NAMES:
        return _NAMES[type_]
    if pa.types.is_decimal128(type_):
        return f"decimal128({type_.precision}, {type_.scale})"
    if pa.types.is_timestamp(type_):
        return f"timestamp[{type_.unit}]" if type_.tz is None else f"timestamp[{type_.unit}, {type_.tz}]"
    if pa.types.is_time(type_) or pa.types.is_duration(type_) or pa.types.is_fixed_size_binary(type_):
        return str(type_)
    if pa.types.is_fixed_size_list(type_) and type_.value_type in VECTOR_ITEMS:
        return f"fixed_size_list<{format_type(type_.value_type)}>[{type_.list_size}]"
    if pa.types.is_map(type_):
        return f"map<{format_type(type_.key_type)}, {format_type(type_.item_type)}>"
    if pa.types.is_list(type_):
        return f"list<{format_type(type_.value_type)}>"
    if pa.types.is_struct(type_):
        for field in type_:
            if not re.fullmatch(_WORD, field.name):
                raise InvalidSchema(
                    f"struct member {field.name[:_SHOWN]!r}: this name cannot be written in a type. Use ASCII letters, "
                    "digits, _ / + -, beginning with a letter or _"
                )
        return "struct<" + ", ".join(f"{f.name}: {format_type(f.type)}" for f in type_) + ">"
    raise InvalidSchema(f"type {type_} is not supported; see the reference page on column types")


_ELSEWHERE = {
    "int64": "int integer bigint long serial bigserial",
    "int32": "int4 mediumint",
    "int16": "smallint short int2",
    "int8": "tinyint byte",
    "uint64": "uint unsigned",
    "float64": "double float number",
    "float32": "real float4 float16 half halffloat",
    "string": "str text varchar char character nvarchar utf8 json jsonb enum",
    "binary": "bytes bytea blob varbinary",
    "large_string": "large_utf8 clob longtext",
    "large_binary": "longblob",
    "fixed_size_binary[16]": "fixed fsb",
    "uuid": "guid uniqueidentifier",
    "time64[us]": "time timetz time_micros",
    "time32[ms]": "time_millis",
    "duration[us]": "interval timedelta",
    "bool": "boolean bolean bit",
    "date32": "date date64",
    "timestamp[us, UTC]": "datetime timestamptz instant timestamp_ltz",
    "timestamp[us]": "timestamp_ntz timestampntz",
    "decimal128(18, 2)": "decimal numeric money decimal256",
    "list<string>": "array large_list",
    "struct<a: int64>": "record row object",
    "fixed_size_list<float32>[384]": "vector embedding",
}
"""Type names of other systems, in lower case, and the nearest type here."""
_NEAREST = {name: type_ for type_, names in _ELSEWHERE.items() for name in names.split()}


def _hint(name: str) -> str:
    """Return `` (did you mean ...?)``, or nothing if no type is similar."""
    plain = name.lower()
    known = [*_PLAIN, *_TIME_UNITS, *_WITH_PARAMETERS.split()]
    like = difflib.get_close_matches(plain, known, 1, 0.6)
    found = _NEAREST.get(plain) or (like[0] if like else "")
    return f" (did you mean {found}?)" if found else ""


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def _fail(self, expected: str) -> InvalidSchema:
        return InvalidSchema(
            f"column type {self._text[:_SHOWN]!r}: expected {expected} at character {self._at + 1}; "
            "examples: int64, decimal128(12, 2), timestamp[us, UTC], list<string>, fixed_size_list<float32>[384]"
        )

    def _next(self) -> str | None:
        match = _TOKEN.match(self._text, self._at)
        return None if match is None else match[1]

    def _take(self, wanted: str | None = None, expected: str = "a name") -> str:
        match = _TOKEN.match(self._text, self._at)
        if match is None or (wanted is not None and match[1] != wanted):
            raise self._fail(repr(wanted) if wanted is not None else expected)
        self._at = match.end()
        return match[1]

    def _number(self) -> int:
        token = self._take(expected="a number")
        if not token.isdigit() or len(token) > 10:
            raise self._fail("a number of at most 10 digits")
        return int(token)

    def end(self) -> None:
        if self._text[self._at :].strip():
            raise self._fail("the end")

    def type(self) -> pa.DataType:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise self._fail(f"at most {_DEPTH_MAX} types inside each other")
        found = self._type()
        self._depth -= 1
        return found

    def _type(self) -> pa.DataType:
        name = self._take(expected="a type name")
        if name == "uuid" and self._depth > 1:
            raise self._fail(
                "fixed_size_binary[16] or string instead of uuid, which cannot lie within lists and structs, right "
                "before the text"
            )
        if name in _PLAIN:
            return _PLAIN[name]
        match name:
            case "decimal128":
                precision, scale = self._between("(", self._two_numbers, ")")
                if not 1 <= precision <= 38 or scale > precision:
                    raise self._fail("a precision of 1 to 38 and a scale of at most the precision")
                return pa.decimal128(precision, scale)
            case "timestamp":
                return self._between("[", self._timestamp, "]")
            case "time32" | "time64" | "duration":
                unit = self._between("[", lambda: self._unit(_TIME_UNITS.get(name, _UNITS)), "]")
                return {"time32": pa.time32, "time64": pa.time64, "duration": pa.duration}[name](unit)
            case "fixed_size_binary":
                size = self._between("[", self._number, "]")
                if not 1 <= size <= FIXED_BYTES_MAX:
                    raise self._fail(f"a size of 1 to {FIXED_BYTES_MAX} bytes")
                return pa.binary(size)
            case "list":
                return pa.list_(self._between("<", self.type, ">"))
            case "fixed_size_list":
                item = self._between("<", self.type, ">")
                size = self._between("[", self._number, "]")
                if item not in VECTOR_ITEMS or not 1 <= size <= _LIST_SIZE_MAX:
                    raise self._fail("float32, float64 or uint8 items and a size of 1 to 2^31 - 1")
                return pa.list_(item, size)
            case "map":
                return self._between("<", self._map, ">")
            case "struct":
                fields = self._between("<", self._members, ">")
                if len({f.name for f in fields}) != len(fields):
                    raise self._fail("distinct member names")
                return pa.struct(fields)
        raise self._fail(f"a known type{_hint(name)}")

    def _between(self, opening: str, content: Callable[[], T], closing: str) -> T:
        self._take(opening)
        found = content()
        self._take(closing)
        return found

    def _two_numbers(self) -> tuple[int, int]:
        first = self._number()
        self._take(",")
        return first, self._number()

    def _timestamp(self) -> pa.DataType:
        unit = self._unit(_UNITS)
        if self._next() != ",":
            return pa.timestamp(unit)
        self._take(",")
        if self._take(expected="the zone UTC") != "UTC":
            raise self._fail("the zone UTC (instants are stored in UTC)")
        return pa.timestamp(unit, "UTC")

    def _map(self) -> pa.DataType:
        if self.type() != pa.string():
            raise self._fail("string as the type of a map's keys, right before the text")
        self._take(",")
        return pa.map_(pa.string(), self.type())

    def _members(self) -> list[pa.Field]:
        fields = [self._member()]
        while self._next() == ",":
            self._take(",")
            fields.append(self._member())
        return fields

    def _unit(self, units: Sequence[str]) -> str:
        unit = self._take(expected=f"a unit ({', '.join(units)})")
        if unit not in units:
            raise self._fail(f"a unit ({', '.join(units)})")
        return unit

    def _member(self) -> pa.Field:
        name = self._take(expected="a member name")
        self._take(":")
        return pa.field(name, self.type())
