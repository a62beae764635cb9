"""The fast path: decode many datums field by field, each field of all rows at a time.

Guarantees
1. A row that is not doubtful has the cells of ``strict``.  ``strict`` must decide on doubtful rows.
2. Whether a row is doubtful follows from its own bytes, or the reason is the schema.  All rows that ``strict``
   refuses are doubtful.  So are rows with these values: lists in several blocks or with a size in bytes; lists of
   more than ``ITEMS_MAX`` items that are neither floats nor integers; indexes and lengths in more bytes than they
   need; deep or very many values that are passed over.
3. Temporaries take a few times the bytes of the chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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
    AvroUnion,
    takes_no_bytes,
)
from lancewal_ingest.decode.framed.arrays import (
    blobs,
    fixed_width,
    float_items,
    floats,
    integer_items,
    item_by_item,
    list_of,
    map_of,
    numbers,
    struct_of,
    texts,
    truths,
    uuids,
    vectors,
)
from lancewal_ingest.decode.framed.cells import BoolCell, BytesCell, FloatCell, TextCell, UuidTextCell
from lancewal_ingest.decode.framed.cursors import Cursors, Integers
from lancewal_ingest.decode.json.transport import cast_text, timestamp_form
from lancewal_ingest.decode.value_decoder import Mask

ITEMS_MAX = 64
"""Maximum number of items of a list that is read item by item.  A row with a longer list is doubtful."""
STEPS_MAX = 5_000
"""Maximum number of reads in a chunk of values that are passed over, and of list items.  One read is made at all
cursors."""
_BRANCHES_MAX = 64
"""Number of branches of a union whose indexes have one byte.  A row with another branch is doubtful."""
_DEPTH_MAX = 8
"""Maximum nesting of types that are passed over here.  Rows with deeper types are doubtful."""


def read_columns(members: Sequence[Member], cursors: Cursors) -> dict[int, pa.Array]:
    """Return the array of each column that the datums have, by the column's index.  The array holds no valid cell for
    rows in ``Cursors.doubtful``.
    """
    found = {}
    for cell, place in members:
        array = read_cell(cell, cursors, None)
        if place is not None:
            found[place] = array
    cursors.doubtful |= cursors.at != cursors.ends
    return found


def read_cell(cell: Cell, cursors: Cursors, live: Mask | None = None) -> Any:
    """Return the array of one cell of each datum; None for a cell that is passed over.

    ``live``: a mask of the rows to read; None: all (``cursors``).
    """
    return _READERS[type(cell)](cell, cursors, live)


def _null(cell: NullCell, cursors: Cursors, _: Mask | None) -> pa.Array:
    return pa.nulls(len(cursors), cell.column)


def _bool(cell: BoolCell, cursors: Cursors, live: Mask | None) -> pa.Array:
    return truths(_truths(cursors, live), cell.column, live)


def _truths(cursors: Cursors, live: Mask | None) -> npt.NDArray[np.uint8]:
    found = cursors.bytes(live)
    cursors.doubtful |= found > 1
    return found


def _integers(cursors: Cursors, live: Mask | None, *, long: bool) -> npt.NDArray[np.int64]:
    values = cursors.numbers(live)
    if not long:
        cursors.doubtful |= values != values.astype(np.int32)
    return values


def _number(cell: AvroNumber, cursors: Cursors, live: Mask | None) -> pa.Array:
    found, wrong = numbers(cell, _integers(cursors, live, long=cell.long), live)
    if wrong is not None:
        cursors.doubt(wrong, live)
    return found


def _float(cell: FloatCell, cursors: Cursors, live: Mask | None) -> pa.Array:
    return floats(cell, cursors, live, live)


def _sizes(size: int | None, cursors: Cursors, live: Mask | None) -> Integers:
    sizes = cursors.numbers(live) if size is None else np.full(len(cursors), size, np.int64)
    return cursors.room(sizes, live)


def _decimal(cell: DecimalCell, cursors: Cursors, live: Mask | None) -> pa.Array:
    return decimals(cell, _sizes(cell.size, cursors, live), cursors, live)


def decimals(cell: DecimalCell, sizes: Integers, cursors: Cursors, live: Mask | None) -> pa.Array:
    """Return an array of the decimals at the cursors.  ``sizes``: the bytes of each decimal."""
    cursors.doubt((sizes == 0) | (sizes > 16), live)
    sizes = np.where(sizes > 16, 0, sizes)
    low = cursors.word(sizes - 8).byteswap().view(np.int64)
    shift = np.clip(64 - 8 * sizes, 0, 63)
    low = (low << shift) >> shift
    high = low >> 63
    long = sizes > 8
    if long.any():
        top = cursors.word(sizes - 16).byteswap().view(np.int64)
        shift = np.clip(128 - 8 * sizes, 0, 63)
        high = np.where(long, (top << shift) >> shift, high)
    if cell.precision <= 18:
        bound = 10**cell.precision
        cursors.doubt((low >= bound) | (low <= -bound) | (high != low >> 63), live)
    else:
        most, rest = divmod(10**cell.precision, 1 << 64)
        unsigned = low.view(np.uint64)
        above = (high > most) | ((high == most) & (unsigned >= np.uint64(rest)))
        least, rest = divmod(-(10**cell.precision), 1 << 64)
        below = (high < least) | ((high == least) & (unsigned <= np.uint64(rest)))
        cursors.doubt(above | below, live)
    cursors.move(sizes, None)
    limbs = np.empty((len(low), 2), np.int64)
    unused = cursors.doubtful if live is None else cursors.doubtful | ~live
    limbs[:, 0], limbs[:, 1] = np.where(unused, 0, low), np.where(unused, 0, high)
    found = fixed_width(limbs, pa.decimal128(cell.precision, cell.scale), live)
    return found if found.type == cell.column else found.cast(cell.column)


def _text(cell: TextCell, cursors: Cursors, live: Mask | None) -> pa.Array:
    return texts(cursors, _sizes(None, cursors, live), cell.column, live)


def _uuid(cell: UuidTextCell, cursors: Cursors, live: Mask | None) -> pa.Array:
    return uuids(cell, cursors, _sizes(None, cursors, live), live, live)


def _zoned(cell: ZonedTextCell, cursors: Cursors, live: Mask | None) -> pa.Array:
    found = texts(cursors, _sizes(None, cursors, live), pa.string(), live)
    if cursors.doubtful.any():  # bytes of a doubtful row may be no text
        found = pc.if_else(pa.array(cursors.doubtful), pa.scalar(None, found.type), found)
    try:
        times, others = cast_text(found, cell.column, timestamp_form(cell.column))
    except pa.ArrowInvalid:  # a day that its month does not have
        times, others = pa.nulls(len(found), cell.column), np.ones(len(found), np.bool_)
    if others is not None:
        cursors.doubt(others, live)
    return times


def _symbol(cell: EnumCell, cursors: Cursors, live: Mask | None) -> pa.Array:
    return pa.array(cell.symbols or [""], cell.column).take(
        pa.array(_indexes(len(cell.symbols), cursors, live), mask=None if live is None else ~live)
    )


def _indexes(count: int, cursors: Cursors, live: Mask | None) -> Integers:
    found = cursors.numbers(live)
    wrong = (found < 0) | (found >= count)
    cursors.doubt(wrong, live)
    return np.where(wrong, 0, found)


def _bytes(cell: BytesCell, cursors: Cursors, live: Mask | None) -> pa.Array:
    return blobs(cell, cursors, _sizes(cell.size, cursors, live), live, live)


def _struct(cell: StructCell, cursors: Cursors, live: Mask | None) -> pa.Array:
    children: dict[int, pa.Array] = {}
    for member, place in cell.members:
        array = read_cell(member, cursors, live)
        if place is not None:
            children[place] = array
    return None if cell.column is None else struct_of(cell.column, children, len(cursors), live)


def _choice(cell: ChoiceCell, cursors: Cursors, live: Mask | None) -> pa.Array:
    codes = cursors.bytes(live)
    known = np.zeros(len(codes), np.bool_)
    nulls = known
    whole: pa.Array | None = None
    children: dict[int, pa.Array] = {}
    for index, branch in enumerate(cell.branches[:_BRANCHES_MAX]):
        chosen = codes == 2 * index
        if live is not None:
            chosen &= live
        known = known | chosen
        if is_null(branch):
            nulls = nulls | chosen
            continue
        array = _read_some(branch, cursors, chosen)
        if not cell.places:
            whole = array
        elif cell.places[index] is not None:
            children[cell.places[index]] = array  # type: ignore[index]  # it is not None
    cursors.doubt(~known, live)
    if cell.column is None:
        return None
    if cell.places:
        full = ~nulls if live is None else live & ~nulls
        return struct_of(cell.column, children, len(codes), full)
    return pa.nulls(len(codes), cell.column) if whole is None else whole


def _read_some(cell: Cell, cursors: Cursors, chosen: Mask) -> Any:
    """Read a cell for the chosen rows."""
    if chosen.all():
        return read_cell(cell, cursors, None)
    if cell.column is None and not chosen.any():
        return None  # types within themselves end here
    return read_cell(cell, cursors, chosen)


def _items(cell: ItemsCell, cursors: Cursors, live: Mask | None) -> Any:
    counts = cursors.numbers(live)
    item = cell.item
    width = item.width if isinstance(item, FloatCell) else 0
    most = cursors.ends - cursors.at
    wrong = (counts < 0) | (counts > (most // width if width else most))
    if not width and not isinstance(item, AvroNumber):
        wrong |= counts > (ITEMS_MAX if cell.least_bytes else 0)
    vector = cell.column is not None and pa.types.is_fixed_size_list(cell.column)
    if vector:
        wrong |= counts != cell.column.list_size
    cursors.doubt(wrong, live)
    counts = np.where(wrong, 0, counts)
    filled = counts > 0
    if isinstance(item, FloatCell):
        items = float_items(item, cursors, counts * width)
    elif isinstance(item, AvroNumber):
        items = integer_items(cursors, counts, item.column, lambda few: _number(item, few, None))
    else:
        items = _one_by_one(item, cursors, counts)
    cursors.doubtful |= cursors.bytes(filled) != 0  # the end of the list
    if cell.column is None:
        return None
    if vector:
        return vectors(cell.column, items, cursors, counts, live)
    return list_of(cell.column, items, counts, live)


def _map(cell: MapCell, cursors: Cursors, live: Mask | None) -> pa.Array:
    return map_of(cell.column, _items(cell.entries, cursors, live), cursors)


def _one_by_one(item: Cell, cursors: Cursors, counts: Integers) -> Any:
    """Read items that are neither floats nor integers, one after the other in each list."""
    if item.column is not None and cursors.steps_left < 0:
        cursors.doubtful |= counts > 0
        counts[:] = 0
    left = counts.copy()

    def read(few: Cursors, rows: Integers) -> tuple[Any, Mask]:
        items = read_cell(item, few, None)
        few.steps_left -= item.column is not None
        left[rows] -= 1
        return items, left[rows] > 0

    found = item_by_item(cursors, np.flatnonzero(counts > 0), read)
    return pa.array([], item.column) if found is None and item.column is not None else found


def _passed(cell: SkippedCell, cursors: Cursors, live: Mask | None) -> None:
    if takes_no_bytes(cell.of):
        return
    cursors.steps_left -= 1
    if cursors.steps_left < 0 or cursors.depth == _DEPTH_MAX:
        cursors.doubt(np.ones(len(cursors), np.bool_), live)
        return
    cursors.depth += 1
    match cell.of:
        case AvroPlain(kind=kind):
            _pass_plain(kind, cursors, live)
        case AvroFixed(size=size):
            cursors.move(_sizes(size, cursors, live), None)
        case AvroEnum(symbols=symbols):
            _indexes(len(symbols), cursors, live)
        case _:
            read_cell(_opened(cell), cursors, live)
    cursors.depth -= 1


def _pass_plain(kind: str, cursors: Cursors, live: Mask | None) -> None:
    match kind:
        case "boolean":
            _truths(cursors, live)
        case "int" | "long":
            _integers(cursors, live, long=kind == "long")
        case "float" | "double":
            cursors.move(4 if kind == "float" else 8, live)
        case "bytes" | "string":
            cursors.move(_sizes(None, cursors, live), None)


def _opened(cell: SkippedCell) -> Cell:
    """Return the cell that passes over a type with other types in it: a record, array, map or union."""
    path = cell.path
    match cell.of:
        case AvroArray(items=items):
            return ItemsCell(path, None, SkippedCell(items, path), 0 if takes_no_bytes(items) else 1)
        case AvroMap(values=values):
            pair = [(SkippedCell(AvroPlain("string"), path), None), (SkippedCell(values, path), None)]
            return ItemsCell(path, None, StructCell(path, None, pair), 1)
        case AvroUnion(branches=branches):
            return ChoiceCell(path, None, [SkippedCell(branch, path) for branch in branches])
        case AvroRecord(parts=parts):
            return StructCell(path, None, [(SkippedCell(one, path), None) for one in parts or ()])
    raise AssertionError(cell)


_READERS: Mapping[type, Callable[[Any, Cursors, Mask | None], Any]] = {
    SkippedCell: _passed,
    NullCell: _null,
    BoolCell: _bool,
    AvroNumber: _number,
    FloatCell: _float,
    DecimalCell: _decimal,
    TextCell: _text,
    UuidTextCell: _uuid,
    ZonedTextCell: _zoned,
    EnumCell: _symbol,
    BytesCell: _bytes,
    ItemsCell: _items,
    MapCell: _map,
    StructCell: _struct,
    ChoiceCell: _choice,
}
