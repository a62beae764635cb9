"""Write values as literals of Lance's SQL, exactly.  If a value has no exact literal, the error is ``Unsaid``."""

from __future__ import annotations

import decimal
import math

import pyarrow as pa

SINCE_1970 = {
    "s": "to_timestamp_seconds",
    "ms": "to_timestamp_millis",
    "us": "to_timestamp_micros",
    "ns": "to_timestamp_nanos",
}
"""Lance's functions that return the time after a number of units since 1970."""


class Unsaid(Exception):
    """A value that SQL literals cannot express.  The message names it."""


def literal(scalar: pa.Scalar) -> str:
    """Return the value as a SQL literal.  Raises ``Unsaid`` if it has none."""
    type_ = scalar.type
    if not scalar.is_valid:
        raise Unsaid("a null as a literal (`is_null()` asks for them)")
    if pa.types.is_boolean(type_):
        return str(scalar.as_py()).lower()
    if pa.types.is_integer(type_):
        number: int = scalar.as_py()
        # Without its sign this number exceeds a bigint, so Lance would read it as a float.
        return str(number) if number > -(2**63) else f"CAST('{number}' AS BIGINT)"
    if pa.types.is_floating(type_) and math.isfinite(scalar.as_py()):
        return repr(scalar.as_py())
    if pa.types.is_decimal(type_):
        value: decimal.Decimal = scalar.as_py()
        return f"CAST('{value:f}' AS DECIMAL({type_.precision}, {type_.scale}))"
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        text: str = scalar.as_py()
        return "'" + text.replace("'", "''") + "'"
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_):
        return f"X'{scalar.as_py().hex()}'"
    if type_ == pa.uuid():
        return f"X'{scalar.as_py().hex}'"
    if pa.types.is_date32(type_) or pa.types.is_timestamp(type_):
        return time_literal(scalar.value, type_)
    raise Unsaid(f"a literal {scalar} of type {type_}")


def time_literal(stored: int, type_: pa.DataType) -> str:
    """Return the day or the time that Arrow stores as this integer.  Texts of days and times end at the year 9999."""
    return f"CAST({stored} AS DATE)" if pa.types.is_date32(type_) else f"{SINCE_1970[type_.unit]}({stored})"
