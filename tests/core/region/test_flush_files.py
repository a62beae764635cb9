"""Flushes: exactly what was folded comes back, and whatever is lost or changed is named."""

from __future__ import annotations

import json
from dataclasses import replace

import google_crc32c
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.errors import FormatUnknown, ObjectCorrupt, ObjectMissing, StoreUnavailable, or_raised
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, LogId, OwnerId, Position, Region, Sequence, TopicId
from lancewal_core.names.paths import FlushFile
from lancewal_core.region.flush_files import (
    Content,
    Flushable,
    read_folded,
    read_parts,
    write_flush,
)
from lancewal_core.region.flushes.manifest import Flush, FlushedGeneration, read_flush, read_flushed_generation
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.state import GenerationRecord, GenerationState
from lancewal_core.rows.fold import Folded, partial_schema
from lancewal_core.rows.record_times import RecordTimes
from lancewal_core.rows.schema import RowSchema
from lancewal_core.table.contract import Column, Contract
from lancewal_core.table.protocol import fragment_files
from tests.support.scripted import InlineTasks, ManualClock, ScriptedStore
from tests.twins.faults import PutFault
from tests.twins.memory_table import MemoryDataset, MemoryTable

REGION = Region("orders", TopicId("topic-id-1"), 2)
SCHEMA = RowSchema(pa.schema([("v", pa.string()), ("k", pa.int64()), ("tags", pa.list_(pa.string()))]), ("k",), ("k",))
RECORD = GenerationRecord(
    generation=Generation(4),
    state=GenerationState.SEALED,
    owner=OwnerId("o"),
    log=LogId("log"),
    first=Position(10),
    next=Position(25),
    first_sequence=Sequence(3),
    end_sequence=Sequence(6),
    flush=None,
    merged_version=None,
    merged_at_ms=None,
    sealed_at_ms=1_700_000_000_000,
    record_times=RecordTimes(-1, 1_600_000_000_000),
)
ATTEMPT = "0badcafe"
CONTRACT = Contract(
    version=3,
    table_uuid="uuid-1",
    topic="orders",
    topic_id="topic-id-1",
    partitions=3,
    primary_key=("k",),
    region_key=("k",),
    start=(0, 0, 0),
    columns=(
        Column(name="v", type="string", field_ids=(0,)),
        Column(name="k", type="int64", field_ids=(1,)),
        Column(name="tags", type="list<string>", field_ids=(2, 3)),
    ),
)


class World:
    def __init__(self) -> None:
        clock = ManualClock()
        self.store = ScriptedStore(clock)
        self.dataset = MemoryDataset(SCHEMA.table)
        self.table = MemoryTable(self.dataset)
        self.opened = OpenedTable.over(self.store, self.table, CONTRACT, InlineTasks(), clock)

    def write(self, folded: Folded, attempt: str = ATTEMPT) -> FlushedGeneration:
        (found,) = write_flush(self.opened, [Flushable(REGION, RECORD, Content(folded))], attempt).generations
        return found

    def read(self, key: str) -> FlushedGeneration:
        return read_flushed_generation(self.store, key, REGION, RECORD.generation)

    def key(self, file: FlushFile) -> str:
        return paths.flush_file(ATTEMPT, file)

    def replace(self, key: str, data: bytes) -> None:
        self.store.bucket.delete(key)
        self.store.bucket.put(key, data, 0)


@pytest.fixture
def world() -> World:
    return World()


def folded(rows: int = 0, gone: int = 0, partials: int = 0) -> Folded:
    keys = iter(range(rows + gone + partials))
    return Folded(
        pa.Table.from_pylist(
            [{"k": k, "v": f"v{k}", "tags": ["a", None]} for k, _ in zip(keys, range(rows), strict=False)], SCHEMA.table
        ),
        pa.Table.from_pylist([{"k": 1000 + k} for k in range(gone)], SCHEMA.key),
        pa.Table.from_pylist(
            [{"k": 2000 + k, "v": None, "tags": [], "_present": b"\x03"} for k in range(partials)],
            partial_schema(SCHEMA),
        ),
    )


def same(left: Folded, right: Folded) -> bool:
    pairs = ((left.rows, right.rows), (left.gone, right.gone), (left.partials, right.partials))
    return all(bool(ours.equals(theirs)) for ours, theirs in pairs)


