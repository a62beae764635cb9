"""Random changes of columns, and random records of producers that know the columns of different times."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from tests.soak.column_model import STRUCTS, Change, Columns, Field
from tests.whole_path.feed import Feed, Key, Operation, Record

KEYS = ("customer", "id")
WIDER = {
    "int8": ["int16", "int32"], "int16": ["int32", "int64"], "int32": ["int64"], "uint8": ["uint16", "int16", "int64"],
    "uint16": ["uint32", "int32"], "float32": ["float64"], "decimal128(6, 2)": ["decimal128(10, 4)"],
    "timestamp[s]": ["timestamp[ms]", "timestamp[us]"], "timestamp[ms]": ["timestamp[us]"], "list<int32>": ["list<int64>"],
    "fixed_size_list<float32>[3]": ["fixed_size_list<float64>[3]"],
}  # fmt: skip
PLAIN = (*WIDER, "string", "bool", "int64", "float64", "list<string>", "decimal128(10, 4)", "timestamp[us]")
COLUMNS_MAX = 14


def first_columns() -> Columns:
    """The columns that a table begins with."""
    number = itertools.count(1)

    def field(name: str, type_: str, *members: Field) -> Field:
        return Field(next(number), name, type_, members, first=frozenset(m.number for m in members))

    return Columns(
        (
            field("customer", "string"),
            field("id", "int64"),
            field("status", "string"),
            field("amount", "float32"),
            field("count", "int16"),
            field("address", "struct", field("street", "string"), field("zip", "int32")),
            field("lines", "list<struct>", field("sku", "string"), field("price", "int32")),
        ),
        {},
        frozenset(),
    )


def value_of(rng: random.Random, type_: str) -> Any:
    """A value of a plain type, as JSON has it."""
    if type_.startswith("list<"):
        return [value_of(rng, type_[5:-1]) for _ in range(rng.randrange(3))]
    if type_.startswith("fixed_size_list<"):
        return [value_of(rng, type_[16:23]) for _ in range(3)]
    if "int" in type_:
        bits = int(type_.removeprefix("u").removeprefix("int"))
        low, high = (0, 2**bits - 1) if type_.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return rng.choice([low, high, rng.randint(low, high), rng.randint(0, 100)])
    if type_.startswith("float"):
        return rng.randrange(-(2**20), 2**20) / 4 if type_ == "float32" else rng.random()
    if type_.startswith("decimal128("):
        precision, scale = map(int, type_[11:-1].split(","))
        return f"{rng.randrange(10 ** (precision - scale))}.{rng.randrange(10**scale):0{scale}}"
    if type_.startswith("timestamp["):
        digits = {"s": 0, "ms": 3, "us": 6}[type_[10:-1]]
        fraction = f".{rng.randrange(10**digits):0{digits}}" if digits else ""
        return f"{rng.randrange(1970, 2100)}-0{rng.randrange(1, 10)}-17T03:04:{rng.randrange(10, 60)}{fraction}"
    if type_ == "bool":
        return rng.random() < 0.5
    return rng.choice(["open", "geschlößen", "", "日本", 'a "b"\n'])


class ColumnFeed(Feed):
    """Producers use the columns of the newest contract, or of any earlier one, as far as their names still mean the same."""

    def __init__(
        self, servers: str, topic: str, seed: int, views: Callable[[], tuple[Sequence[Columns], Sequence[Columns]]]
    ) -> None:
        """``views``: all columns that there were, the newest last, and those by which records may be read from now on."""
        super().__init__(servers, topic, seed, KEYS[:1])
        self._views = views
        self.unused: set[tuple[int, str]] = set()
        """Names that no producer uses now, by the number of their struct."""

    def _record(self, operation: Operation, key: Key) -> Record:
        rng = self._rng
        before, ways = self._views()
        view = before[-1] if rng.random() < 0.6 else rng.choice(before)
        values = {}
        for field in view.fields[2:]:
            if rng.random() < 0.6 and not (operation == "delete" and rng.random() < 0.7):
                used, junk = self._use(0, field, ways)
                if used:
                    values[field.name] = junk if junk is not None else self._cell(field, ways)
        return Record(operation, {"customer": key[0], "id": key[1], **values})

    def _use(self, place: int, field: Field, ways: Sequence[Columns]) -> tuple[bool, Any]:
        """Whether the name means this field by all of these contracts, or is passed over; sometimes another value for that."""
        meant = {way.number_of(place, field.name) for way in ways}
        if (place, field.name) in self.unused or not meant <= {field.number, 0}:
            return False, None
        return True, {"any": [1, "x"]} if meant == {0} and self._rng.random() < 0.3 else None

    def _cell(self, field: Field, ways: Sequence[Columns]) -> Any:
        rng = self._rng
        if rng.random() < 0.2:
            return None
        if not field.members:
            now = next((f.type for _, f in ways[0].all() if f.number == field.number), field.type)
            return value_of(rng, rng.choice([field.type, now]))
        if field.type == "struct":
            return self._struct(field, ways)
        return [self._struct(field, ways) for _ in range(rng.randrange(3))]

    def _struct(self, field: Field, ways: Sequence[Columns]) -> Any:
        values = {}
        for member in field.members:
            used, junk = self._use(field.number, member, ways)
            if used and self._rng.random() < 0.8:
                values[member.name] = junk if junk is not None else self._cell(member, ways)
        return values


class Changes:
    """Draws calls of the command that the contract allows."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._names = (f"c{n}" for n in itertools.count())
        self._numbers = itertools.count(100)

    def draw(
        self, now: Columns, freed: Collection[tuple[int, str]], count: int, but: Collection[str] = ()
    ) -> list[Change]:
        """One call of the command; ``freed``: names that another column may get; ``but``: columns to leave alone."""
        changes: list[Change] = []
        free, used = list(freed), {*KEYS, *but}
        for _ in range(20 * count):
            columns = [f for f in now.fields if f.name not in used]
            made = self._drawn(now, columns, free)
            if made is None or (made.act == "forget" and made.path[-1] in used):
                continue
            changes.append(made)
            used |= {made.path[0], made.to}
            free = [key for key in free if key[1] not in (made.path[-1], made.to)]
            if len(changes) == count:
                break
        order = ("rename", "widen", "add", "drop", "forget")
        return sorted(changes, key=lambda change: order.index(change.act))

    def _drawn(self, now: Columns, columns: Sequence[Field], free: Sequence[tuple[int, str]]) -> Change | None:
        rng = self._rng
        structs = [f for f in columns if f.members]
        inside = rng.choice(structs) if structs and rng.random() < 0.4 else None
        place, siblings = (0, columns) if inside is None else (inside.number, inside.members)
        outer = () if inside is None else (inside.name,)
        act = rng.choices(["add", "rename", "drop", "widen", "forget"], [35, 20, 20, 20, 8])[0]
        if act == "add":
            if inside is None and len(now.fields) >= COLUMNS_MAX:
                return None
            name = self._name(place, free)
            return Change("add", (*outer, name), field=self._field(name, nested=inside is not None))
        if act == "forget":
            names = [n for p, n in [*now.former, *now.dropped] if p == place]
            return Change("forget", (*outer, rng.choice(names))) if names else None
        if not siblings:
            return None
        field = rng.choice(siblings)
        if act == "rename":
            return Change("rename", (*outer, field.name), to=self._name(place, free))
        if act == "drop":
            kept = len(now.fields) > 4 if inside is None else bool(_numbers(siblings, but=field) & inside.first)
            return Change("drop", (*outer, field.name)) if kept else None
        wider = WIDER.get(field.type, []) if field.wide is None else []
        return Change("widen", (*outer, field.name), to=rng.choice(wider)) if wider else None

    def _name(self, place: int, free: Sequence[tuple[int, str]]) -> str:
        names = [name for p, name in free if p == place]
        return self._rng.choice(names) if names and self._rng.random() < 0.6 else next(self._names)

    def _field(self, name: str, *, nested: bool) -> Field:
        rng = self._rng
        number = next(self._numbers)
        if not nested and rng.random() < 0.2:
            members = tuple(
                [replace(self._field(f"m{n}", nested=True), default=None) for n in range(rng.randint(1, 3))]
            )
            return Field(number, name, rng.choice(STRUCTS), members, first=frozenset(m.number for m in members))
        type_ = rng.choice(PLAIN)
        default = None if nested or rng.random() < 0.6 else json.dumps(value_of(rng, type_), ensure_ascii=False)
        return Field(number, name, type_, default=default)


def _numbers(fields: Sequence[Field], but: Field) -> set[int]:
    return {f.number for f in fields if f is not but}
