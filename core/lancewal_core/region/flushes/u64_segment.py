"""``U64Segment``: sorted unique u64 values, in the wire forms that Lance gives them.

All five forms are read: range, range with holes, range with bitmap, sorted array, array.  Written is the one that takes
the fewest bytes; among equals the sorted array, then the range with holes.  The empty set is the empty range.

A set costs memory by the shorter list, of its values or of the numbers that it leaves out between them: one that says
"0 to 2^62 but 7" costs next to nothing until ``values`` is called.
"""

from __future__ import annotations

import struct
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import assert_never

import numpy as np
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from lancewal_core.errors import FormatUnknown, InvalidInput, ObjectCorrupt
from lancewal_core.proto import rowids_pb2

_U64_MAX = 2**64 - 1


@dataclass(frozen=True, slots=True)
class _Holed:
    """The numbers of ``span`` but ``holes``: ascending, inside it, neither its first nor its last."""

    span: range
    holes: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.span) - len(self.holes)

    def __iter__(self) -> Iterator[int]:
        start = self.span.start
        for hole in (*self.holes, self.span.stop):
            yield from range(start, hole)
            start = hole + 1

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, int) or value not in self.span:
            return False
        at = bisect_left(self.holes, value)
        return at == len(self.holes) or self.holes[at] != value


@dataclass(frozen=True, slots=True)
class U64Segment:
    """A set of u64 values; equal when the values are.  Make it with ``of``."""

    _sorted: range | _Holed | tuple[int, ...] = range(0)
    """A range without holes, with fewer holes than values, or the values: one of them for each set."""

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

    @property
    def first(self) -> int | None:
        return next(iter(self._sorted), None)

    @property
    def last(self) -> int | None:
        ascending = self._sorted.span if isinstance(self._sorted, _Holed) else self._sorted
        return ascending[-1] if ascending else None

    def holes(self) -> tuple[int, ...]:
        """The numbers between ``first`` and ``last`` that it leaves out, ascending; as many as that may be."""
        if isinstance(self._sorted, _Holed):
            return self._sorted.holes
        return () if isinstance(self._sorted, range) else _between(self._sorted)

    def __len__(self) -> int:
        return len(self._sorted)

    def __iter__(self) -> Iterator[int]:
        return iter(self._sorted)

    def __contains__(self, value: object) -> bool:
        return value in self._sorted


def _of_sorted(ordered: Sequence[int]) -> U64Segment:
    if not ordered:
        return U64Segment()
    span = range(ordered[0], ordered[-1] + 1)
    if span.stop - span.start >= 2 * len(ordered):
        return U64Segment(tuple(ordered))
    holes = _between(ordered)
    return U64Segment(_Holed(span, holes) if holes else span)


def _between(ordered: Sequence[int]) -> tuple[int, ...]:
    return tuple(hole for earlier, later in pairwise(ordered) for hole in range(earlier + 1, later))


def encode_u64_segment(segment: U64Segment) -> bytes:
    """The protobuf message, in its smallest form."""
    smallest = min(_forms(segment), key=lambda form: form.ByteSize())
    return smallest.SerializeToString(deterministic=True)


def _forms(segment: U64Segment) -> Iterator[rowids_pb2.U64Segment]:
    """The forms of which one is the smallest; one that cannot be it is not built, however wide the set is."""
    first, last, count = segment.first, segment.last, len(segment)
    message = rowids_pb2.U64Segment()
    if first is None or last is None:
        message.range.SetInParent()
        yield message
        return
    slots = last - first + 1
    if slots == count and last < _U64_MAX:
        message.range.start = first
        message.range.end = last + 1
        yield message
        return
    # What the shorter of the two lists takes at most: 8 bytes a number, and two bounds, a base, tags and lengths.
    bound = 8 * min(count, slots - count) + 64
    ends_a_range = last < _U64_MAX  # A range's end is exclusive and a u64 itself.
    if 2 * count <= bound or not ends_a_range:
        _write_array(message.sorted_array, segment, count)
        yield message
        bound = min(bound, message.ByteSize())
    if 2 * (slots - count) <= bound and ends_a_range:
        message = rowids_pb2.U64Segment()
        message.range_with_holes.start = first
        message.range_with_holes.end = last + 1
        _write_array(message.range_with_holes.holes, segment.holes(), slots - count)
        yield message
        bound = min(bound, message.ByteSize())
    if slots <= 8 * bound and ends_a_range:
        message = rowids_pb2.U64Segment()
        message.range_with_bitmap.start = first
        message.range_with_bitmap.end = last + 1
        present = np.zeros(slots, dtype=np.bool_)
        present[_offsets(segment, first, count)] = True
        message.range_with_bitmap.bitmap = np.packbits(present, bitorder="little").tobytes()
        yield message


