"""Column types for fields of a Protobuf message for which there is no column yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from lancewal_ingest.decode.framed.new_columns import NESTING_MAX, ColumnTypes, struct_of_all
from lancewal_ingest.decode.framed.protobuf.schema import is_known, map_parts

_F = FieldDescriptor
_PLAIN: Mapping[int, pa.DataType] = {
    _F.CPPTYPE_BOOL: pa.bool_(),
    _F.CPPTYPE_INT32: pa.int32(),
    _F.CPPTYPE_INT64: pa.int64(),
    _F.CPPTYPE_UINT32: pa.uint32(),
    _F.CPPTYPE_UINT64: pa.uint64(),
    _F.CPPTYPE_FLOAT: pa.float32(),
    _F.CPPTYPE_DOUBLE: pa.float64(),
    _F.CPPTYPE_STRING: pa.string(),
    _F.CPPTYPE_ENUM: pa.string(),
}
"""Column type for each C++ type of Protobuf.  Types that differ only in their encoding share a C++ type.  Bytes share
the one of strings, so ``_plain`` looks for bytes first."""
_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
"""Names of Google's messages whose only field is a value that may be missing."""
_TIMES: Mapping[str, Literal["timestamp", "duration"]] = {
    "google.protobuf.Timestamp": "timestamp",
    "google.protobuf.Duration": "duration",
}
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_SHOWN = 100


class ProtoColumnTypes(ColumnTypes[FieldDescriptor]):
    """Types of columns for the fields of one schema.

    Times are in nanoseconds.  Such a column holds times from 1678 to 2261.
    """

    def column_of(self, type_: FieldDescriptor) -> pa.DataType | None:
        return self._of(type_, NESTING_MAX)

    def _of(self, field: FieldDescriptor, depth_left: int) -> pa.DataType | None:
        if not field.is_repeated:
            return self._one(field, depth_left)
        if (parts := map_parts(field)) is not None:
            key, value = parts
            item = self._one(value, depth_left - 1) if key.type == _F.TYPE_STRING else None
            return None if item is None else pa.map_(pa.string(), item)
        item = self._one(field, depth_left - 1)
        return None if item is None else pa.list_(item)

    def _one(self, field: FieldDescriptor, depth_left: int) -> pa.DataType | None:
        if not self.take() or depth_left <= 0 or field.type == _F.TYPE_GROUP:
            return None
        message = field.message_type
        if message is None:
            return _plain(field)
        if is_wrapper(message):
            return _plain(message.fields_by_number[1])
        if (time := time_of(message)) is not None:
            return pa.timestamp("ns", "UTC") if time == "timestamp" else pa.duration("ns")
        return struct_of_all((one.name, self._of(one, depth_left - 1)) for one in message.fields)


def _plain(field: FieldDescriptor) -> pa.DataType:
    return pa.binary() if field.type == _F.TYPE_BYTES else _PLAIN[field.cpp_type]


def is_wrapper(message: Descriptor) -> bool:
    return message.full_name in _WRAPPERS and is_known(message)


def time_of(message: Descriptor) -> Literal["timestamp", "duration"] | None:
    """Return whether a message is Google's timestamp or duration; None if it is neither."""
    return _TIMES.get(message.full_name) if is_known(message) else None


def type_name(field: FieldDescriptor) -> str:
    """Return a description of a field's type, for messages."""
    if (parts := map_parts(field)) is not None:
        return f"map<{', '.join(map(type_name, parts))}>"
    many = "repeated " if field.is_repeated else ""
    if field.enum_type is not None:
        return f"{many}enum {field.enum_type.full_name[:_SHOWN]}"
    if field.message_type is not None:
        kind = "group" if field.type == _F.TYPE_GROUP else "message"
        return f"{many}{kind} {field.message_type.full_name[:_SHOWN]}"
    return many + _TYPE_NAMES[field.type]


_TYPE_NAMES = {
    number: name.removeprefix("TYPE_").lower() for name, number in vars(_F).items() if name.startswith("TYPE_")
}
