"""The bytes of a record: any change is found, and nothing large is unpacked of what says that it is small."""

from __future__ import annotations

import struct

import google_crc32c
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.errors import ObjectCorrupt, ObjectTooLarge
from lancewal_core.region.pages import state_page
from lancewal_core.region.pages.packed_record import RecordBroken, pack_record, unpack_record, unpacked_bytes
from lancewal_core.region.pages.state_page import PageRecord, decode_page, encode_page
from lancewal_core.region.state import encode_state
from tests.golden.core_formats import INDEX, STATES, STATES_KEY


def with_checksum(size: int, frame: bytes) -> bytes:
    rest = struct.pack("<I", size) + frame
    return struct.pack("<I", google_crc32c.value(rest)) + rest


@given(st.binary(max_size=2000))
def test_a_record_comes_back_as_it_was(data: bytes) -> None:
    assert unpack_record(pack_record(data)) == data


def test_every_changed_missing_or_added_byte_is_found() -> None:
    record = pack_record(encode_state(INDEX))
    for at in range(len(record)):
        for bit in range(8):
            with pytest.raises(RecordBroken, match="checksum"):
                unpack_record(record[:at] + bytes([record[at] ^ 1 << bit]) + record[at + 1 :])
        with pytest.raises(RecordBroken):
            unpack_record(record[:at])
    with pytest.raises(RecordBroken, match="checksum"):
        unpack_record(record + b"\0")


@pytest.mark.parametrize(
    ("size", "frame", "match"),
    [
        (999, pa.compress(b"x" * 1000, codec="zstd", asbytes=True), "cannot be unpacked"),
        (1001, pa.compress(b"x" * 1000, codec="zstd", asbytes=True), "unpack"),
        (10, b"no frame", "cannot be unpacked"),
    ],
)
def test_what_a_record_says_of_itself_is_not_believed(size: int, frame: bytes, match: str) -> None:
    with pytest.raises(RecordBroken, match=match):
        unpack_record(with_checksum(size, frame))


def test_its_size_is_known_before_it_is_unpacked() -> None:
    data = encode_state(INDEX)
    record = pack_record(data)
    assert unpacked_bytes(record) == len(data)
    assert [unpacked_bytes(broken) for broken in (b"", record[:-1], record + b"x")] == [0, 0, 0]


def test_a_page_unpacks_to_what_any_page_may_and_damage_counts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    page, size = encode_page(STATES), STATES.unpacked_bytes
    monkeypatch.setattr(state_page, "PAGE_BYTES_MAX", size)
    assert decode_page(page, STATES_KEY) == STATES
    # What a damaged record says of its size is no other region's concern.
    harmed = STATES.with_records({7: PageRecord(with_checksum(2**32 - 1, b"")[1:] + b"?", 1)})
    assert decode_page(encode_page(harmed), STATES_KEY) == harmed
    monkeypatch.setattr(state_page, "PAGE_BYTES_MAX", size - 1)
    with pytest.raises(ObjectCorrupt, match=f"its records unpack to {size} bytes, more than the {size - 1}"):
        decode_page(page, STATES_KEY)
    with pytest.raises(ObjectTooLarge, match="run the flusher"):
        encode_page(STATES.with_records({3: PageRecord(with_checksum(2**32 - 1, b""), 1)}))


def test_generations_that_say_the_same_take_little() -> None:
    data = encode_state(INDEX) * 20
    assert len(pack_record(data)) * 6 < len(data)
