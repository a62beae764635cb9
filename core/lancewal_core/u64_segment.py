"""``U64Segment``: sorted unique u64 values, in the wire forms that Lance gives them.

Written: a range where the values are contiguous (the empty set is the empty range), else the sorted array in the
smallest of its three widths.  Read: range, sorted array, array.  The two other forms (range with holes, range with
bitmap) are refused by name.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from lancewal_core.errors import FormatUnknown, InvalidInput, ObjectCorrupt
from lancewal_core.proto import rowids_pb2

_U64_MAX = 2**64 - 1


@dataclass(frozen=True, slots=True)
class U64Segment:
    """A set of u64 values; equal when the values are.  Make it with ``of``.

    Contiguous values are held as a ``range``, so a set that says "0 to 2^62" costs nothing until ``values`` is called.
    """

    _sorted: range | tuple[int, ...] = range(0)

    @staticmethod
    def of(values: Iterable[int]) -> U64Segment:
        """The set of ``values``, in any order, repeated or not; ``InvalidInput`` if one is not a u64."""
        ordered = sorted(set(values))
        if ordered and (ordered[0] < 0 or ordered[-1] > _U64_MAX):
            raise InvalidInput(f"{ordered[0]} to {ordered[-1]} are not all unsigned 64-bit numbers")
        return _of_sorted(ordered)

    def values(self) -> tuple[int, ...]:
        """All values, ascending.  Not for a set that was read and not yet compared: it may say "0 to 2^62"."""
        return tuple(self._sorted)

    def is_exactly(self, values: Sequence[int]) -> bool:
        """Whether ``values`` are these numbers, ascending; costs no more than a look at ``values``."""
        return len(values) == len(self._sorted) and all(a == b for a, b in zip(values, self._sorted, strict=True))

    @property
    def first(self) -> int | None:
        return self._sorted[0] if self._sorted else None

    @property
    def last(self) -> int | None:
        return self._sorted[-1] if self._sorted else None

    def __len__(self) -> int:
        return len(self._sorted)

    def __iter__(self) -> Iterator[int]:
        return iter(self._sorted)

    def __contains__(self, value: object) -> bool:
        return value in self._sorted


def _of_sorted(ordered: list[int]) -> U64Segment:
    if not ordered:
        return U64Segment()
    if ordered[-1] - ordered[0] == len(ordered) - 1:
        return U64Segment(range(ordered[0], ordered[-1] + 1))
    return U64Segment(tuple(ordered))


def encode_u64_segment(segment: U64Segment) -> bytes:
    """The protobuf message, in its smallest form."""
    message = rowids_pb2.U64Segment()
    first, last = segment.first, segment.last
    if first is None or last is None:
        message.range.SetInParent()
    elif last - first == len(segment) - 1 and last < _U64_MAX:  # A range's end is exclusive and a u64 itself.
        message.range.start = first
        message.range.end = last + 1
    elif last - first < 2**16:
        message.sorted_array.u16_array.base = first
        message.sorted_array.u16_array.offsets = _offsets(segment, first).astype("<u2").tobytes()
    elif last - first < 2**32:
        message.sorted_array.u32_array.base = first
        message.sorted_array.u32_array.offsets = _offsets(segment, first).astype("<u4").tobytes()
    else:
        message.sorted_array.u64_array.values = _offsets(segment, 0).astype("<u8").tobytes()
    return message.SerializeToString(deterministic=True)


def _offsets(segment: U64Segment, base: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.fromiter((value - base for value in segment), dtype=np.uint64, count=len(segment))


def decode_u64_segment(data: bytes, where: str) -> U64Segment:
    """Inverse of ``encode_u64_segment``.  ``where`` names the object that holds ``data``, for errors.

    Raises ``ObjectCorrupt``, or ``FormatUnknown`` for a form that is not read.
    """
    message = rowids_pb2.U64Segment()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise _corrupt(where, "is not a protobuf message") from error
    match message.WhichOneof("segment"):
        case "range":
            return _read_range(message.range.start, message.range.end, where)
        case "sorted_array":
            values = _read_array(message.sorted_array, where)
            if any(later <= earlier for earlier, later in pairwise(values)):
                raise _corrupt(where, "has a sorted array that is not strictly ascending")
            return _of_sorted(values)
        case "array":
            values = _read_array(message.array, where)
            if len(set(values)) != len(values):
                raise _corrupt(where, "names a value twice")
            return _of_sorted(sorted(values))
        case None:
            fields = UnknownFieldSet(message)
            unknown = [fields[i].field_number for i in range(len(fields))]
            if unknown:
                raise FormatUnknown(f"{where}: U64Segment has the unknown form number {unknown[0]}", object=where)
            raise _corrupt(where, "is empty")
        case form:
            raise FormatUnknown(f"{where}: U64Segment form {form} is not read by this release", object=where)


def _read_range(start: int, end: int, where: str) -> U64Segment:
    if end < start or end - start > sys.maxsize:
        raise _corrupt(where, f"has the impossible range {start} to {end}")
    return U64Segment(range(start, end)) if end > start else U64Segment()


def _read_array(array: rowids_pb2.EncodedU64Array, where: str) -> list[int]:
    match array.WhichOneof("array"):
        case "u16_array":
            return _read_offsets(array.u16_array.offsets, "<u2", array.u16_array.base, where)
        case "u32_array":
            return _read_offsets(array.u32_array.offsets, "<u4", array.u32_array.base, where)
        case "u64_array":
            return _read_offsets(array.u64_array.values, "<u8", 0, where)
        case _:
            raise FormatUnknown(f"{where}: U64Segment has an array of unknown width", object=where)


def _read_offsets(data: bytes, dtype: str, base: int, where: str) -> list[int]:
    if len(data) % np.dtype(dtype).itemsize:
        raise _corrupt(where, f"has an array of {len(data)} bytes, which is no multiple of its width")
    values: list[int] = [base + offset for offset in np.frombuffer(data, dtype=dtype).tolist()]
    if values and max(values) > _U64_MAX:
        raise _corrupt(where, "has an array with a value above 2^64 - 1")
    return values


def _corrupt(where: str, problem: str) -> ObjectCorrupt:
    return ObjectCorrupt(f"{where}: the U64Segment {problem}", object=where)
