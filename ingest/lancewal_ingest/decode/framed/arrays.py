"""Arrow arrays of what the cursors of a chunk read: the same for every format of binary values.

Guarantees
1. A function that takes ``cursors`` makes a row doubtful if the strict reader must decide on it (``cursors``).  Other
   rows of the array are exact.
2. ``live`` is a mask of the rows that hold a value, and ``valid`` one of the rows that are not null; None stands for
   all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_ingest.decode.framed.cells import BytesCell, FloatCell, NumberCell, UuidTextCell
from lancewal_ingest.decode.framed.cursors import Cursors, Integers
from lancewal_ingest.decode.value_decoder import Mask, mask_of

ITEMS_AT_ONCE = 1 << 17
"""Maximum number of integers in lists that are read at once."""
_HEX = np.full(256, 0x80, np.uint8)
"""Value of each hexadecimal digit; 0x80 for other bytes."""
_HEX[np.frombuffer(b"0123456789abcdefABCDEF", np.uint8)] = [*range(16), *range(10, 16)]
_DASHES = [8, 13, 18, 23]


def validity(valid: Mask | None) -> pa.Buffer | None:
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))


def fixed_width(values: npt.NDArray[Any], type_: pa.DataType, valid: Mask | None, count: int | None = None) -> pa.Array:
    """Return an array whose buffer is the bytes of ``values``.  ``count``: the length of the array, if it differs from
    that of ``values``.
    """
    buffers = [validity(valid), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(type_, len(values) if count is None else count, buffers)


def numbers(cell: NumberCell, values: npt.NDArray[Any], valid: Mask | None) -> tuple[pa.Array, Mask | None]:
    """Return the array of a column for these values, and a mask of the rows whose value does not fit the column."""
    wrong: Mask = np.zeros(len(values), np.bool_)
    limits = np.iinfo(values.dtype)
    if cell.least > limits.min:
        wrong |= values < cell.least
    if cell.most < limits.max:
        wrong |= values > cell.most
    if cell.times > 1:
        values = values * cell.times
    if cell.per > 1:
        whole = values // cell.per
        wrong |= whole * cell.per != values
        values = whole
    form = cell.column.to_pandas_dtype() if cell.floating else f"<i{cell.column.bit_width // 8}"
    found = fixed_width(values.astype(form, copy=False), cell.column, valid)
    return found, wrong if wrong.any() else None


def floats(cell: FloatCell, cursors: Cursors, live: Mask | None, valid: Mask | None) -> pa.Array:
    """Return the next float of each row."""
    word = cursors.word()
    cursors.move(cell.width, live)
    if live is not None:
        word *= live
    return _wide_floats(cell, word.view("<f8") if cell.width == 8 else word.astype("<u4").view("<f4"), valid)


def float_items(cell: FloatCell, cursors: Cursors, sizes: Integers) -> pa.Array:
    """Return the floats in the next bytes of all rows, as one array.  ``sizes``: the result of ``Cursors.room``."""
    return _wide_floats(cell, values_of(cursors.runs(sizes), np.dtype(f"<f{cell.width}")), None)


def _wide_floats(cell: FloatCell, values: npt.NDArray[Any], valid: Mask | None) -> pa.Array:
    """Return an array of floats of the column's type, which is as wide as the values or wider."""
    wide = values if cell.width * 8 == cell.column.bit_width else values.astype("<f8")
    return fixed_width(wide, cell.column, valid)


def truths(found: npt.NDArray[Any], column: pa.DataType, valid: Mask | None) -> pa.Array:
    bits = pa.py_buffer(np.packbits(found, bitorder="little"))
    return pa.Array.from_buffers(column, len(found), [validity(valid), bits])


def texts(cursors: Cursors, sizes: Integers, column: pa.DataType, valid: Mask | None) -> pa.Array:
    """Return the next bytes of each row as text.  ``sizes``: the result of ``Cursors.room``."""
    runs = cursors.runs(sizes)
    _, ends, data = runs.buffers()
    data = data or pa.py_buffer(b"")
    found = pa.Array.from_buffers(pa.string(), len(runs), [validity(valid), ends, data])
    if len(data) and np.frombuffer(data, np.uint8).max() >= 0x80:
        cursors.doubtful[_not_text(found)] = True
        if column != found.type and cursors.doubtful.any():
            found = pc.if_else(pa.array(cursors.doubtful), pa.scalar(None, found.type), found)
    return _wide(found, column)