@given(rows=st.integers(0, 5), gone=st.integers(0, 3), partials=st.integers(0, 3))
def test_what_was_folded_comes_back(rows: int, gone: int, partials: int) -> None:
    world = World()
    content = folded(rows, gone, partials)
    written = world.write(content)
    found = world.read(written.key)
    assert found == written
    assert (found.region, found.generation, found.first, found.next) == (REGION, 4, 10, 25)
    assert (found.contract_version, found.rows, found.changes) == (3, rows, rows + gone + partials)
    assert same(read_folded(world.store, world.table, found, SCHEMA), content)


def test_only_what_is_there_is_written(world: World) -> None:
    flushed = world.write(folded())
    assert [key for _, key in world.store.calls] == [world.key(FlushFile.MANIFEST)]
    assert (world.dataset.files, flushed.fragments, flushed.deletes, flushed.patches) == ({}, (), None, None)


def test_it_tells_the_times_of_its_generation(world: World) -> None:
    written = world.write(folded(1))
    assert (written.sealed_at_ms, written.record_times) == (RECORD.sealed_at_ms, RECORD.record_times)
    assert world.read(written.key) == written
    unknown = replace(RECORD, sealed_at_ms=None, record_times=None)
    (again,) = write_flush(world.opened, [Flushable(REGION, unknown, Content(folded(1)))], "0badbeef").generations
    assert (again.sealed_at_ms, again.record_times) == (None, None)
    assert world.read(again.key) == again


def test_a_manifest_that_names_its_entries_is_read(world: World) -> None:
    """Earlier tables have such manifests.  The log has the entries."""
    written = World().write(folded(1))
    assert world.read(rewritten(world, wal_entries="CgQIChAa")) == written


@pytest.mark.parametrize(("low", "high"), [(None, 5), (5, None), (5, 4), ("5", 6)])
def test_half_a_range_of_times_is_no_manifest(world: World, low: object, high: object) -> None:
    with pytest.raises(ObjectCorrupt, match="record_time"):
        world.read(rewritten(world, record_time_min_ms=low, record_time_max_ms=high))


def rewritten(world: World, **members: object) -> str:
    """Key of a manifest with these members, and a checksum that matches."""
    key = world.write(folded(1)).key
    stored = json.loads(world.store.get(key) or b"")["flush"]
    stored["parts"][0] |= members
    world.replace(key, sealed(stored))
    return key


def sealed(content: object) -> bytes:
    text = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    return json.dumps({"flush": content, "crc32c": google_crc32c.value(text)}).encode()


def test_the_manifest_is_written_last(world: World) -> None:
    """Whoever finds it finds everything that it names."""
    world.store.before("put", "manifest.json", lambda: counts.append(len(world.dataset.files)))
    counts: list[int] = []
    world.write(folded(1, 1, 1))
    names = [key.rsplit("/")[-1] for _, key in world.store.calls]
    assert names == ["deletes.arrow", "patches.arrow", "manifest.json"]
    assert counts == [1]


def test_rows_of_some_columns(world: World) -> None:
    flushed = world.write(folded(3))
    (found,) = read_parts(world.store, world.table, [flushed], ["tags", "k"], SCHEMA)
    assert or_raised(found).rows.to_pylist() == [{"tags": ["a", None], "k": k} for k in range(3)]


def test_an_open_generation_has_no_flush(world: World) -> None:
    record = replace(RECORD, state=GenerationState.OPEN, next=None, end_sequence=None)
    with pytest.raises(ValueError, match="still OPEN"):
        write_flush(world.opened, [Flushable(REGION, record, Content(folded(1)))], ATTEMPT)


def test_attempts_never_meet(world: World) -> None:
    first, second = world.write(folded(1)), world.write(folded(2), "0badf00d")
    assert first.key != second.key
    assert not set(map(fragment_files, first.fragments)) & set(map(fragment_files, second.fragments))
    with pytest.raises(ObjectCorrupt, match="only this attempt"):
        world.write(folded(3))


@pytest.mark.parametrize("fault", [PutFault.REPLY_LOST, PutFault.NONE])
def test_a_lost_reply_is_no_failure(world: World, fault: PutFault) -> None:
    world.store.faults.puts.extend([fault] * 3)
    assert world.read(world.write(folded(1, 1, 1)).key).rows == 1


