"""``U64Segment``: ascending positions in a wire form that Lance reads.

A range is written as a range, any other positions as a sorted array of the narrowest width.  No positions are written
as the empty range.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lancewal_core.names.ids import Position
from lancewal_core.names.proto import rowids_pb2


def encode_u64_segment(positions: Sequence[Position] | range) -> bytes:
    """Encode strictly ascending positions as the protobuf message."""
    message = rowids_pb2.U64Segment()
    if not positions:
        message.range.SetInParent()
    elif positions[-1] - positions[0] + 1 == len(positions):
        message.range.start, message.range.end = positions[0], positions[-1] + 1
    else:
        _write_array(message.sorted_array, positions)
    return message.SerializeToString(deterministic=True)


def _write_array(array: rowids_pb2.EncodedU64Array, positions: Sequence[Position] | range) -> None:
    numbers = np.array(positions, dtype=np.uint64)
    base, spread = positions[0], positions[-1] - positions[0]
    if spread < 2**16:
        array.u16_array.base = base
        array.u16_array.offsets = (numbers - numbers[0]).astype("<u2").tobytes()
    elif spread < 2**32:
        array.u32_array.base = base
        array.u32_array.offsets = (numbers - numbers[0]).astype("<u4").tobytes()
    else:
        array.u64_array.values = numbers.astype("<u8").tobytes()
