"""A decoded part of a batch, with rows of some of its records, and the joining of parts in offset order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.rows.schema import RowSchema


@dataclass(frozen=True, slots=True)
class DecodedPart:
    indexes: npt.NDArray[np.int64]
    """For each row, the index of its record among the decoded records, or of its value among the decoded values."""
    columns: Sequence[pa.Array]
    """The table's columns, in the contract's order."""
    ops: pa.Array
    """Operation of each row: uint8, ``Op``."""
    present: pa.Array
    """Binary: for each patch the bitmap of the columns that it has; null for other operations."""

    def where(self, kept: npt.NDArray[np.bool_]) -> DecodedPart:
        """Return the rows for which ``kept`` is true."""
        mask = pa.array(kept)
        columns = [column.filter(mask) for column in self.columns]
        return DecodedPart(self.indexes[kept], columns, self.ops.filter(mask), self.present.filter(mask))


def present_bitmap(rows: RowSchema, names: Iterable[str]) -> bytes:
    """Return the bitmap of a patch that has the columns ``names`` (``_present``, see ``lancewal_core.rows.schema``)."""
    bits: int = sum(1 << rows.columns.get_field_index(name) for name in names)
    return bits.to_bytes(rows.present_bytes, "little")


def present_column(patches: npt.NDArray[np.bool_], bitmaps: npt.NDArray[np.uint8]) -> pa.Array:
    """Return ``DecodedPart.present``: the next row of ``bitmaps`` for each patch, null for all others."""
    ends = np.zeros(len(patches) + 1, np.int32)
    np.cumsum(patches * np.int32(bitmaps.shape[1]), out=ends[1:])
    validity = pa.py_buffer(np.packbits(patches, bitorder="little"))
    buffers = [validity, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(bitmaps))]
    return pa.Array.from_buffers(pa.binary(), len(patches), buffers)


def assemble(
    rows: RowSchema,
    offsets: npt.NDArray[np.int64],
    timestamps: npt.NDArray[np.int64],
    parts: Sequence[DecodedPart],
) -> pa.RecordBatch:
    """Return one batch of the rows of all parts, in offset order, with the schema of the WAL.

    ``offsets`` and ``timestamps``: those of the records that the parts' indexes refer to.
    """
    if not parts:
        return pa.RecordBatch.from_pylist([], schema=rows.wal)
    if len(parts) == 1 and len(parts[0].indexes) == len(offsets):
        columns, ops, present = parts[0].columns, parts[0].ops, parts[0].present
    else:
        indexes = np.concatenate([part.indexes for part in parts])
        order = np.argsort(indexes, kind="stable")
        stacked = [[*part.columns, part.ops, part.present] for part in parts]
        joined = [pa.concat_arrays(pieces) for pieces in zip(*stacked, strict=True)]
        *columns, ops, present = joined if (order[:-1] < order[1:]).all() else [array.take(order) for array in joined]
        offsets, timestamps = offsets[indexes[order]], timestamps[indexes[order]]
    times = pa.array(timestamps).view(pa.timestamp("ms", tz="UTC"))
    return pa.RecordBatch.from_arrays([*columns, pa.array(offsets), times, ops, present], schema=rows.wal)
