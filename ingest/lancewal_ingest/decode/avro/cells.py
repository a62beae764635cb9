"""How values of an Avro type fill the cells of a column: a tree of cells, which both readers follow.

``columnar`` and ``strict`` read the same trees, so the rules are here once.  A cell without a column (None) is passed over.
Its bytes are checked as those of others, and give no array.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from lancewal_ingest.decode.avro.schema import AvroPlain, AvroType


@dataclass(frozen=True, slots=True)
class SkippedCell:
    """A value of any type for which there is no column."""

    of: AvroType
    path: str
    column: None = None


@dataclass(frozen=True, slots=True)
class NullCell:
    """Null, which has no bytes."""

    path: str
    column: pa.DataType


@dataclass(frozen=True, slots=True)
class BoolCell:
    path: str
    column: pa.DataType


@dataclass(frozen=True, slots=True)
class NumberCell:
    """An integer, or a date, time or duration.  The column holds ``value * times / per``, which must be an integer."""

    path: str
    column: pa.DataType
    long: bool
    least: int
    most: int
    """Range of values that the column and the logical type allow."""
    times: int = 1
    per: int = 1
    expected: str = ""
    floating: bool = False
    """Whether the column has floats."""


@dataclass(frozen=True, slots=True)
class FloatCell:
    path: str
    column: pa.DataType
    width: int
    """Bytes of a value: 4 for ``float``, 8 for ``double``."""


@dataclass(frozen=True, slots=True)
class DecimalCell:
    path: str
    column: pa.DataType
    size: int | None
    """Bytes of a value; None if its length comes first."""
    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class TextCell:
    path: str
    column: pa.DataType


@dataclass(frozen=True, slots=True)
class UuidTextCell:
    """A uuid as text, in a column of uuids."""

    path: str
    column: pa.DataType


@dataclass(frozen=True, slots=True)
class ZonedTextCell:
    """A time with a zone as text, by the rules of JSON, in a column of times with a zone."""

    path: str
    column: pa.DataType


@dataclass(frozen=True, slots=True)
class EnumCell:
    path: str
    column: pa.DataType
    symbols: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BytesCell:
    """Bytes, stored unchanged: in a binary column, or as the items of a vector one after the other."""

    path: str
    column: pa.DataType
    size: int | None
    """Bytes of a value; None if its length comes first."""
    exactly: int | None
    """Length that the column needs; None for any."""


@dataclass(frozen=True, slots=True)
class ItemsCell:
    """An array in a list or vector, or the entries of a map."""

    path: str
    column: pa.DataType | None
    item: Cell
    least_bytes: int
    """Fewest bytes of an item: 0 or 1."""


@dataclass(frozen=True, slots=True)
class MapCell:
    """A map in a column of maps.  A map with a repeated key is refused."""

    path: str
    column: pa.DataType
    entries: ItemsCell
    """The map as a list of structs of key and value, as Arrow stores it."""


@dataclass(frozen=True, slots=True)
class StructCell:
    """A record.  ``members`` are in the writer's order.  The number is the member's index in the struct, or None if the
    member is passed over.
    """

    path: str
    column: pa.DataType | None
    members: Sequence[tuple[Cell, int | None]]
    names: Sequence[str] = ()
    """Names of the members of the struct, by their places."""


@dataclass(frozen=True, slots=True)
class ChoiceCell:
    """A union.  A null branch gives null.  With ``places``, each other branch is a member of a struct.  Without
    ``places``, the union has one other branch, and its value is the cell.
    """

    path: str
    column: pa.DataType | None
    branches: Sequence[Cell]
    """By the index of the branch; a null branch is ``SkippedCell``."""
    places: Sequence[int | None] = ()
    names: Sequence[str] = ()
    """Names of the members of the struct, by their places."""


Cell = (
    SkippedCell | NullCell | BoolCell | NumberCell | FloatCell | DecimalCell | TextCell | UuidTextCell | ZonedTextCell
    | EnumCell | BytesCell | ItemsCell | MapCell | StructCell | ChoiceCell
)  # fmt: skip


def is_null(cell: Cell) -> bool:
    """Return whether a cell is the null branch of a union."""
    return isinstance(cell, SkippedCell) and isinstance(cell.of, AvroPlain) and cell.of.kind == "null"