def blobs(cell: BytesCell, cursors: Cursors, sizes: Integers, live: Mask | None, valid: Mask | None) -> pa.Array:
    """Return the next bytes of each row, as the column needs them.  ``sizes``: the result of ``Cursors.room``."""
    if cell.exactly is None:
        runs = cursors.runs(sizes)
        found = pa.Array.from_buffers(pa.binary(), len(runs), [validity(valid), *runs.buffers()[1:]])
        return _wide(found, cell.column)
    if cell.blank:
        live = valid = _filled(sizes, live)
    data, whole = _exact_runs(cell.exactly, cursors, sizes, live)
    return _of_bytes(data, whole, cell.column, valid)


def uuids(cell: UuidTextCell, cursors: Cursors, sizes: Integers, live: Mask | None, valid: Mask | None) -> pa.Array:
    """Return uuids, parsed from the next bytes of each row.  ``sizes``: the result of ``Cursors.room``."""
    if cell.blank:
        live = valid = _filled(sizes, live)
    letters, whole = _exact_runs(36, cursors, sizes, live)
    digits = _HEX[np.delete(letters, _DASHES, axis=1)]
    wrong = (letters[:, _DASHES] != ord("-")).any(axis=1) | (digits >= 0x80).any(axis=1)
    cursors.doubtful[np.flatnonzero(whole)[wrong]] = True
    halves = digits[:, 0::2] << 4, digits[:, 1::2] & 0xF
    return _of_bytes(np.bitwise_or(*halves), whole, cell.column, valid)


def _filled(sizes: Integers, live: Mask | None) -> Mask:
    """Return the live rows whose value has bytes."""
    return sizes > 0 if live is None else live & (sizes > 0)


def _exact_runs(
    exactly: int, cursors: Cursors, sizes: Integers, live: Mask | None
) -> tuple[npt.NDArray[np.uint8], Mask]:
    """Return the next bytes of the rows that have exactly ``exactly`` bytes, and a mask of these rows.  The bytes
    have one line per row.  Other live rows become doubtful.
    """
    whole = sizes == exactly
    cursors.doubt(~whole, live)
    return values_of(cursors.runs(np.where(whole, sizes, 0)), np.dtype(np.uint8)).reshape(-1, exactly), whole


def struct_of(column: pa.DataType, children: Mapping[int, pa.Array], count: int, valid: Mask | None) -> pa.Array:
    """Return structs.  ``children``: arrays of members, by their index in the struct.  Other members are null."""
    arrays = [
        children[place] if place in children else pa.nulls(count, column.field(place).type)
        for place in range(column.num_fields)
    ]
    return pa.Array.from_buffers(column, count, [validity(valid)], children=arrays)


def list_of(column: pa.DataType, items: pa.Array, counts: Integers, valid: Mask | None) -> pa.Array:
    """Return lists of ``items``.  ``counts``: the number of items in each list."""
    ends = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=ends[1:])
    return pa.Array.from_buffers(column, len(counts), [validity(valid), pa.py_buffer(ends)], children=[items])