def _write_array(array: rowids_pb2.EncodedU64Array, values: Iterable[int], count: int) -> None:
    """``values`` ascending, at least one, in the narrowest width."""
    numbers = _offsets(values, 0, count)
    base, spread = int(numbers[0]), int(numbers[-1] - numbers[0])
    if spread < 2**16:
        array.u16_array.base = base
        array.u16_array.offsets = (numbers - numbers[0]).astype("<u2").tobytes()
    elif spread < 2**32:
        array.u32_array.base = base
        array.u32_array.offsets = (numbers - numbers[0]).astype("<u4").tobytes()
    else:
        array.u64_array.values = numbers.astype("<u8").tobytes()


def _offsets(values: Iterable[int], base: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.fromiter((value - base for value in values), dtype=np.uint64, count=count)


def decode_u64_segment(data: bytes, where: str) -> U64Segment:
    """Inverse of ``encode_u64_segment``.  ``where`` names the object that holds ``data``, for errors.

    Raises ``ObjectCorrupt``, or ``FormatUnknown`` for a form or a width of arrays that has been added since.
    """
    message = rowids_pb2.U64Segment()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise _corrupt(where, "is not a protobuf message") from error
    match message.WhichOneof("segment"):
        case "range":
            return _segment_of(_read_range(message.range.start, message.range.end, where))
        case "range_with_holes":
            return _read_holes(message.range_with_holes, where)
        case "range_with_bitmap":
            return _read_bitmap(message.range_with_bitmap, where)
        case "sorted_array":
            values = _read_array(message.sorted_array, where)
            if values != sorted(set(values)):
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
            assert_never(form)


def _read_range(start: int, end: int, where: str) -> range:
    if end < start or end - start > sys.maxsize:
        raise _corrupt(where, f"has the impossible range {start} to {end}")
    return range(start, end)


def _segment_of(span: range) -> U64Segment:
    return U64Segment(span) if span else U64Segment()


def _read_holes(form: rowids_pb2.U64Segment.RangeWithHoles, where: str) -> U64Segment:
    span = _read_range(form.start, form.end, where)
    holes = _read_array(form.holes, where)
    if holes != sorted(set(holes)):
        raise _corrupt(where, "has holes that are not strictly ascending")
    if holes and not (holes[0] in span and holes[-1] in span):
        raise _corrupt(where, f"has holes outside its range {span.start} to {span.stop}")
    # Holes at the ends make the range shorter.
    leading = next((i for i, hole in enumerate(holes) if hole != span.start + i), len(holes))
    span, holes = range(span.start + leading, span.stop), holes[leading:]
    trailing = next((i for i, hole in enumerate(reversed(holes)) if hole != span.stop - 1 - i), len(holes))
    span, holes = range(span.start, span.stop - trailing), holes[: len(holes) - trailing]
    if not holes:
        return _segment_of(span)
    found = _Holed(span, tuple(holes))
    return U64Segment(found) if len(holes) < len(found) else _of_sorted(tuple(found))


def _read_bitmap(form: rowids_pb2.U64Segment.RangeWithBitmap, where: str) -> U64Segment:
    """Bit i, least significant first, says whether start + i is in the set; bits behind the end say nothing."""
    span = _read_range(form.start, form.end, where)
    if len(form.bitmap) != -(-len(span) // 8):
        raise _corrupt(where, f"has a bitmap of {len(form.bitmap)} bytes for {len(span)} numbers")
    bits = np.unpackbits(np.frombuffer(form.bitmap, dtype=np.uint8), count=len(span), bitorder="little")
    return _of_sorted([span.start + offset for offset in np.flatnonzero(bits).tolist()])


def _read_array(array: rowids_pb2.EncodedU64Array, where: str) -> list[int]:
    match array.WhichOneof("array"):
        case "u16_array":
            return _read_offsets(array.u16_array.offsets, "H", array.u16_array.base, where)
        case "u32_array":
            return _read_offsets(array.u32_array.offsets, "I", array.u32_array.base, where)
        case "u64_array":
            return _read_offsets(array.u64_array.values, "Q", 0, where)
        case _:
            raise FormatUnknown(f"{where}: U64Segment has an array of unknown width", object=where)


def _read_offsets(data: bytes, code: str, base: int, where: str) -> list[int]:
    """``code``: of a number, as ``struct`` has them."""
    count, rest = divmod(len(data), struct.calcsize(f"<{code}"))
    if rest:
        raise _corrupt(where, f"has an array of {len(data)} bytes, which is no multiple of its width")
    values = [base + offset for offset in struct.unpack(f"<{count}{code}", data)]
    if values and max(values) > _U64_MAX:
        raise _corrupt(where, "has an array with a value above 2^64 - 1")
    return values


def _corrupt(where: str, problem: str) -> ObjectCorrupt:
    return ObjectCorrupt(f"{where}: the U64Segment {problem}", object=where)
