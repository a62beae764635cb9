"""The fast path: decode many payloads field by field, each field of all rows at a time.

Steps
1. For each field, in the order of the numbers, find the rows whose cursor is at its tag, and read its values there.
   Serializers write in that order, so one pass reads nearly all rows.
2. Rows that are not at their end go through further passes, up to ``PASSES_MAX``, as long as some cursor moves.
3. Once ``STEPS_MAX`` fields were looked for in a chunk, ``strict`` decides on the rows whose fields are left.  So
   lists in lists, and very many fields, cost no more than in ``strict``.

Guarantees
1. A row that is not doubtful has the cells of ``strict``.  ``strict`` must decide on doubtful rows.
2. All rows that ``strict`` refuses are doubtful.  So are rows with field numbers that their schema does not have, a
   field twice, two members of a oneof, or tags with more bytes than they need.  So are rows with more than
   ``ITEMS_MAX`` items with a tag each (``NUMBERS_MAX`` if they are numbers).
3. Temporaries take a few times the bytes of the chunk.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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
from lancewal_ingest.decode.framed.cells import BoolCell, BytesCell, FloatCell, NumberCell, TextCell, UuidTextCell
from lancewal_ingest.decode.framed.cursors import Cursors, Integers, signed
from lancewal_ingest.decode.framed.protobuf.cells import (
    GROUP,
    LENGTH,
    VARINT,
    WIDTHS,
    IntegerForm,
    Message,
    MessageField,
    ProtoEnum,
    ProtoMessage,
    ProtoNumber,
    ProtoTime,
    ProtoWrapper,
    needs_value,
    zero_of,
)
from lancewal_ingest.decode.value_decoder import Mask

PASSES_MAX = 4
STEPS_MAX = 20_000
"""Maximum number of times that a field is looked for at all cursors of a chunk, which takes a few tenths of a second.
"""
ITEMS_MAX = 64
"""Maximum number of items with a tag each that are read item by item, unless they are numbers (``NUMBERS_MAX``)."""
NUMBERS_MAX = 1024
"""Maximum number of numbers with a tag each that are read item by item.  Older schemas write a tag for each number."""
_GIGA = 10**9


def read_columns(message: Message, cursors: Cursors) -> dict[int, pa.Array]:
    """Return the array of each column that the payloads have, by the column's index.  The array holds no valid cell for
    rows in ``Cursors.doubtful``.
    """
    return _read(message, cursors, None)


class _Found:
    """Values of one field so far: an array for each pass that found some, and a mask of the rows that have one."""

    def __init__(self, rows: int) -> None:
        self.seen = np.zeros(rows, np.bool_)
        self.pieces: list[tuple[Mask, Any]] = []

    def joined(self, field: MessageField, cursors: Cursors, live: Mask | None) -> pa.Array:
        """Return the array of the field.  Rows without a value have the cell of an absent value."""
        if not self.pieces:
            return _absent(field, cursors, live)
        if len(self.pieces) == 1:
            return self.pieces[0][1]
        count = len(self.seen)
        places = np.arange(count)
        for number, (here, _) in enumerate(self.pieces):
            places[here] = np.flatnonzero(here) + number * count
        return pa.concat_arrays([array for _, array in self.pieces]).take(pa.array(places))


def _read(message: Message, cursors: Cursors, live: Mask | None) -> dict[int, pa.Array]:
    """Read a message in the live rows.  Return its arrays, by the indexes of its columns or members.

    A cursor is at its end afterwards, or its row is doubtful.
    """
    found = defaultdict[int, _Found](lambda: _Found(len(cursors)))
    oneofs: dict[int, Mask] = {}
    for _ in range(PASSES_MAX):
        cursors.steps_left -= len(message.fields)
        if cursors.steps_left < 0:
            cursors.doubt(np.ones(len(cursors), np.bool_), live)
            break
        moved = False
        for field in message.fields:
            here, size = _at_tag(field, cursors, field.wire)
            packed = None
            if field.packable:
                packed, size = _at_tag(field, cursors, LENGTH)
                here |= packed
            if live is not None:
                here &= live
            if not here.any():
                continue
            moved = True
            one = found[field.number]
            cursors.doubtful |= here & one.seen
            if field.oneof is not None:
                before = oneofs.get(field.oneof)
                cursors.doubtful |= here & before & ~one.seen if before is not None else False
                oneofs[field.oneof] = here if before is None else before | here
            one.seen |= here
            array = _value(field, cursors, here, size, packed, live)
            if field.place is not None:
                one.pieces.append((here, array))
        if not moved or (cursors.at == cursors.ends).all():
            break
    cursors.doubt(cursors.at != cursors.ends, live)
    arrays = {}
    for field in message.kept:
        if field.required or needs_value(field):
            cursors.doubt(~found[field.number].seen, live)
        if field.place is not None:
            arrays[field.place] = found[field.number].joined(field, cursors, live)
    return arrays


def _at_tag(field: MessageField, cursors: Cursors, wire: int) -> tuple[Mask, int]:
    """Return a mask of the rows whose cursor is at the tag of a field, and the number of bytes of the tag."""
    tag, data = field.number << 3 | wire, bytearray()
    while tag >= 0x80:
        data.append(tag & 0x7F | 0x80)
        tag >>= 7
    data.append(tag)
    if len(data) == 1:
        here = cursors.data.take(cursors.at) == tag
    else:
        word = cursors.word()
        here = (word & np.uint64((1 << 8 * len(data)) - 1)) == np.uint64(int.from_bytes(data, "little"))
    here &= cursors.at < cursors.ends
    return here, len(data)


def _value(field: MessageField, cursors: Cursors, here: Mask, tag: int, packed: Mask | None, live: Mask | None) -> Any:
    """Return the values of a field in the rows whose cursors are at its tag, and move these cursors."""
    if field.place is None:
        cursors.move(tag, here)
        _skip(field, cursors, here, packed)
        return None
    if field.form != "one":
        return _repeated(field, cursors, here, tag, packed, live)
    some = None if here.all() else here
    cursors.move(tag, some)
    # A value that is absent is null, or zero if it has no presence.  What a struct holds where it is null means nothing.
    return _READERS[type(field.cell)](field.cell, cursors, some, some if field.presence else live)


def _absent(field: MessageField, cursors: Cursors, live: Mask | None) -> pa.Array:
    count = len(cursors)
    if field.form in ("list", "map"):
        return _collected(field, pa.nulls(0, field.cell.column), np.zeros(count, np.int64), cursors, live)
    zero = None if field.presence or field.form == "vector" else zero_of(field.cell)
    if zero is None:
        return pa.nulls(count, field.column)
    found = pa.array([zero], field.column).take(pa.array(np.zeros(count, np.int32)))
    return found if live is None else found.take(pa.array(np.arange(count), mask=~live))


def _skip(field: MessageField, cursors: Cursors, here: Mask, packed: Mask | None) -> None:
    """Move the cursors over a value."""
    runs = packed & here if packed is not None else here if field.wire == LENGTH else None
    if runs is not None and runs.any():
        cursors.move(cursors.room(cursors.varints(runs).view(np.int64), runs), None)
        here = here & ~runs
    if field.wire == VARINT:
        cursors.varints(here)
    elif field.wire == GROUP:
        cursors.doubtful |= here
    elif field.wire != LENGTH:
        cursors.move(WIDTHS[field.wire], here)


def _sizes(cursors: Cursors, live: Mask | None) -> Integers:
    # A length of 2^63 and more is negative here, and no room either.
    return cursors.room(cursors.varints(live).view(np.int64), live)


def _number(cell: ProtoNumber, cursors: Cursors, live: Mask | None, valid: Mask | None) -> pa.Array:
    # The range of the column lies within that of the type, so numbers of too many bits are outside it too.
    values: npt.NDArray[Any]
    if cell.form.wire == VARINT:
        word = cursors.varints(live)
        values = signed(word) if cell.form.zigzag else word.view(np.int64) if cell.form.signed else word
    else:
        values = _fixed(cursors, cell.form, live)
    found, wrong = numbers(cell, values, valid)
    if wrong is not None:
        cursors.doubt(wrong, live)
    return found


def _fixed(cursors: Cursors, form: IntegerForm, live: Mask | None) -> npt.NDArray[Any]:
    word = cursors.word()
    cursors.move(WIDTHS[form.wire], live)
    if live is not None:
        word *= live
    if form.bits == 64:
        return word.view(np.int64) if form.signed else word
    return word.astype(np.uint32).view(np.int32) if form.signed else word.astype(np.uint32)


def _bool(cell: BoolCell, cursors: Cursors, live: Mask | None, valid: Mask | None) -> pa.Array:
    values = cursors.varints(live)
    cursors.doubt(values > 1, live)
    return truths(values.astype(np.bool_), cell.column, valid)


def _symbol(cell: ProtoEnum, cursors: Cursors, live: Mask | None, valid: Mask | None) -> pa.Array:
    values = cursors.varints(live).view(np.int64)
    numbers, names = np.array(list(cell.names)), list(cell.names.values())
    places = np.searchsorted(numbers, values)
    places[places == len(numbers)] = 0
    wrong = numbers[places] != values
    cursors.doubt(wrong, live)
    if live is not None:
        places[~live] = names.index(cell.zero)
    return pa.array(names, cell.column).take(pa.array(places, mask=None if valid is None else ~valid))


def _text(cell: TextCell, cursors: Cursors, live: Mask | None, valid: Mask | None) -> pa.Array:
    return texts(cursors, _sizes(cursors, live), cell.column, valid)


def _uuid(cell: UuidTextCell, cursors: Cursors, live: Mask | None, valid: Mask | None) -> pa.Array:
    return uuids(cell, cursors, _sizes(cursors, live), live, valid)


def _bytes(cell: BytesCell, cursors: Cursors, live: Mask | None, valid: Mask | None) -> pa.Array:
    return blobs(cell, cursors, _sizes(cursors, live), live, valid)


def _within(message: Message, cursors: Cursors, live: Mask | None) -> dict[int, pa.Array]:
    """Return the arrays of a message within a message.  Its length comes next at the cursors, which move after it."""
    inner = cursors.within(_sizes(cursors, live))
    arrays = _read(message, inner, live)
    cursors.doubtful |= inner.doubtful
    cursors.steps_left = inner.steps_left
    cursors.at = inner.ends
    return arrays


def _struct(cell: ProtoMessage, cursors: Cursors, live: Mask | None, valid: Mask | None) -> pa.Array:
    return struct_of(cell.column, _within(cell.message, cursors, live), len(cursors), valid)


def _wrapper(cell: ProtoWrapper, cursors: Cursors, live: Mask | None, _: Mask | None) -> pa.Array:
    return _within(cell.message, cursors, live)[0]


def _time(cell: ProtoTime, cursors: Cursors, live: Mask | None, valid: Mask | None) -> pa.Array:
    parts = _within(cell.message, cursors, live)
    seconds, nanos = (_plain(parts[place]) for place in (0, 1))
    least, most = cell.seconds
    duration = cell.kind == "duration"
    wrong = (seconds < least) | (seconds > most) | (nanos < (1 - _GIGA if duration else 0)) | (nanos >= _GIGA)
    if duration:
        wrong |= np.sign(seconds) * np.sign(nanos) < 0
    units = nanos // (_GIGA // cell.per)
    wrong |= units * (_GIGA // cell.per) != nanos
    # At the ends of 64 bits the strict reader decides.
    bound = ((1 << 63) - 1) // cell.per - 1
    wrong |= (seconds > bound) | (seconds < -bound)
    cursors.doubt(wrong, live)
    return fixed_width(np.where(wrong, 0, seconds) * cell.per + units, cell.column, valid)


def _plain(array: pa.Array) -> npt.NDArray[np.int64]:
    """Return the integers of an array; any number in place of a null."""
    found = np.frombuffer(array.buffers()[1], array.type.to_pandas_dtype(), len(array) + array.offset)
    return found[array.offset :].astype(np.int64)


def _repeated(
    field: MessageField, cursors: Cursors, here: Mask, tag: int, packed: Mask | None, live: Mask | None
) -> Any:
    runs = here & packed if packed is not None else None
    counts = np.zeros(len(cursors), np.int64)
    if runs is None or not runs.any():
        items = _one_by_one(field, cursors, here, tag, counts)
    else:
        cursors.doubtful |= here & ~runs  # a mixture of rows is rare, and such a row is decided alone
        cursors.move(tag, runs)
        items = _packed(field, cursors, runs, counts)
    return _collected(field, items, counts, cursors, live)


def _collected(field: MessageField, items: pa.Array, counts: Integers, cursors: Cursors, live: Mask | None) -> pa.Array:
    """Return the lists, vectors or maps of a repeated field.  ``counts``: the number of items in each row."""
    column = field.column
    if field.form == "map":
        return map_of(column, list_of(pa.list_(field.cell.column), items, counts, live), cursors)
    if field.form == "vector":
        wrong = (counts > 0) & (counts != column.list_size)  # type: ignore[union-attr]  # a vector has a column
        if wrong.any():
            cursors.doubtful |= wrong
            kept = ~np.repeat(wrong, counts)
            items, counts = items.filter(pa.array(kept)), np.where(wrong, 0, counts)
        return vectors(column, items, cursors, counts, None if (counts > 0).all() else counts > 0)
    return list_of(column, items, counts, live)


def _packed(field: MessageField, cursors: Cursors, runs: Mask, counts: Integers) -> pa.Array:
    """Read items that are one run of bytes in each row, and set the ``counts`` of items."""
    cell = field.cell
    sizes = _sizes(cursors, runs)
    if field.wire != VARINT:
        width = WIDTHS[field.wire]
        wrong = sizes % width != 0
        cursors.doubtful |= wrong
        sizes = np.where(wrong, 0, sizes)
        counts[:] = sizes // width
        if isinstance(cell, FloatCell):
            return float_items(cell, cursors, sizes)
        rows = np.repeat(np.arange(len(sizes)), counts)
        firsts = np.cumsum(counts) - counts
        few = cursors.some(rows, cursors.at[rows] + (np.arange(len(rows)) - firsts[rows]) * width)
        found = _READERS[type(cell)](cell, few, None, None)
        cursors.doubtful[rows[few.doubtful]] = True
        cursors.at = cursors.at + sizes
        return found
    ends = cursors.at + sizes
    lasts = cursors.lasts()
    counts[:] = np.searchsorted(lasts, ends) - np.searchsorted(lasts, cursors.at)
    wrong = (sizes > 0) & (cursors.data[ends - 1] >= 0x80)
    cursors.doubtful |= wrong
    counts[wrong] = 0
    read = _READERS[type(cell)]
    return integer_items(cursors, counts, cell.column, lambda few: read(cell, few, None, None))


def _one_by_one(field: MessageField, cursors: Cursors, here: Mask, tag: int, counts: Integers) -> pa.Array:
    """Read items with a tag each, and set the ``counts`` of items."""
    cell = field.cell
    most = NUMBERS_MAX if isinstance(cell, NumberCell | FloatCell) else ITEMS_MAX

    def read(few: Cursors, rows: Integers) -> tuple[pa.Array, Mask]:
        few.move(tag, None)
        items = _READERS[type(cell)](cell, few, None, None)
        counts[rows] += 1
        more, _ = _at_tag(field, few, field.wire)
        return items, more & ~few.doubtful & (counts[rows] < most)

    return item_by_item(cursors, np.flatnonzero(here), read)


_READERS: Mapping[type, Callable[[Any, Cursors, Mask | None, Mask | None], Any]] = {
    ProtoNumber: _number,
    BoolCell: _bool,
    ProtoEnum: _symbol,
    FloatCell: floats,
    TextCell: _text,
    UuidTextCell: _uuid,
    BytesCell: _bytes,
    ProtoMessage: _struct,
    ProtoWrapper: _wrapper,
    ProtoTime: _time,
}
