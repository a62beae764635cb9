"""U64Segment: the wire bytes of each form, sets that come back as they were, and Lance's own codec beside ours."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.errors import FormatUnknown, InvalidInput, ObjectCorrupt
from lancewal_core.region.flushes.u64_segment import U64Segment, decode_u64_segment, encode_u64_segment
from tests.support.lance_row_ids import read_by_lance, written_by_lance

WHERE = "some/index.binpb"
MAX = 2**64 - 1
values_of_any_spread = st.one_of(
    st.sets(st.integers(0, MAX), max_size=20),
    st.sets(st.integers(0, 40), max_size=20),
    st.builds(
        lambda low, n, holes: set(range(low, low + n)) - {low + hole for hole in holes},
        st.integers(0, 2**40),
        st.integers(1, 300),
        st.sets(st.integers(0, 300), max_size=6),
    ),
    st.builds(
        lambda base, offsets: {base + o for o in offsets}, st.integers(0, 2**63), st.sets(st.integers(0, 70_000))
    ),
    st.builds(lambda low, n: set(range(low, min(low + n, MAX + 1))), st.integers(MAX - 9, MAX), st.integers(0, 12)),
)


def varint(number: int) -> bytes:
    rest = number >> 7
    return bytes([number & 127 | 128]) + varint(rest) if rest else bytes([number])


def field(number: int, payload: bytes) -> bytes:
    """A length-delimited protobuf field; numbers below 16 only."""
    return bytes([number << 3 | 2]) + varint(len(payload)) + payload


def number(field: int, value: int) -> bytes:
    """A varint field; as everything else in proto3, left out where it is 0."""
    return bytes([field << 3]) + varint(value) if value else b""


def array_bytes(values: list[int]) -> bytes:
    """By hand: an EncodedU64Array in its narrowest width."""
    base = values[0]
    spread = values[-1] - base
    if spread >= 2**32:
        return field(3, field(2, struct.pack(f"<{len(values)}Q", *values)))
    form, width = (1, "H") if spread < 2**16 else (2, "I")
    offsets = struct.pack(f"<{len(values)}{width}", *(value - base for value in values))
    return field(form, number(1, base) + field(2, offsets))


def all_forms(values: list[int]) -> list[bytes]:
    """By hand: every form that can say these ascending values, sorted array first."""
    forms = [field(4, array_bytes(values))]
    if values[-1] < MAX and values[-1] - values[0] < 100_000:
        ends = number(1, values[0]) + number(2, values[-1] + 1)
        holes = sorted(set(range(values[0], values[-1])) - set(values))
        if not holes:
            return [field(1, ends)]
        forms.append(field(2, ends + field(3, array_bytes(holes))))
        bits = sum(1 << (value - values[0]) for value in values)
        forms.append(field(3, ends + field(3, bits.to_bytes((values[-1] - values[0]) // 8 + 1, "little"))))
    return forms


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


@given(values_of_any_spread)
def test_no_form_is_smaller_than_the_one_written_and_all_are_read(values: set[int]) -> None:
    if not values:
        return
    forms = all_forms(sorted(values))
    segment = U64Segment.of(values)
    assert encode_u64_segment(segment) == min(forms, key=len)
    for form in forms:
        found = decode_u64_segment(form, WHERE)
        assert found == segment
        assert hash(found) == hash(segment)


@pytest.mark.parametrize(
    ("values", "wire"),
    [
        ([], field(1, b"")),
        ([0], field(1, b"\x10\x01")),
        ([3, 4, 5], field(1, b"\x08\x03\x10\x06")),
        ([3, 5], field(3, b"\x08\x03\x10\x06" + field(3, b"\x05"))),
        ([0, 300], field(4, field(1, field(2, b"\x00\x00\x2c\x01")))),
        ([*range(99), 100], field(2, b"\x10\x65" + field(3, field(1, b"\x08\x63" + field(2, b"\x00\x00"))))),
        ([i for i in range(16) if i != 9], field(3, b"\x10\x10" + field(3, b"\xff\xfd"))),
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


def test_a_wide_range_with_a_hole_is_read_without_being_spelled_out() -> None:
    wire = field(2, number(2, 2**62) + field(3, ONE_HOLE))
    segment = decode_u64_segment(wire, WHERE)
    assert (segment.first, segment.last, len(segment), segment.holes()) == (0, 2**62 - 1, 2**62 - 1, (7,))
    assert (6 in segment, 7 in segment, 8 in segment, 2**62 in segment) == (True, False, True, False)
    assert encode_u64_segment(segment) == wire


def test_a_wide_range_is_read_without_being_spelled_out() -> None:
    segment = decode_u64_segment(field(1, b"\x10" + b"\xff" * 8 + b"\x7f"), WHERE)
    assert (segment.first, segment.last, len(segment)) == (0, 2**63 - 2, 2**63 - 1)


ONE_HOLE = field(1, b"\x08\x07" + field(2, b"\x00\x00"))


@pytest.mark.parametrize(
    ("wire", "values"),
    [
        (field(2, b"\x08\x03\x10\x09" + field(3, ONE_HOLE)), (3, 4, 5, 6, 8)),
        # Holes at the ends, and only holes.
        (field(2, b"\x08\x07\x10\x0a" + field(3, ONE_HOLE)), (8, 9)),
        (field(2, b"\x08\x05\x10\x08" + field(3, ONE_HOLE)), (5, 6)),
        (field(2, b"\x08\x07\x10\x08" + field(3, ONE_HOLE)), ()),
        (field(2, b"\x08\x07\x10\x09" + field(3, field(1, b""))), (7, 8)),
        (field(3, b"\x08\x03\x10\x09" + field(3, b"\x29")), (3, 6, 8)),
        # Zeros at the ends, bits behind the end, and no bit at all.
        (field(3, b"\x08\x03\x10\x09" + field(3, b"\xcc")), (5, 6)),
        (field(3, b"\x08\x03\x10\x09" + field(3, b"\x00")), ()),
    ],
)
def test_ranges_with_what_they_leave_out_are_read(wire: bytes, values: tuple[int, ...]) -> None:
    assert decode_u64_segment(wire, WHERE) == U64Segment.of(values)


@pytest.mark.parametrize(
    ("wire", "name"),
    [
        (field(2, b"\x10\x05"), "unknown width"),
        (field(6, b"\x10\x05"), "number 6"),
        (field(4, b""), "unknown width"),
        (field(5, field(4, b"")), "unknown width"),
    ],
)
def test_what_was_added_since_is_refused_by_name(wire: bytes, name: str) -> None:
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
        field(2, b"\x08\x05\x10\x04" + field(3, ONE_HOLE)),
        field(2, b"\x08\x08\x10\x0a" + field(3, ONE_HOLE)),
        field(2, b"\x08\x05\x10\x07" + field(3, ONE_HOLE)),
        field(2, b"\x10\x09" + field(3, field(1, field(2, struct.pack("<2H", 2, 1))))),
        field(2, b"\x10\x09" + field(3, field(1, field(2, struct.pack("<2H", 2, 2))))),
        field(2, b"\x10\x09" + field(3, field(1, field(2, struct.pack("<2H", 2, 9))))),
        field(3, b"\x08\x05\x10\x04" + field(3, b"\xff")),
        field(3, b"\x10\x09" + field(3, b"\xff")),
        field(3, b"\x10\x08" + field(3, b"\xff\xff")),
        field(3, b"\x10\x05"),
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


# -- Lance's own codec ------------------------------------------------------------------------------------------------

LANCE_SETS = {
    "range": list(range(5, 25)),
    "holes": [i for i in range(10, 110) if i not in (50, 77)],
    "bitmap": [i for i in range(100) if i % 7],
    "sorted_array": [1, 70_000],
    "sorted_array of 64 bits": [3, 2**40],
    "array": [9, 2, 5],
}


@pytest.mark.parametrize("name", LANCE_SETS)
def test_what_lance_writes_is_read(name: str) -> None:
    values = LANCE_SETS[name]
    assert decode_u64_segment(written_by_lance(values), WHERE) == U64Segment.of(values)


def test_lance_writes_each_form() -> None:
    assert {written_by_lance(values)[0] >> 3 for values in LANCE_SETS.values()} == {1, 2, 3, 4, 5}


@given(values_of_any_spread)
def test_lance_reads_what_is_written(values: set[int]) -> None:
    assert read_by_lance(encode_u64_segment(U64Segment.of(values))) == sorted(values)
