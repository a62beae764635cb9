"""Conversion of the arrays that the JSON decoder has read from payloads to the columns of a table.

1. Each cell is exactly what the payload says.  A row with a cell that its column cannot hold, or with a null that the
   schema does not allow, has a *fault*.  Its cells mean nothing then.
2. A fault is found for all rows at a time.  A row is refused for its first fault, in the order of the cells.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from lancewal_ingest.decode.avro.cells import Cell, ChoiceCell, DecimalCell, ItemsCell, MapCell, StructCell
from lancewal_ingest.decode.avro.columnar import decimals
from lancewal_ingest.decode.connect.wire import is_float_vector, value_cell
from lancewal_ingest.decode.framed.arrays import blobs, numbers
from lancewal_ingest.decode.framed.cells import BytesCell, FloatCell, NumberCell
from lancewal_ingest.decode.framed.cursors import Cursors
from lancewal_ingest.decode.json.transport import lift_vector, rows_with
from lancewal_ingest.decode.outcomes import Refusal
from lancewal_ingest.decode.value_decoder import Mask, mask_of


class Fault(NamedTuple):
    rows: Mask
    why: Refusal


Note = Callable[[Mask, str, str], None]
"""Function that notes a fault.  It is given a mask of the values that have the fault, the kind of their refusal, and
its message."""


def lifted(cell: Cell, array: pa.Array, faults: list[Fault]) -> pa.Array:
    """Convert ``array`` to the type of its column, and return the result.  Rows that cannot be converted are added to
    ``faults``.
    """
    return _lift(cell, array, None, lambda wrong, kind, message: faults.append(Fault(wrong, Refusal(kind, message))))


def _lift(cell: Cell, array: pa.Array, live: Mask | None, note: Note) -> pa.Array:
    """Convert an array, and note each null that the schema does not allow.

    ``live``: a mask of the values whose struct is not null; None if all are.
    """
    if array.null_count and not isinstance(cell, ChoiceCell):
        missing = ~mask_of(array.is_valid()) if live is None else ~mask_of(array.is_valid()) & live
        if missing.any():
            note(
                missing,
                "malformed",
                f"column {cell.path!r}: expected a value, because its schema says that it is not optional",
            )
    return _value(value_cell(cell), array, note)


def _value(cell: Cell, array: pa.Array, note: Note) -> pa.Array:
    """Return the array of a column, in which any value may be null."""
    match cell:
        case NumberCell():
            return _numbers(cell, array, note)
        case DecimalCell():
            return _of_bytes(cell, array, note)
        case BytesCell(column=column) if pa.types.is_fixed_size_list(column):
            return _of_bytes(cell, array, note)
        case ItemsCell():
            return _items(cell, array, note)
        case MapCell():
            return _map(cell, array, note)
        case StructCell():
            return _struct(cell, array, note)
        case FloatCell(column=column):
            return array if array.type == column else array.cast(column)
    return array


def _numbers(cell: NumberCell, array: pa.Array, note: Note) -> pa.Array:
    live = mask_of(array.is_valid()) if array.null_count else None
    values = array if live is None else array.fill_null(0)
    found, wrong = numbers(cell, values.to_numpy().astype(np.int64), live)
    if wrong is not None and live is not None:
        wrong &= live
    if wrong is not None and wrong.any():
        note(wrong, "range", f"column {cell.path!r}: expected {cell.expected}")
    return found


def _of_bytes(cell: DecimalCell | BytesCell, array: pa.Array, note: Note) -> pa.Array:
    """Return decimals or vectors, which the JSON decoder has read as bytes."""
    live = mask_of(array.is_valid()) if array.null_count else None
    if len(array) == 0:
        return pa.array([], cell.column)
    _, ends, data = array.buffers()
    borders = np.frombuffer(ends, np.int32, len(array) + 1, 4 * array.offset).astype(np.int64)
    cursors = Cursors(np.frombuffer(data or b"", np.uint8), borders[:-1], borders[1:], 0)
    sizes = np.diff(borders)
    if isinstance(cell, DecimalCell):
        found = decimals(cell, sizes, cursors, live)
        kind, expected = "range", f"a decimal of 1 to {cell.precision} digits, as its schema and the column say"
    else:
        found = blobs(cell, cursors, sizes, live, live)
        kind, expected = "type", f"{cell.exactly} bytes"
    if cursors.doubtful.any():
        note(cursors.doubtful, kind, f"column {cell.path!r}: expected {expected}")
    return found


def _items(cell: ItemsCell, array: pa.Array, note: Note) -> pa.Array:
    column = cell.column
    if is_float_vector(cell):
        if array.type == column:
            return array
        items = array.values.cast(column.value_type)
        return pa.FixedSizeListArray.from_arrays(items, type=column, mask=array.is_null())
    vector = pa.types.is_fixed_size_list(column)

    def note_row(wrong: Mask, kind: str, message: str) -> None:
        note(rows_with(wrong, array), kind, message)

    # A null in a vector is a fault of the vector.
    given = array.values
    items = _value(value_cell(cell.item), given, note_row) if vector else _lift(cell.item, given, None, note_row)
    lists = pa.ListArray.from_arrays(array.offsets, items, mask=array.is_null())
    if not vector:
        return lists.cast(column) if lists.type != column else lists
    found, doubtful = lift_vector(lists, column)
    if doubtful is not None:
        note(doubtful, "type", f"column {cell.path!r}: expected {column.list_size} items, none of them null")
    return found


def _map(cell: MapCell, array: pa.Array, note: Note) -> pa.Array:
    entry = cell.entries.item
    assert isinstance(entry, StructCell)  # a map is a list of key and value
    offsets = array.offsets
    lists = pa.ListArray.from_arrays(offsets, array.items, mask=array.is_null())
    values = _lift(
        entry.members[1][0],
        array.items,
        None,
        lambda wrong, kind, message: note(rows_with(wrong, lists), kind, message),
    )
    return pa.MapArray.from_arrays(offsets, array.keys, values, type=cell.column, mask=array.is_null())


def _struct(cell: StructCell, array: pa.Array, note: Note) -> pa.Array:
    column = cell.column
    held = {place: member for member, place in cell.members if place is not None}
    live = mask_of(array.is_valid()) if array.null_count else None
    children = []
    # A null struct may have children that are not null: the reference path builds such arrays.
    given = array.flatten()
    for place, name in enumerate(cell.names):
        child = given[place]
        if place in held:
            children.append(_lift(held[place], child, live, note))
            continue
        if child.null_count < len(child):
            path = f"{cell.path}.{name}"
            note(
                mask_of(child.is_valid()),
                "malformed",
                f"column {path!r}: expected no value, because the schema has no such field",
            )
        children.append(pa.nulls(len(child), column.field(place).type))
    return pa.StructArray.from_arrays(children, fields=list(column), mask=array.is_null())
