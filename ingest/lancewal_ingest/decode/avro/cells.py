"""How values of an Avro type fill the cells of a column: the cells that Avro adds to those of ``framed.cells``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from lancewal_ingest.decode.avro.schema import AvroPlain, AvroType
from lancewal_ingest.decode.framed.cells import (
    CellGrowth,
    ColumnCell,
    NumberCell,
    growth_of_items,
    growth_of_symbols,
    growth_together,
    named_in_messages,
)


@dataclass(frozen=True, slots=True)
class SkippedCell:
    """A value of any type for which there is no column."""

    of: AvroType
    path: str
    column: None = None
    growth: ClassVar[CellGrowth] = (0, 0)

    def __str__(self) -> str:
        return named_in_messages(self.path, passed_over=True)


Cell = ColumnCell | SkippedCell
Member = tuple[Cell, int | None]
"""The cell of a field of a record, and its index among the columns or members; None if the field is passed over."""


@dataclass(frozen=True, slots=True)
class NullCell(ColumnCell):
    """Null, which has no bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroNumber(NumberCell):
    long: bool
    """Whether the type is ``long``, and not ``int``."""


@dataclass(frozen=True, slots=True)
class DecimalCell(ColumnCell):
    size: int | None
    """Number of bytes of a value; None if the value's length comes before it."""
    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class ZonedTextCell(ColumnCell):
    """A time with a zone as text, by the rules of JSON, in a column of times with a zone."""


@dataclass(frozen=True, slots=True)
class EnumCell(ColumnCell):
    symbols: tuple[str, ...]

    @property
    def growth(self) -> CellGrowth:
        return growth_of_symbols(self.symbols)


@dataclass(frozen=True, slots=True)
class ItemsCell(ColumnCell):
    """An array in a list or vector, or the entries of a map."""

    item: Cell
    least_bytes: int
    """Minimum number of bytes of an item: 0 or 1."""

    @property
    def growth(self) -> CellGrowth:
        return growth_of_items(self.item.column, self.item.growth) if pa.types.is_list(self.column) else (0, 0)


@dataclass(frozen=True, slots=True)
class MapCell(ColumnCell):
    """A map in a column of maps.  A map with a repeated key is refused."""

    entries: ItemsCell
    """The map as a list of structs of key and value, as Arrow stores it."""

    @property
    def growth(self) -> CellGrowth:
        return self.entries.growth


@dataclass(frozen=True, slots=True)
class StructCell(ColumnCell):
    """A record.  ``members`` are in the writer's order."""

    members: Sequence[Member]
    names: Sequence[str] = ()
    """Names of the members of the struct, by their indexes."""

    @property
    def growth(self) -> CellGrowth:
        return growth_of_members(self.members)


@dataclass(frozen=True, slots=True)
class ChoiceCell(ColumnCell):
    """A union.  A null branch gives null.

    ``places`` may have, for each other branch, the index of its member in a struct.  Without ``places``, the union
    has one other branch, and its value is the cell.
    """

    branches: Sequence[Cell]
    """Cell of each branch, by the branch's index.  A null branch has a ``SkippedCell``."""
    places: Sequence[int | None] = ()
    names: Sequence[str] = ()
    """Names of the members of the struct, by their indexes."""

    @property
    def growth(self) -> CellGrowth:
        return growth_together(branch.growth for branch in self.branches)


def growth_of_members(members: Sequence[Member]) -> CellGrowth:
    """Return the growth of a record with these members."""
    return growth_together(cell.growth for cell, _ in members)


def is_null(cell: Cell) -> bool:
    """Return whether a cell is the null branch of a union."""
    return isinstance(cell, SkippedCell) and isinstance(cell.of, AvroPlain) and cell.of.kind == "null"
