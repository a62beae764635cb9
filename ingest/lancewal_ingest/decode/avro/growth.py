"""Upper bound of the memory that rows of a writer schema take beyond their slots of fixed size (``PayloadDecoder.growth``).

Each byte of a datum lies in at most one text or is the byte that each item of a list has for itself.  A null in a list, or an
empty item, takes its full width.  Names of enumerations take no bytes of the datum.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from lancewal_ingest.decode.avro.cells import (
    BytesCell,
    Cell,
    ChoiceCell,
    EnumCell,
    ItemsCell,
    MapCell,
    StructCell,
    TextCell,
)
from lancewal_ingest.decode.weight import slot_bits

Growth = tuple[int, int]
"""Bytes for each byte of a datum, and bytes for each datum."""


def growth_of(members: Sequence[tuple[Cell, int | None]]) -> Growth:
    """Return an upper bound of the memory of rows with these cells, beyond slots of fixed size."""
    return _together(cell for cell, place in members if place is not None)


def _together(cells: Iterable[Cell]) -> Growth:
    found = [_growth(cell) for cell in cells]
    return max((factor for factor, _ in found), default=0), sum(each for _, each in found)


def _growth(cell: Cell) -> Growth:
    match cell:
        case TextCell():
            return 1, 0
        case BytesCell(exactly=None):
            return 1, 0
        case EnumCell(symbols=symbols):
            return 0, max(map(len, symbols), default=0)
        case ItemsCell(column=column, item=item) if pa.types.is_list(column):
            factor, each = _growth(item)
            return -(-slot_bits(item.column) // 8) + factor + each, 0
        case MapCell(entries=entries):
            return _growth(entries)
        case StructCell(members=members):
            return _together(member for member, place in members if place is not None)
        case ChoiceCell(branches=branches, places=places):
            return _together(
                branch for number, branch in enumerate(branches) if not places or places[number] is not None
            )
    return 0, 0
