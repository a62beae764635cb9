"""Arithmetic that keeps its digits: integers in 64 bits, and decimals with decimals."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

from lancewal_reader.forms.conditions.exact_values import ANY_DECIMAL, Inexact, free_decimal
from lancewal_reader.forms.conditions.part import NotAccepted, Part, Rank


def computed(sign: str, rank: int, left: Part, right: Part) -> Part:
    sides = [left, right]
    if any(side.of(pa.types.is_decimal) for side in sides):
        try:
            sides = [Part(free_decimal(one.value)) if isinstance(one.value, Decimal) else one for one in sides]
        except Inexact:
            raise NotAccepted(f"a number next to {sign!r} has more digits than a decimal can have") from None
    elif all(side.of(pa.types.is_integer) for side in sides):
        sides = [_widened(side) for side in sides]
    sql = f"{sides[0].within(rank)} {sign} {sides[1].within(rank + 1)}"
    return Part(sql, rank, _type_of(sign, [left, right]))


def negated(part: Part) -> Part:
    if isinstance(part.value, Decimal):
        sql = part.sql if part.sql[:1].isdigit() else f"({part.sql})"
        return Part(f"-{sql}", Rank.MINUS, part.type, part.value.copy_negate())
    part = _widened(part)
    return Part(f"-({part.sql})", Rank.MINUS, part.type)


def _widened(part: Part) -> Part:
    """Cast an integer part to 64 bits, since Lance adds 100 and 100 in 8 bits to -56.  Other parts are returned
    unchanged."""
    if not part.of(pa.types.is_integer) or part.type in (pa.int64(), pa.uint64()):
        return part
    return Part(f"CAST({part.sql} AS BIGINT)", type=pa.int64())


def _type_of(sign: str, sides: list[Part]) -> pa.DataType | None:
    if sign == "||":
        return pa.string()
    if any(side.of(pa.types.is_floating) for side in sides):
        return pa.float64()
    if any(side.of(pa.types.is_decimal) for side in sides):
        return ANY_DECIMAL
    whole = all(
        side.of(pa.types.is_integer)
        or (isinstance(side.value, Decimal) and side.sql.lstrip("-").isdigit())  # 2.0 makes a float
        for side in sides
    )
    return pa.int64() if whole else None