@pytest.mark.parametrize("at", range(3))
def test_without_a_verdict_the_attempt_is_given_up(world: World, at: int) -> None:
    world.store.faults.puts.extend([*[PutFault.NONE] * at, PutFault.NEVER_ARRIVED])
    with pytest.raises(StoreUnavailable):
        world.write(folded(1, 1, 1))
    assert world.store.plain.get(world.key(FlushFile.MANIFEST)) is None


# -- generations flushed together ----------------------------------------------------------------------------------

SOUTH, WEST = Region("orders", TopicId("topic-id-1"), 0), Region("orders", TopicId("topic-id-1"), 1)


def content(first: int, rows: int, gone: int, partials: int) -> Folded:
    """Keys from ``first`` on, which no other region has."""
    one, tables = folded(rows, gone, partials), []
    for at, table in ((0, one.rows), (100, one.gone), (200, one.partials)):
        place = table.schema.get_field_index("k")
        keys = pa.array(range(first + at, first + at + table.num_rows), pa.int64())
        tables.append(table.set_column(place, table.schema.field(place), keys))
    return Folded(*tables)


sizes = st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 3))


def together(world: World, contents: list[Folded]) -> Flush:
    regions = (SOUTH, WEST, REGION)
    flushable = [Flushable(r, RECORD, Content(c)) for r, c in zip(regions, contents, strict=False)]
    return write_flush(world.opened, flushable, ATTEMPT)


@given(st.lists(sizes, min_size=1, max_size=3), st.sets(st.integers(0, 2), min_size=1))
def test_each_part_of_a_flush_comes_back(counts: list[tuple[int, int, int]], wanted: set[int]) -> None:
    """By itself, and with some of the others."""
    world = World()
    contents = [content(1000 * at, *of) for at, of in enumerate(counts)]
    written = together(world, contents)
    assert read_flush(world.store, written.key) == written
    for flushed, expected in zip(written.generations, contents, strict=True):
        assert flushed.shared is (len(contents) > 1)
        assert same(read_folded(world.store, world.table, flushed, SCHEMA), expected)
    chosen = sorted(at for at in wanted if at < len(contents)) or [0]
    world.store.calls.clear()
    read = read_parts(world.store, world.table, [written.generations[at] for at in chosen], SCHEMA.table.names, SCHEMA)
    assert [
        isinstance(found, Folded) and same(found, contents[at]) for at, found in zip(chosen, read, strict=True)
    ] == [True] * len(chosen)
    keys = [key for _, key in world.store.calls]
    assert len(set(keys)) == len(keys) <= 2


def test_what_is_wrong_with_a_part_is_its_alone(world: World) -> None:
    flush = together(world, [content(1000 * at, 2, 2, 2) for at in range(3)])

    def wrong() -> list[bool]:
        read = read_parts(world.store, world.table, flush.generations, SCHEMA.table.names, SCHEMA)
        return [isinstance(found, ObjectCorrupt) for found in read]

    assert wrong() == [False] * 3
    key = world.key(FlushFile.DELETES)
    whole = world.store.plain.get(key) or b""
    side = flush.generations[1].deletes
    assert side is not None
    world.replace(key, whole[: side.start] + bytes(side.size) + whole[side.start + side.size :])
    assert wrong() == [False, True, False]
    world.replace(key, whole)
    (name,) = world.dataset.files
    rows = world.dataset.files[name]
    world.dataset.files[name] = pa.concat_tables([rows.slice(0, 4), rows.slice(0, 2)])
    assert wrong() == [False, False, True]
    del world.dataset.files[name]
    read = read_parts(world.store, world.table, flush.generations, SCHEMA.table.names, SCHEMA)
    assert [type(found) for found in read] == [ObjectMissing] * 3


def test_parts_have_all_rows_and_no_others(world: World) -> None:
    flush = together(world, [content(1000 * at, 2, 0, 0) for at in range(2)])
    stored = json.loads(world.store.get(flush.key) or b"")["flush"]
    for rows in ((2, 1), (2, 3), (5, -1)):
        for part, count in zip(stored["parts"], rows, strict=True):
            part["rows"] = count
        world.replace(flush.key, sealed(stored))
        with pytest.raises(ObjectCorrupt, match="rows"):
            read_flush(world.store, flush.key)
    stored["parts"] = [stored["parts"][0] | {"rows": 2}] * 2
    world.replace(flush.key, sealed(stored))
    with pytest.raises(ObjectCorrupt, match="twice"):
        read_flush(world.store, flush.key)


