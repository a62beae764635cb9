"""Column types for fields of a writer schema for which there is no column yet."""

from __future__ import annotations

import pyarrow as pa

from lancewal_ingest.decode.avro.schema import (
    AvroArray,
    AvroEnum,
    AvroFixed,
    AvroMap,
    AvroPlain,
    AvroRecord,
    AvroType,
    AvroUnion,
    Logical,
)
from lancewal_ingest.decode.framed.new_columns import NESTING_MAX, ColumnTypes, struct_of_all

_PLAIN = {
    "boolean": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_LOGICAL = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "time-nanos": pa.time64("ns"),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "timestamp-nanos": pa.timestamp("ns", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.timestamp("ns"),
    "duration-micros": pa.duration("us"),
    "duration-nanos": pa.duration("ns"),
    "zoned-text": pa.timestamp("us", "UTC"),
}
_LOGICAL |= {f"epoch-{unit}": _LOGICAL[f"timestamp-{unit}"] for unit in ("millis", "micros", "nanos")}
_LOGICAL |= {f"clock-{unit}": _LOGICAL[f"time-{unit}"] for unit in ("millis", "micros", "nanos")}
_DIGITS_MAX = 38


class AvroColumnTypes(ColumnTypes[AvroType]):
    """Types of columns for the fields of one schema."""

    def column_of(self, type_: AvroType) -> pa.DataType | None:
        return _uuid(type_) or self._of(type_, NESTING_MAX)

    def _of(self, type_: AvroType, depth_left: int) -> pa.DataType | None:
        if not self.take() or depth_left == 0:
            return None
        match type_:
            case AvroUnion(others=others):
                return self._of(others[0], depth_left) if len(others) == 1 else None
            case AvroArray(items=items):
                item = self._of(items, depth_left - 1)
                return None if item is None else pa.list_(item)
            case AvroMap(values=values):
                value = self._of(values, depth_left - 1)
                return None if value is None else pa.map_(pa.string(), value)
            case AvroRecord(fields=fields):
                return struct_of_all((one.name, self._of(one.type, depth_left - 1)) for one in fields)
            case AvroEnum():
                return pa.string()
            case AvroPlain(logical=logical) | AvroFixed(logical=logical):
                if logical is not None and logical.name == "decimal":
                    precision = logical.precision or _DIGITS_MAX
                    fits = 0 <= logical.scale <= precision <= _DIGITS_MAX
                    return pa.decimal128(precision, logical.scale) if fits else None
                if isinstance(type_, AvroFixed):
                    return pa.binary()
                plain = _PLAIN.get(type_.kind)
                return plain if logical is None else _LOGICAL.get(logical.name, plain)


def _uuid(type_: AvroType) -> pa.DataType | None:
    """Return the type of uuids if all values of the field are uuids or null; None for any other field.  Within lists
    and structs, uuids are texts or bytes.
    """
    others = type_.others if isinstance(type_, AvroUnion) else [type_]
    logicals = [one.logical for one in others if isinstance(one, AvroPlain | AvroFixed)]
    return pa.uuid() if len(others) == 1 and logicals == [Logical("uuid")] else None
