"""Parts that strict readers of binary values share: bytes of one value, readers of its cells, and the Arrow arrays of
cells.

The items of a list come as an array.  So a long list never takes the memory of more than ``ITEMS_AT_ONCE`` Python
values, whatever is in it.
"""

from __future__ import annotations

import re
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_ingest.decode.framed.cells import BytesCell, ColumnCell, FloatCell, NumberCell, UuidTextCell
from lancewal_ingest.decode.outcomes import Refusal

ITEMS_AT_ONCE = 10_000
_VARINT_BYTES_MAX = 10
_FLOATS = {4: struct.Struct("<f"), 8: struct.Struct("<d")}
"""Struct formats of floats, by their number of bytes."""
REFUSED = object()
"""Stands for a cell that its column cannot hold.  It is not a null."""
_UUID = re.compile(rb"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


class ValueBytes(ABC):
    """The bytes of one value, and the index of the next byte to read.

    Methods take ``of``, the cell, field or message that is being read: ``str`` of it names it in messages."""

    __slots__ = ("at", "data", "late")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.late: Refusal | None = None
        """The first refusal that comes from a column, and not from the bytes."""

    @abstractmethod
    def length(self, of: object) -> int:
        """Return the next length, which may be more than the bytes that remain."""

    def run(self, of: object) -> bytes:
        """Read a length, and return so many bytes after it."""
        return self.bytes(self.length(of), of)

    @abstractmethod
    def bytes(self, size: int, of: object) -> bytes:
        """Return the next ``size`` bytes."""

    def refuse(self, kind: str, path: str, expected: str) -> object:
        """Note that a column cannot hold its cell, and return ``REFUSED``."""
        return self.refused(Refusal(kind, f"column {path!r}: expected {expected}"))

    def refused(self, refusal: Refusal) -> object:
        """Note a refusal, and return ``REFUSED``.  Only the first refusal of a value is kept."""
        if self.late is None:
            self.late = refusal
        return REFUSED

    def long_varint(self, end: int, of: object) -> int:
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
            malformed(of, "an integer, of at most 10 bytes")
        if value >> 64:
            malformed(of, "an integer of at most 64 bits")
        return value


def malformed(of: object, expected: str) -> NoReturn:
    """Raise ``Refusal`` of kind ``malformed``: the bytes of ``of`` do not match the schema."""
    raise Refusal("malformed", f"{of}: expected {expected}")


def check_row(cells: Mapping[int, Any], keys: Mapping[int, str], data: ValueBytes) -> None:
    """Raise ``Refusal`` if a value that was read to its end is not a row.

    ``keys``: the name of each primary key column, by its index.
    """
    for place, name in keys.items():
        if cells.get(place) is None:
            raise Refusal("missing_key", f"column {name!r}: expected a value, because it is in the primary key")
    if data.late is not None:
        raise data.late


def number_of(cell: NumberCell, value: int, data: ValueBytes) -> object:
    """Return the cell of an integer."""
    if not cell.least <= value <= cell.most or value * cell.times % cell.per:
        return data.refuse("range", cell.path, cell.expected)
    return float(value) if cell.floating else value * cell.times // cell.per


def read_float(cell: FloatCell, data: ValueBytes) -> float:
    found: float = _FLOATS[cell.width].unpack(data.bytes(cell.width, cell))[0]
    return found


def read_text(cell: ColumnCell, data: ValueBytes) -> str:
    try:
        return data.run(cell).decode()
    except UnicodeDecodeError:
        malformed(cell, "text in UTF-8")


def read_uuid(cell: UuidTextCell, data: ValueBytes) -> object:
    text = data.run(cell)
    if cell.blank and not text:
        return None
    if not _UUID.fullmatch(text):
        return data.refuse("type", cell.path, "a uuid of 32 hexadecimal digits with four dashes")
    return bytes.fromhex(text.replace(b"-", b"").decode())


def read_bytes(cell: BytesCell, data: ValueBytes) -> Any:
    found = data.run(cell) if cell.size is None else data.bytes(cell.size, cell)
    if cell.blank and not found:
        return None
    if cell.exactly is not None and len(found) != cell.exactly:
        return data.refuse("type", cell.path, f"{cell.exactly} bytes")
    if pa.types.is_fixed_size_list(cell.column):
        return np.frombuffer(found, np.dtype(cell.column.value_type.to_pandas_dtype()).newbyteorder("<"))
    return found


def distinct_entries(entries: pa.Array, path: str, data: ValueBytes) -> object:
    """Return the entries of a map, or ``REFUSED`` if a key is repeated."""
    if len(entries) > 1 and pc.count_distinct(entries.field(0)).as_py() < len(entries):
        return data.refuse("duplicate_member", path, "each key of a map once")
    return entries


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
