"""Cells: how values of a writer schema fill a column.  Avro and Protobuf share the cells here, and add their own.

A format makes a tree of cells from a schema.  Its columnar reader and its strict reader follow the same tree, so each
rule is written once.  ``str`` of a cell names it in messages.

``growth`` of a cell is an upper bound of the memory that it takes in Arrow beyond its slot of fixed size.  Each byte
of a value lies in at most one text, or it is the only byte of an item.  Names of enumerations take no bytes of the
value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from lancewal_ingest.decode.weight import slot_bits

CellGrowth = tuple[int, int]
"""Growth of a cell: bytes for each byte of a value, and bytes for each value."""


@dataclass(frozen=True, slots=True)
class ColumnCell:
    path: str
    """Path of the column, for messages."""
    column: pa.DataType
    """Type of the column, or of a part of it.  None: the value is passed over.  It is checked, and gives no array."""

    def __str__(self) -> str:
        return named_in_messages(self.path, passed_over=self.column is None)

    @property
    def growth(self) -> CellGrowth:
        return 0, 0


@dataclass(frozen=True, slots=True)
class BoolCell(ColumnCell):
    """A boolean."""


@dataclass(frozen=True, slots=True)
class NumberCell(ColumnCell):
    """An integer, or a date, time or duration.  The column holds ``value * times / per``, which must be an integer."""

    least: int
    most: int
    """The column and the field's type allow values from ``least`` to ``most``."""
    expected: str = ""
    floating: bool = False
    """Whether the column has floats."""
    times: int = 1
    per: int = 1


@dataclass(frozen=True, slots=True)
class FloatCell(ColumnCell):
    width: int
    """Bytes of a value: 4 for ``float``, 8 for ``double``."""


@dataclass(frozen=True, slots=True)
class TextCell(ColumnCell):
    """A text."""

    @property
    def growth(self) -> CellGrowth:
        return 1, 0


@dataclass(frozen=True, slots=True)
class UuidTextCell(ColumnCell):
    """A uuid as text, in a column of uuids."""

    blank: bool = False
    """Whether an empty text counts as a missing value."""


@dataclass(frozen=True, slots=True)
class BytesCell(ColumnCell):
    """Bytes, stored unchanged: in a binary column, or as the items of a vector one after the other."""

    exactly: int | None
    """Number of bytes that the column needs; None for any."""
    size: int | None = None
    """Number of bytes of a value; None if the value's length comes before it."""
    blank: bool = False
    """Whether an empty value counts as missing.  It does if the column needs bytes, and the field cannot be absent
    otherwise."""

    @property
    def growth(self) -> CellGrowth:
        return (1, 0) if self.exactly is None else (0, 0)


def named_in_messages(path: str, *, passed_over: bool) -> str:
    return f"{'field' if passed_over else 'column'} {path!r}"


def growth_of_symbols(symbols: Iterable[str]) -> CellGrowth:
    """Return the growth of an enumeration with these names."""
    return 0, max(map(len, symbols), default=0)


def growth_of_items(item: pa.DataType, growth: CellGrowth) -> CellGrowth:
    """Return the growth of a list of such items.  A null in it, or an empty item, takes the full width of an item."""
    factor, each = growth
    return -(-slot_bits(item) // 8) + factor + each, 0


def growth_together(cells: Iterable[CellGrowth]) -> CellGrowth:
    """Return the growth of a row or struct with cells of these growths."""
    found = list(cells)
    return max((factor for factor, _ in found), default=0), sum(each for _, each in found)
