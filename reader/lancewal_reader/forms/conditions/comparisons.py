"""Exact comparisons: a literal is written in the type of the value that it is compared with."""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa

from lancewal_reader.forms.conditions import exact_values as exact
from lancewal_reader.forms.conditions.limits import Limits
from lancewal_reader.forms.conditions.part import NotAccepted, Part, Rank, holds
from lancewal_reader.forms.conditions.type_names import DIGITS, UNITS, cast

_ORDERS = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TURNED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_UNQUOTED_DAY = re.compile(r"\d{4} - \d{1,2} - \d{1,2}")
"""A day that was written without quotes, which the grammar reads as a subtraction."""
NOW = {"now": pa.timestamp("ns"), "current_timestamp": pa.timestamp("ns"), "current_date": pa.date32()}
"""Functions that return the current time or day, and their types."""
_NOWS = [f"{name}()" for name in NOW]


def compared(sign: str, left: Part, right: Part, limits: Limits) -> Part:
    if isinstance(left.value, Decimal) and isinstance(right.value, Decimal):
        return holds(str(_ORDERS[sign](left.value, right.value)).lower(), Rank.UNIT)
    if left.value is not None and right.value is None:
        sign, left, right = _TURNED[sign], right, left
    left, right, known = met(left, right, limits)
    if not known:
        if sign in ("=", "<>"):
            return never(left, sign == "<>")
        sign = "<=" if sign in ("<", "<=") else ">"
    return holds(f"{left.within(Rank.SHIFT)} {sign} {right.within(Rank.SHIFT)}")


def never(part: Part, always: bool = False) -> Part:
    """Return a condition that is false, or with ``always`` true, and null if the part is null."""
    return holds(f"{part.within(Rank.SHIFT)} {'=' if always else '<>'} {part.within(Rank.SHIFT)}")


def met(left: Part, right: Part, limits: Limits) -> tuple[Part, Part, bool]:
    """Convert a literal in a comparison to the other side's type.  Return both sides, and whether the literal is
    exactly a value of that type.  If not, the returned literal is the largest value of the type below it.
    """
    if left.value is not None and right.value is None:
        right, left, known = met(right, left, limits)
        return left, right, known
    if right.value is None or left.value is not None:
        for given, beside in ((left, right), (right, left)):
            unquoted_day = _UNQUOTED_DAY.fullmatch(given.sql) is not None and beside.of(pa.types.is_temporal)
            of_bool = given.sql in ("true", "false") and not beside.of(pa.types.is_boolean)
            if unquoted_day or (of_bool and beside.type is not None):
                raise _inexact(given, beside)
        left, right = in_one_unit([left, right], limits)
        return left, right, True
    aligned, known = in_type(right, left)
    return left, aligned, known


def in_one_unit(parts: Sequence[Part], limits: Limits) -> list[Part]:
    """Convert times of several units to the finest of these units.  Otherwise Lance would cut them to the coarsest one.
    ``now()`` counts as microseconds, so that distant years need not fit into nanoseconds.
    """
    digits = {
        at: min(DIGITS[part.type.unit], 6 if part.sql in _NOWS else 9)  # type: ignore[union-attr] # a timestamp
        for at, part in enumerate(parts)
        if part.of(pa.types.is_timestamp)
    }
    found = [*parts]
    if len(set(digits.values())) < 2:
        return found
    finest = max(digits.values())
    for at, own in digits.items():
        type_ = parts[at].type
        if own != finest or parts[at].sql in _NOWS:
            assert isinstance(type_, pa.TimestampType)
            in_finest = pa.timestamp(UNITS[finest], type_.tz)
            found[at] = cast(parts[at], "CAST", f"TIMESTAMP({finest})", in_finest, limits)
    return found


def exactly(part: Part, beside: Part) -> Part:
    """Return a literal in the type of ``beside``.  Raises ``NotAccepted`` if the literal is not a value of that type.
    Any other part is returned unchanged.
    """
    if part.value is None:
        return part
    aligned, known = in_type(part, beside)
    if not known:
        raise _inexact(part, beside)
    return aligned


def in_type(given: Part, beside: Part) -> tuple[Part, bool]:
    """Return the literal ``given`` in the type of ``beside``, and whether the conversion is exact.  If not, the
    returned literal is the largest value of the type below ``given``.
    """
    type_, value = beside.type, given.value
    assert value is not None
    if type_ is None:
        return given, True
    try:
        if type_ == exact.ANY_DECIMAL:
            if isinstance(value, exact.Moment):
                raise exact.Inexact
            return Part(exact.free_decimal(exact.number(value) if isinstance(value, str) else value), type=type_), True
        if exact.counts_digits(type_):
            steps, known = exact.place(value, type_)
            return Part(exact.said(steps, type_), type=type_), known
        if not exact.comparable(value, type_):
            raise exact.Inexact
    except exact.Inexact:
        raise _inexact(given, beside) from None
    return given, True


def _inexact(given: Part, beside: Part) -> NotAccepted:
    type_ = beside.type
    named = "arithmetic with decimals" if type_ == exact.ANY_DECIMAL else "uuid" if type_ == pa.uuid() else str(type_)
    shown = str(given.value) if isinstance(given.value, exact.Moment) else given.sql
    why = f"{shown[:80]} is not a literal that compares exactly with {beside.sql[:80]}, whose type is {named[:80]}."
    if pa.types.is_map(type_):
        return NotAccepted(f"{why} Lance compares no part of a map. Ask by IS NULL, or compare the rows that are read")
    if pa.types.is_nested(type_):
        return NotAccepted(f"{why} Compare a member or an item of it, such as place.lat or tags[1]")
    if exact.has_no_literal(type_):
        return NotAccepted(
            f"{why} Lance has no literals of this type. Compare the column with another one, or by IS NULL"
        )
    return NotAccepted(f"{why} An example that works: {beside.sql[:80]} = {exact.example(type_)}")
