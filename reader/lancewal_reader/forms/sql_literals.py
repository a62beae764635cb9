"""Write values as literals of Lance's SQL, exactly; ``Unsaid`` if a value has no exact literal."""

from __future__ import annotations

import datetime
import decimal
import math

import pyarrow as pa

_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


class Unsaid(Exception):
    """A value that cannot be written in a condition; the message names it."""


def literal(scalar: pa.Scalar) -> str:
    """Return the value as a literal.  ``OverflowError``: Python has no such day or time, since it is outside the years 1
    to 9999."""
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
    if pa.types.is_date32(type_):
        return f"date '{scalar.as_py().isoformat()}'"
    if pa.types.is_timestamp(type_):
        return time_literal(scalar.value, type_.unit)
    raise Unsaid(f"a literal {scalar} of type {type_}")


def time_literal(since_1970: int, unit: str) -> str:
    """Return a time as a SQL literal; ``since_1970`` counts in ``unit``.  ``OverflowError`` outside the years 1 to
    9999."""
    digits = _DIGITS[unit]
    if digits == 9:  # Lance reads a text as microseconds, and a list has one unit
        return f"to_timestamp_nanos({since_1970})"
    seconds, rest = divmod(since_1970, 10**digits)
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)
    return f"timestamp '{moment.isoformat(sep=' ')}{f'.{rest:0{digits}}' if digits else ''}'"
