"""Flush: the flush is the fold of the generation's records, wherever it is folded from and whoever else does it."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Sequence as Seq
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from lancewal_core.errors import ObjectCorrupt, ObjectMissing, PlanStale, StoreUnavailable
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, LogId, OwnerId, Position, Region, Sequence, TableVersion
from lancewal_core.region import flush, generation_entries
from lancewal_core.region.flush import flush_from_logs, flush_generation, flush_generations, rebuild_flush
from lancewal_core.region.flush_files import Content, Flushable, read_folded
from lancewal_core.region.flushes.manifest import FlushedGeneration, read_flushed_generation
from lancewal_core.region.generation_entries import entries_of, headers_of
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.state import GenerationRecord, GenerationState, RegionState
from lancewal_core.region.states import RegionStates
from lancewal_core.region.transitions import Claimant, first_claim, merged, seal
from lancewal_core.rows.fold import Folded, fold
from lancewal_core.table.contract import Column, Contract, WrittenContracts
from lancewal_core.table.watermarks import Watermarks
from lancewal_core.wal.entry import Entry, kept_bytes
from lancewal_core.wal.segment import Segment
from lancewal_core.wal.walk import Walk, walk
from lancewal_core.wal.writer import Durable, LogWriter
from lancewal_flusher.merge.plan import MergeLimits
from tests.support.flushes import flush_from_log
from tests.support.fuzzing import memory_bound
from tests.support.indexes import newest_state
from tests.support.scripted import InlineTasks, ManualClock, ScriptedStore
from tests.twins.memory_table import MemoryDataset, MemoryTable

CONTRACT = Contract(
    table_uuid="uuid-1",
    topic="orders",
    topic_id="topic-id-1",
    partitions=2,
    primary_key=("k",),
    region_key=("k",),
    start=(0, 0),
    columns=(Column(name="k", type="int64", field_ids=(0,)), Column(name="v", type="string", field_ids=(1,))),
)
NORTH, SOUTH = CONTRACT.regions
LOG, OWNER = LogId("log-a"), OwnerId("a")


class World:
    """One writer with both regions in its log; the model is a dict by region, generation and key."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = ScriptedStore(self.clock)
        self.dataset = MemoryDataset(CONTRACT.rows.table)
        self.table = MemoryTable(self.dataset)
        self.tasks = InlineTasks()
        self.states = RegionStates(self.store, self.clock, 128, None)
        self.writer = LogWriter(self.store.plain, self.clock, LOG, OWNER, CONTRACT.rows.wal)
        self._numbers = itertools.count(1)
        self.offsets = {NORTH: 0, SOUTH: 0}
        self.model: dict[Region, dict[int, str | None]] = {NORTH: {}, SOUTH: {}}
        """Of the OPEN generation: the value, None for a deleted key."""
        self.states.swap({region: partial(self._claimed, region) for region in (NORTH, SOUTH)})

    def _claimed(self, region: Region, _: RegionState | None) -> RegionState:
        return first_claim(region, 1, Position(0), self.claimant(), self.new_id())

    @property
    def opened(self) -> OpenedTable:
        watermarks = Watermarks(self.store, self.table, None)
        contracts = WrittenContracts(self.store)
        return OpenedTable(self.store, self.table, self.states, watermarks, self.tasks, self.clock, CONTRACT, contracts)

    def another(self) -> OpenedTable:
        """Another process."""
        return OpenedTable.over(self.store.plain, self.table, CONTRACT, self.tasks, self.clock)

    def new_id(self) -> str:
        return f"{next(self._numbers):016x}"[::-1]

    def claimant(self) -> Claimant:
        return Claimant(OWNER, LOG, self.writer.next_unsent)

    def write(self, **operations: list[tuple[int, str | None]]) -> None:
        """A segment; ``north`` and ``south`` are (key, value or None for a delete)."""
        entries = []
        for name, changes in operations.items():
            region = {"north": NORTH, "south": SOUTH}[name]
            first = self.offsets[region]
            rows = [
                {"k": k, "v": v, "_offset": first + 2 * i, "_timestamp": first - i, "_op": 1 if v is None else 0}
                for i, (k, v) in enumerate(changes)
            ]
            self.model[region].update(changes)
            self.offsets[region] = first + 2 * max(1, len(changes))  # offsets have gaps
            batch = pa.RecordBatch.from_pylist(rows, schema=CONTRACT.rows.wal)
            entries.append(Entry(region, Position(first), Position(self.offsets[region]), 1, batch, ()))
        assert isinstance(self.writer.put(entries), Durable)

    def seal(self, region: Region) -> dict[int, str | None]:
        """What the sealed generation holds."""
        newest = self.index(region).generations[-1]
        reached = Position(self.offsets[region])
        ours, _ = self.states.swap(
            {
                region: lambda i: (
                    i
                    and seal(
                        i,
                        newest.generation,
                        self.claimant(),
                        reached,
                        self.new_id(),
                        hand_over=False,
                        record_times=None,
                        now_ms=self.clock.now_ms(),
                    )
                )
            }
        )[region]
        assert ours
        held, self.model[region] = self.model[region], {}
        return held

    def index(self, region: Region) -> RegionState:
        found = newest_state(self.store.plain, self.clock, region)
        assert found is not None
        return found

    def record(self, region: Region, generation: int) -> GenerationRecord:
        return next(r for r in self.index(region).generations if r.generation == generation)

    def flush(self, region: Region) -> FlushedGeneration | None:
        return flush_from_log(self.opened, region, self.new_id)

    def flush_memory(
        self, region: Region, record: GenerationRecord, batches: Seq[pa.RecordBatch]
    ) -> FlushedGeneration | None:
        content = Content(fold(batches, CONTRACT.rows))
        return flush_generation(self.opened, region, record, content, self.new_id)

    def held(self, region: Region, generation: int) -> dict[int, str | None]:
        """What the flush that the index names holds."""
        key = self.record(region, generation).flush
        assert key is not None
        return values(
            read_folded(
                self.store.plain,
                self.table,
                read_flushed_generation(self.store.plain, key, region, Generation(generation)),
                CONTRACT.rows,
            )
        )


