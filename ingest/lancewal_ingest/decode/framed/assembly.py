"""Parts that strict readers of binary values share: bytes of one value, its cells, and the Arrow arrays of cells.

The items of a list come as an array.  So a long list takes the memory of ``ITEMS_AT_ONCE`` Python values, whatever is in it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from lancewal_ingest.decode.outcomes import Refusal

ITEMS_AT_ONCE = 10_000
_VARINT_BYTES_MAX = 10
FLOATS = {4: struct.Struct("<f"), 8: struct.Struct("<d")}
"""Forms of floats, by their bytes."""
REFUSED = object()
"""Cell that its column cannot hold.  It is not null."""
_UUID = re.compile(rb"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


class ValueBytes:
    """The bytes of one value, and the index of the next byte to read."""

    __slots__ = ("at", "data", "late")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.late: Refusal | None = None
        """The first refusal that comes from a column, and not from the bytes."""

    def refuse(self, kind: str, path: str, expected: str) -> object:
        """Note that a column cannot hold its cell, and return ``REFUSED``."""
        return self.refused(Refusal(kind, f"column {path!r}: expected {expected}"))

    def refused(self, refusal: Refusal) -> object:
        """Note a refusal, and return ``REFUSED``.  Only the first refusal of a value is kept."""
        if self.late is None:
            self.late = refusal
        return REFUSED

    def where(self, of: Any) -> str:
        """Return the name of a cell's place in the schema, for a message."""
        return str(of)

    def long_varint(self, end: int, of: Any) -> int:
        """Return the next integer, which has several bytes and at most 64 bits.  ``end``: the index after the last byte
        that the integer may use.
        """
        value = shift = 0
        for byte in self.data[self.at : min(self.at + _VARINT_BYTES_MAX, end)]:
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        else:
            malformed(self.where(of), "an integer, of at most 10 bytes")
        if value >> 64:
            malformed(self.where(of), "an integer of at most 64 bits")
        return value

    def text_of(self, data: bytes, of: Any) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            malformed(self.where(of), "text in UTF-8")


def malformed(where: str, expected: str) -> NoReturn:
    """Raise ``Refusal`` of kind ``malformed``: the bytes at ``where`` do not match the schema."""
    raise Refusal("malformed", f"{where}: expected {expected}")


def vector_of(data: bytes, column: pa.DataType) -> Any:
    """Return the items of a vector whose value is the bytes of its items, little endian."""
    return np.frombuffer(data, np.dtype(column.value_type.to_pandas_dtype()).newbyteorder("<"))


def array_of(cells: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Return an Arrow array of cells.  Cells of a list or map are arrays, and cells of a struct are dicts."""
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
    """Return the 16 bytes of a uuid from its text; None if the text is not a uuid."""
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
