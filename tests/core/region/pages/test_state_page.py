"""The bytes of a page: what one record, or the head, says is nobody else's."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.errors import FormatUnknown, LancewalError, ObjectCorrupt
from lancewal_core.names import paths
from lancewal_core.names.ids import Page, Region, TopicId
from lancewal_core.names.proto import state_page_pb2
from lancewal_core.region.pages.packed_record import pack_record
from lancewal_core.region.pages.state_page import PageRecord, StatePage, decode_page, encode_page
from lancewal_core.region.state import encode_state
from lancewal_core.region.states import state_in
from tests.golden.core_formats import EAST, INDEX, NORTH, STATES, STATES_KEY

BYTES = encode_page(STATES)
HEAD_END = 4 + struct.unpack_from("<I", BYTES)[0]
CHECKSUM = 6


def sealed_again(head: state_page_pb2.StatePageHead, records: bytes = BYTES[HEAD_END:]) -> bytes:
    """A page with this head and a checksum that matches."""
    head.ClearField("checksum")
    body = head.SerializeToString(deterministic=True)
    made = body + b"\xfd\x07" + struct.pack("<I", google_crc32c.value(body))
    return struct.pack("<I", len(made)) + made + records


def head() -> state_page_pb2.StatePageHead:
    return state_page_pb2.StatePageHead.FromString(BYTES[4:HEAD_END])


@given(
    st.integers(1, 200),
    st.dictionaries(st.integers(0, 199), st.tuples(st.binary(max_size=20), st.integers(0, 2**63)), max_size=10),
    st.integers(0, 9),
)
def test_a_page_comes_back_as_it_was(per_page: int, records: dict[int, tuple[bytes, int]], number: int) -> None:
    page = Page("orders", TopicId("topic-id-1"), number, None)
    kept = {number * per_page + p: PageRecord(*r) for p, r in sorted(records.items()) if p < per_page}
    content = StatePage(page, per_page, "w", kept)
    data = encode_page(content)
    assert decode_page(data, paths.page_version(page, 3)) == content
    assert encode_page(content) == data


def test_its_indexes_are_read() -> None:
    assert state_in(STATES, NORTH, STATES_KEY) == INDEX
    assert state_in(STATES, replace(NORTH, partition=3), STATES_KEY) is None
    assert sealed_again(head()) == BYTES


def test_every_changed_or_missing_byte_is_found_and_of_a_record_concerns_its_region_alone() -> None:
    first_end = HEAD_END + len(STATES.records[0].data)
    for at in range(len(BYTES)):
        damaged = BYTES[:at] + bytes([BYTES[at] ^ 0x10]) + BYTES[at + 1 :]
        if at < HEAD_END:
            with pytest.raises(ObjectCorrupt, match="the checksum of its head does not match"):
                decode_page(damaged, STATES_KEY)
            continue
        content = decode_page(damaged, STATES_KEY)
        hit, sound = (NORTH, EAST) if at < first_end else (EAST, NORTH)
        with pytest.raises(ObjectCorrupt, match="checksum"):
            state_in(content, hit, STATES_KEY)
        assert state_in(content, sound, STATES_KEY) == state_in(STATES, sound, STATES_KEY)
        # Who changes the other one copies this one, damage and all.
        copied = decode_page(encode_page(content.with_records({sound.partition: PageRecord(b"new", 1)})), STATES_KEY)
        assert copied.records[hit.partition] == content.records[hit.partition]
    for cut in [*range(0, len(BYTES), 7), len(BYTES) - 1]:
        with pytest.raises(ObjectCorrupt):
            decode_page(BYTES[:cut], STATES_KEY)
    with pytest.raises(ObjectCorrupt, match="its records end at byte"):
        decode_page(BYTES + b"\x00", STATES_KEY)


def test_a_lost_record_is_no_unclaimed_region() -> None:
    content = decode_page(encode_page(STATES.with_records({3: PageRecord(b"", 5)})), STATES_KEY)
    with pytest.raises(ObjectCorrupt, match="is lost; rebuild it: `lancewal repair region`") as caught:
        state_in(content, replace(NORTH, partition=3), STATES_KEY)
    assert caught.value.where["object"] == STATES_KEY


def test_a_newer_format_is_refused_by_name_and_of_a_record_concerns_its_region_alone() -> None:
    later = head()
    later.format_version = 2
    with pytest.raises(FormatUnknown, match="state page format version 2"):
        decode_page(sealed_again(later), STATES_KEY)
    body = encode_state(INDEX)[:-CHECKSUM].replace(b"\xa0\x06\x01", b"\xa0\x06\x02", 1)  # field 100
    record = body + b"\xfd\x07" + struct.pack("<I", google_crc32c.value(body))
    content = decode_page(encode_page(STATES.with_records({0: PageRecord(pack_record(record), 1)})), STATES_KEY)
    with pytest.raises(FormatUnknown, match="format version 2"):
        state_in(content, NORTH, STATES_KEY)
    assert state_in(content, EAST, STATES_KEY) is not None


def changed_heads() -> dict[str, tuple[state_page_pb2.StatePageHead, str]]:
    made = {}
    changes: tuple[tuple[str, Callable[[state_page_pb2.StatePageHead], None], str], ...] = (
        ("other topic", lambda h: setattr(h, "topic", "other"), "it is page 0 of topic other"),
        ("other id", lambda h: setattr(h, "topic_id", "other"), "id other"),
        ("other page", lambda h: setattr(h, "number", 1), "it is page 1"),
        ("no key", lambda h: setattr(h, "topic", "a/b"), "cannot be part of an object key"),
        ("no page", lambda h: setattr(h, "number", 2**31), "cannot be the number of a page"),
        ("no regions", lambda h: setattr(h, "regions_per_page", 0), "0 regions cannot lie in it"),
        ("fewer regions", lambda h: setattr(h, "regions_per_page", 7), "belong to other pages"),
        ("write id", lambda h: setattr(h, "write_id", "a b"), "write_id"),
        ("order", lambda h: setattr(h.slots[0], "partition", 9), "are not in order"),
        ("twice", lambda h: setattr(h.slots[0], "partition", 7), "two records"),
        ("size", lambda h: setattr(h.slots[0], "size", 2**40), "its records end at byte"),
    )
    for name, change, match in changes:
        changed = head()
        change(changed)
        made[name] = changed, match
    return made


@pytest.mark.parametrize("name", changed_heads())
def test_heads_that_cannot_be(name: str) -> None:
    changed, match = changed_heads()[name]
    with pytest.raises(ObjectCorrupt, match=match):
        decode_page(sealed_again(changed), STATES_KEY)


def test_what_cannot_be_read_is_not_written() -> None:
    for wrong in (
        replace(STATES, write_id="a b"),
        replace(STATES, regions_per_page=7),
        replace(STATES, records={7: STATES.records[7], 0: STATES.records[0]}),
    ):
        with pytest.raises(ObjectCorrupt):
            encode_page(wrong)


def test_a_record_of_another_region_is_refused() -> None:
    stranger = encode_state(replace(INDEX, region=Region("orders.eu", NORTH.topic_id, 3), generations=()))
    content = STATES.with_records({0: PageRecord(pack_record(stranger), 1)})
    with pytest.raises(ObjectCorrupt, match="another region"):
        state_in(content, NORTH, STATES_KEY)


@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    with pytest.raises(LancewalError):
        decode_page(data, STATES_KEY)
