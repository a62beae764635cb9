"""Types that a condition may name, in casts and in literals."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

from lancewal_reader.forms.conditions import exact_values as exact
from lancewal_reader.forms.conditions.limits import STEPS_OF_A_CAST, Limits
from lancewal_reader.forms.conditions.part import NotAccepted, Part
from lancewal_reader.forms.conditions.tokens import Tokens

_DECIMALS = ("DECIMAL", "NUMERIC")
WITH_TEXT = ("DATE", "TIMESTAMP", *_DECIMALS)
"""Types that may precede a text, as in ``DATE '2026-01-31'``: together they are a literal of that type."""
_TYPES: dict[str, pa.DataType | None] = {
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "TINYINT UNSIGNED": pa.uint8(),
    "SMALLINT UNSIGNED": pa.uint16(),
    "INT UNSIGNED": pa.uint32(),
    "INTEGER UNSIGNED": pa.uint32(),
    "BIGINT UNSIGNED": pa.uint64(),
    "FLOAT": pa.float32(),
    "REAL": pa.float32(),
    "DOUBLE": pa.float64(),
    "DOUBLE PRECISION": pa.float64(),
    "STRING": pa.string(),
    "TEXT": pa.string(),
    "VARCHAR": pa.string(),
    "BOOLEAN": pa.bool_(),
    "BOOL": pa.bool_(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("ns"),
    "DECIMAL": None,
    "NUMERIC": None,
}
DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
"""Digits after the point of a second, by unit."""
UNITS = {digits: unit for unit, digits in DIGITS.items()}


def read_type(tokens: Tokens) -> tuple[str, pa.DataType | None]:
    """Read the name of a type.  Return the spelling that Lance accepts, and the type."""
    name = tokens.word.upper()
    if tokens.kind != "name" or name not in _TYPES:
        tokens.expected(f"one of the types {', '.join(_TYPES)}")
    tokens.next()
    for second in ("UNSIGNED", "PRECISION"):
        if f"{name} {second}" in _TYPES and tokens.take(second):
            name = f"{name} {second}"
    sizes: list[int] = []
    if tokens.take("("):
        while not sizes or tokens.take(","):
            if not (tokens.kind == "number" and tokens.word.isdigit() and len(tokens.word) < 3):
                tokens.expected("a number of digits")
            sizes.append(int(tokens.next()))
        tokens.expect(")")
    if name in _DECIMALS:
        if len(sizes) not in (1, 2) or not 1 <= sizes[0] <= 38 or not 0 <= sizes[-1] <= sizes[0]:
            raise NotAccepted(f"{name} needs its digits: DECIMAL(10, 2) has ten, of which two follow the point")
        type_ = pa.decimal128(sizes[0], sizes[1] if len(sizes) == 2 else 0)
        return f"DECIMAL({type_.precision}, {type_.scale})", type_
    if name == "TIMESTAMP" and sizes:
        if sizes[0] not in UNITS:
            raise NotAccepted("TIMESTAMP takes 0, 3, 6 or 9 digits of a second, as in TIMESTAMP(6)")
        return f"TIMESTAMP({sizes[0]})", pa.timestamp(UNITS[sizes[0]])
    return name, _TYPES[name]


def cast(part: Part, word: str, name: str, type_: pa.DataType | None, limits: Limits) -> Part:
    if part.value is not None and word == "CAST" and exact.counts_digits(type_):
        return _literal(part, name, type_, f"CAST AS {name}")
    limits.step(STEPS_OF_A_CAST)
    return Part(f"{word}({part.sql} AS {name})", type=type_)


def literal_of(part: Part, name: str, how: str) -> Part:
    """Return a text as a literal of the type ``name``.  If the text is wrong, the error shows ``how``, the part of the
    condition that required the type.
    """
    return _literal(part, name, _TYPES[name], how)


def _literal(part: Part, name: str, type_: pa.DataType | None, how: str) -> Part:
    """Return a literal as a value of the type.  Raises ``NotAccepted`` unless it is exactly one.  None as type means a
    decimal with as many digits as the literal has.
    """
    value = part.value
    assert value is not None
    try:
        if type_ is None:
            value = exact.number(value) if isinstance(value, str) else value
            assert isinstance(value, Decimal)
            return Part(exact.free_decimal(value), value=value)
        if isinstance(value, Decimal) and name == "DATE":
            value = exact.days(value)
        if isinstance(value, str):
            value = exact.moment(value) if pa.types.is_temporal(type_) else exact.number(value)
        if name == "TIMESTAMP" and isinstance(value, exact.Moment):
            return Part(exact.said_alone(value), value=value)
        steps, known = exact.place(value, type_)
        if not known:
            raise exact.Inexact
        return Part(exact.said(steps, type_), value=value)
    except exact.Inexact:
        shown = exact.example(pa.decimal128(10, 2) if type_ is None else type_)
        raise NotAccepted(
            f"{part.sql[:80]} is not exactly a value of {name} ({how}). An example that works: {shown}"
        ) from None
