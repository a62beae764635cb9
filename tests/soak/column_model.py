"""Columns of one version of the contract, and what records mean by it: plain Python that knows nothing of lancewal.

A field has a number for its whole life, whatever it is called.  Rows are kept by these numbers.  So a rename, a drop and a
name that comes back change only how rows are shown.  Fields nest once: a column may be a struct, or a list of structs.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from lancewal_core.rows.column_types import parse_type
from lancewal_core.table.contract import Contract

Path = tuple[str, ...]
Row = Mapping[int, Any]
"""Cells by the number of the column.  A struct's cell is a dict by the numbers of its members."""
STRUCTS = ("struct", "list<struct>")


class NotARow(Exception):
    """The record has a name that is no column's."""


@dataclass(frozen=True, slots=True)
class Field:
    number: int
    name: str
    type: str
    """Of a plain field, as the contract names it; or one of ``STRUCTS``."""
    members: tuple[Field, ...] = ()
    default: str | None = None
    """JSON."""
    wide: str | None = None
    """The type that it is being widened to."""
    first: frozenset[int] = frozenset()
    """Numbers of the members that a struct began with.  One of them stays: it tells a struct of nulls from a null struct."""

    @property
    def text(self) -> str:
        return self._text(wide=False)

    @property
    def wide_text(self) -> str:
        return self._text(wide=True)

    def _text(self, *, wide: bool) -> str:
        if not self.members:
            return self.wide if wide and self.wide else self.type
        inner = ", ".join(f"{m.name}: {m._text(wide=wide)}" for m in self.members)
        return self.type.replace("struct", f"struct<{inner}>")


@dataclass(frozen=True, slots=True)
class Change:
    """What one option of ``lancewal table alter`` does."""

    act: Literal["rename", "widen", "add", "drop", "forget"]
    path: Path
    to: str = ""
    """A new name, or a type."""
    field: Field | None = None
    """The new field."""

    @property
    def option(self) -> tuple[str, str]:
        path = ".".join(self.path)
        match self.act:
            case "add":
                assert self.field is not None
                default = "" if self.field.default is None else f" = {self.field.default}"
                return "--add-column", f"{path}: {self.field.text}{default}"
            case "widen":
                return "--widen-column", f"{path}: {self.to}"
            case "rename":
                return "--rename-column", f"{path}={self.to}"
            case "drop":
                return "--drop-column", path
            case "forget":
                return "--forget-name", path


@dataclass(frozen=True, slots=True)
class Columns:
    fields: tuple[Field, ...]
    former: Mapping[tuple[int, str], int]
    """Numbers of fields by the number of their struct (0: a column) and a former name."""
    dropped: frozenset[tuple[int, str]]
    """Names that are passed over."""

    # -- changes -------------------------------------------------------------------------------------------------

    def after(self, changes: Sequence[Change]) -> Columns:
        found = self
        for change in changes:
            found = found._after(change)
        return found

    def _after(self, change: Change) -> Columns:
        *outer, name = change.path
        place, siblings = 0, self.fields
        if outer:
            struct = next(f for f in self.fields if f.name == outer[0])
            place, siblings = struct.number, struct.members
        former, dropped = dict(self.former), set(self.dropped)
        own = next((f for f in siblings if f.name == name), None)
        match change.act:
            case "add":
                assert change.field is not None
                siblings = (*siblings, change.field)
                former.pop((place, name), None)
                dropped.discard((place, name))
            case "rename":
                assert own is not None
                siblings = tuple(replace(f, name=change.to) if f is own else f for f in siblings)
                former.pop((place, change.to), None)
                dropped.discard((place, change.to))
                former[place, name] = own.number
            case "widen":
                siblings = tuple(replace(f, wide=change.to) if f is own else f for f in siblings)
            case "drop":
                assert own is not None
                siblings = tuple(f for f in siblings if f is not own)
                dropped |= {(place, name), *(key for key, number in former.items() if number == own.number)}
                former = {key: n for key, n in former.items() if n != own.number and key[0] != own.number}
                dropped = {key for key in dropped if key[0] != own.number}
            case "forget":
                former.pop((place, name), None)
                dropped.discard((place, name))
        if outer:
            siblings = tuple(replace(f, members=siblings) if f.number == place else f for f in self.fields)
        return Columns(siblings, former, frozenset(dropped))

    def grown_to(self, new: Columns) -> Columns:
        """The table between the steps of a change: it has all fields, with the new names."""
        return replace(new, fields=_grown(self.fields, new.fields))

    def with_others_of(self, table: Columns) -> Columns:
        """These columns, and behind them other columns of the table.  A read shows this that has records of a contract newer
        than the table's mark."""
        numbers, names = {f.number for f in self.fields}, {f.name for f in self.fields}
        others = [f for f in table.fields if f.number not in numbers and f.name not in names]
        return replace(self, fields=(*self.fields, *others))

    def without(self, numbers: Collection[int]) -> Columns:
        """The columns without these fields."""
        return replace(self, fields=_without(self.fields, numbers))

    # -- contracts and schemas -----------------------------------------------------------------------------------

    def fitting(self, contract: Contract) -> Columns | None:
        """These columns, with those widenings done that the contract has done, if the contract has these columns."""
        for done in _widened(self.fields):
            found = replace(self, fields=done)
            if found._told == _told(contract):
                return found
        return None

    @property
    def _told(self) -> object:
        columns = [(f.name, f.text, f.wide_text if f.wide_text != f.text else None, f.default) for f in self.fields]
        return columns, sorted(name for _, name in self.former), sorted(name for _, name in self.dropped)

    def shows(self, schema: pa.Schema) -> bool:
        """Whether a result has these columns, in this order, with these types, or those that they are widened to."""
        return len(schema) == len(self.fields) and all(
            a.name == b.name and _is(b, a.type) for a, b in zip(schema, self.fields, strict=True)
        )

    # -- records -------------------------------------------------------------------------------------------------

    def number_of(self, place: int, name: str) -> int | None:
        """The number of the field that a record means by a name; 0 for a name that is passed over; None for another one."""
        siblings = self.fields if place == 0 else next((f.members for f in self.fields if f.number == place), ())
        number = next((f.number for f in siblings if f.name == name), None) or self.former.get((place, name))
        return number or (0 if (place, name) in self.dropped else None)

    def cells(self, values: Mapping[str, Any]) -> dict[int, Any]:
        """What a record sets."""
        found = {}
        for name, value in values.items():
            number = self.number_of(0, name)
            if number is None:
                raise NotARow(name)
            if number:
                found[number] = self._cell(next(f for f in self.fields if f.number == number), value)
        return found

    def upserted(self, values: Mapping[str, Any]) -> Row:
        """The row that an upsert makes."""
        defaults = {f.number: _plain(f.type, json.loads(f.default)) for f in self.fields if f.default is not None}
        return {**defaults, **self.cells(values)}

    def _cell(self, field: Field, value: Any) -> Any:
        if value is None or not field.members:
            return _plain(field.type, value)
        if isinstance(value, list):
            return [self._struct(field, one) for one in value]
        return self._struct(field, value)

    def _struct(self, field: Field, value: Mapping[str, Any] | None) -> Any:
        if value is None:
            return None
        found = {}
        for name, inner in value.items():
            number = self.number_of(field.number, name)
            if number is None:
                raise NotARow(f"{field.name}.{name}")
            if number:
                member = next(m for m in field.members if m.number == number)
                found[number] = _plain(member.type, inner)
        return found

    def shown(self, row: Row) -> dict[str, Any]:
        """The row by the names of these columns."""
        return {f.name: _shown(f, row.get(f.number)) for f in self.fields}

    def all(self) -> Iterator[tuple[int, Field]]:
        """Each field with the number of its struct, 0 for columns."""
        for field in self.fields:
            yield 0, field
            for member in field.members:
                yield field.number, member


