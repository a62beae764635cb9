"""Types of columns for values in JSON without schemas, which a connector has written.

1. A column holds each value that was seen, exactly.  It also holds each value that the same column of the source may have
   later.  So a text is a ``string`` and an integer an ``int64``, whatever they look like.
2. If the values may mean another type, a remark names the column to take in place of the proposed one.
3. A placeholder of an unavailable value is a text that says nothing about the type.
4. Values of several types have no column: the column of the source was changed.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import pyarrow as pa

from lancewal_ingest.decode.framed.new_columns import NESTING_MAX, possible
from lancewal_ingest.decode.json.cells import FLOAT_NAMES

_STRUCTS: Mapping[frozenset[str], pa.DataType] = {
    frozenset({"scale", "value"}): pa.struct([("scale", pa.int32()), ("value", pa.binary())]),
    frozenset({"wkb", "srid"}): pa.struct([("wkb", pa.binary()), ("srid", pa.int32())]),
    frozenset({"x", "y", "wkb", "srid"}): pa.struct(
        [("x", pa.float64()), ("y", pa.float64()), ("wkb", pa.binary()), ("srid", pa.int32())]
    ),
}
"""Structs that Debezium's types have in every row, by their members: numbers of any scale, and geometry."""
_SCALED = _STRUCTS[frozenset({"scale", "value"})]
_TIME = re.compile(r"-?\d{4,}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DECIMAL = re.compile(r"-?\d+(?:\.(\d+))?")
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_DIGITS_MAX = 38
_MICROS, _MILLIS = range(10**14, 10**17), range(10**11, 10**14)
"""Numbers that are times from 1973 on, in microseconds and milliseconds since 1970."""
_UNKNOWN = (
    "null in all records that were read: give the column its type. A list or vector may be null since it did not change"
)

_SEVERAL = "its values have several types, or a type that no column has"


class SampledColumn(NamedTuple):
    """A column type that holds some sampled values; None if no type holds them all."""

    type: pa.DataType | None
    remark: str = ""
    """Words for a person, without a line end; empty if the values leave no choice."""


def column_of(values: Sequence[object], placeholder: str) -> SampledColumn:
    """Propose a column for the sampled values of one member. ``placeholder``: the text of an unavailable value."""
    found = [value for value in values if value is not None]
    if not found:
        return SampledColumn(pa.string(), _UNKNOWN)
    type_ = possible(_type(found, NESTING_MAX))
    if type_ is None:
        return SampledColumn(None, _SEVERAL)
    return SampledColumn(type_, _remark(type_, found, placeholder))


def _type(values: Sequence[object], depth_left: int) -> pa.DataType | None:
    """Return the type that holds these values, of which none is null."""
    kinds = {type(value) for value in values}
    if kinds <= {float, int, str} and float in kinds:
        texts = {value for value in values if isinstance(value, str)}
        return pa.float64() if texts <= {*FLOAT_NAMES} else None
    if len(kinds) != 1 or depth_left == 0:
        return None
    (kind,) = kinds
    if kind is list:
        items = [item for value in values if isinstance(value, list) for item in value if item is not None]
        item = _type(items, depth_left - 1) if items else pa.string()
        return None if item is None else pa.list_(item)
    if kind is dict:
        return _of_objects([value for value in values if isinstance(value, dict)], depth_left - 1)
    if kind is int:
        large = [value for value in values if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63]
        return None if large else pa.int64()
    plain: Mapping[type, pa.DataType] = {bool: pa.bool_(), str: pa.string()}
    return plain.get(kind)


def _of_objects(objects: Sequence[Mapping[str, object]], depth_left: int) -> pa.DataType | None:
    members = {name: None for one in objects for name in one}
    known = _STRUCTS.get(frozenset(members))
    if known is not None:
        return known
    if all(isinstance(value, str | None) for one in objects for value in one.values()):
        return pa.map_(pa.string(), pa.string())
    fields = []
    for name in members:
        values = [one[name] for one in objects if one.get(name) is not None]
        type_ = _type(values, depth_left) if values else pa.string()
        if type_ is None:
            return None
        fields.append(pa.field(name, type_))
    return pa.struct(fields)


def _remark(type_: pa.DataType, values: Sequence[object], placeholder: str) -> str:
    if type_ == pa.string():
        return _of_texts([str(value) for value in values], placeholder)
    if type_ == pa.int64():
        return _of_integers([value for value in values if isinstance(value, int)])
    if type_ == pa.float64():
        if any(isinstance(value, str) for value in values):  # one of FLOAT_NAMES
            return "NaN and infinity are bad records in this format; connect-json and avro can hold them"
        return "if it is numeric: decimal.handling.mode=string, since double loses digits"
    if type_ == _SCALED:
        return "numeric without a scale: with decimal.handling.mode=string it is one decimal column"
    if not pa.types.is_list(type_):
        return ""
    lists = [value for value in values if isinstance(value, list)]
    if not any(item is not None for item in chain.from_iterable(lists)):
        return "no list has an item: give the items their type. Debezium loses arrays of two dimensions"
    (length, *others) = {len(value) for value in lists}
    if type_.value_type == pa.float64() and length and not others:
        return f"if it is a vector: fixed_size_list<float32>[{length}]"
    return ""


def _of_texts(texts: Sequence[str], placeholder: str) -> str:
    stand_ins = {placeholder, base64.b64encode(placeholder.encode("utf-8", "surrogatepass")).decode()}
    known = {text for text in texts if text and text not in stand_ins}
    if not known:
        return ""
    if all(map(_TIME.fullmatch, known)):
        return 'if it is a time with a zone, or time.precision.mode is isostring: "timestamp[us, UTC]"'
    if all(map(_UUID.fullmatch, known)):
        return "if it is a uuid: uuid"
    decimals = [_DECIMAL.fullmatch(text) for text in known]
    if all(decimals):
        scale = max(len(one[1] or "") for one in decimals if one)
        return f'if it is numeric(p, s), with its own p and s: "decimal128({_DIGITS_MAX}, {min(scale, _DIGITS_MAX)})"'
    if all(map(_BASE64.fullmatch, known)) and any(text.endswith("=") for text in known):
        return (
            "base64. If it is bytea or varbinary: binary. If it is numeric: decimal.handling.mode=string, since nothing tells "
            "its scale"
        )
    return ""


def _of_integers(numbers: Sequence[int]) -> str:
    if all(abs(number) in _MICROS for number in numbers):
        return 'if it is a time in microseconds: {type: "timestamp[us]", json: epoch_us}'
    if all(abs(number) in _MILLIS for number in numbers):
        return 'if it is a time in milliseconds: {type: "timestamp[ms]", json: epoch_ms}'
    return ""
