"""Filters that Spark pushes down, as Lance SQL: exactly, or not at all.

What is not translated goes back to Spark, which then evaluates it on the rows read:

* floats (Spark puts every NaN above all numbers, Lance one with a sign bit below),
* timestamps of another unit than microseconds (Spark sees them cut or padded),
* members of structs, names that quoting cannot express, and what Lance refuses when asked.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from lancewal_core.errors import ActionNeeded
from lancewal_reader.filter import check_filter

_COMPARISONS: dict[type[Filter], str] = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}
_FUNCTIONS: dict[type[Filter], str] = {
    StringStartsWith: "starts_with",
    StringEndsWith: "ends_with",
    StringContains: "contains",
}


def translate(filters: Sequence[Filter], schema: pa.Schema) -> tuple[str | None, list[Filter]]:
    """The Lance condition for those filters that have one (None if none has), and the filters left to Spark."""
    conditions: list[str] = []
    left: list[Filter] = []
    for item in filters:
        sql = _condition(item, schema)
        if sql is None or not _accepted(sql, schema):
            left.append(item)
        else:
            conditions.append(f"({sql})")
    return " AND ".join(conditions) or None, left


def _accepted(sql: str, schema: pa.Schema) -> bool:
    try:
        check_filter(schema, sql)
    except ActionNeeded:
        return False
    return True


def _condition(item: Filter, schema: pa.Schema) -> str | None:
    if isinstance(item, Not):
        inner = _condition(item.child, schema)
        return None if inner is None else f"NOT ({inner})"
    attribute: tuple[str, ...] = getattr(item, "attribute", ())
    if len(attribute) != 1 or attribute[0] not in schema.names or "`" in attribute[0]:
        return None
    column, type_ = f"`{attribute[0]}`", schema.field(attribute[0]).type
    match item:
        case IsNull():
            return f"{column} IS NULL"
        case IsNotNull():
            return f"{column} IS NOT NULL"
        case EqualNullSafe(value=None):
            return f"{column} IS NULL"
        case EqualNullSafe(value=value):
            text = _literal(value, type_)
            return None if text is None else f"{column} IS NOT NULL AND {column} = {text}"
        case In(value=values):
            texts = [_literal(value, type_) for value in values]
            # A null among the values makes NOT IN undefined; Spark knows how.
            return None if not texts or None in texts else f"{column} IN ({', '.join(t for t in texts if t)})"
    name = _FUNCTIONS.get(type(item))
    text = _literal(getattr(item, "value", None), type_)
    if text is None:
        return None
    if name is not None:
        return f"{name}({column}, {text})" if pa.types.is_string(type_) else None
    operator = _COMPARISONS.get(type(item))
    return None if operator is None else f"{column} {operator} {text}"


def _literal(value: object, type_: pa.DataType) -> str | None:
    """``value`` as a literal of the column's type; None where that would not be exactly the same value."""
    if isinstance(value, bool):
        return str(value).lower() if pa.types.is_boolean(type_) else None
    if isinstance(value, int):
        return str(value) if pa.types.is_integer(type_) else None
    if isinstance(value, decimal.Decimal):
        return _decimal(value, type_)
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'" if pa.types.is_string(type_) else None
    if isinstance(value, bytes | bytearray):
        return f"X'{bytes(value).hex()}'" if pa.types.is_binary(type_) else None
    if isinstance(value, datetime.datetime):
        if not pa.types.is_timestamp(type_) or type_.unit != "us" or (type_.tz is None) != (value.tzinfo is None):
            return None
        if value.tzinfo is not None:
            value = value.astimezone(datetime.UTC)
        return f"timestamp '{value.isoformat(sep=' ', timespec='microseconds')}'"
    if isinstance(value, datetime.date):
        return f"date '{value.isoformat()}'" if pa.types.is_date32(type_) else None
    return None


def _decimal(value: decimal.Decimal, type_: pa.DataType) -> str | None:
    if not value.is_finite():
        return None
    if pa.types.is_uint64(type_):  # decimal(20, 0) in Spark
        return str(int(value)) if value == value.to_integral_value() and 0 <= value < 2**64 else None
    if not pa.types.is_decimal128(type_):
        return None
    with decimal.localcontext(prec=60):
        exact = value.quantize(decimal.Decimal(1).scaleb(-type_.scale))
    if exact != value or len(exact.as_tuple().digits) > type_.precision:
        return None
    return f"CAST('{exact:f}' AS DECIMAL({type_.precision}, {type_.scale}))"
