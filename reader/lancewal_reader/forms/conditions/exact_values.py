"""Literals compared with columns in which every digit counts: integers, decimals, days and times.

The values of such a type lie on a grid, such as cents or seconds.  A literal is compared with the grid by integers alone, so
no digit passes through a float.  A literal between two steps of the grid keeps its meaning: ``at < 0.5 s`` is ``at <= 0 s``.
"""

from __future__ import annotations

import datetime
import decimal
import re
from dataclasses import dataclass

import pyarrow as pa

from lancewal_core.rows.column_types import integer_range
from lancewal_reader.forms.narrow_times import PER_SECOND
from lancewal_reader.forms.sql_literals import time_literal

_NS = 1_000_000_000
_DAY_NS = 86_400 * _NS
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?", re.IGNORECASE | re.ASCII)
_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d(?::\d\d)?)(?:\.(\d{1,9}))?\s*(Z|[+-]\d\d:?\d\d)?)?", re.ASCII | re.IGNORECASE
)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_YEAR_1_NS, _YEAR_10000_NS = -719_162 * _DAY_NS, 2_932_897 * _DAY_NS
_DIGITS_MAX = 200
_BYTES_SHOWN = 16
ANY_DECIMAL = pa.decimal256(76, 38)
"""Stands for the type of a result of decimal arithmetic, whose scale Lance chooses."""


class Inexact(Exception):
    """A literal that does not compare exactly with a type."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A day or a time, in nanoseconds since 1970."""

    ns: int

    def __str__(self) -> str:
        """The moment as messages show it, also far from the years that texts of times have."""
        if _YEAR_1_NS <= self.ns < _YEAR_10000_NS:
            return f"timestamp '{pa.scalar(self.ns // 1_000, pa.timestamp('us')).cast(pa.string())}'"
        return f"CAST({self.ns // _DAY_NS} AS DATE)" if self.ns % _DAY_NS == 0 else said_alone(self)


Value = decimal.Decimal | str | Moment


def counts_digits(type_: pa.DataType | None) -> bool:
    return type_ is not None and (
        pa.types.is_integer(type_)
        or pa.types.is_decimal(type_)
        or pa.types.is_date32(type_)
        or pa.types.is_timestamp(type_)
    )


def example(type_: pa.DataType) -> str:
    """Return an example of a literal that compares exactly with the type."""
    if pa.types.is_decimal(type_):
        return "0" if type_.scale == 0 else "0." + "5".ljust(min(type_.scale, 4), "0")
    if pa.types.is_date32(type_):
        return "date '2026-01-02'"
    if pa.types.is_timestamp(type_):
        return "timestamp '2026-01-02 03:04:05'"
    if type_ == pa.uuid():
        return "X'123e4567e89b12d3a456426614174000'"
    if pa.types.is_fixed_size_binary(type_):
        return (
            f"X'{'00' * type_.byte_width}'"
            if type_.byte_width <= _BYTES_SHOWN
            else f"X'00...' of {type_.byte_width} bytes"
        )
    if is_bytes(type_):
        return "X'00ff'"
    if pa.types.is_boolean(type_) or pa.types.is_floating(type_):
        return "true" if pa.types.is_boolean(type_) else "0.5"
    return "2" if pa.types.is_integer(type_) else "'text'"


def is_bytes(type_: pa.DataType) -> bool:
    """Return whether a literal ``X'...'`` compares with the type."""
    return type_ in (pa.binary(), pa.large_binary(), pa.uuid()) or bool(pa.types.is_fixed_size_binary(type_))


def has_no_literal(type_: pa.DataType) -> bool:
    """Return whether Lance's SQL has no literal of the type."""
    return bool(pa.types.is_time(type_) or pa.types.is_duration(type_))


def comparable(value: Value, type_: pa.DataType) -> bool:
    """Return whether Lance compares ``value`` exactly with values of ``type_``.

    ``type_`` is not an integer, a day or a time.
    """
    if pa.types.is_floating(type_):
        return isinstance(value, decimal.Decimal)
    if type_ in (pa.string(), pa.large_string()):
        return isinstance(value, str)
    no_literal = pa.types.is_boolean(type_) or is_bytes(type_) or pa.types.is_nested(type_) or has_no_literal(type_)
    return not no_literal