def map_of(column: pa.DataType, entries: pa.Array, cursors: Cursors) -> pa.Array:
    """Return maps made of lists of ``entries``.  A row with a repeated key becomes doubtful."""
    bits, ends = entries.buffers()[:2]
    borders = np.frombuffer(ends, np.int32, len(entries) + 1)
    counts = borders[1:] - borders[:-1]
    if (counts > 1).any():
        rows = np.repeat(np.arange(len(counts)), counts)
        keys = entries.values.field(0).dictionary_encode()
        # A row and its key are one number.
        pairs = np.sort(rows * len(keys.dictionary) + keys.indices.to_numpy())
        twice = pairs[1:][pairs[1:] == pairs[:-1]]
        cursors.doubtful[twice // len(keys.dictionary)] = True
    return pa.Array.from_buffers(column, len(entries), [bits, ends], children=[entries.values])


def vectors(column: pa.DataType, items: pa.Array, cursors: Cursors, counts: Integers, valid: Mask | None) -> pa.Array:
    """Return vectors of ``items``.  ``counts``: the number of items in each row, either the length of the column's
    vectors or 0.  A row with 0 items must not be valid.
    """
    size, filled = column.list_size, counts > 0
    values = (
        np.frombuffer(items.buffers()[1], items.type.to_pandas_dtype(), len(items))
        if len(items)
        else np.empty(0, items.type.to_pandas_dtype())
    )
    values = values.reshape(-1, size)
    if items.null_count:
        nulls = mask_of(items.is_null()).reshape(-1, size).any(axis=1)
        cursors.doubtful[np.flatnonzero(filled)[nulls]] = True
    if len(values) < len(counts):
        values = _spread(values, filled)
    children = [fixed_width(values.reshape(-1), column.value_type, None)]
    return pa.Array.from_buffers(column, len(counts), [validity(valid)], children=children)


def integer_items(
    cursors: Cursors, counts: Integers, column: pa.DataType, read: Callable[[Cursors], pa.Array]
) -> pa.Array:
    """Read ``counts`` integers in each row, move the cursors, and return all integers in one array.

    The last byte of an integer is below 0x80.  ``read`` reads one integer at each of the cursors that it gets.
    """
    lasts = cursors.lasts()
    firsts = np.searchsorted(lasts, cursors.at)
    sums = np.cumsum(counts)
    ends = lasts[np.minimum(firsts + np.maximum(counts, 1) - 1, len(lasts) - 1)] + 1
    wrong = (counts > 0) & (ends > cursors.ends)
    cursors.doubtful |= wrong
    pieces = []
    for begin in range(0, int(sums[-1]), ITEMS_AT_ONCE):
        items = np.arange(begin, min(begin + ITEMS_AT_ONCE, int(sums[-1])))
        rows = np.searchsorted(sums, items, side="right")
        numbers = items - (sums - counts)[rows]
        places = np.minimum(firsts[rows] + numbers, len(lasts) - 1)
        starts = np.where(numbers == 0, cursors.at[rows], lasts[places - 1] + 1)
        few = cursors.some(rows, np.minimum(starts, cursors.limit))
        pieces.append(read(few))
        cursors.doubtful[rows[few.doubtful]] = True
    cursors.at = np.where(wrong | (counts == 0), cursors.at, ends)
    return pa.concat_arrays(pieces) if pieces else pa.nulls(0, column)


def item_by_item(cursors: Cursors, rows: Integers, read: Callable[[Cursors, Integers], tuple[Any, Mask]]) -> Any:
    """Read the first items of all ``rows``, then the second ones, and so on.  Return the items row by row; None if
    there are none, or if they are passed over.

    ``read`` reads an item at the cursors of some rows.  It returns the items, or None if these are passed over, and a
    mask of the rows that have a further item.
    """
    pieces: list[Any] = []
    rows_of: list[Integers] = []
    while len(rows):
        few = cursors.some(rows, cursors.at[rows])
        items, more = read(few, rows)
        pieces.append(items)
        rows_of.append(rows)
        cursors.at[rows] = few.at
        cursors.doubtful[rows] |= few.doubtful
        cursors.steps_left = few.steps_left
        rows = rows[more]
    if not pieces or pieces[0] is None:
        return None
    order = np.argsort(np.concatenate(rows_of), kind="stable")
    return pa.concat_arrays(pieces).take(pa.array(order))


def values_of(runs: pa.Array, form: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the bytes of all rows, one row after the other, as an array of ``form``."""
    _, ends, data = runs.buffers()
    count = int(np.frombuffer(ends, np.int32, len(runs) + 1)[-1]) // form.itemsize if len(runs) else 0
    return np.frombuffer(data, form, count) if count else np.empty(0, form)


def _wide(array: pa.Array, column: pa.DataType) -> pa.Array:
    return array if array.type == column else array.cast(column)


def _not_text(array: pa.Array) -> list[int]:
    """Return the indexes of the texts that are not UTF-8.  It takes few passes if these are few."""
    wrong: list[int] = []
    pending = [(0, array)]
    while pending:
        begin, part = pending.pop()
        try:
            part.validate(full=True)
        except pa.ArrowInvalid:
            if len(part) == 1:
                wrong.append(begin)
            else:
                middle = len(part) // 2
                pending += [(begin, part.slice(0, middle)), (begin + middle, part.slice(middle))]
    return wrong


def _of_bytes(data: npt.NDArray[Any], rows: Mask, column: pa.DataType, valid: Mask | None) -> pa.Array:
    """Return an array of a type of fixed size.  ``data``: the bytes of the rows in ``rows``; all other rows get
    zeros.
    """
    if len(data) < len(rows):
        data = _spread(data, rows)
    if column == pa.uuid():
        return pa.ExtensionArray.from_storage(column, fixed_width(data, column.storage_type, valid))
    if pa.types.is_fixed_size_binary(column):
        return fixed_width(data, column, valid)
    items = fixed_width(data.reshape(-1), column.value_type, None, len(data) * column.list_size)
    return pa.Array.from_buffers(column, len(data), [validity(valid)], children=[items])


def _spread(data: npt.NDArray[Any], rows: Mask) -> npt.NDArray[Any]:
    """Return one line per row: the lines of ``data`` for the rows in ``rows``, and zeros for all others."""
    found = np.zeros((len(rows), *data.shape[1:]), data.dtype)
    found[rows] = data
    return found