def _grown(old: Sequence[Field], new: Sequence[Field]) -> tuple[Field, ...]:
    before = {f.number: f for f in old}
    names = {f.name for f in new}
    kept = [replace(f, members=_grown(before[f.number].members, f.members)) if f.number in before else f for f in new]
    numbers = {f.number for f in new}
    return (*kept, *(f for f in old if f.number not in numbers and f.name not in names))


def _without(fields: Sequence[Field], numbers: Collection[int]) -> tuple[Field, ...]:
    return tuple([replace(f, members=_without(f.members, numbers)) for f in fields if f.number not in numbers])


def _widened(fields: Sequence[Field]) -> Iterator[tuple[Field, ...]]:
    """The fields with each choice of widenings done."""
    if not fields:
        yield ()
        return
    first, *rest = fields
    ways = [first]
    if first.wide:
        ways.append(replace(first, type=first.wide, wide=None))
    if first.members:
        ways = [replace(first, members=members) for members in _widened(first.members)]
    for others in _widened(rest):
        for way in ways:
            yield way, *others


def _told(contract: Contract) -> object:
    columns = [(c.name, c.type, None if c.widening is None else c.widening.type, c.default) for c in contract.columns]
    dropped = sorted({(d.within, d.name) for d in contract.dropped if not d.forgotten}, key=lambda key: key[1])
    return columns, sorted(f.name for f in contract.former_names), [name for _, name in dropped]


def _is(field: Field, type_: pa.DataType) -> bool:
    if not field.members:
        return type_ == parse_type(field.type) or (field.wide is not None and type_ == parse_type(field.wide))
    if field.type.startswith("list"):
        if not pa.types.is_list(type_):
            return False
        type_ = type_.value_type
    if not pa.types.is_struct(type_) or type_.num_fields != len(field.members):
        return False
    return all(a.name == m.name and _is(m, a.type) for a, m in zip(type_, field.members, strict=True))


def _plain(type_: str, value: Any) -> Any:
    if value is None:
        return None
    if type_.startswith("decimal"):
        return Decimal(value)
    if type_.startswith("timestamp"):
        return datetime.fromisoformat(value)
    if type_ == "float32":
        return float(np.float32(value))
    if type_.startswith("fixed_size_list"):
        return [_plain(type_[16:23], item) for item in value]
    return value


def _shown(field: Field, cell: Any) -> Any:
    if cell is None or not field.members:
        return cell
    if isinstance(cell, list):
        return [_shown(field, one) for one in cell]
    return {m.name: cell.get(m.number) for m in field.members}
