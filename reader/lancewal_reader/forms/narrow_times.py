"""Cast columns to types in which times may lose digits.  Times are rounded down, before 1970 as after it, and so are
durations.  Uuids become texts.

``pyarrow.compute.cast`` drops digits of the stored integer.  A time before 1970 would then move towards 1970, and two
times on both sides of a moment could become equal.  The result here is the floor: the last moment of the coarser unit
at or before the time.  Null stays null.  Every other cast is a safe cast.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.rows.byte_view import uuid_texts

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def narrow(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """Cast ``column`` to ``type_``.  Times are rounded down, also inside lists, maps and structs.

    Raises ``pyarrow.ArrowInvalid`` if another value does not fit.
    """
    if pa.types.is_timestamp(column.type) and pa.types.is_timestamp(type_):
        return _floor(column, type_)
    if pa.types.is_duration(column.type) and pa.types.is_duration(type_):
        return _floor(column, type_)
    if column.type == pa.uuid() and type_ == pa.string():
        return uuid_texts(column)
    if pa.types.is_list(column.type) and pa.types.is_list(type_):
        items = narrow(column.values, type_.value_type)  # all of them, also where the column is a slice
        validity, offsets = column.buffers()[:2]
        return pa.Array.from_buffers(type_, len(column), [validity, offsets], -1, column.offset, [items])
    if pa.types.is_map(column.type) and pa.types.is_map(type_):
        entries = pa.StructArray.from_arrays(
            [column.keys, narrow(column.items, type_.item_type)], fields=list(type_.field(0).type)
        )
        validity, offsets = column.buffers()[:2]
        return pa.Array.from_buffers(type_, len(column), [validity, offsets], -1, column.offset, [entries])
    if pa.types.is_struct(column.type) and pa.types.is_struct(type_):
        members = [narrow(column.field(i), member.type) for i, member in enumerate(type_)]
        return pa.StructArray.from_arrays(members, fields=list(type_), mask=column.is_null())
    return column if column.type == type_ else pc.cast(column, type_)


def _floor(column: pa.Array, type_: pa.DataType) -> pa.Array:
    step = PER_SECOND[column.type.unit] // PER_SECOND[type_.unit]
    if step <= 1:
        return pc.cast(column, type_)
    stored = column.cast(pa.int64())
    cut = pc.divide(stored, step)  # towards 0
    beyond = pc.greater(pc.multiply(cut, step), stored)
    return pc.subtract(cut, beyond.cast(pa.int64())).cast(type_)
