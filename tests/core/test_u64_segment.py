"""U64Segment: the wire bytes of each form, and sets that come back as they were."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.errors import FormatUnknown, InvalidInput, ObjectCorrupt
from lancewal_core.u64_segment import U64Segment, decode_u64_segment, encode_u64_segment

WHERE = "some/index.binpb"
MAX = 2**64 - 1
values_of_any_spread = st.one_of(
    st.sets(st.integers(0, MAX), max_size=20),
    st.sets(st.integers(0, 40), max_size=20),
    st.builds(
        lambda base, offsets: {base + o for o in offsets}, st.integers(0, 2**63), st.sets(st.integers(0, 70_000))
    ),
    st.builds(lambda low, n: set(range(low, min(low + n, MAX + 1))), st.integers(MAX - 9, MAX), st.integers(0, 12)),
)


def field(number: int, payload: bytes) -> bytes:
    """A length-delimited protobuf field; numbers and lengths below 128 only."""
    return bytes([number << 3 | 2, len(payload)]) + payload


@given(values_of_any_spread)
def test_values_come_back_sorted(values: set[int]) -> None:
    segment = U64Segment.of(values)
    assert segment.values() == tuple(sorted(values)) == tuple(segment)
    assert len(segment) == len(values)
    assert (segment.first, segment.last) == ((min(values), max(values)) if values else (None, None))
    assert decode_u64_segment(encode_u64_segment(segment), WHERE) == segment
    assert U64Segment.of([*reversed(segment.values()), *values]) == segment
    assert all(value in segment for value in values)
    assert max(values, default=-1) + 1 not in segment


@pytest.mark.parametrize(
    ("values", "wire"),
    [
        ([], field(1, b"")),
        ([0], field(1, b"\x10\x01")),
        ([3, 4, 5], field(1, b"\x08\x03\x10\x06")),
        ([3, 5], field(4, field(1, b"\x08\x03" + field(2, b"\x00\x00\x02\x00")))),
        ([1, 1 + 65535], field(4, field(1, b"\x08\x01" + field(2, struct.pack("<2H", 0, 65535))))),
        ([1, 1 + 65536], field(4, field(2, b"\x08\x01" + field(2, struct.pack("<2I", 0, 65536))))),
        ([0, 2**32 - 1], field(4, field(2, field(2, struct.pack("<2I", 0, 2**32 - 1))))),
        ([5, 5 + 2**32], field(4, field(3, field(2, struct.pack("<2Q", 5, 5 + 2**32))))),
        # A range's exclusive end would not be a u64.
        ([MAX], field(4, field(1, b"\x08" + b"\xff" * 9 + b"\x01" + field(2, b"\x00\x00")))),
    ],
)
def test_the_smallest_form_is_written(values: list[int], wire: bytes) -> None:
    assert encode_u64_segment(U64Segment.of(values)) == wire
    assert decode_u64_segment(wire, WHERE) == U64Segment.of(values)


def test_an_unsorted_array_is_read() -> None:
    wire = field(5, field(1, b"\x08\x0a" + field(2, struct.pack("<3H", 7, 0, 3))))
    assert decode_u64_segment(wire, WHERE).values() == (10, 13, 17)


def test_a_wide_range_is_read_without_being_spelled_out() -> None:
    segment = decode_u64_segment(field(1, b"\x10" + b"\xff" * 8 + b"\x7f"), WHERE)
    assert (segment.first, segment.last, len(segment)) == (0, 2**63 - 2, 2**63 - 1)


@pytest.mark.parametrize(
    ("wire", "name"),
    [
        (field(2, b"\x10\x05"), "range_with_holes"),
        (field(3, b"\x10\x05"), "range_with_bitmap"),
        (field(6, b"\x10\x05"), "number 6"),
        (field(4, b""), "unknown width"),
        (field(5, field(4, b"")), "unknown width"),
    ],
)
def test_other_forms_are_refused_by_name(wire: bytes, name: str) -> None:
    with pytest.raises(FormatUnknown, match=name) as raised:
        decode_u64_segment(wire, WHERE)
    assert WHERE in str(raised.value)


@pytest.mark.parametrize(
    "wire",
    [
        b"",
        b"\x0a",
        b"\xff" * 20,
        field(1, b"\x08\x05\x10\x04"),
        field(1, b"\x10" + b"\xff" * 9 + b"\x01"),
        field(4, field(1, field(2, b"\x00"))),
        field(4, field(2, field(2, b"\x00\x00"))),
        field(4, field(3, field(2, b"\x00" * 4))),
        field(4, field(1, field(2, struct.pack("<2H", 2, 1)))),
        field(4, field(1, field(2, struct.pack("<2H", 1, 1)))),
        field(5, field(1, field(2, struct.pack("<3H", 2, 1, 2)))),
        field(4, field(1, b"\x08" + b"\xff" * 9 + b"\x01" + field(2, b"\x01\x00"))),
    ],
)
def test_malformed_bytes_are_refused(wire: bytes) -> None:
    with pytest.raises(ObjectCorrupt, match=WHERE):
        decode_u64_segment(wire, WHERE)


@given(st.binary(max_size=40))
def test_any_bytes_give_a_set_or_a_named_error(data: bytes) -> None:
    try:
        segment = decode_u64_segment(data, WHERE)
    except (ObjectCorrupt, FormatUnknown):
        return
    assert decode_u64_segment(encode_u64_segment(segment), WHERE) == segment


@pytest.mark.parametrize("values", [[-1], [2**64], [0, 2**70]])
def test_other_numbers_are_refused(values: list[int]) -> None:
    with pytest.raises(InvalidInput):
        U64Segment.of(values)
