"""Kafka's murmur2 and the partition that it gives a key, for one key and for whole Arrow arrays.

The hash is that of ``org.apache.kafka.common.utils.Utils.murmur2`` and of librdkafka's ``murmur2_random``: MurmurHash2
of 32 bits, seed ``0x9747b28c``, words read little endian.  Here it is *unsigned* (0 to 2**32 - 1); Java's ``int`` is
the same 32 bits.  The partition is ``(hash & 0x7fffffff) % partitions`` in both.

Arrays are hashed word by word across rows, longest rows first, so that the rows that still have bytes are a prefix.
Hashing a row so costs less than finding the distinct keys of a batch (``dictionary_encode`` alone takes twice as long).
So this module neither remembers nor deduplicates keys.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.errors import InvalidSettings
from lancewal_core.rows.byte_view import ByteView, byte_view

NO_PARTITION = -1
"""Partition of a row without a key.  It equals no partition, so such a row never lies where it should."""

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_STRIDE = 32
"""Bytes that are fetched for each row at once.  A fetch costs the same for 4 and for 32 bytes."""
_ROWS = 8192
"""Largest number of rows that are hashed at once.  With more rows, each temporary array would be large enough to need
new memory from the system."""
FEW_ROWS = 64
"""Number of remaining rows below which hashing one row after the other is cheaper than numpy's calls."""
_TAIL_MASK = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)


def murmur2(key: bytes) -> int:
    """Return Kafka's hash of a key, unsigned: 0 to 2**32 - 1."""
    return _finish(key, (_SEED ^ len(key)) & _MASK)


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition that Kafka's Java producer gives a key in a topic of ``partitions`` partitions."""
    check_count(partitions)
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def partitions_of(keys: pa.Array, partitions: int) -> npt.NDArray[np.int32]:
    """Return ``partition_of`` for each key of a (large_)binary or (large_)string array, as int32; -1 for a null."""
    check_count(partitions)
    unsigned = hashes(keys)
    unsigned &= np.uint32(0x7FFFFFFF)
    result = unsigned.view(np.int32)
    # numpy divides by a scalar with vector instructions, but takes remainders one by one.
    result -= (result // np.int32(partitions)) * np.int32(partitions)
    if keys.null_count:
        result[keys.is_null().to_numpy(zero_copy_only=False)] = NO_PARTITION
    return result


def hashes(keys: pa.Array) -> npt.NDArray[np.uint32]:
    """Return ``murmur2`` of each key of a (large_)binary or (large_)string array; any number for a null."""
    result = np.empty(len(keys), np.uint32)
    for first in range(0, len(keys), _ROWS):
        result[first : first + _ROWS] = _hashes(byte_view(keys.slice(first, _ROWS)))
    return result


def check_count(partitions: int) -> None:
    """Raise ``InvalidSettings`` for a number of partitions that no topic has."""
    if not 1 <= partitions <= 0x7FFFFFFF:
        raise InvalidSettings(f"a topic cannot have {partitions} partitions; pass the topic's own count, 1 or more")


# -- one key ---------------------------------------------------------------------------------------------------


def _finish(rest: bytes, state: int) -> int:
    """Hash from ``state`` over the key's remaining bytes to the end."""
    full = len(rest) & ~3
    words = np.frombuffer(rest, "<u4", full // 4).tolist() if full > 256 else struct.unpack_from(f"<{full // 4}I", rest)
    for word in words:
        word = (word * _M) & _MASK
        word ^= word >> 24
        state = ((state * _M) & _MASK) ^ ((word * _M) & _MASK)
    if len(rest) > full:
        state = ((state ^ int.from_bytes(rest[full:], "little")) * _M) & _MASK
    state ^= state >> 13
    state = (state * _M) & _MASK
    return state ^ (state >> 15)


# -- many keys -------------------------------------------------------------------------------------------------


def _hashes(view: ByteView) -> npt.NDArray[np.uint32]:
    """Unsigned hash of each value, in the order of the array; at least one value."""
    data, starts, lengths = view.data, view.borders[:-1], view.lengths
    if view.borders[-1] + _STRIDE > len(data):  # a fetch may end that far behind the last value
        data = np.concatenate([data[starts[0] :], np.zeros(_STRIDE, np.uint8)])
        starts = starts - starts[0]
    shortness = lengths.max() - lengths
    if not shortness.any():
        return _hashes_longest_first(data, starts, lengths)
    if shortness.max() < 1 << 16:
        shortness = shortness.astype(np.uint16)  # numpy sorts 16 bits by radix
    order = np.argsort(shortness, kind="stable")
    result = np.empty(len(order), np.uint32)
    result[order] = _hashes_longest_first(data, starts[order], lengths[order])
    return result


def _hashes_longest_first(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint32]:
    """Return the hash of ``data[starts[i]:starts[i] + lengths[i]]`` for each i.  ``lengths`` must not ascend.  So the
    rows that still have bytes are a prefix.

    ``data`` must have ``_STRIDE`` more bytes after the last value.
    """
    state = lengths.astype(np.uint32) ^ np.uint32(_SEED)
    m = np.uint32(_M)
    begin = 0
    rows = _rows_longer_than([begin], lengths)[0]
    while rows >= FEW_ROWS:
        width = min(_STRIDE, -(-(int(lengths[0]) - begin) // 4) * 4)
        windows = np.ndarray((len(data) - width + 1,), f"V{width}", data, strides=(1,))
        words = np.ascontiguousarray(windows[starts[:rows] + begin].view("<u4").reshape(rows, width // 4).T)
        mixed = words * m
        mixed ^= mixed >> np.uint32(24)
        mixed *= m
        offsets = range(begin, begin + width, 4)
        whole_rows = _rows_longer_than([offset + 3 for offset in offsets], lengths)
        some_rows = _rows_longer_than(offsets, lengths)
        for word, (offset, whole, some) in enumerate(zip(offsets, whole_rows, some_rows, strict=True)):
            state[:whole] *= m
            state[:whole] ^= mixed[word, :whole]
            if some > whole:
                tail = slice(whole, some)
                state[tail] ^= words[word, tail] & _TAIL_MASK[lengths[tail] - offset]
                state[tail] *= m
        begin += width
        rows = _rows_longer_than([begin], lengths)[0]
    by_one = [
        _finish(data[starts[row] + begin : starts[row] + lengths[row]].tobytes(), int(state[row]))
        for row in range(rows)
    ]
    state ^= state >> np.uint32(13)
    state *= m
    state ^= state >> np.uint32(15)
    state[:rows] = by_one
    return state


def _rows_longer_than(limits: Sequence[int], lengths: npt.NDArray[np.int64]) -> list[int]:
    """Return for each limit how many rows, counted from the first, have more bytes."""
    counts: list[int] = (len(lengths) - np.searchsorted(lengths[::-1], limits, side="right")).tolist()
    return counts
