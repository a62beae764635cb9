"""A checksum of the key columns of some rows: of their values and their order, not of the batches or files that hold
them.

Lance's data files have no checksum.  In a merge, a damaged key would hide the row of another key.  So the writer of a
flush stores this checksum, and every reader of its keys compares it.
"""

from __future__ import annotations

from collections.abc import Iterator

import google_crc32c
import numpy as np
import pyarrow as pa

from lancewal_core.rows.byte_view import byte_view


def key_sum(keys: pa.Table) -> int:
    """Return a crc32c over the columns, one after the other.

    For each column it covers the number of nulls (there should be none), then the values as they lie in memory.  For
    texts and binaries the lengths come before the values."""
    total = 0
    for column in keys.columns:
        for piece in _pieces(column):
            total = int(google_crc32c.extend(total, piece))
    return total


def _pieces(column: pa.ChunkedArray) -> Iterator[bytes]:
    yield np.int64(column.null_count).tobytes()
    type_ = column.type
    if pa.types.is_string(type_) or pa.types.is_binary(type_) or type_ in (pa.large_string(), pa.large_binary()):
        views = [byte_view(chunk) for chunk in column.chunks]
        for view in views:
            yield view.lengths.tobytes()
        for view in views:
            yield view.data[view.borders[0] : view.borders[-1]].tobytes()
        return
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    for chunk in filter(len, column.chunks):
        width = chunk.type.bit_width // 8
        yield chunk.buffers()[1][chunk.offset * width : (chunk.offset + len(chunk)) * width].to_pybytes()
