"""Taking some columns of WAL batches and Partial rows: the bitmaps of patches are in the contract's column order, so they
are rewritten for the columns taken."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.rows.schema import PRESENT, RowSchema


def project(schema: RowSchema, columns: Collection[str]) -> RowSchema:
    """The schema with these columns and the primary key's, in the contract's order."""
    wanted = set(columns) | set(schema.primary_key)
    kept = pa.schema([f for f in schema.columns if f.name in wanted])
    return schema if len(kept) == len(schema.columns) else RowSchema(kept, schema.primary_key, schema.region_key)


def project_rows(rows: pa.RecordBatch | pa.Table, schema: RowSchema, projected: RowSchema) -> pa.RecordBatch | pa.Table:
    """Drop the columns that ``projected`` does not have and rewrite ``_present``; system columns stay."""
    if projected is schema:
        return rows
    dropped = set(schema.columns.names) - set(projected.columns.names)
    kept = rows.select([name for name in rows.schema.names if name not in dropped])
    at = kept.schema.get_field_index(PRESENT)
    present = kept.column(at)
    if present.null_count == len(present):
        return kept
    places = [schema.columns.get_field_index(name) for name in projected.columns.names]
    return kept.set_column(at, kept.schema.field(at), _repack(present, schema, places))


def _repack(present: pa.Array | pa.ChunkedArray, schema: RowSchema, places: list[int]) -> pa.Array:
    if isinstance(present, pa.ChunkedArray):
        present = present.combine_chunks()
    size = schema.present_bytes
    fixed = pc.fill_null(present, b"\x00" * size).cast(pa.binary(size))
    data = np.frombuffer(fixed.buffers()[1], np.uint8)[fixed.offset * size :][: len(fixed) * size]
    bits = np.unpackbits(data.reshape(len(fixed), size), axis=1, bitorder="little")[:, places]
    packed = np.packbits(bits, axis=1, bitorder="little")
    width = packed.shape[1]
    values = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(width), len(packed), [None, pa.py_buffer(np.ascontiguousarray(packed).tobytes())]
    ).cast(pa.binary())
    return pc.if_else(present.is_null(), pa.scalar(None, pa.binary()), values)
