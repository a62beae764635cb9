"""Rows in arrays of their own, which keep no other rows in memory, and which Lance can write."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from lancewal_core.rows.column_types import has_struct


def own_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return a copy of the rows.  A slice would keep the whole batch in memory for as long as it is kept."""
    return pa.concat_batches([rows, rows.slice(0, 0)])  # of one batch alone, no copy would be made


def whole_arrays(rows: pa.Table) -> pa.Table | pa.RecordBatchReader:
    """Return the rows in a form that Lance can write.  Only columns that contain a struct and are cut out of longer
    arrays are copied.

    Lance takes rows through Arrow's C interface.  There a struct must begin at row 0 of its buffers if it holds certain
    types.  Otherwise a struct inside it ends in a panic, and a boolean with nulls in an error (Lance 14, all file
    formats).  Arrow cuts arrays without copying them, and cuts all columns of a table where one begins a new chunk.
    """
    if not any(has_struct(field.type) for field in rows.schema):
        return rows
    return pa.RecordBatchReader.from_batches(rows.schema, whole_batches(rows))


def whole_batches(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield ``whole_arrays`` batch by batch."""
    for batch in rows.to_batches():
        columns = [_whole(column) for column in batch.columns]
        yield pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _whole(array: pa.Array) -> pa.Array:
    return pa.concat_arrays([array]) if has_struct(array.type) and _is_cut(array) else array


def _is_cut(array: pa.Array) -> bool:
    """Whether the array, or one inside it, does not begin at the first row of its buffers."""
    if array.offset:
        return True
    if pa.types.is_struct(array.type):
        return any(_is_cut(array.field(i)) for i in range(array.type.num_fields))
    return pa.types.is_nested(array.type) and _is_cut(array.values)
