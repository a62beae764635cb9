"""Region indexes and history pages: the value that the bytes encode, or an error that names the object."""

from __future__ import annotations

import re
import struct
from contextlib import suppress
from dataclasses import replace
from typing import Any

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.errors import ObjectCorrupt
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, LogId, OwnerId, Page, Position, Region, Sequence, TableVersion, TopicId
from lancewal_core.names.paths import FlushFile
from lancewal_core.names.proto import mem_wal_pb2
from lancewal_core.region.state import (
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
from tests.support.fuzzing import damaged, fuzz, memory_bound, outcome

MIB = 1 << 20
REGION = Region("orders", TopicId("AAAAAAAAQACAAAAAAAAAAQ"), 3)
INDEX_KEY = paths.page_version(Page.of(REGION, 128, None), 9)
PAGE_KEY = paths.history_page(REGION, Generation(4), None)
CHECKSUM_SIZE = 6


def record(generation: int, state: GenerationState) -> GenerationRecord:
    begin = 100 * generation
    sealed, flushed, merged = (
        state.value >= s.value for s in (GenerationState.SEALED, GenerationState.FLUSHED, GenerationState.MERGED)
    )
    manifest = paths.flush_file(f"0badcafe-{generation}", FlushFile.MANIFEST)
    return GenerationRecord(
        Generation(generation),
        state,
        OwnerId("ingest-0"),
        LogId("7f3a-1"),
        Position(begin),
        Position(begin + 100) if sealed else None,
        Sequence(generation),
        Sequence(generation + 5) if sealed else None,
        manifest if flushed else None,
        TableVersion(generation + 1) if merged else None,
        1_700_000_000_000 if merged else None,
        1_600_000_000_000 if sealed else None,
        1_650_000_000_000 if flushed else None,
        RecordTimes(-1, 1_500_000_000_000) if sealed else None,
    )


STATES = (GenerationState.MERGED, GenerationState.FLUSHED, GenerationState.SEALED, GenerationState.OPEN)
INDEX = RegionState(
    REGION, 2, tuple(record(4 + i, s) for i, s in enumerate(STATES)), Generation(4), Position(500), "write-1"
)
EMPTY = RegionState(REGION, 1, (), Generation(0), Position(0), "write-0")
INDEXES = [encode_state(INDEX), encode_state(EMPTY)]
PAGES = [encode_history(REGION, 2, tuple(record(g, GenerationState.MERGED) for g in range(4, 7)))]


def sealed(body: bytes) -> bytes:
    """The object with this message and a checksum that matches."""
    return body + b"\xfd\x07" + struct.pack("<I", google_crc32c.value(body))


def judge(data: bytes) -> tuple[RegionState | None, HistoryPage | None]:
    with memory_bound(64 * MIB):
        state = outcome(lambda: decode_state(data, INDEX_KEY, REGION), INDEX_KEY)
        page = outcome(lambda: decode_history(data, PAGE_KEY), PAGE_KEY)
    assert state == outcome(lambda: decode_state(data, INDEX_KEY, REGION, Before(INDEXES[0], INDEX)), INDEX_KEY)
    if state is not None:
        assert decode_state(encode_state(state), INDEX_KEY, REGION) == state
        assert state.region == REGION
    if page is not None:
        assert decode_history(encode_history(page.region, page.contract_version, page.generations), PAGE_KEY) == page
        assert page.region == REGION
    for generation in (*(state.generations if state else ()), *(page.generations if page else ())):
        inside_its_folder(generation)
    return state, page


def inside_its_folder(generation: GenerationRecord) -> None:
    """Whatever a reader fetches because of the record lies where the record's own objects lie."""
    if generation.flush is not None:
        found = paths.parse_flush_file(generation.flush)
        assert found is not None
        assert found[1] is FlushFile.MANIFEST
    for sequence in {generation.first_sequence, generation.end_sequence} - {None}:
        assert paths.wal_segment(generation.log, Sequence(sequence or 0)).startswith(paths.WAL)


def test_the_objects_are_sound() -> None:
    assert judge(INDEXES[0]) == (INDEX, None)
    assert judge(PAGES[0])[1] is not None
    assert sealed(INDEXES[0][:-CHECKSUM_SIZE]) == INDEXES[0]


@fuzz(300)
@given(st.binary(max_size=200) | st.binary(max_size=200).map(sealed))
def test_any_bytes(data: bytes) -> None:
    judge(data)


@fuzz(400)
@given(damaged(INDEXES + PAGES))
def test_damage_is_found(data: bytes) -> None:
    index, page = judge(data)
    assert (index is None and page is None) or data in INDEXES + PAGES


@fuzz(800)
@given(damaged([data[:-CHECKSUM_SIZE] for data in INDEXES + PAGES]))
def test_damage_under_a_checksum_that_matches(body: bytes) -> None:
    judge(sealed(body))


numbers = st.sampled_from((0, 1, 2, 4, 5, 2**31, 2**32 - 1, 2**53, 2**63 - 1, 2**63, 2**64 - 1)) | st.integers(
    0, 2**64 - 1
)
texts = st.sampled_from(
    ("", ".", "..", "/", "a/b", "../../x", "%2e%2e", "a\x00b", "x" * 300, "é", "AAAAAAAAQACAAAAAAAAAAQ", INDEX_KEY)
)
SCALARS: dict[int, st.SearchStrategy[Any]] = {  # by protobuf's number of the type
    4: numbers,
    13: numbers.map(lambda n: n % 2**32),
    9: texts,
    12: st.binary(max_size=20),
    14: st.integers(0, 5),
}


@st.composite
def changed(draw: st.DrawFn) -> bytes:
    """An index or page, some of whose fields have another value of their type."""
    message = mem_wal_pb2.MemWalIndexDetails.FromString(draw(st.sampled_from(INDEXES + PAGES))[:-CHECKSUM_SIZE])
    for _ in range(draw(st.integers(1, 2))):
        target: Any = draw(st.sampled_from([message, *message.mem_wal_list, *(m.id for m in message.mem_wal_list)]))
        fields = [f for f in target.DESCRIPTOR.fields if f.type in SCALARS]
        field = draw(st.sampled_from(fields))
        with suppress(ValueError):  # an enum's number that protobuf's setter does not know
            setattr(target, field.name, draw(SCALARS[field.type]))
    return sealed(message.SerializeToString(deterministic=True))


@fuzz(800)
@given(changed())
def test_other_values_in_its_fields(data: bytes) -> None:
    judge(data)


@pytest.mark.parametrize("flushed", ["x", "../../../etc/passwd", f"{paths.ROOT}contract/1.json", PAGE_KEY])
def test_a_flush_elsewhere_is_refused(flushed: str) -> None:
    elsewhere = replace(record(5, GenerationState.FLUSHED), flush=flushed)
    message = mem_wal_pb2.MemWalIndexDetails.FromString(INDEXES[0][:-CHECKSUM_SIZE])
    message.mem_wal_list[1].mem_table_location = flushed
    with pytest.raises(ObjectCorrupt, match=re.escape(INDEX_KEY)):
        decode_state(sealed(message.SerializeToString(deterministic=True)), INDEX_KEY)
    with pytest.raises(ObjectCorrupt):
        encode_state(replace(INDEX, generations=(INDEX.generations[0], elsewhere, *INDEX.generations[2:])))