def values(folded: Folded) -> dict[int, str | None]:
    assert folded.partials.num_rows == 0
    found: dict[int, str | None] = {row["k"]: row["v"] for row in folded.rows.to_pylist()}
    return found | dict.fromkeys(folded.gone["k"].to_pylist())


@pytest.fixture
def world() -> World:
    return World()


def test_entries_of_a_generation_are_its_own(world: World) -> None:
    world.write(north=[(1, "a")], south=[(5, "x")])
    world.write(south=[(6, "y")])
    world.write(north=[(2, "b")])
    world.seal(NORTH)
    world.write(north=[(3, "c")])
    found = entries_of(world.opened, NORTH, world.record(NORTH, 1))
    assert [(e.region, e.first, e.next) for e in found] == [(NORTH, 0, 2), (NORTH, 2, 4)]
    assert [row["k"] for e in found for row in e.rows.to_pylist()] == [1, 2]


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_an_entry_that_is_not_there_is_stale(world: World, lost: int) -> None:
    for k in range(3):
        world.write(north=[(k, "a")])
    world.seal(NORTH)
    world.store.bucket.delete(paths.wal_segment(LOG, Sequence(lost)))
    with pytest.raises(PlanStale, match=f"has the positions 0 to 6.* before {paths.wal_segment(LOG, Sequence(lost))}"):
        entries_of(world.opened, NORTH, world.record(NORTH, 1))