def number(text: str) -> decimal.Decimal:
    """Parse a decimal number.  Raises ``Inexact`` if the text is not a plain number."""
    if _NUMBER.fullmatch(text.strip()) is None or len(text) > _DIGITS_MAX:
        raise Inexact
    return decimal.Decimal(text.strip())


def moment(text: str) -> Moment:
    """Parse a day, or a time in UTC or with an offset.  Raises ``Inexact`` for any other text."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise Inexact
    day, time, fraction, zone = found.groups()
    zone = "+00:00" if zone is None or zone in "Zz" else zone
    try:
        at = datetime.datetime.fromisoformat(f"{day}T{time or '00:00'}{zone}")
    except ValueError:
        raise Inexact from None
    passed = at - _EPOCH
    return Moment((passed.days * 86_400 + passed.seconds) * _NS + int((fraction or "0").ljust(9, "0")))


def days(count: decimal.Decimal) -> Moment:
    """Return the day that is so many days after 1970-01-01.  Raises ``Inexact`` if the number is not an integer."""
    return Moment(place(count, pa.int32())[0] * _DAY_NS)


def place(value: Value, type_: pa.DataType) -> tuple[int, bool]:
    """Return the largest value of the type that is at most ``value``, and whether both are equal.  The value is a
    number of steps, such as cents or seconds.  Raises ``Inexact`` if there is no such value.
    """
    if pa.types.is_integer(type_) or pa.types.is_decimal(type_):
        if isinstance(value, str) and pa.types.is_decimal(type_):
            value = number(value)
        if not isinstance(value, decimal.Decimal):
            raise Inexact
        steps, rest = _scaled(value, type_.scale if pa.types.is_decimal(type_) else 0)
        if pa.types.is_integer(type_):
            if rest or steps not in integer_range(type_):
                raise Inexact
        elif abs(steps) >= 10**type_.precision:
            raise Inexact
        return steps, not rest
    if isinstance(value, str):
        value = moment(value)
    if not isinstance(value, Moment):
        raise Inexact
    unit = _DAY_NS if pa.types.is_date32(type_) else _NS // PER_SECOND[type_.unit]
    steps, behind = divmod(value.ns, unit)
    if not -(2 ** (type_.bit_width - 1)) <= steps < 2 ** (type_.bit_width - 1):
        raise Inexact
    return steps, not behind


def _scaled(value: decimal.Decimal, scale: int) -> tuple[int, bool]:
    """Return the floor of the value times ``10 ** scale``, and whether a remainder is left."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    whole = int("".join(map(str, digits))) * (-1 if sign else 1)
    if exponent + scale >= 0:
        return whole * 10 ** (exponent + scale), False
    steps, rest = divmod(whole, 10 ** -(exponent + scale))
    return steps, rest != 0


def said(steps: int, type_: pa.DataType) -> str:
    """Return a SQL literal of the type for a number of steps, as ``place`` returns it."""
    if pa.types.is_decimal(type_):
        with decimal.localcontext(prec=_DIGITS_MAX):
            return (
                f"CAST('{decimal.Decimal(steps).scaleb(-type_.scale):f}' AS DECIMAL({type_.precision}, {type_.scale}))"
            )
    if pa.types.is_integer(type_):
        return str(steps) if steps > -(2**63) else f"CAST('{steps}' AS BIGINT)"
    return time_literal(steps, type_)


def free_decimal(value: decimal.Decimal) -> str:
    """Return a SQL decimal with exactly the digits of ``value``.  Raises ``Inexact`` if there are more than 38."""
    with decimal.localcontext(prec=_DIGITS_MAX):
        text = f"{value:f}"
    whole, _, fraction = text.lstrip("-").partition(".")
    if len(whole) + len(fraction) > 38:
        raise Inexact
    return f"CAST('{text}' AS DECIMAL({len(whole) + len(fraction)}, {len(fraction)}))"


def said_alone(value: Moment) -> str:
    """Return a SQL literal for a moment where no column determines the type."""
    type_ = pa.timestamp("ns" if value.ns % 1_000 else "us")
    return said(place(value, type_)[0], type_)
