"""Region index and history pages: exact round trips, invariants held on both sides, any damage found."""

from __future__ import annotations

import struct
from dataclasses import replace

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.errors import FormatUnknown, LancewalError, ObjectCorrupt
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, LogId, OwnerId, Page, Position, Region, Sequence, TableVersion, TopicId
from lancewal_core.names.proto import mem_wal_pb2
from lancewal_core.region.state import (
    NO_ROW_MS,
    Before,
    GenerationRecord,
    GenerationState,
    HistoryPage,
    RegionState,
    decode_history,
    decode_state,
    encode_history,
    encode_state,
)
from lancewal_core.rows.record_times import RecordTimes
from lancewal_core.wal.entry import NoRowYet

REGION = Region("orders", TopicId("AAAAAAAAQACAAAAAAAAAAQ"), 17)
KEY = paths.page_version(Page.of(REGION, 128, None), 3)
PAGE_KEY = paths.history_page(REGION, Generation(1), None)


def flush_key(region: Region, number: int) -> str:
    return paths.flush_file(f"{region.partition}-{number}", paths.FlushFile.MANIFEST)


def record(number: int, state: GenerationState, first: int, next_: int, region: Region = REGION) -> GenerationRecord:
    """A sound generation with entries at ``first`` and in the middle."""
    reached = state.value
    entries = {first, (first + next_) // 2} if next_ > first else set()
    return GenerationRecord(
        generation=Generation(number),
        state=state,
        owner=OwnerId(f"ingest-{number}"),
        log=LogId(f"log.{number}"),
        first=Position(first),
        next=Position(next_) if reached >= 1 else None,
        first_sequence=Sequence(number * 10),
        end_sequence=Sequence(number * 10 + 4) if reached >= 1 else None,
        flush=flush_key(region, number) if reached >= 2 else None,
        merged_version=TableVersion(number + 5) if reached >= 3 else None,
        merged_at_ms=1_700_000_000_000 + number if reached >= 3 else None,
        sealed_at_ms=1_600_000_000_000 + number if reached >= 1 else None,
        flushed_at_ms=1_650_000_000_000 + number if reached >= 2 else None,
        record_times=RecordTimes(-1, 1_500_000_000_000 + number) if reached >= 1 and entries else None,
    )


FULL = RegionState(
    REGION,
    2,
    (
        record(4, GenerationState.MERGED, 100, 130),
        record(5, GenerationState.MERGED, 130, 130),
        record(6, GenerationState.FLUSHED, 130, 500),
        record(7, GenerationState.SEALED, 500, 501),
        record(8, GenerationState.OPEN, 501, 501),
    ),
    Generation(4),
    Position(130),
    "w-8f",
    -3,
    NoRowYet(7, "not_json"),
)
PAGE = HistoryPage(REGION, 2, (record(1, GenerationState.MERGED, 0, 60), record(2, GenerationState.MERGED, 60, 90)))


@st.composite
def indexes(draw: st.DrawFn) -> RegionState:
    states = sorted(draw(st.lists(st.sampled_from(list(GenerationState)), max_size=6)), key=lambda s: -s.value)
    while states.count(GenerationState.OPEN) > 1:
        states.remove(GenerationState.OPEN)
    region = Region(draw(st.sampled_from(["t", "a.b_c-d"])), TopicId("x-_9"), draw(st.integers(0, 2**31 - 1)))
    number = draw(st.integers(1, 2**40))
    position = draw(st.integers(0, 2**40))
    generations = []
    for i, state in enumerate(states):
        next_ = position + draw(st.integers(0, 1000))
        generations.append(record(number + i, state, position, next_, region))
        position = next_
    merged = [r for r in generations if r.state is GenerationState.MERGED]
    boundary = draw(st.sampled_from([None, *merged]))
    trimmed = (Generation(0), Position(0)) if boundary is None else (boundary.generation, boundary.next or Position(0))
    write_id = draw(st.text("ab.-_0", min_size=3, max_size=5))
    time = None if boundary is None else draw(st.sampled_from([None, NO_ROW_MS, -1, 0, 1_700_000_000_000]))
    no_row_yet = draw(st.sampled_from([None, NoRowYet(), NoRowYet(2**63, ""), NoRowYet(1, "type")]))
    return RegionState(region, draw(st.integers(1, 99)), tuple(generations), *trimmed, write_id, time, no_row_yet)


@given(indexes())
def test_an_index_comes_back_as_it_was_and_its_bytes_are_stable(state: RegionState) -> None:
    data = encode_state(state)
    assert decode_state(data, KEY, state.region) == state
    assert encode_state(state) == data
    assert state.newest == (state.generations[-1] if state.generations else None)


@st.composite
def versions(draw: st.DrawFn) -> tuple[RegionState, RegionState]:
    """Two versions of an index: some generations gone on, the oldest gone, a further one; or another region's."""
    before = draw(indexes())
    if not before.generations or draw(st.integers(0, 9)) == 0:
        return before, draw(indexes())
    kept = list(before.generations[draw(st.integers(0, len(before.generations) - 1)) :])
    for at in range(len(kept) - 1, -1, -1):
        if draw(st.booleans()):
            limit = GenerationState.MERGED if at == 0 else kept[at - 1].state
            later = [state for state in GenerationState if kept[at].state.value <= state.value <= limit.value]
            state, end = draw(st.sampled_from(later)), kept[at].next
            end = kept[at].first if end is None else end
            kept[at] = record(kept[at].generation, state, kept[at].first, end, before.region)
    if kept[-1].next is not None and draw(st.booleans()):
        kept.append(record(kept[-1].generation + 1, GenerationState.OPEN, kept[-1].next, kept[-1].next, before.region))
    return before, replace(before, generations=tuple(kept), write_id="next")


@given(versions())
def test_who_knows_the_version_before_reads_and_writes_the_same(pair: tuple[RegionState, RegionState]) -> None:
    old, new = pair
    before, data = Before(encode_state(old), old), encode_state(new)
    assert encode_state(new, before) == data
    found = decode_state(data, KEY, new.region, before)
    assert found == new == decode_state(data, KEY, new.region)
    of_old = {id(r) for r in old.generations}
    assert all(id(r) in of_old for r in found.generations if new.region == old.region and r in old.generations)


def test_what_is_wrong_with_a_generation_that_is_new_is_found_beside_known_ones() -> None:
    before = Before(encode_state(FULL), FULL)
    for at in range(len(FULL.generations)):
        generations = list(FULL.generations)
        generations[at] = replace(generations[at], owner=OwnerId("../x"))
        with pytest.raises(ObjectCorrupt, match="is not an identifier"):
            encode_state(replace(FULL, generations=tuple(generations)), before)
        message = mem_wal_pb2.MemWalIndexDetails.FromString(before.data[:-6])
        message.mem_wal_list[at].owner_id = "../x"
        body = message.SerializeToString(deterministic=True)
        with pytest.raises(ObjectCorrupt, match="is not an identifier"):
            decode_state(body + b"\xfd\x07" + struct.pack("<I", google_crc32c.value(body)), KEY, REGION, before)


def test_what_a_repair_cannot_know_is_absent() -> None:
    unknown = tuple(replace(r, sealed_at_ms=None, flushed_at_ms=None, record_times=None) for r in FULL.generations)
    index = replace(FULL, generations=unknown)
    assert decode_state(encode_state(index), KEY) == index


def test_a_state_of_an_older_release_has_had_a_row() -> None:
    older = message()
    older.ClearField("no_row_yet")
    assert decode_state(sealed_again(older), KEY) == replace(FULL, no_row_yet=None)


def test_a_history_page_comes_back_as_it_was() -> None:
    data = encode_history(PAGE.region, PAGE.contract_version, PAGE.generations)
    assert decode_history(data, PAGE_KEY) == PAGE


def test_any_protobuf_reader_finds_the_fields_of_the_memwal_message() -> None:
    """Numbers 1 to 7 are those of the MemWAL index message; a reader that knows no others must read them."""
    sealed = mem_wal_pb2.MemWalIndexDetails.FromString(encode_state(FULL)).mem_wal_list[3]
    wire = sealed.SerializeToString()
    expected = (
        field(1, field(1, REGION.name.encode()) + b"\x10\x07")
        + field(3, b"_lancewal/wal/log.7/")
        + b"\x28\x01"
        + field(6, b"ingest-7")
    )
    assert wire.startswith(expected)


def field(number: int, payload: bytes) -> bytes:
    return bytes([number << 3 | 2, len(payload)]) + payload


def test_states_have_the_values_of_the_wire() -> None:
    order = [GenerationState.OPEN, GenerationState.SEALED, GenerationState.FLUSHED, GenerationState.MERGED]
    assert [state.value for state in order] == [0, 1, 2, 3]


# -- invariants ------------------------------------------------------------------------------------------------


def changed(at: int, new: GenerationRecord) -> RegionState:
    generations = list(FULL.generations)
    generations[at] = new
    return replace(FULL, generations=tuple(generations))


MERGED, _, FLUSHED, SEALED, OPEN = FULL.generations

BROKEN = {
    "gap in numbers": changed(1, replace(FULL.generations[1], generation=Generation(9))),
    "number zero": replace(
        FULL, generations=(record(0, GenerationState.OPEN, 0, 0),), trimmed_generation=Generation(0)
    ),
    "gap in positions": changed(4, replace(OPEN, first=Position(502))),
    "overlap": changed(4, replace(OPEN, first=Position(500))),
    "open in the middle": changed(3, record(7, GenerationState.OPEN, 500, 501)),
    "later is further": changed(1, record(5, GenerationState.SEALED, 130, 130)),
    "later is merged": changed(3, record(7, GenerationState.MERGED, 500, 501)),
    "open with next": changed(4, replace(OPEN, next=Position(501))),
    "open with end sequence": changed(4, replace(OPEN, end_sequence=Sequence(90))),
    "open with a time of sealing": changed(4, replace(OPEN, sealed_at_ms=1)),
    "sealed with a time of flushing": changed(3, replace(SEALED, flushed_at_ms=1)),
    "record times of nothing": changed(1, replace(FULL.generations[1], record_times=RecordTimes(1, 2))),
    "open with record times": changed(4, replace(OPEN, record_times=RecordTimes(1, 2))),
    "record times reversed": changed(3, replace(SEALED, record_times=RecordTimes(2, 1))),
    "open with snapshot": changed(4, replace(OPEN, flush="x")),
    "sealed without next": changed(3, replace(SEALED, next=None)),
    "sealed without end sequence": changed(3, replace(SEALED, end_sequence=None)),
    "sealed with snapshot": changed(3, replace(SEALED, flush="x")),
    "sealed with merged version": changed(3, replace(SEALED, merged_version=TableVersion(3))),
    "flushed without snapshot": changed(2, replace(FLUSHED, flush=None)),
    "flushed with empty snapshot": changed(2, replace(FLUSHED, flush="")),
    "flushed with merge time": changed(2, replace(FLUSHED, merged_at_ms=1)),
    "merged without version": changed(0, replace(MERGED, merged_version=None)),
    "merged by version 0": changed(0, replace(MERGED, merged_version=TableVersion(0))),
    "merged without time": changed(0, replace(MERGED, merged_at_ms=None)),
    "next before first": changed(4, replace(OPEN, first=Position(-1))),
    "sequences reversed": changed(3, replace(SEALED, end_sequence=Sequence(1))),
    "no owner": changed(3, replace(SEALED, owner=OwnerId(""))),
    "no log": changed(3, replace(SEALED, log=LogId(""))),
    "no write id": replace(FULL, write_id=""),
    "contract version 0": replace(FULL, contract_version=0),
    "trimmed but only flushed": replace(FULL, trimmed_generation=Generation(6), trimmed=Position(500)),
    "trimmed above the newest": replace(
        FULL, generations=FULL.generations[:1], trimmed_generation=Generation(5), trimmed=Position(130)
    ),
    "time of nothing": replace(FULL, trimmed_generation=Generation(0), trimmed=Position(0)),
    "trimmed position": replace(FULL, trimmed=Position(129)),
    "a kind of no records": replace(FULL, no_row_yet=NoRowYet(0, "type")),
    "a kind that is no word": replace(FULL, no_row_yet=NoRowYet(1, "a kind")),
    "fewer rejected records than none": replace(FULL, no_row_yet=NoRowYet(-1)),
    "trimmed below zero": replace(FULL, trimmed_generation=Generation(-1)),
}


@pytest.mark.parametrize("state", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_index_is_not_written(state: RegionState) -> None:
    with pytest.raises(ObjectCorrupt, match="region orders/"):
        encode_state(state)


def test_the_index_that_the_broken_ones_start_from_is_sound() -> None:
    FULL.check()
    PAGE.check()


def test_a_page_holds_merged_generations_only() -> None:
    for generations in ((), FULL.generations[1:3], FULL.generations[4:]):
        with pytest.raises(ObjectCorrupt, match="history page"):
            encode_history(REGION, 2, generations)


# -- damage ----------------------------------------------------------------------------------------------------

INDEX_BYTES = encode_state(FULL)


def sealed_again(message: mem_wal_pb2.MemWalIndexDetails) -> bytes:
    """The message with a checksum that matches: field 127, four bytes."""
    message.ClearField("checksum")
    body = message.SerializeToString()
    return body + b"\xfd\x07" + struct.pack("<I", google_crc32c.value(body))


def message() -> mem_wal_pb2.MemWalIndexDetails:
    return mem_wal_pb2.MemWalIndexDetails.FromString(INDEX_BYTES)


def test_sealing_again_changes_nothing_by_itself() -> None:
    assert sealed_again(message()) == INDEX_BYTES


def test_every_flipped_bit_and_every_truncation_is_found() -> None:
    for at in range(len(INDEX_BYTES)):
        for bit in range(8):
            damaged = bytearray(INDEX_BYTES)
            damaged[at] ^= 1 << bit
            with pytest.raises(ObjectCorrupt, match=KEY):
                decode_state(bytes(damaged), KEY)
        with pytest.raises(ObjectCorrupt, match=KEY):
            decode_state(INDEX_BYTES[:at], KEY)
    with pytest.raises(ObjectCorrupt, match=KEY):
        decode_state(INDEX_BYTES + b"\x00", KEY)


@given(st.binary(max_size=100))
def test_any_bytes_are_refused(data: bytes) -> None:
    checksum = b"\xfd\x07" + struct.pack("<I", google_crc32c.value(data))
    with pytest.raises(ObjectCorrupt):
        decode_state(data, KEY)
    with pytest.raises(LancewalError) as raised:
        decode_state(data + checksum, KEY)
    assert isinstance(raised.value, ObjectCorrupt | FormatUnknown)
    assert KEY in str(raised.value)


def test_what_a_later_release_wrote_is_named() -> None:
    later = message()
    later.format_version = 2
    with pytest.raises(FormatUnknown, match="version 2") as raised:
        decode_state(sealed_again(later), KEY)
    assert KEY in str(raised.value)
    state = message()
    text = state.SerializeToString().replace(b"\x28\x02", b"\x28\x09")
    with pytest.raises(FormatUnknown, match="state 9"):
        decode_state(sealed_again(mem_wal_pb2.MemWalIndexDetails.FromString(text)), KEY)


def test_content_that_breaks_an_invariant_is_not_read() -> None:
    gap = message()
    gap.mem_wal_list[1].id.generation = 9
    foreign = message()
    foreign.mem_wal_list[2].id.region = "orders/other/17"
    log = message()
    log.mem_wal_list[2].wal_location = "somewhere/else/"
    topic = message()
    topic.topic = ".."
    entries = message()
    entries.mem_wal_list[3].wal_entries = field(1, b"\x08\xf4\x03\x10\xf5\x03")
    half = message()
    half.mem_wal_list[2].ClearField("record_time_max_ms")
    other_half = message()
    other_half.mem_wal_list[2].ClearField("record_time_min_ms")
    for broken in (gap, foreign, log, topic, entries, half, other_half):
        with pytest.raises(ObjectCorrupt, match=KEY):
            decode_state(sealed_again(broken), KEY)


def test_an_index_under_another_regions_key_is_refused() -> None:
    other = replace(REGION, partition=18)
    with pytest.raises(ObjectCorrupt, match="another region"):
        decode_state(INDEX_BYTES, KEY, other)


def test_index_and_page_are_not_taken_for_each_other() -> None:
    page = encode_history(PAGE.region, PAGE.contract_version, PAGE.generations)
    with pytest.raises(ObjectCorrupt, match="a history page, not a region's state"):
        decode_state(page, KEY)
    with pytest.raises(ObjectCorrupt, match="a region's state, not a history page"):
        decode_history(INDEX_BYTES, PAGE_KEY)


def test_a_page_under_another_key_is_refused() -> None:
    page = encode_history(PAGE.region, PAGE.contract_version, PAGE.generations)
    with pytest.raises(ObjectCorrupt, match="its first generation is 1, not"):
        decode_history(page, paths.history_page(REGION, Generation(2), None))
    with pytest.raises(ObjectCorrupt, match="another region"):
        decode_history(page, paths.history_page(replace(REGION, topic="other"), Generation(1), None))