@pytest.mark.parametrize("next_", [5, 7, 2**62])
def test_entries_that_end_elsewhere_are_not_all(world: World, next_: int) -> None:
    for k in range(3):
        world.write(north=[(k, "a")])
    world.seal(NORTH)
    declared = replace(world.record(NORTH, 1), next=Position(next_))
    message = f"has the positions 0 to {next_}.* 0 to 6 in 3 entries"
    with memory_bound(16 << 20):
        with pytest.raises(PlanStale, match=message):
            entries_of(world.opened, NORTH, declared)
        (answer,) = headers_of(world.opened, [(NORTH, declared)])
    assert isinstance(answer, PlanStale)
    assert re.search(message, str(answer))


def test_headers_of_a_generation_are_those_of_its_entries(world: World) -> None:
    world.write(north=[(1, "a")], south=[(1, "b")])
    world.write(north=[])
    world.seal(NORTH)
    record = world.record(NORTH, 1)
    entries = entries_of(world.opened, NORTH, record)
    (headers,) = headers_of(world.opened, [(NORTH, record)])
    assert not isinstance(headers, PlanStale)
    assert [(h.first, h.next) for h in headers] == [(e.first, e.next) for e in entries]
    assert [e.first for e in entries] == [0, 2]


def test_a_lost_segment_of_another_region_is_no_matter_behind_ours(world: World) -> None:
    world.write(north=[(1, "a")])
    world.write(south=[(1, "b")])
    world.seal(NORTH)
    world.store.bucket.delete(paths.wal_segment(LOG, Sequence(1)))
    assert len(entries_of(world.opened, NORTH, world.record(NORTH, 1))) == 1


@pytest.mark.parametrize("seed", range(5))
def test_the_flush_is_the_fold_from_memory_as_from_the_log(seed: int) -> None:
    rng = random.Random(seed)
    world = World()
    for _ in range(12):
        changes = {
            name: [(rng.randrange(8), rng.choice([None, f"v{rng.random()}"])) for _ in range(rng.randrange(5))]
            for name in ("north", "south")
            if rng.random() < 0.7
        }
        if changes:
            world.write(**changes)
    model = {region: world.seal(region) for region in (NORTH, SOUTH)}
    entries = entries_of(world.opened, NORTH, world.record(NORTH, 1))
    assert world.flush_memory(NORTH, world.record(NORTH, 1), [e.rows for e in entries]) is not None
    assert world.flush(SOUTH) is not None
    assert world.held(NORTH, 1) == model[NORTH]
    assert world.held(SOUTH, 1) == model[SOUTH]
    for region in (NORTH, SOUTH):
        assert world.record(region, 1).state is GenerationState.FLUSHED


def flush_both(world: World) -> list[FlushedGeneration]:
    """Both regions at a time; what each comes to is checked."""
    world.write(north=[(1, "a"), (2, None)], south=[(5, "x"), (6, "y"), (7, None)])
    models = {region: world.seal(region) for region in (NORTH, SOUTH)}
    flushable = []
    for region in models:
        entries = entries_of(world.opened, region, world.record(region, 1))
        content = Content(fold([e.rows for e in entries], CONTRACT.rows))
        flushable.append(Flushable(region, world.record(region, 1), content))
    found = flush_generations(world.opened, flushable, world.new_id)
    assert {region: world.held(region, 1) for region in models} == models
    flushes = [one for one in found if isinstance(one, FlushedGeneration)]
    assert [(one.region, one.key) for one in flushes] == [
        (region, world.record(region, 1).flush) for region in (NORTH, SOUTH)
    ]
    return flushes


def test_small_generations_are_parts_of_one_flush(world: World) -> None:
    north, south = flush_both(world)
    assert north.key == south.key
    assert (north.rows_from, south.rows_from) == (0, 1)
    assert len(world.dataset.files) == 1
    assert len([key for act, key in world.store.calls if act == "put" and "/flushes/" in key]) == 2


