"""Column types that have a JSON form.  ``cells`` and docs/reference/json-types.md have the form of each type."""

from __future__ import annotations

import pyarrow as pa

from lancewal_core.errors import InvalidSchema
from lancewal_core.rows.column_types import VECTOR_ITEMS

NESTING_MAX = 16
"""Most levels of lists, maps and structs inside each other in one column."""


def check_json_types(columns: pa.Schema) -> None:
    """Raise ``InvalidSchema``, which names the column, if a column's type has no JSON form."""
    for field in columns:
        _check(field.name, field.type, NESTING_MAX)


def _is_vector(type_: pa.DataType) -> bool:
    return bool(pa.types.is_fixed_size_list(type_)) and type_.value_type in VECTOR_ITEMS


def _is_float(type_: pa.DataType) -> bool:
    return bool(pa.types.is_float32(type_) or pa.types.is_float64(type_))


def _check(path: str, type_: pa.DataType, depth_left: int) -> None:
    if depth_left == 0:
        raise InvalidSchema(f"column {path!r}: at most {NESTING_MAX} lists, maps and structs may be nested")
    if pa.types.is_list(type_):
        _check_nullable(path, type_.value_field)
        _check(f"{path}[]", type_.value_type, depth_left - 1)
    elif pa.types.is_map(type_):
        if type_.key_type != pa.string():
            raise InvalidSchema(f"column {path!r}: the keys of a map must be of type string, not {type_.key_type}")
        _check_nullable(path, type_.item_field)
        _check(f"{path}[]", type_.item_type, depth_left - 1)
    elif pa.types.is_struct(type_):
        names = [child.name for child in type_]
        if not names or len(set(names)) != len(names):
            raise InvalidSchema(f"column {path!r}: a struct needs members, each with its own name")
        for child in type_:
            _check_nullable(f"{path}.{child.name}", child)
            _check(f"{path}.{child.name}", child.type, depth_left - 1)
    elif type_ == pa.uuid() and depth_left < NESTING_MAX:
        raise InvalidSchema(
            f"column {path!r}: a uuid cannot lie within lists and structs. Use fixed_size_binary[16] or string"
        )
    elif not (_is_scalar(type_) or _is_vector(type_)):
        raise InvalidSchema(
            f"column {path!r} has type {type_}, which has no JSON form. Use bool, int8..int64, uint8..uint64, float32, "
            "float64, decimal128, date32, timestamp, time32, time64 or duration. Or use string, large_string, binary, "
            "large_binary, fixed_size_binary, uuid, list, map, struct or fixed_size_list of floats or uint8"
        )


def _check_nullable(path: str, field: pa.Field) -> None:
    if not field.nullable:
        raise InvalidSchema(f"column {path!r}: items of a list or map and members of a struct must be nullable")


def _is_scalar(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_boolean(type_)
        or pa.types.is_integer(type_)
        or _is_float(type_)
        or (pa.types.is_decimal128(type_) and 0 <= type_.scale <= type_.precision)
        or type_ in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.uuid())
        or pa.types.is_fixed_size_binary(type_)
        or pa.types.is_date32(type_)
        or pa.types.is_timestamp(type_)
        or pa.types.is_time(type_)
        or pa.types.is_duration(type_)
    )
