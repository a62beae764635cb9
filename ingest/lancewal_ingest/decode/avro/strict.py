"""The strict reader: one datum at a time, in plain Python.  It defines the right result; ``columnar`` is compared with it.

Guarantees
 1. ``read_datum`` returns the cells of a datum, or raises ``Refusal``.  It reads each byte once, and at most as many items of
    arrays and maps as the datum has bytes.  So an array with more items is refused, even if its items take no bytes.
 2. A datum is ``malformed`` if its bytes are not one value of the schema, with nothing after it: a number of more than 10
    bytes or outside its type, a branch or symbol that does not exist, a boolean that is neither 0 nor 1, a length that is
    negative or exceeds the bytes that remain, a block whose size in bytes is wrong, text that is not UTF-8.
 3. A refusal of another kind comes from the first cell that its column cannot hold.  ``malformed`` and ``too_deep`` go first.
 4. Values that are passed over are read with a stack of their own, at most ``DEPTH_MAX`` deep.  Other values are as deep as
    their columns.
 5. A message names the path of the cell, and holds nothing of the datum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from lancewal_ingest.decode.avro.cells import (
    AvroNumber,
    Cell,
    ChoiceCell,
    DecimalCell,
    EnumCell,
    ItemsCell,
    MapCell,
    Member,
    NullCell,
    SkippedCell,
    StructCell,
    ZonedTextCell,
    is_null,
)
from lancewal_ingest.decode.avro.schema import (
    AvroArray,
    AvroEnum,
    AvroFixed,
    AvroMap,
    AvroPlain,
    AvroRecord,
    AvroType,
    AvroUnion,
    takes_no_bytes,
)
from lancewal_ingest.decode.framed.assembly import (
    REFUSED,
    ValueBytes,
    check_row,
    distinct_entries,
    items_of,
    malformed,
    number_of,
    read_bytes,
    read_float,
    read_text,
    read_uuid,
)
from lancewal_ingest.decode.framed.cells import BoolCell, BytesCell, FloatCell, TextCell, UuidTextCell
from lancewal_ingest.decode.json.cells import CellReader, cell_reader
from lancewal_ingest.decode.outcomes import Refusal

DEPTH_MAX = 64
"""Maximum number of records, arrays and maps inside each other in a value that is passed over."""


class Datum(ValueBytes):
    """The bytes of one datum, and the index of the next byte to read."""

    __slots__ = ("items_left",)

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.items_left = len(data)
        """Number of items of arrays and maps that may still come."""

    def number(self, of: object) -> int:
        """Return the next number, which has at most 64 bits."""
        if self.at < len(self.data) and (first := self.data[self.at]) < 0x80:
            self.at += 1
            return (first >> 1) ^ -(first & 1)
        value = self.long_varint(len(self.data), of)
        return (value >> 1) ^ -(value & 1)

    length = number

    def bytes(self, size: int, of: object) -> bytes:
        if not 0 <= size <= len(self.data) - self.at:
            malformed(of, "a length of at most the bytes that remain")
        begin, self.at = self.at, self.at + size
        return self.data[begin : self.at]

    def blocks(self, cell: Cell) -> Iterator[int]:
        """Yield the number of items of each block of an array or map.  The caller must read these items before it asks
        for the next block.
        """
        while count := self.number(cell):
            end = None
            if count < 0:
                count, size = -count, self.number(cell)
                if not 0 <= size <= len(self.data) - self.at:
                    malformed(cell, "a block of at most the bytes that remain")
                end = self.at + size
            self.items_left -= count
            if self.items_left < 0:
                malformed(cell, "at most as many items as the record has bytes")
            yield count
            if end is not None and self.at != end:
                malformed(cell, "a block that has the bytes that it says")


def read_datum(members: Sequence[Member], data: bytes, keys: Mapping[int, str]) -> dict[int, Any]:
    """Return the cell of each column that the datum has, by the column's index.

    ``keys``: the name of each primary key column, by its index.
    """
    datum = Datum(data)
    cells: dict[int, Any] = {}
    for cell, place in members:
        found = _READERS[type(cell)](cell, datum)
        if place is not None:
            cells[place] = found
    if datum.at != len(data):
        raise Refusal("malformed", "expected one value of the schema, and nothing after it")
    check_row(cells, keys, datum)
    return cells


def read_cell(cell: Cell, datum: Datum) -> Any:
    """Read the next cell of a datum, and return its value; ``REFUSED`` if its column cannot hold the value.  Raises
    ``Refusal`` of kind ``malformed`` or ``too_deep``.
    """
    return _READERS[type(cell)](cell, datum)


def _null(_: NullCell, __: Datum) -> None:
    return None


def _bool(cell: BoolCell, datum: Datum) -> bool:
    return _truth(datum, cell)


def _truth(datum: Datum, cell: Cell) -> bool:
    byte = datum.bytes(1, cell)
    if byte not in (b"\0", b"\1"):
        malformed(cell, "a boolean, which is 0 or 1")
    return byte == b"\1"


def _integer(datum: Datum, cell: Cell, *, long: bool) -> int:
    value = datum.number(cell)
    if not long and not -(1 << 31) <= value < 1 << 31:
        malformed(cell, "an int of 32 bits")
    return value


def _number(cell: AvroNumber, datum: Datum) -> object:
    return number_of(cell, _integer(datum, cell, long=cell.long), datum)


def _decimal(cell: DecimalCell, datum: Datum) -> object:
    data = datum.run(cell) if cell.size is None else datum.bytes(cell.size, cell)
    if not data:
        malformed(cell, "a decimal, which has a byte at least")
    unscaled = int.from_bytes(data, "big", signed=True)
    if abs(unscaled) >= 10**cell.precision:
        return datum.refuse("range", cell.path, f"a decimal of at most {cell.precision} digits, as the schema says")
    return Decimal(f"{unscaled}e-{cell.scale}")


def _zoned(cell: ZonedTextCell, datum: Datum) -> object:
    text = read_text(cell, datum)
    try:
        return _time_reader(cell.column)(text, cell.path)
    except Refusal as refusal:
        return datum.refused(refusal)


@lru_cache(64)
def _time_reader(column: pa.DataType) -> CellReader:
    return cell_reader(column)


def _symbol(cell: EnumCell, datum: Datum) -> str:
    return cell.symbols[_index(datum, len(cell.symbols), cell, "symbol")]


def _index(datum: Datum, count: int, cell: Cell, word: str) -> int:
    index = datum.number(cell)
    if not 0 <= index < count:
        malformed(cell, f"the index of a {word}, 0 to {count - 1}")
    return index


def _items(cell: ItemsCell, datum: Datum) -> Any:
    item = cell.item
    found: Any
    if datum.data[datum.at : datum.at + 1] == b"\0" and pa.types.is_list(cell.column):
        datum.at += 1
        return items_of((), item.column)
    if isinstance(item, FloatCell):
        form = np.dtype(f"<f{item.width}")
        runs = [np.frombuffer(datum.bytes(count * item.width, cell), form) for count in datum.blocks(cell)]
        found = pa.array(np.concatenate(runs) if runs else np.empty(0, form), item.column)
    else:
        read = _READERS[type(item)]
        given = (read(item, datum) for count in datum.blocks(cell) for _ in range(count))
        found = items_of((None if one is REFUSED else one for one in given), item.column)
    if pa.types.is_list(cell.column):
        return found
    if len(found) != cell.column.list_size or found.null_count:
        return datum.refuse("type", cell.path, f"{cell.column.list_size} items, none of them null")
    return found.to_numpy()


def _map(cell: MapCell, datum: Datum) -> object:
    return distinct_entries(_items(cell.entries, datum), cell.path, datum)


def _struct(cell: StructCell, datum: Datum) -> dict[str, Any]:
    found = {}
    for member, place in cell.members:
        value = _READERS[type(member)](member, datum)
        if place is not None and value is not REFUSED:
            found[cell.names[place]] = value
    return found


def _choice(cell: ChoiceCell, datum: Datum) -> Any:
    index = _index(datum, len(cell.branches), cell, "branch")
    branch = cell.branches[index]
    value = _READERS[type(branch)](branch, datum)
    if not cell.places:
        return value
    place = cell.places[index]
    if place is None:
        return None if is_null(branch) else {}
    return {} if value is REFUSED else {cell.names[place]: value}


def _passed(cell: SkippedCell, datum: Datum) -> None:
    if takes_no_bytes(cell.of):
        return
    frames: list[Iterator[AvroType]] = [iter((cell.of,))]
    while frames:
        type_ = next(frames[-1], None)
        if type_ is None:
            frames.pop()
            continue
        while isinstance(type_, AvroUnion):
            type_ = type_.branches[_index(datum, len(type_.branches), cell, "branch")]
        match type_:
            case AvroRecord():
                frames.append(iter(type_.parts or ()))
            case AvroArray(items=items):
                frames.append(_items_of(datum, items, cell))
            case AvroMap(values=values):
                frames.append(_values_of(datum, values, cell))
            case _:
                _pass_leaf(type_, datum, cell)
        if len(frames) > DEPTH_MAX + 1:
            raise Refusal(
                "too_deep", f"{cell}: expected at most {DEPTH_MAX} records, arrays and maps inside each other"
            )


def _items_of(datum: Datum, items: AvroType, cell: Cell) -> Iterator[AvroType]:
    for count in datum.blocks(cell):
        for _ in range(count):
            yield items


def _values_of(datum: Datum, values: AvroType, cell: Cell) -> Iterator[AvroType]:
    for count in datum.blocks(cell):
        for _ in range(count):
            datum.run(cell)
            yield values


def _pass_leaf(type_: AvroType, datum: Datum, cell: Cell) -> None:
    match type_:
        case AvroEnum(symbols=symbols):
            _index(datum, len(symbols), cell, "symbol")
        case AvroFixed(size=size):
            datum.bytes(size, cell)
        case AvroPlain(kind="boolean"):
            _truth(datum, cell)
        case AvroPlain(kind="int" | "long" as kind):
            _integer(datum, cell, long=kind == "long")
        case AvroPlain(kind="float" | "double" as kind):
            datum.bytes(4 if kind == "float" else 8, cell)
        case AvroPlain(kind="bytes" | "string"):
            datum.run(cell)


_READERS: Mapping[type, Callable[[Any, Datum], Any]] = {
    SkippedCell: _passed,
    NullCell: _null,
    BoolCell: _bool,
    AvroNumber: _number,
    FloatCell: read_float,
    DecimalCell: _decimal,
    TextCell: read_text,
    UuidTextCell: read_uuid,
    ZonedTextCell: _zoned,
    EnumCell: _symbol,
    BytesCell: read_bytes,
    ItemsCell: _items,
    MapCell: _map,
    StructCell: _struct,
    ChoiceCell: _choice,
}