@pytest.mark.parametrize(("limit", "most"), [("ALONE_ROWS", 2), ("ALONE_BYTES", 1)])
def test_large_generations_have_flushes_of_their_own(
    world: World, limit: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flush, limit, most)
    north, south = flush_both(world)
    assert north.key != south.key
    assert not north.shared
    assert not south.shared


def test_a_merge_adopts_what_has_a_flush_of_its_own() -> None:
    assert MergeLimits().adopt_rows == flush.ALONE_ROWS


def test_generations_are_flushed_from_the_log_oldest_first(world: World) -> None:
    models = []
    for k in range(3):
        world.write(north=[(k, f"v{k}"), (9, f"w{k}")])
        models.append(world.seal(NORTH))
    for generation in (1, 2, 3):
        flushed = world.flush(NORTH)
        assert flushed is not None
        assert (flushed.generation, world.held(NORTH, generation)) == (generation, models[generation - 1])
    assert world.flush(NORTH) is None
    assert world.flush(SOUTH) is None


def reads_of_the_log(world: World) -> list[str]:
    return [key for act, key in world.store.calls if act == "get" and "/wal/" in key]


def test_generations_of_a_log_are_flushed_from_it_together(world: World) -> None:
    world.write(north=[(1, "a")], south=[(5, "x")])
    world.write(south=[(6, "y"), (5, None)])
    models = {SOUTH: world.seal(SOUTH)}
    world.write(north=[(2, "b")])
    models[NORTH] = world.seal(NORTH)
    found = flush_from_logs(world.opened, [NORTH, SOUTH], world.new_id)
    assert {region: world.held(region, 1) for region in models} == models
    assert len({flushed.key for flushed in found.values() if isinstance(flushed, FlushedGeneration)}) == 1
    assert sorted(reads_of_the_log(world)) == [paths.wal_segment(LOG, Sequence(n)) for n in range(3)]


def test_what_another_has_flushed_from_memory_costs_no_look_into_its_log(world: World) -> None:
    flush_both(world)
    read = reads_of_the_log(world)
    assert flush_from_logs(world.opened, [NORTH, SOUTH], world.new_id) == {NORTH: None, SOUTH: None}
    assert reads_of_the_log(world) == read


def test_those_that_there_is_no_room_for_beside_others_come_behind_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flush, "TOGETHER_BYTES", 1)
    world.write(north=[(1, "a")])
    world.write(south=[(5, "x")])
    models = {region: world.seal(region) for region in (NORTH, SOUTH)}
    found = flush_from_logs(world.opened, [NORTH, SOUTH], world.new_id)
    assert {region: world.held(region, 1) for region in models} == models
    assert len({flushed.key for flushed in found.values() if isinstance(flushed, FlushedGeneration)}) == 2


