"""Conditions made by chance, on small tables of every type.  The oracle is Python: integers, decimals and SQL's logic."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

import lance
import pyarrow as pa
import pytest

from lancewal_reader.forms.conditions.grammar import for_lance

Truth = bool | None
Row = dict[str, Any]
Condition = tuple[str, Callable[[Row], Truth]]
"""A text, and what it says of a row."""

_UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_NS = 86_400 * 10**9
_SIGNS = {
    "=": operator.eq,
    "==": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_WHOLE = {f"{sign}{bits}": getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)}
_DECIMALS = {
    f"d{digits}_{scale}": pa.decimal128(digits, scale) for digits, scale in ((5, 0), (10, 2), (20, 9), (38, 19))
}
_TIMES = {f"{unit}{zone or ''}": pa.timestamp(unit, zone) for unit in _UNITS for zone in (None, "UTC")} | {
    "Day": pa.date32()
}
_NUMBERS = {f"I{name}": type_ for name, type_ in _WHOLE.items()} | _DECIMALS
_MEMBERS = pa.struct(
    [("Cost", pa.decimal128(10, 2)), ("at", pa.timestamp("s")), ("deep", pa.struct([("N", pa.int16())]))]
)
_TYPES = {
    **_NUMBERS,
    **_TIMES,
    "f4": pa.float32(),
    "f8": pa.float64(),
    "Text": pa.string(),
    "ähre": pa.string(),
    "ok": pa.bool_(),
    "bin": pa.binary(),
    "st": _MEMBERS,
}
SCHEMA = pa.schema([("row", pa.int64()), *_TYPES.items()])
_TEXTS = ["", "a", "it's", "''", 'say "x"', "`b`", "-- no", "/* a */", "ähre ☃", "A%_", "(1, 2)", "a;b", "\n", "日本"]


def _whole_of(type_: pa.DataType) -> tuple[int, int]:
    bits = type_.bit_width
    return (0, 2**bits - 1) if pa.types.is_unsigned_integer(type_) else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _value(rng: Random, type_: pa.DataType) -> Any:
    """As the oracle compares it: a number, nanoseconds since 1970, a text, bytes or a truth."""
    if rng.random() < 0.15:
        return None
    if pa.types.is_integer(type_):
        low, high = _whole_of(type_)
        return Decimal(rng.choice([low, high, low + 1, high - 1, 0, 1, 2, 3, 5, rng.randint(low, high)]))
    if pa.types.is_decimal(type_):
        most = 10**type_.precision - 1
        step = Decimal(1).scaleb(-type_.scale)
        return _exactly(rng.choice([0, 1, -1, 250, 25, most, -most, rng.randint(-most, most)]), step)
    if pa.types.is_date(type_):
        return rng.choice([0, 1, -1, 20_455, 2_932_896, -719_162]) * _DAY_NS
    if pa.types.is_timestamp(type_):
        unit = _UNITS[type_.unit]
        far = 2**62 // unit if type_.unit == "ns" else 100_000_000_000 * 10**9 // unit
        return rng.choice([0, 1, -1, 1_767_312_000 * 10**9 // unit, rng.randint(-far // 3, far)]) * unit
    if pa.types.is_floating(type_):
        return rng.choice([0.0, 0.5, -1.5, 3.0, 1024.25])
    if pa.types.is_boolean(type_):
        return rng.random() < 0.5
    if pa.types.is_binary(type_):
        return rng.choice([b"", b"\x00", b"a'", b"\xff\xfe"])
    return rng.choice(_TEXTS)


def _exactly(steps: int, step: Decimal) -> Decimal:
    return Decimal(steps).scaleb(step.adjusted()) if abs(steps) < 10**27 else Decimal(f"{steps}e{step.adjusted()}")


def _stored(value: Any, type_: pa.DataType) -> pa.Scalar:
    if value is None:
        return pa.scalar(None, type_)
    if pa.types.is_date(type_):
        return pa.scalar(value // _DAY_NS, pa.int32()).cast(type_)
    if pa.types.is_timestamp(type_):
        return pa.scalar(value // _UNITS[type_.unit], pa.int64()).cast(type_)
    return pa.scalar(int(value) if pa.types.is_integer(type_) else value, type_)


def _rows(rng: Random, count: int) -> tuple[lance.LanceDataset, list[Row]]:
    rows: list[Row] = []
    arrays: dict[str, list[Any]] = {name: [] for name in _TYPES}
    for _ in range(count):
        row: Row = {}
        for name, type_ in _TYPES.items():
            if name != "st":
                row[name] = _value(rng, type_)
                arrays[name].append(
                    _stored(row[name], type_).as_py() if type_ not in _TIMES.values() else _raw(row[name], type_)
                )
                continue
            gone = rng.random() < 0.2
            cost, at, whole = (
                None if gone else _value(rng, of) for of in (pa.decimal128(10, 2), pa.timestamp("s"), pa.int16())
            )
            row |= {"st.Cost": cost, "st.at": at, "st.deep.N": whole}
            deep = {"N": None if whole is None else int(whole)}
            arrays[name].append(None if gone else {"Cost": cost, "at": _raw(at, pa.timestamp("s")), "deep": deep})
        rows.append(row)
    table = pa.table(
        [pa.array(range(count), pa.int64()), *(pa.array(arrays[name], type_) for name, type_ in _TYPES.items())], SCHEMA
    )
    return lance.write_dataset(table, f"memory://by-chance-{rng.random()}"), rows


def _raw(value: int | None, type_: pa.DataType) -> int | None:
    return None if value is None else value // (_DAY_NS if pa.types.is_date(type_) else _UNITS[type_.unit])


class _Maker:
    """Makes conditions; ``rows`` say near which values the literals lie."""

    def __init__(self, rng: Random, rows: list[Row]) -> None:
        self._rng, self._rows = rng, rows

    def condition(self, depth: int) -> Condition:
        rng = self._rng
        kind = rng.randrange(5) if depth else 4
        if kind == 0:
            text, holds = self.condition(depth - 1)
            return f"{self._word('NOT')}({text})", lambda row: _denied(holds(row))
        if kind <= 2:
            word, of = rng.choice([("AND", _all), ("OR", _any)])
            made = [self.condition(depth - 1) for _ in range(rng.randint(2, 3))]
            text = self._word(word).join(f"({text})" for text, _ in made)
            return text, lambda row: of([holds(row) for _, holds in made])
        return self._leaf()

    def _word(self, word: str) -> str:
        return self._rng.choice([f" {word} ", f" {word.lower()}\n", f" /* ' */ {word} ", f' {word} -- `"\n'])

    def _leaf(self) -> Condition:
        rng = self._rng
        name = rng.choice([name for name in self._rows[0] if name not in ("f4", "f8")] + ["f8"])
        left = self._column(name)
        match rng.randrange(8):
            case 0:
                denied = rng.random() < 0.5
                return f"{left} IS {'NOT ' if denied else ''}NULL", lambda row: (row[name] is None) != denied
            case 1 if name != "ok":
                denied, items = rng.random() < 0.5, [self._side(name) for _ in range(rng.randint(1, 5))]
                text = f"{left}{self._word('NOT IN' if denied else 'IN')}({', '.join(item for item, _ in items)})"
                return text, lambda row: _in(row[name], [of(row) for _, of in items], denied)
            case 2 if name != "ok":
                (low, low_of), (high, high_of) = self._side(name), self._side(name)
                denied = rng.random() < 0.5
                word = self._word("NOT BETWEEN" if denied else "BETWEEN")

                def between(row: Row) -> Truth:
                    held = _all(
                        [
                            _compared(operator.ge, row[name], low_of(row)),
                            _compared(operator.le, row[name], high_of(row)),
                        ]
                    )
                    return _denied(held) if denied else held

                return f"{left}{word}{low} AND {high}", between
            case 3:
                right, of = self._side(name)
                denied = rng.random() < 0.5
                text = f"{left} IS {'NOT ' if denied else ''}DISTINCT FROM {right}"
                return text, lambda row: (row[name] == of(row)) == denied
            case 4 if name in ("Text", "ähre"):
                part = rng.choice(["a", "'", "x", "☃", "b"])
                return (
                    f"{left} LIKE {_quoted('%' + part + '%')}",
                    lambda row: None if row[name] is None else part in row[name],
                )
            case 5 if name != "ok":
                items = [self._side(name) for _ in range(rng.randint(1, 3))]
                given, of = self._literal(name)
                denied = rng.random() < 0.5
                columns = [self._other(name) for _ in range(rng.randint(1, 2))]
                text = f"{given} {'NOT ' if denied else ''}IN ({', '.join(self._column(one) for one in columns)})"
                return text, lambda row: _in(of, [row[one] for one in columns], denied)
        sign = rng.choice(list(_SIGNS))
        right, of = self._side(name)
        if rng.random() < 0.5:
            return f"{right}{sign}{left}", lambda row: _compared(_SIGNS[sign], of(row), row[name])
        return f"{left} {sign} {right}", lambda row: _compared(_SIGNS[sign], row[name], of(row))

    def _column(self, name: str) -> str:
        def one(part: str) -> str:
            plain = self._rng.choice([part, part.upper(), part.lower(), part.swapcase()])
            return plain if part != "row" and self._rng.random() < 0.6 else f"`{plain}`"

        return ".".join(one(part) for part in name.split("."))

    def _other(self, name: str) -> str:
        """A column of the same type: Lance makes other pairs alike by itself."""
        return self._rng.choice([one for one in self._rows[0] if _type_of(one) == _type_of(name)])

    def _side(self, name: str) -> tuple[str, Callable[[Row], Any]]:
        if self._rng.random() < 0.15:
            other = self._other(name)
            return self._column(other), lambda row: row[other]
        text, value = self._literal(name)
        return text, lambda row: value

    def _literal(self, name: str) -> tuple[str, Any]:
        rng, type_ = self._rng, _type_of(name)
        value = rng.choice([row[name] for row in self._rows])
        while value is None:
            value = _value(rng, type_)
        if pa.types.is_integer(type_):
            low, high = _whole_of(type_)
            value = Decimal(min(max(int(value) + rng.choice([0, 0, -1, 1]), low), high))
            texts = [f"{value}", f"{value}.0", f"({value})"]
            if -(2**63) < value < 2**63:
                texts += [f"CAST({value} AS bigint)", f"CAST('{value}' AS BIGINT)"]
            return rng.choice(texts), value
        if pa.types.is_decimal(type_):
            return self._decimal(value, type_)
        if pa.types.is_temporal(type_):
            return self._time(value, type_)
        if pa.types.is_floating(type_):
            return rng.choice([f"{value}", f"CAST({value} AS DOUBLE)"]), value
        if pa.types.is_boolean(type_):
            return str(value).upper(), value
        if pa.types.is_binary(type_):
            return f"X'{value.hex()}'", value
        double = '"' + value.replace('"', '""') + '"'
        return rng.choice([_quoted(value), double]), value

    def _decimal(self, value: Decimal, type_: pa.DataType) -> tuple[str, Decimal]:
        rng = self._rng
        finer = Decimal(rng.choice(["0", "0", "0.5", "-0.5", "0.0001"])).scaleb(-type_.scale)
        exact = Fraction(value) + Fraction(finer)
        scale = type_.scale + 5
        whole = int(exact * 10**scale)
        text = f"{'-' if whole < 0 else ''}{abs(whole) // 10**scale}.{abs(whole) % 10**scale:0{scale}}"
        if abs(exact) * 10**type_.scale >= 10**type_.precision - 1:
            text, exact = "0", Fraction(0)
        digits = text.lstrip("-")
        size = len(digits.replace(".", ""))
        fraction = len(digits.partition(".")[2])
        texts = [text, f"'{text}'"]
        if size <= 38:
            texts += [
                f"decimal '{text}'",
                f"CAST({text} AS decimal({size}, {fraction}))",
                f"'{text}'::NUMERIC({size},{fraction})",
            ]
        return rng.choice(texts), exact  # type: ignore[return-value]

    def _time(self, ns: int, type_: pa.DataType) -> tuple[str, int]:
        rng = self._rng
        ns += rng.choice([0, 0, 1, -1, 500_000_000, -(10**6), 10**9])
        if not _in_years(ns, type_):
            ns = 1_767_312_000_000_000_001
        if abs(ns) >= 2**63:
            ns -= ns % 1_000  # Lance has nanoseconds from 1677 to 2262 alone
        seconds, rest = divmod(ns, 10**9)
        at = _EPOCH + timedelta(seconds=seconds)
        text = f"{at.replace(tzinfo=None)}.{rest:09}"
        texts = [f"timestamp '{text}'", f"'{text}'", f"'{text}Z'::timestamp", f"cast('{text}' as Timestamp)"]
        if ns % _DAY_NS == 0:
            texts += [f"date '{at.date()}'", f"'{at.date()}'"]
        if -(2**63) < ns < 2**63:
            texts.append(f"to_timestamp_nanos({ns})")
        return rng.choice(texts), ns


def _in_years(ns: int, type_: pa.DataType) -> bool:
    if pa.types.is_timestamp(type_) and type_.unit == "ns":
        return bool(abs(ns) < 2**63 - 10**10)
    return -62_135_596_800 * 10**9 <= ns < 253_402_300_799 * 10**9


def _type_of(name: str) -> pa.DataType:
    first, *rest = name.split(".")
    type_ = _TYPES[first]
    for member in rest:
        type_ = type_.field(member).type
    return type_


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _denied(held: Truth) -> Truth:
    return None if held is None else not held


def _all(held: list[Truth]) -> Truth:
    return False if False in held else None if None in held else True


def _any(held: list[Truth]) -> Truth:
    return True if True in held else None if None in held else False


def _compared(of: Callable[[Any, Any], bool], left: Any, right: Any) -> Truth:
    return None if left is None or right is None else of(left, right)


def _in(value: Any, items: list[Any], denied: bool) -> Truth:
    held = _any([_compared(operator.eq, value, item) for item in items])
    return _denied(held) if denied else held


@pytest.mark.parametrize("seed", range(4))
def test_conditions_by_chance(seed: int) -> None:
    rng = Random(seed)
    dataset, rows = _rows(rng, 12)
    maker = _Maker(rng, rows)
    for _ in range(60):
        text, holds = maker.condition(rng.randint(0, 3))
        expected = [n for n, row in enumerate(rows) if holds(row)]
        condition = for_lance(SCHEMA, text)
        found = dataset.scanner(columns=["row"], filter=condition).to_table()["row"].to_pylist()
        assert found == expected, (text, condition)