def test_no_data_file_is_named_twice(world: World) -> None:
    """Its rows would be those of two parts, or twice those of one."""
    flush = together(world, [content(1000 * at, 2, 0, 0) for at in range(2)])
    stored = json.loads(world.store.get(flush.key) or b"")["flush"]
    for parts in ([part | {"rows": 4} for part in stored["parts"]], [stored["parts"][0] | {"rows": 8}]):
        world.replace(flush.key, sealed(stored | {"fragments": stored["fragments"] * 2, "parts": parts}))
        with pytest.raises(ObjectCorrupt, match="twice"):
            read_flush(world.store, flush.key)


def test_a_manifest_without_the_part_is_damaged(world: World) -> None:
    flush = together(world, [content(0, 1, 0, 0)])
    with pytest.raises(ObjectCorrupt, match="not a flush of generation 5"):
        flush.generation_of(SOUTH, Generation(5))
    with pytest.raises(ObjectCorrupt, match="not a flush of generation 4"):
        read_flushed_generation(world.store, flush.key, WEST, RECORD.generation)


# -- loss and damage ---------------------------------------------------------------------------------------------


def test_a_missing_manifest(world: World) -> None:
    with pytest.raises(ObjectMissing, match=r"manifest\.json is missing"):
        world.read(world.key(FlushFile.MANIFEST))


def test_a_missing_data_file_is_missing_not_empty(world: World) -> None:
    flushed = world.write(folded(2, 1))
    world.dataset.files.clear()
    with pytest.raises(ObjectMissing):
        read_folded(world.store, world.table, flushed, SCHEMA)


def test_data_files_of_another_length_are_corrupt(world: World) -> None:
    flushed = world.write(folded(2))
    (name,) = world.dataset.files
    world.dataset.files[name] = world.dataset.files[name].slice(1)
    with pytest.raises(ObjectCorrupt, match=r"1 rows of region .* instead of 2"):
        read_folded(world.store, world.table, flushed, SCHEMA)


@pytest.mark.parametrize("file", [FlushFile.DELETES, FlushFile.PATCHES])
def test_side_files_lost_or_changed_are_named(world: World, file: FlushFile) -> None:
    flushed, key = world.write(folded(1, 2, 2)), world.key(file)
    data = world.store.plain.get(key)
    assert data is not None
    for broken in (data[:-1], b"x" + data, bytes([*data[:40], data[40] ^ 1, *data[41:]]), b""):
        world.replace(key, broken)
        with pytest.raises(ObjectCorrupt, match=file.value):
            read_folded(world.store, world.table, flushed, SCHEMA)
    world.store.bucket.delete(key)
    with pytest.raises(ObjectMissing, match=file.value):
        read_folded(world.store, world.table, flushed, SCHEMA)


def test_any_changed_byte_of_the_manifest_is_found(world: World) -> None:
    """Or it says the same: white space."""
    written = world.write(folded(2, 1, 1))
    data = world.store.plain.get(written.key)
    assert data is not None
    for at in range(len(data)):
        for byte in (data[at] ^ 1, ord("7"), ord(" ")):
            if byte == data[at]:
                continue
            world.replace(written.key, bytes([*data[:at], byte, *data[at + 1 :]]))
            try:
                found = world.read(written.key)
            except ObjectCorrupt:
                continue
            assert found == written


def test_a_truncated_manifest_is_corrupt(world: World) -> None:
    written = world.write(folded(2, 1, 1))
    data = world.store.plain.get(written.key)
    assert data is not None
    for length in range(0, len(data), 7):
        world.replace(written.key, data[:length])
        with pytest.raises(ObjectCorrupt):
            world.read(written.key)


def test_a_later_format_is_refused(world: World) -> None:
    written = world.write(folded(1))
    content = json.loads(world.store.plain.get(written.key) or b"")["flush"] | {"format": 2, "more": "things"}
    world.replace(written.key, sealed(content))
    with pytest.raises(FormatUnknown, match="format 2"):
        world.read(written.key)