def test_what_is_read_at_once_follows_from_what_segments_keep(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of large segments: 32 of them are some times what a process may hold."""
    for n in range(40):
        world.write(north=[(n, "a" * 1_000)], south=[(n, "x" * 1_000)])
    models = {region: world.seal(region) for region in (NORTH, SOUTH)}
    asked: list[tuple[int, int]] = []

    def noted(store: Any, tasks: Any, log: LogId, start: Sequence, **named: Any) -> Walk[Segment]:
        walked = walk(store, tasks, log, start, **named)
        asked.append((len(named["regions"]), kept_bytes(e for s in walked.segments for e in s.entries)))
        return walked

    monkeypatch.setattr(generation_entries, "walk", noted)
    monkeypatch.setattr(flush, "TOGETHER_BYTES", 30_000)
    found = flush_from_logs(world.opened, [NORTH, SOUTH], world.new_id)
    assert max(nbytes for regions, nbytes in asked if regions == 2) <= 30_000
    assert len({flushed.key for flushed in found.values() if isinstance(flushed, FlushedGeneration)}) == 2
    assert {region: world.held(region, 1) for region in models} == models


def test_what_lies_between_generations_is_not_read(world: World) -> None:
    world.write(north=[(1, "a")])
    models = {(NORTH, 1): world.seal(NORTH)}
    for n in range(40):
        world.write(south=[(n, "x")])
    world.seal(SOUTH)
    assert world.flush(SOUTH) is not None
    before = len(reads_of_the_log(world))
    world.write(south=[(5, "y")])
    models[SOUTH, 2] = world.seal(SOUTH)
    found = flush_from_logs(world.opened, [NORTH, SOUTH], world.new_id)
    assert len({flushed.key for flushed in found.values() if isinstance(flushed, FlushedGeneration)}) == 1
    assert {of: world.held(*of) for of in models} == models
    assert len(reads_of_the_log(world)) - before <= 4


@pytest.mark.parametrize("damage", ["lost", "corrupt"])
def test_an_entry_lost_or_damaged_of_one_region_holds_up_no_other(world: World, damage: str) -> None:
    world.write(north=[(1, "a")], south=[(6, "y")])
    model = world.seal(SOUTH)
    world.write(north=[(2, "b")])
    world.seal(NORTH)
    key = paths.wal_segment(LOG, Sequence(1))
    data = world.store.bucket.get(key)
    assert data is not None
    world.store.bucket.delete(key)
    if damage == "corrupt":
        world.store.bucket.put(key, data[:-3], 0)
    found = flush_from_logs(world.opened, [NORTH, SOUTH], world.new_id)
    assert isinstance(found[NORTH], ObjectMissing if damage == "lost" else ObjectCorrupt)
    assert isinstance(found[SOUTH], FlushedGeneration)
    assert world.held(SOUTH, 1) == model


def test_a_silent_store_is_the_answer_of_each(world: World) -> None:
    world.write(north=[(1, "a")], south=[(5, "x")])
    for region in (NORTH, SOUTH):
        world.seal(region)
    world.store.fail("get", "/wal/", times=100)
    found = flush_from_logs(world.opened, [NORTH, SOUTH], world.new_id)
    assert [type(answer) for answer in found.values()] == [StoreUnavailable] * 2
    assert len(reads_of_the_log(world)) == 1


def test_a_later_generation_waits_for_the_earlier(world: World) -> None:
    for _ in range(2):
        world.write(north=[(1, "a")])
        world.seal(NORTH)
    assert world.flush_memory(NORTH, world.record(NORTH, 2), []) is None
    assert [r.state for r in world.index(NORTH).generations] == [
        GenerationState.SEALED,
        GenerationState.SEALED,
        GenerationState.OPEN,
    ]


def test_a_generation_without_rows_has_an_empty_flush(world: World) -> None:
    world.write(north=[])
    world.seal(NORTH)
    flushed = world.flush(NORTH)
    assert flushed is not None
    assert (flushed.changes, flushed.fragments, flushed.next) == (0, (), 2)


def test_of_two_flushes_one_result_stays(world: World) -> None:
    """Another process flushes between our flush and our compare-and-swap."""
    world.write(north=[(1, "a"), (2, None)])
    model = world.seal(NORTH)
    other = world.another()
    theirs: list[FlushedGeneration | None] = []
    world.store.after(
        "put",
        "manifest.json",
        lambda: theirs.append(flush_from_log(other, NORTH, world.new_id)),
    )
    assert world.flush(NORTH) is None
    (flushed,) = theirs
    assert flushed is not None
    assert world.record(NORTH, 1).flush == flushed.key
    assert world.held(NORTH, 1) == model


def test_a_crash_before_the_swap_leaves_it_sealed_and_is_repeated(world: World) -> None:
    world.write(north=[(1, "a")])
    model = world.seal(NORTH)
    world.store.fail("put", "/pages/", times=100)
    world.store.fail("get", "/pages/", times=0)
    with pytest.raises(StoreUnavailable):
        world.flush(NORTH)
    assert world.record(NORTH, 1).state is GenerationState.SEALED
    world.store, world.states = (
        ScriptedStore(world.clock, world.store.bucket),
        RegionStates(world.store.plain, world.clock, 128, None),
    )
    assert world.flush(NORTH) is not None
    assert world.held(NORTH, 1) == model


def test_missing_segments_of_a_sealed_generation_are_a_loss_and_named(world: World) -> None:
    world.write(north=[(1, "a")])
    world.seal(NORTH)
    world.store.bucket.delete(paths.wal_segment(LOG, Sequence(0)))
    with pytest.raises(ObjectMissing, match="log-a"):
        world.flush(NORTH)


def test_segments_trimmed_after_another_s_flush_and_merge_are_no_loss(world: World) -> None:
    world.write(north=[(1, "a")])
    world.seal(NORTH)
    other = world.another()

    def meanwhile() -> None:
        flushed = flush_from_log(other, NORTH, world.new_id)
        assert flushed is not None
        other.states.swap({NORTH: lambda i: i and merged(i, Generation(1), TableVersion(2), 5, world.new_id())})
        world.store.bucket.delete(paths.wal_segment(LOG, Sequence(0)))

    world.store.before("get", paths.wal_segment(LOG, Sequence(0)), meanwhile)
    assert world.flush(NORTH) is None


# -- rebuilding --------------------------------------------------------------------------------------------------


def rebuild(world: World, record: GenerationRecord) -> FlushedGeneration | None:
    return rebuild_flush(world.opened, NORTH, record, world.new_id)


def test_a_flush_that_lost_its_files_is_made_anew_from_the_log(world: World) -> None:
    world.write(north=[(1, "a"), (2, "b")])
    world.write(north=[(2, None)])
    model = world.seal(NORTH)
    old = world.flush(NORTH)
    world.dataset.files.clear()
    new = rebuild(world, world.record(NORTH, 1))
    assert old is not None
    assert new is not None
    assert world.record(NORTH, 1).flush == new.key != old.key
    assert world.held(NORTH, 1) == model


def test_a_generation_is_flushed_since_its_first_flush(world: World) -> None:
    world.write(north=[(1, "a")])
    world.seal(NORTH)
    world.clock.sleep(5)
    assert flush_from_log(world.opened, NORTH, world.new_id) is not None
    since = world.record(NORTH, 1).flushed_at_ms
    assert since == world.clock.now_ms()
    assert since == (world.record(NORTH, 1).sealed_at_ms or 0) + 5000
    world.clock.sleep(5)
    assert rebuild_flush(world.opened, NORTH, world.record(NORTH, 1), world.new_id) is not None
    assert world.record(NORTH, 1).flushed_at_ms == since


def test_rebuilding_gives_way_to_who_rebuilt_or_merged_first(world: World) -> None:
    world.write(north=[(1, "a")])
    world.seal(NORTH)
    world.flush(NORTH)
    record = world.record(NORTH, 1)
    first = rebuild(world, record)
    assert first is not None
    assert rebuild(world, record) is None
    assert world.record(NORTH, 1).flush == first.key
    record = world.record(NORTH, 1)
    world.states.swap({NORTH: lambda i: i and merged(i, Generation(1), TableVersion(2), 5, world.new_id())})
    assert rebuild(world, record) is None
    assert world.record(NORTH, 1).flush == first.key


def test_what_was_never_flushed_has_nothing_to_rebuild(world: World) -> None:
    world.write(north=[(1, "a")])
    world.seal(NORTH)
    with pytest.raises(ValueError, match="no flush to rebuild"):
        rebuild(world, world.record(NORTH, 1))


def test_nothing_to_rebuild_from_is_named(world: World) -> None:
    world.write(north=[(1, "a")])
    world.seal(NORTH)
    world.flush(NORTH)
    world.store.bucket.delete(paths.wal_segment(LOG, Sequence(0)))
    with pytest.raises(ObjectMissing, match=r"has the positions .* repair segment"):
        rebuild(world, world.record(NORTH, 1))
