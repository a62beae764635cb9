"""Cells that are read one by one, and the Arrow arrays of them.

The items of a list come as an array.  So a long list takes the memory of ``ITEMS_AT_ONCE`` Python values, whatever is in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

ITEMS_AT_ONCE = 10_000
_UUID = re.compile(rb"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


def array_of(cells: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Return an array of cells.  Those of a list or map are arrays, those of a struct are dicts."""
    if pa.types.is_list(type_) or pa.types.is_map(type_):
        item = type_.value_type if pa.types.is_list(type_) else pa.struct([type_.key_field, type_.item_field])
        ends = np.cumsum([0, *(0 if cell is None else len(cell) for cell in cells)], dtype=np.int32)
        items = pa.concat_arrays([cell for cell in cells if cell is not None] or [pa.array([], item)])
        return pa.Array.from_buffers(type_, len(cells), [_validity(cells), pa.py_buffer(ends)], children=[items])
    if pa.types.is_struct(type_):
        members = [
            array_of([None if cell is None else cell.get(member.name) for cell in cells], member.type)
            for member in type_
        ]
        return pa.Array.from_buffers(type_, len(cells), [_validity(cells)], children=members)
    if type_ == pa.uuid():
        return pa.ExtensionArray.from_storage(type_, pa.array(cells, type_.storage_type))
    return pa.array(cells, type_)


def uuid_of(text: bytes) -> bytes | None:
    """Return the bytes of a uuid that comes as text; None if the text is none."""
    return bytes.fromhex(text.replace(b"-", b"").decode()) if _UUID.fullmatch(text) else None


def items_of(cells: Iterable[Any], type_: pa.DataType) -> pa.Array:
    """Return the array of the items of one list."""
    left = iter(cells)
    pieces = []
    while piece := list(islice(left, ITEMS_AT_ONCE)):
        pieces.append(array_of(piece, type_))
    if len(pieces) == 1:
        return pieces[0]
    return pa.concat_arrays(pieces) if pieces else _no_items(type_)


@lru_cache(64)
def _no_items(type_: pa.DataType) -> pa.Array:
    return pa.array([], type_)


def _validity(cells: Sequence[Any]) -> pa.Buffer:
    return pa.py_buffer(np.packbits([cell is not None for cell in cells], bitorder="little"))
