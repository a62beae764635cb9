"""Equality of cells and rows, column by column, or as texts for rows that are compared one by one.

Guarantees, for two columns of one type and length
 1. A null equals a null, and nothing else.  Values are equal if a reader cannot tell them apart: ``0.0`` and ``-0.0``
    differ, and each NaN equals each NaN, also within lists and structs.
 2. All types that a table of Lance can have are compared, those that only other programs write too.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.rows.column_types import Column

Mask = npt.NDArray[np.bool_]


def equal_rows(one: pa.Table, other: pa.Table) -> Mask:
    """Return for each row whether both tables, which must have the same columns and length, have the same values in
    it."""
    found = np.ones(one.num_rows, np.bool_)
    for name in one.column_names:
        found &= equal_cells(one[name], other[name])
    return found


def equal_cells(one: Column, other: Column) -> Mask:
    """Return for each row whether both columns, which must have the same type and length, have the same cell in it."""
    if (
        isinstance(one, pa.ChunkedArray)
        and isinstance(other, pa.ChunkedArray)
        and max(one.num_chunks, other.num_chunks) > 1
    ):
        return _by_chunks(one, other)
    a, b = _array(one), _array(other)
    if not len(a):
        return np.zeros(0, np.bool_)
    there, also = _valid(a), _valid(b)
    both = there & also
    found = ~(there | also)
    if both.all():
        return _equal_values(a, b)
    if both.any():
        places = pa.array(np.flatnonzero(both))
        found[both] = _equal_values(a.take(places), b.take(places))
    return found


def _by_chunks(one: pa.ChunkedArray, other: pa.ChunkedArray) -> Mask:
    """Compare chunk by chunk: chunks of texts cannot always be joined, since Arrow's offsets have 32 bits."""
    found, begin = [np.zeros(0, np.bool_)], 0
    ends = np.unique([*np.cumsum([len(c) for c in one.chunks]), *np.cumsum([len(c) for c in other.chunks])])
    for end in ends.tolist():
        if end > begin:
            found.append(equal_cells(_array(one.slice(begin, end - begin)), _array(other.slice(begin, end - begin))))
            begin = end
    return np.concatenate(found)


def _array(column: Column) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    return chunks[0] if len(chunks) == 1 else column.combine_chunks()


def _valid(column: pa.Array) -> Mask:
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False), np.bool_)


def _equal_values(one: pa.Array, other: pa.Array) -> Mask:
    """Compare columns without nulls."""
    type_ = one.type
    if isinstance(type_, pa.BaseExtensionType):
        return equal_cells(one.storage, other.storage)
    if pa.types.is_dictionary(type_):
        return equal_cells(one.dictionary_decode(), other.dictionary_decode())
    if pa.types.is_floating(type_):
        return _equal_floats(one, other)
    if pa.types.is_struct(type_):
        return _equal_members(one, other)
    if pa.types.is_fixed_size_list(type_):
        items = equal_cells(one.flatten(), other.flatten())
        return np.asarray(items.reshape(len(one), type_.list_size).all(axis=1))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return _equal_lists(one, other)
    if pa.types.is_map(type_):
        return _equal_lists(entries_of(one), entries_of(other))
    try:
        return np.asarray(pc.equal(one, other).to_numpy(zero_copy_only=False), np.bool_)
    except pa.ArrowNotImplementedError:  # views
        return np.fromiter(
            (a == b for a, b in zip(one.to_pylist(), other.to_pylist(), strict=True)), np.bool_, len(one)
        )


def entries_of(maps: pa.Array) -> pa.Array:
    """Return maps as lists of structs with a key and a value."""
    return maps.cast(pa.list_(pa.struct([maps.type.key_field, maps.type.item_field])))


def _equal_floats(one: pa.Array, other: pa.Array) -> Mask:
    a, b = np.asarray(one), np.asarray(other)
    bits = f"u{a.dtype.itemsize}"
    return np.asarray((a.view(bits) == b.view(bits)) | (np.isnan(a) & np.isnan(b)))


def _equal_members(one: pa.Array, other: pa.Array) -> Mask:
    found = np.ones(len(one), np.bool_)
    for at in range(one.type.num_fields):
        found &= equal_cells(one.field(at), other.field(at))
    return found


def _equal_lists(one: pa.Array, other: pa.Array) -> Mask:
    size = np.asarray(pc.list_value_length(one))
    found = np.asarray(size == np.asarray(pc.list_value_length(other)))
    alike = pa.array(np.flatnonzero(found))
    items = equal_cells(one.take(alike).flatten(), other.take(alike).flatten())
    ends = np.cumsum(size[found])
    differ = np.r_[0, np.cumsum(~items)]
    found[found] = differ[ends] == differ[ends - size[found]]
    return found


def row_texts(rows: pa.Table) -> list[str]:
    """Return one text for each row.  Two texts are equal exactly if all values of the rows are; NaN equals NaN."""
    columns = [[_text(value) for value in column] for column in rows.columns]
    return [repr(row) for row in zip(*columns, strict=True)]


def _text(value: pa.Scalar) -> str:
    """Return the text of a value.  Times become numbers: Python has no year 10,000."""
    type_ = value.type
    if not value.is_valid:
        return "null"
    if pa.types.is_temporal(type_):
        return str(value.value)
    if pa.types.is_struct(type_):
        return repr([_text(value[i]) for i in range(type_.num_fields)])
    if pa.types.is_nested(type_):
        return repr([_text(item) for item in value.values])
    return repr(value.as_py())
