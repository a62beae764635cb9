"""Garbage collection: what is needed stays, whatever happens between any two of its steps; what is not goes.

A region's life is made through production code on the twins (segments, claims, seals, flushes, merges); the test decides
when each step of it falls between the steps of a round.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from typing import Any

import google_crc32c
import pyarrow as pa
import pytest

from lancewal_core.errors import (
    ContractMismatch,
    MergedPositionUnknown,
    ObjectMissing,
    OwnershipLost,
    PlanStale,
    StoreInconsistent,
    StoreUnavailable,
    TableRestored,
)
from lancewal_core.keys.catalog import KeyCatalogs, KeyPart, KeyRun
from lancewal_core.keys.index import KeyIndex
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, LogId, OwnerId, Page, Position, Region, Sequence, TableVersion, TopicId
from lancewal_core.region.flushes.manifest import Flush, FlushPart, encode_flush, read_flush
from lancewal_core.region.generation_entries import entries_of
from lancewal_core.region.history import KnownPages, generations_behind
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.pages.state_page import decode_page, encode_page
from lancewal_core.region.state import GenerationRecord, GenerationState, RegionState, decode_history, encode_history
from lancewal_core.region.states import RegionStates
from lancewal_core.region.transitions import Claimant, Ended, claim, first_claim, merged, reanchor, seal
from lancewal_core.store.object_store import ObjectInfo, ObjectStore
from lancewal_core.table.contract import Column, Contract, encode_contract
from lancewal_core.table.protocol import Committed, TableCommit
from lancewal_core.table.watermarks import TABLE_UUID, Watermark, merge_properties
from lancewal_core.wal.entry import Entry
from lancewal_core.wal.log_end import end_log
from lancewal_core.wal.segment import Fence, encode_fence
from lancewal_core.wal.segment_cache import SegmentCache
from lancewal_core.wal.walk import walk
from lancewal_core.wal.writer import Durable, LogWriter
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.garbage import find
from lancewal_flusher.garbage.collect import GarbageState, collect_garbage
from lancewal_flusher.garbage.find import (
    FENCE_KEPT_MS,
    HISTORY_PAGE_AT,
    HISTORY_PAGE_REST,
    PARCEL_KEPT_MS,
    VERSIONS_KEPT,
)
from lancewal_flusher.tasks.runner import ThreadRunner
from lancewal_ingest.context import IngestContext
from lancewal_ingest.kafka.source import Offsets
from lancewal_ingest.regions.open import Opened, open_region
from lancewal_reader.plan.strong import PlanContext, ReadPlan, plan_strong
from lancewal_reader.unmerged.flushed import FlushCache
from lancewal_reader.unmerged.load import DeltaContext, folding_of, load
from lancewal_reader.unmerged.loaded import LoadedCache
from tests.support.flushes import flush_from_log
from tests.support.indexes import newest_state, with_flipped_record
from tests.support.scripted import DAY_S, Act, InlineTasks, ManualClock, ScriptedStore
from tests.support.stored_parts import StoredParts
from tests.twins.faults import ListFault, PutFault
from tests.twins.memory_table import MemoryDataset, MemoryTable

HOUR_S = 3600.0
WINDOW_S, GRACE_S = 24 * 3600, 600
WEEK_S = 7 * DAY_S


@dataclass(frozen=True, slots=True)
class Writer:
    """One ingest process: its log, and claims under its name."""

    log: LogWriter
    owner: OwnerId

    def claimant(self) -> Claimant:
        return Claimant(self.owner, self.log.log, self.log.next_unsent)


@pytest.fixture(autouse=True)
def short_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few objects an answer, so that listings of logs pass over what is needed."""
    monkeypatch.setattr(find, "ANSWER_OBJECTS", 2)


class World:
    """A table with its regions, written to step by step, and a collector that looks at it."""

    def __init__(self, partitions: int = 1) -> None:
        self.clock = ManualClock()
        self.store = ScriptedStore(self.clock)
        """What the collector sees."""
        self.contract = Contract(
            table_uuid="uuid-1",
            topic="orders",
            topic_id="topic-id-1",
            partitions=partitions,
            primary_key=("k",),
            region_key=("k",),
            start=(0,) * partitions,
            columns=(Column(name="k", type="int64", field_ids=(0,)), Column(name="v", type="string", field_ids=(1,))),
            history_window_s=WINDOW_S,
            grace_s=GRACE_S,
        )
        self.plain = self.store.plain
        self.plain.put_if_absent(paths.contract_version(1, None), encode_contract(self.contract))
        self.dataset = MemoryDataset(self.contract.rows.table, {TABLE_UUID: "uuid-1"})
        self.table = MemoryTable(self.dataset)
        self.tasks = InlineTasks()
        self.states = RegionStates(self.plain, self.clock, 128, None)
        """What everybody else sees."""
        self._numbers = itertools.count(1)
        self.state = GarbageState()
        self.context = self.collector()
        self.marks: dict[Region, Watermark] = {}

    def new_id(self) -> str:
        return f"{next(self._numbers):016x}"[::-1]

    def collector(self) -> FlusherContext:
        """A flusher that has just started."""
        keys = KeyIndex(KeyCatalogs(self.store, self.clock, None), StoredParts(self.store))
        return FlusherContext(*self.opened(self.store).parts, keys, ThreadRunner(self.table, self.tasks), self.new_id)

    def opened(self, store: ObjectStore) -> OpenedTable:
        return OpenedTable.over(store, self.table, self.contract, self.tasks, self.clock)

    def collect(self) -> int:
        """One round; how many objects it deleted."""
        return len(collect_garbage(self.context, self.state).deleted_keys)

    def collect_fully(self) -> None:
        """Rounds until what is free now is gone."""
        for _ in range(3):
            self.collect()
            self.clock.seconds += GRACE_S

    # -- what ingest does ----------------------------------------------------------------------------------------

    def writer(self, name: str) -> Writer:
        owner = OwnerId(name)
        log = LogWriter(self.plain, self.clock, LogId(f"log-{name}"), owner, self.contract.rows.wal)
        return Writer(log, owner)

    def region(self, partition: int = 0) -> Region:
        return self.contract.regions[partition]

    def page(self, partition: int = 0) -> Page:
        return Page.of(self.region(partition), self.contract.regions_per_page, None)

    def index(self, partition: int = 0) -> RegionState:
        found = self.states.read([self.region(partition)]).get(self.region(partition))
        assert found is not None
        return found

    def newest(self, partition: int = 0) -> GenerationRecord:
        return self.index(partition).generations[-1]

    def change(self, partition: int, decide: Callable[[RegionState], RegionState | None]) -> None:
        ours, _ = self.states.swap({self.region(partition): lambda found: found and decide(found)})[
            self.region(partition)
        ]
        assert ours

    def open(self, writer: Writer, partition: int = 0) -> None:
        """Claim as ingest does: a former owner's log is ended."""
        region = self.region(partition)
        state = self.states.read([region]).get(region)
        if state is None:
            ours, _ = self.states.swap(
                {region: lambda found: first_claim(region, 1, Position(0), writer.claimant(), self.new_id())}
            )[region]
            assert ours
            return
        newest, end = state.generations[-1], None
        if newest.state is GenerationState.OPEN:
            walked = end_log(
                self.plain, self.tasks, self.clock, newest.log, {region: newest.first_sequence}, writer.owner
            )
            entries = [e for s in walked.segments for e in s.entries if e.region == region and e.first >= newest.first]
            reached = entries[-1].next if entries else newest.first
            end = Ended(newest.generation, newest.log, reached, walked.end, None, self.clock.now_ms())
        self.change(partition, lambda found: claim(found, end, 1, writer.claimant(), self.new_id()))

    def append(self, writer: Writer, *partitions: int) -> Sequence:
        """A segment with one row for each region, behind what is durable."""
        outcome = writer.log.put([self.entry(p) for p in partitions])
        assert isinstance(outcome, Durable)
        return outcome.sequence

    def entry(self, partition: int) -> Entry:
        first = self.durable(partition)
        row = {"k": partition, "v": f"v{first}", "_offset": first, "_timestamp": 0, "_op": 0}
        batch = pa.RecordBatch.from_pylist([row], schema=self.contract.rows.wal)
        return Entry(self.region(partition), Position(first), Position(first + 1), 1, batch, ())

    def durable(self, partition: int) -> int:
        """By a walk of its own."""
        newest = self.newest(partition)
        walked = walk(self.plain, self.tasks, newest.log, newest.first_sequence, regions=(self.region(partition),))
        entries = [e for s in walked.segments for e in s.entries if e.first >= newest.first]
        return int(entries[-1].next if entries else newest.first)

    def seal(self, writer: Writer, partition: int = 0, *, hand_over: bool = False) -> None:
        newest, reached = self.newest(partition), Position(self.durable(partition))
        self.change(
            partition,
            lambda found: seal(
                found, newest.generation, writer.claimant(), reached, self.new_id(),
                hand_over=hand_over, record_times=None, now_ms=self.clock.now_ms()),
        )  # fmt: skip

    def reanchor(self, writer: Writer, partition: int = 0) -> None:
        generation = self.newest(partition).generation
        self.change(partition, lambda found: reanchor(found, generation, writer.claimant(), self.new_id()))

    def touch(self, partition: int = 0) -> None:
        """One more version of an index, of the same content."""
        self.change(partition, lambda found: replace(found, write_id=self.new_id()))

    # -- what a flusher does -------------------------------------------------------------------------------------

    def flush(self, partition: int = 0) -> None:
        flushed = flush_from_log(
            replace(self.opened(self.plain), states=self.states), self.region(partition), self.new_id
        )
        assert flushed is not None

    def merge(self, partition: int = 0, *, mark: bool = True) -> None:
        """Put every FLUSHED generation into the table."""
        region = self.region(partition)
        fragments: list[str] = []
        for record in self.index(partition).generations:
            if record.state is GenerationState.FLUSHED and record.flush is not None and record.next is not None:
                fragments += read_flush(self.plain, record.flush).fragments
                self.marks[region] = Watermark(record.generation, record.next)
        newest = self.table.newest()
        properties = merge_properties(self.marks, self.new_id())
        old = tuple(newest.fragment_json(f.fragment_id) for f in newest.fragments())
        outcome = self.table.commit(TableCommit(newest.version, tuple(fragments), old, (), properties, strict=True))
        assert isinstance(outcome, Committed)
        if mark:
            generation, now = self.marks[region].generation, self.clock.now_ms()
            self.change(partition, lambda found: merged(found, generation, outcome.version, now, self.new_id()))

    def generation(self, writer: Writer, partition: int = 0, segments: int = 2) -> None:
        """From OPEN to MERGED."""
        for _ in range(segments):
            self.append(writer, partition)
        self.seal(writer, partition)
        self.flush(partition)
        self.merge(partition)

    # -- what is there -------------------------------------------------------------------------------------------

    def segments(self, name: str) -> list[int]:
        parsed = [paths.parse_wal_segment(i.key) for i in self.plain.list(paths.log_prefix(LogId(f"log-{name}")))]
        return [int(p[1]) for p in parsed if p is not None]

    def flushes(self, partition: int = 0) -> list[int]:
        """Generations that flushes have."""
        keys = [info.key for info in self.plain.list(paths.FLUSHES) if info.key.endswith("manifest.json")]
        parts = [part for key in keys for part in read_flush(self.plain, key).parts]
        return sorted(int(part.generation) for part in parts if part.region == self.region(partition))

    def versions(self, partition: int = 0) -> list[int]:
        infos = self.plain.list(paths.page_prefix(self.page(partition)))
        return sorted(p[1] for i in infos if (p := paths.parse_page_version(i.key)) is not None)

    def pages(self, partition: int = 0) -> list[tuple[int, int]]:
        """First and last generation of each history page."""
        infos = self.plain.list(paths.history_prefix(self.region(partition), None))
        pages = [decode_history(self.plain.get(i.key) or b"", i.key).generations for i in infos]
        return [(int(p[0].generation), int(p[-1].generation)) for p in pages]

    def deletes(self) -> list[str]:
        return [key for act, key in self.store.calls if act == "delete"]

    # -- readers -------------------------------------------------------------------------------------------------

    def plan(self) -> ReadPlan:
        return plan_strong(PlanContext(*self.opened(self.plain).parts, None))

    def load(self, plan: ReadPlan) -> list[dict[str, Any]]:
        caches = (SegmentCache(1 << 20), FlushCache(1 << 20), LoadedCache())
        context = DeltaContext(*self.opened(self.plain).parts, *caches, folding_of(self.contract))
        rows: list[dict[str, Any]] = load(context, plan.deltas, self.contract.rows).folded.rows.to_pylist()
        return rows

    def ingest(self, store: ScriptedStore) -> IngestContext:
        return IngestContext(*self.opened(store).parts, self.new_id)

    def ingest_opens(self, context: IngestContext, writer: Writer, partition: int = 0) -> Opened:
        return open_region(
            context, writer.log, self.region(partition), lambda: Offsets(Position(0), Position(self.durable(partition)))
        )


@pytest.fixture
def world() -> World:
    return World()


def merged_once(world: World) -> Writer:
    """Generation 1 of two segments is MERGED, 2 is OPEN with one segment."""
    writer = world.writer("a")
    world.open(writer)
    world.generation(writer)
    world.append(writer, 0)
    return writer


# -- window, grace, order ----------------------------------------------------------------------------------------


def test_within_the_history_window_nothing_goes(world: World) -> None:
    merged_once(world)
    world.clock.seconds += WINDOW_S - 2 * GRACE_S
    assert (world.collect(), world.collect()) == (0, 0)
    assert world.index().trimmed_generation == 0
    assert (world.segments("a"), world.flushes()) == ([0, 1, 2], [1])


def test_after_the_window_the_merged_go_in_a_later_round_after_the_grace_period(world: World) -> None:
    merged_once(world)
    world.clock.seconds += WINDOW_S
    assert world.collect() == 0
    index = world.index()
    assert (index.trimmed_generation, index.trimmed, [r.generation for r in index.generations]) == (1, 2, [2])
    world.clock.seconds += GRACE_S - 1
    assert world.collect() == 0
    assert (world.segments("a"), world.flushes()) == ([0, 1, 2], [1])
    world.clock.seconds += 1
    assert world.collect() == 3
    assert (world.segments("a"), world.flushes()) == ([2], [])
    assert world.collect() == 0
    assert world.state.free_since == {}


def test_one_round_alone_never_deletes(world: World) -> None:
    world.contract = world.contract.model_copy(update={"grace_s": 0})
    world.context = world.collector()
    merged_once(world)
    world.clock.seconds += 30 * DAY_S
    assert world.collect() == 0
    assert world.collect() == 3


def test_a_collector_that_starts_again_begins_the_grace_period_anew(world: World) -> None:
    merged_once(world)
    world.clock.seconds += WINDOW_S
    world.collect()
    world.clock.seconds += GRACE_S
    world.state, world.context = GarbageState(), world.collector()
    assert world.collect() == 0


def test_a_jump_of_the_wall_clock_shortens_no_grace_period(world: World) -> None:
    merged_once(world)
    world.clock.seconds += WINDOW_S
    world.collect()
    world.clock.epoch_ms += 3_600_000
    assert world.collect() == 0


def test_the_boundary_moves_before_anything_below_it_is_deleted(world: World) -> None:
    writer = merged_once(world)
    world.seal(writer)
    world.flush()
    world.merge()
    world.clock.seconds += WINDOW_S
    world.store.calls.clear()
    seen: list[int] = []
    world.store.before("delete", "", lambda: seen.append(world.index().trimmed_generation), times=100)
    world.collect_fully()
    puts = [at for at, (act, key) in enumerate(world.store.calls) if act == "put" and "/pages/" in key]
    deletes = [at for at, (act, _) in enumerate(world.store.calls) if act == "delete"]
    assert len(deletes) == 5
    assert max(puts) < min(deletes)
    assert set(seen) == {2}


def test_only_lancewal_s_own_folder_is_touched(world: World) -> None:
    writer = merged_once(world)
    world.generation(writer)
    files = dict(world.dataset.files)
    world.clock.seconds += 30 * DAY_S
    world.collect_fully()
    assert world.deletes()
    assert all(key.startswith("_lancewal/") for key in world.deletes())
    assert world.dataset.files.keys() == files.keys()


def test_generations_that_are_not_merged_keep_everything_from_their_first_segment(world: World) -> None:
    writer = merged_once(world)  # generation 2 from segment 2
    world.append(writer, 0)
    world.seal(writer)
    world.append(writer, 0)
    world.seal(writer)
    world.flush()
    world.clock.seconds += 30 * DAY_S
    world.collect_fully()
    assert [r.state for r in world.index().generations] == [
        GenerationState.FLUSHED,
        GenerationState.SEALED,
        GenerationState.OPEN,
    ]
    assert (world.segments("a"), world.flushes()) == ([2, 3, 4], [2])


def test_a_bundle_goes_with_the_last_of_its_segments(world: World) -> None:
    writer = merged_once(world)  # generation 2 from segment 2
    spans = [(0, 1), (0, 2), (1, 5), (2, 3)]
    other, current = LogId("log-gone"), LogId("log-a")
    keys = [paths.wal_bundle(current, Sequence(first), Sequence(last)) for first, last in spans]
    for key in (*keys, paths.wal_bundle(other, Sequence(0), Sequence(9))):
        world.plain.put_if_absent(key, b"whatever it is")
    world.append(writer, 0)
    world.clock.seconds += 30 * DAY_S
    world.collect_fully()
    assert world.segments("a") == [2, 3]
    assert [i.key for i in world.plain.list(paths.WAL) if paths.parse_wal_bundle(i.key)] == sorted(keys[1:])


def test_the_newest_generation_stays_named_though_merged(world: World) -> None:
    writer = world.writer("a")
    world.open(writer)
    world.generation(writer, segments=1)
    world.append(writer, 0)
    world.seal(writer, hand_over=True)
    world.flush()
    world.merge()
    world.clock.seconds += 30 * DAY_S
    world.collect_fully()
    assert [(r.generation, r.state) for r in world.index().generations] == [(2, GenerationState.MERGED)]
    assert (world.segments("a"), world.flushes()) == ([1], [2])
    world.open(world.writer("b"))
    world.collect_fully()
    assert (world.segments("a"), world.flushes()) == ([], [])
    assert world.newest().first == 2


def test_a_region_that_lags_keeps_the_log_it_shares() -> None:
    world = World(partitions=2)
    writer = world.writer("a")
    world.open(writer, 0)
    world.open(writer, 1)
    world.append(writer, 0)
    world.append(writer, 0, 1)
    world.generation(writer, 0)
    world.clock.seconds += 30 * DAY_S
    world.collect_fully()
    assert world.segments("a") == [0, 1, 2, 3]
    assert world.flushes(0) == []
    world.seal(writer, 1)
    world.flush(1)
    world.merge(1)
    world.clock.seconds += WINDOW_S
    world.collect_fully()
    assert world.segments("a") == []


def test_reanchoring_frees_what_an_idle_region_pinned() -> None:
    world = World(partitions=2)
    writer = world.writer("a")
    world.open(writer, 0)
    world.open(writer, 1)
    world.generation(writer, 0)
    world.clock.seconds += WINDOW_S
    world.collect_fully()
    assert world.segments("a") == [0, 1]
    world.reanchor(writer, 1)
    world.collect_fully()
    assert world.segments("a") == []


# -- logs, fences, attempts --------------------------------------------------------------------------------------


def test_a_fence_stays_seven_days_and_meets_who_was_frozen(world: World) -> None:
    old, new = world.writer("old"), world.writer("new")
    world.open(old)
    world.append(old, 0)
    world.open(new)  # fences at 1
    world.flush()
    world.merge()
    began = world.clock.seconds
    world.clock.seconds += WINDOW_S
    world.collect_fully()
    assert world.segments("old") == [1]
    world.clock.seconds = began + FENCE_KEPT_MS / 1000 - 4 * GRACE_S
    world.collect_fully()
    assert world.segments("old") == [1]
    world.clock.seconds += GRACE_S
    world.collect_fully()
    assert world.segments("old") == []


def test_a_fence_with_the_longest_names_is_known_as_one(world: World) -> None:
    log = LogId("f" * 32)
    fence = Fence(log, Sequence(0), "h" * 238 + "-1234567-deadbeef", 2**41, LogId("e" * 32))
    world.plain.put_if_absent(paths.wal_segment(log, Sequence(0)), encode_fence(fence))
    world.collect_fully()
    assert world.deletes() == []


def test_a_log_that_no_index_names_goes(world: World) -> None:
    merged_once(world)
    zombie = world.writer("zombie")
    assert isinstance(zombie.log.put([world.entry(0)]), Durable)
    world.collect()
    assert world.segments("zombie") == [0]
    world.clock.seconds += GRACE_S
    world.collect()
    assert (world.segments("zombie"), world.segments("a")) == ([], [0, 1, 2])


def test_what_is_named_again_during_the_grace_period_stays(world: World) -> None:
    """A claim whose reply took long: its first segment was free, and is not any more."""
    late = world.writer("late")
    world.plain.put_if_absent(paths.wal_segment(late.log.log, Sequence(0)), b"x" * 1000)
    world.collect()
    assert len(world.state.free_since) == 1
    world.open(late)
    world.clock.seconds += GRACE_S
    assert world.collect() == 0
    assert world.state.free_since == {}


def test_lost_attempts_go_the_winner_and_those_of_sealed_generations_stay(world: World) -> None:
    writer = world.writer("a")
    world.open(writer)
    for _ in range(2):
        world.append(writer, 0)
        world.seal(writer)
    world.flush()
    lost, *_ = (put_flush(world, f"0badf00d-{g}", [(0, g)]) for g in (1, 2, 3))
    world.clock.seconds += 30 * DAY_S
    world.collect_fully()
    assert world.deletes() == [lost]
    winner = world.index().generations[0].flush
    assert winner is not None
    assert world.plain.get(winner) is not None


def put_flush(world: World, name: str, of: list[tuple[int, int]], *others: Region) -> str:
    """An attempt to flush these generations of partitions together, which no index names."""
    parts = [FlushPart(world.region(p), Generation(g), Position(0), Position(1), 0, None, None, 0) for p, g in of]
    parts += [replace(parts[0], region=other) for other in others]
    key = paths.flush_file(name, paths.FlushFile.MANIFEST)
    world.plain.put_if_absent(key, encode_flush(Flush(key, 1, (), tuple(parts))))
    return key


def test_a_flush_goes_when_all_its_generations_are_trimmed_or_flushed_otherwise() -> None:
    world = World(partitions=2)
    writer = world.writer("a")
    for partition in (0, 1):
        world.open(writer, partition)
        world.append(writer, partition)
    world.seal(writer, 0)
    world.flush(0)
    one, both = put_flush(world, "one", [(0, 1)]), put_flush(world, "two", [(0, 1), (1, 1)])
    unknown = put_flush(world, "x", [(0, 1)], Region("t", TopicId("before"), 0))
    world.clock.seconds += 30 * DAY_S
    world.collect_fully()
    assert world.deletes() == [one]
    world.seal(writer, 1)
    world.collect_fully()
    assert world.deletes() == [one]
    world.flush(1)
    world.collect_fully()
    assert world.deletes() == [one, both]
    assert world.plain.get(unknown) is not None


def test_an_attempt_without_a_manifest_goes_after_a_week(world: World) -> None:
    world.open(world.writer("a"))
    key = paths.flush_file("00ff", paths.FlushFile.DELETES)
    damaged, later = put_flush(world, "damaged", [(0, 1)]), put_flush(world, "later", [(0, 1)])
    world.plain.delete([damaged, later])
    for of, data in ((key, b"x"), (damaged, b"{}"), (later, sealed_flush({"format": 9}))):
        world.plain.put_if_absent(of, data)
    world.clock.seconds += 6 * DAY_S
    world.collect_fully()
    assert world.deletes() == []
    world.clock.seconds += 2 * DAY_S
    world.collect_fully()
    assert world.deletes() == sorted([key, damaged])


def sealed_flush(content: dict[str, int]) -> bytes:
    text = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    return json.dumps({"flush": content, "crc32c": google_crc32c.value(text)}).encode()


def test_foreign_objects_stay(world: World) -> None:
    merged_once(world)
    foreign = [
        f"{paths.WAL}notes.txt",
        f"{paths.WAL}log-a/README",
        f"{paths.FLUSHES}x/y",
        f"{paths.history_prefix(world.region(), None)}notes",
        f"{paths.page_prefix(world.page())}notes",
    ]
    for key in foreign:
        world.plain.put_if_absent(key, b"mine")
    world.clock.seconds += 30 * DAY_S
    world.collect_fully()
    assert not set(foreign) & set(world.deletes())


# -- history pages -----------------------------------------------------------------------------------------------


def test_a_long_index_leaves_its_oldest_merged_generations_to_a_page(world: World) -> None:
    writer = world.writer("a")
    world.open(writer)
    for _ in range(HISTORY_PAGE_AT - 1):
        world.generation(writer, segments=1)
    world.collect()
    assert world.pages() == []
    world.generation(writer, segments=1)
    before = world.index().generations
    world.collect()
    assert world.pages() == [(1, HISTORY_PAGE_AT - HISTORY_PAGE_REST)]
    assert world.index().generations == before[HISTORY_PAGE_AT - HISTORY_PAGE_REST :]
    page = paths.history_page(world.region(), Generation(1), None)
    assert (
        decode_history(world.plain.get(page) or b"", page).generations == before[: HISTORY_PAGE_AT - HISTORY_PAGE_REST]
    )
    world.collect_fully()
    assert world.segments("a") == list(range(HISTORY_PAGE_AT))  # named by the page, within the window


@pytest.fixture
def paged_world() -> World:
    """Generations 1 to 48 in a page, 49 to 64 MERGED and 65 OPEN in the index; merged an hour apart."""
    world = World()
    writer = world.writer("a")
    world.open(writer)
    for _ in range(HISTORY_PAGE_AT):
        world.generation(writer, segments=1)
        world.clock.seconds += HOUR_S
    world.contract = world.contract.model_copy(update={"history_window_s": int(1000 * HOUR_S)})
    world.context = world.collector()
    world.collect()
    assert world.pages() == [(1, 48)]
    world.contract = world.contract.model_copy(update={"history_window_s": int(100 * HOUR_S)})
    world.context = world.collector()
    return world


def test_the_boundary_may_lie_within_a_page(paged_world: World) -> None:
    world = paged_world
    world.clock.seconds = 131 * HOUR_S  # generation n is merged at n - 1 hours
    world.collect_fully()
    index = world.index()
    assert (index.trimmed_generation, index.trimmed, index.generations[0].generation) == (32, 32, 49)
    assert world.pages() == [(1, 48)]
    assert (world.segments("a"), world.flushes()) == (list(range(32, 64)), list(range(33, 65)))


def test_a_page_below_the_boundary_goes(paged_world: World) -> None:
    world = paged_world
    world.clock.seconds = 147 * HOUR_S
    world.collect_fully()
    assert (world.index().trimmed_generation, world.index().generations[0].generation) == (48, 49)
    assert world.pages() == []
    assert (world.segments("a"), world.flushes()) == (list(range(48, 64)), list(range(49, 65)))


def test_a_page_that_is_there_already_is_taken_as_it_is(world: World) -> None:
    """Another collector wrote it when fewer were MERGED, and has died since."""
    writer = world.writer("a")
    world.open(writer)
    for _ in range(HISTORY_PAGE_AT + 6):
        world.generation(writer, segments=1)
    page = world.index().generations[:30]
    world.plain.put_if_absent(
        paths.history_page(world.region(), Generation(1), None), encode_history(world.region(), 1, page)
    )
    world.collect()
    assert world.pages() == [(1, 30)]
    assert world.index().generations[0].generation == 31
    world.collect_fully()
    assert world.segments("a") == list(range(HISTORY_PAGE_AT + 6))


@pytest.mark.parametrize("first", [1, 20])
def test_generations_of_which_an_old_page_says_otherwise_stay_in_the_index(world: World, first: int) -> None:
    """It is from before a restore; they were merged again since, and their history window begins anew."""
    writer = world.writer("a")
    world.open(writer)
    for _ in range(HISTORY_PAGE_AT + 6):
        world.generation(writer, segments=1)
    before = world.index().generations
    old = tuple(replace(r, merged_at_ms=0, merged_version=TableVersion(1)) for r in before[first - 1 : 30])
    world.plain.put_if_absent(
        paths.history_page(world.region(), Generation(first), None), encode_history(world.region(), 1, old)
    )
    for _ in range(3):
        world.collect()
    assert world.pages() == ([(1, 30)] if first == 1 else [(1, first - 1), (first, 30)])
    assert world.index().generations == before[first - 1 :]
    behind = generations_behind(world.opened(world.store), world.region(), world.index(), Generation(0))
    assert tuple(behind) == before
    world.collect_fully()
    assert world.segments("a") == list(range(HISTORY_PAGE_AT + 6))


def test_pages_that_a_listing_leaves_out_are_missed_by_a_reader(paged_world: World) -> None:
    world = paged_world
    (page,) = (info.key for info in world.plain.list(paths.history_prefix(world.region(), None)))
    world.plain.delete([page])
    with pytest.raises(PlanStale, match="generation 1, the first that is not merged, is neither"):
        generations_behind(world.opened(world.plain), world.region(), world.index(), Generation(0))


def test_a_crash_between_page_and_index_repeats_itself_away(world: World) -> None:
    writer = world.writer("a")
    world.open(writer)
    for _ in range(HISTORY_PAGE_AT):
        world.generation(writer, segments=1)
    world.store.fail("put", "/pages/", times=100)
    with pytest.raises(StoreUnavailable):
        world.collect()
    assert (world.pages(), world.index().generations[0].generation) == ([(1, 48)], 1)
    world.store = ScriptedStore(world.clock, world.store.bucket)
    world.context = world.collector()
    world.collect()
    assert (world.pages(), world.index().generations[0].generation) == ([(1, 48)], 49)


def test_no_verdict_on_a_page_leaves_the_index(world: World) -> None:
    writer = world.writer("a")
    world.open(writer)
    for _ in range(HISTORY_PAGE_AT):
        world.generation(writer, segments=1)
    world.store.faults.puts.append(PutFault.NEVER_ARRIVED)
    with pytest.raises(StoreUnavailable, match="history"):
        world.collect()
    assert len(world.index().generations) == HISTORY_PAGE_AT + 1


def test_a_page_that_a_listing_leaves_out_ends_the_round(paged_world: World) -> None:
    """Its generations would seem to be kept by nobody."""
    world, before = paged_world, paged_world.deletes()
    for _ in range(2):
        world.store.before("list", "/history/", lambda: world.store.faults.listings.append(ListFault.PARTIAL), times=3)
        with pytest.raises(StoreInconsistent, match="17 of the generations 1 to 65"):
            world.collect()
        world.clock.seconds += GRACE_S
    assert world.deletes() == before
    assert world.collect() == 0


def test_another_collector_trims_between_index_and_pages(paged_world: World) -> None:
    """The index read names less than what is trimmed by now, and the page that it needs is gone: looked at again."""
    world = paged_world
    world.clock.seconds = 147 * HOUR_S
    other = replace(world.collector(), store=world.plain, states=RegionStates(world.plain, world.clock, 128, None))
    world.store.before("list", "/history/", lambda: collect_garbage(other, GarbageState()))
    world.collect()
    assert world.index().trimmed_generation == 48
    assert world.pages() == []


# -- index versions ----------------------------------------------------------------------------------------------


def many_versions(world: World, count: int) -> Writer:
    writer = world.writer("a")
    world.open(writer)
    for _ in range(count - 1):
        world.touch()
    assert world.versions() == list(range(1, count + 1))
    return writer


def test_old_index_versions_go_oldest_first_but_never_the_first_nor_the_newest_hundred(world: World) -> None:
    many_versions(world, VERSIONS_KEPT + 11)
    world.clock.seconds += WEEK_S - 1
    assert world.collect() == 0
    world.clock.seconds += 1
    assert world.collect() == 10
    assert world.deletes() == [paths.page_version(world.page(), v) for v in range(2, 12)]
    assert world.versions() == [1, *range(12, VERSIONS_KEPT + 12)]
    fresh = newest_state(world.plain, world.clock, world.region())
    assert fresh == world.index()
    assert world.collect() == 0


def test_a_version_goes_once_one_that_is_an_hour_younger_lies_there_whatever_the_collector_s_clock_says(
    world: World,
) -> None:
    many_versions(world, VERSIONS_KEPT + 11)
    world.clock.seconds += HOUR_S - 1
    world.touch()
    assert world.collect() == 0
    world.clock.seconds += 1
    assert world.collect() == 0  # the newest is as old as that, too
    world.touch()
    assert world.collect() == 12
    assert world.deletes() == [paths.page_version(world.page(), v) for v in range(2, 14)]


def test_a_hundred_and_one_versions_all_stay(world: World) -> None:
    many_versions(world, VERSIONS_KEPT + 1)
    world.clock.seconds += 2 * WEEK_S
    assert world.collect() == 0


def test_a_young_version_keeps_all_behind_it(world: World) -> None:
    many_versions(world, 50)
    world.clock.seconds += WEEK_S
    for _ in range(VERSIONS_KEPT):
        world.touch()
    assert world.collect() == 49
    assert world.versions() == [1, *range(51, 151)]


def test_a_parcel_that_a_crash_left_behind_goes_after_a_day(world: World) -> None:
    world.open(world.writer("a"))
    old, young = paths.parcel_part("p1", 0), paths.parcel_part("p2", 0)
    world.plain.put_if_absent(old, b"tasks")
    world.clock.seconds += PARCEL_KEPT_MS / 1000 - 1
    world.plain.put_if_absent(young, b"tasks")
    assert world.collect() == 0
    world.clock.seconds += 1
    assert world.collect() == 1
    assert [info.key for info in world.plain.list(paths.PARCELS)] == [young]


def test_a_crash_while_index_versions_go_leaves_no_hole(world: World) -> None:
    many_versions(world, VERSIONS_KEPT + 31)
    world.clock.seconds += WEEK_S
    world.store.fail("delete", paths.page_version(world.page(), 9))
    with pytest.raises(StoreUnavailable):
        world.collect()
    assert world.versions() == [1, *range(9, VERSIONS_KEPT + 32)]
    assert world.collect() == 23


@pytest.mark.parametrize("left", [[1], [1, 3], [1, 2, 3]], ids=str)
def test_a_listing_that_hides_all_key_catalogs_frees_no_part_of_theirs(
    world: World, monkeypatch: pytest.MonkeyPatch, left: list[int]
) -> None:
    """However often, and for flushers that have just started."""
    world.open(world.writer("a"))
    part = paths.key_part("p")
    world.plain.put_if_absent(part, b"entries")
    parts = (KeyPart(object=part, entries=1, first=1, last=1, size=7, crc32c=0),)
    catalogs = KeyCatalogs(world.plain, world.clock, None)
    for _ in range(3):
        assert catalogs.swap(lambda _: (KeyRun(name="r", files=(), parts=parts),), world.new_id)
    world.plain.delete([paths.key_catalog_version(number, None) for number in {1, 2, 3} - set(left)])
    listed = world.store.list

    def without_catalogs(prefix: str, *arguments: Any, **named: Any) -> Seq[ObjectInfo]:
        return [] if prefix == paths.key_catalog_prefix(None) else listed(prefix, *arguments, **named)

    monkeypatch.setattr(world.store, "list", without_catalogs)
    for _ in range(3):
        world.context = world.collector()
        report = collect_garbage(world.context, world.state)
        assert part not in report.waiting_keys
        world.clock.seconds += GRACE_S
    assert world.plain.get(part) is not None


@pytest.mark.parametrize("left_out", [[2], [2, 3, 4], [10]], ids=str)
def test_a_listing_that_leaves_versions_out_makes_no_hole(world: World, left_out: list[int]) -> None:
    """A version below a hole would be found as the newest by whoever is shown it and probes upward."""
    many_versions(world, VERSIONS_KEPT + 31)
    world.clock.seconds += WEEK_S
    hidden = {paths.page_version(world.page(), v) for v in left_out}
    complete = ScriptedStore.list

    def partial(self: ScriptedStore, prefix: str, limit: int | None = None) -> Any:
        return [info for info in complete(self, prefix, limit) if info.key not in hidden]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptedStore, "list", partial)
        world.collect()
    kept = [v for v in world.versions() if v != 1]
    assert kept == list(range(kept[0], VERSIONS_KEPT + 32))


# -- errors while reading ----------------------------------------------------------------------------------------


class _FailsAt:
    """Raises at one call, counted from 0."""

    def __init__(self, at: int) -> None:
        self._left = at

    def __call__(self) -> None:
        self._left -= 1
        if self._left == -1:
            raise StoreUnavailable("503")


@pytest.mark.parametrize(
    ("act", "part"),
    [("list", "/wal/"), ("get", "/wal/"), ("list", "/flushes/"), ("get", "/pages/"), ("list", "/pages/"),
     ("list", "/history/"), ("get", "/contract/"), ("get", "/merges/")],
)  # fmt: skip
def test_a_read_error_anywhere_ends_the_round_with_nothing_deleted(world: World, act: Act, part: str) -> None:
    merged_once(world)
    world.clock.seconds += WINDOW_S
    world.collect()
    fence = Fence(LogId("log-x"), Sequence(0), "x", 0)
    world.plain.put_if_absent(paths.wal_segment(fence.log, fence.sequence), encode_fence(fence))
    world.clock.seconds += GRACE_S
    for at in itertools.count():
        world.store = ScriptedStore(world.clock, world.store.bucket)
        world.context = world.collector()
        world.store.before(act, part, _FailsAt(at), times=10_000)
        try:
            world.collect()
        except StoreUnavailable:
            assert world.deletes() == []
            continue
        assert at > 0, "no such read"
        break
    assert len(world.deletes()) == 3


def test_an_unknown_watermark_and_a_restored_table_end_the_round(world: World) -> None:
    """A restore may ask for everything again that was merged since: nothing is trimmed until a person has decided."""
    writer = merged_once(world)
    world.generation(writer, segments=1)
    world.clock.seconds += WINDOW_S
    before = world.table.newest().version
    world.table.restore(2)
    with pytest.raises(TableRestored):
        world.collect()
    del world.dataset.versions[int(before) + 1]
    world.table.append(world.contract.rows.table.empty_table())
    world.table.append(world.contract.rows.table.empty_table())
    world.table.cleanup(keep=1)
    world.context = world.collector()
    with pytest.raises(MergedPositionUnknown):
        world.collect()
    assert world.index().trimmed_generation == 0
    assert world.deletes() == []


def test_what_the_table_s_watermark_does_not_hold_leaves_for_no_page(world: World) -> None:
    """MERGED in the index only: whoever merges it again looks for it there."""
    writer = world.writer("a")
    world.open(writer)
    world.generation(writer, segments=1)
    watermark = world.marks[world.region()]
    for _ in range(HISTORY_PAGE_AT):
        world.generation(writer, segments=1)
    newest = world.table.newest()
    fragments = tuple(newest.fragment_json(f.fragment_id) for f in newest.fragments())
    properties = merge_properties({world.region(): watermark}, "settled")
    world.table.commit(TableCommit(newest.version, (), fragments, (), properties, strict=True))
    world.collect()
    assert world.pages() == []


def test_an_object_that_cannot_be_read_is_kept_as_long_as_a_fence(world: World) -> None:
    """A truncated segment is as small; it ends no round."""
    merged_once(world)
    key = paths.wal_segment(LogId("b"), Sequence(0))
    world.plain.put_if_absent(key, b"LW")
    world.collect_fully()
    assert world.plain.get(key) is not None
    world.clock.seconds += 8 * 24 * 3600
    world.collect_fully()
    assert world.plain.get(key) is None


def test_what_the_table_s_watermark_does_not_hold_is_not_trimmed(world: World) -> None:
    """MERGED in the index, and not in the table version in force: after a restore that a person has settled."""
    writer = merged_once(world)
    watermark = world.marks[world.region()]
    world.generation(writer, segments=1)
    properties = merge_properties({world.region(): watermark}, "settled")
    newest = world.table.newest()
    fragments = tuple(newest.fragment_json(f.fragment_id) for f in newest.fragments())
    world.table.commit(TableCommit(newest.version, (), fragments, (), properties, strict=True))
    world.clock.seconds += WINDOW_S
    world.collect_fully()
    assert world.index().trimmed_generation == 1
    assert world.segments("a") == [2, 3]


def test_a_log_is_listed_up_to_what_is_needed_of_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it is; and all that becomes free is found."""
    monkeypatch.setattr(find, "ANSWER_OBJECTS", 5)
    a, b = world.writer("a"), world.writer("b")
    world.open(a)
    for _ in range(3):
        world.generation(a, segments=4)
    world.clock.seconds += WINDOW_S
    for _ in range(20):
        world.append(a, 0)
    world.open(b)  # the log of a has an end; its newest generation is sealed
    for _ in range(20):
        world.append(b, 0)
    listed: list[int] = []
    complete = ScriptedStore.list

    def counted(self: ScriptedStore, prefix: str, limit: int | None = None, after: str | None = None) -> Any:
        found = complete(self, prefix, limit, after)
        if prefix == paths.WAL:
            listed.append(len(found))
        return found

    monkeypatch.setattr(ScriptedStore, "list", counted)
    world.collect()
    assert listed == [12 + 20 + 1 + 20]
    listed.clear()
    world.clock.seconds += GRACE_S
    assert world.collect() >= 12
    assert listed == [5, 5, 5, 5, 0]  # what is free, some of each log that is needed, and nothing behind both
    assert min(world.segments("a")) == 12
    world.flush()
    world.merge()
    world.generation(b)
    world.append(b, 0)
    world.clock.seconds += WINDOW_S + WEEK_S
    for _ in range(4):
        world.collect()
        world.clock.seconds += GRACE_S
    assert world.segments("a") == []
    assert world.segments("b") == [world.newest().first_sequence]


def test_an_index_below_the_table_s_watermark_ends_the_round(world: World) -> None:
    """Versions were trimmed, and a listing shows version 1 alone: by that index hardly a segment is needed."""
    writer = merged_once(world)
    for _ in range(VERSIONS_KEPT + 20):
        world.touch()
    world.clock.seconds += WEEK_S
    world.collect_fully()
    assert world.versions()[1] > 2
    world.append(writer, 0)
    first = paths.page_version(world.page(), 1)
    complete = ScriptedStore.list

    def behind(self: ScriptedStore, prefix: str, limit: int | None = None, after: str | None = None) -> Any:
        found = complete(self, prefix, None, after)
        return [info for info in found if info.key == first] if prefix == paths.page_prefix(world.page()) else found

    segments = world.segments("a")
    world.seal(writer)
    world.flush()
    world.merge()  # W is generation 2, version 1 says 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptedStore, "list", behind)
        world.context = world.collector()
        for _ in range(3):
            with pytest.raises(StoreInconsistent, match="ends below generation 2"):
                world.collect()
            world.clock.seconds += GRACE_S
    assert world.segments("a") == segments


def test_a_newer_contract_ends_the_round() -> None:
    """A flusher that began before a partition was added would see no need of that partition's segments."""
    world = World(partitions=1)
    old = world.context
    more = World(partitions=2)
    world.contract = more.contract.model_copy(update={"version": 2})
    world.plain.put_if_absent(paths.contract_version(2, None), encode_contract(world.contract))
    writer = world.writer("a")
    world.open(writer, 1)
    world.append(writer, 1)
    for _ in range(3):
        with pytest.raises(ContractMismatch, match="started with version 1"):
            collect_garbage(old, world.state)
        world.clock.seconds += GRACE_S
    world.context = world.collector()
    world.collect_fully()
    assert world.segments("a") == [0]


# -- in between: others act while a round is under way ---------------------------------------------------------------


def test_candidates_are_listed_before_indexes(world: World) -> None:
    """A process opens a region and writes between the listing and the reading of indexes."""
    candidates = (paths.WAL, paths.FLUSHES)
    writer = world.writer("a")

    def opens() -> None:
        world.open(writer)
        world.append(writer, 0)

    world.store.after("list", paths.WAL, opens)
    world.collect()
    listed = [at for at, (act, key) in enumerate(world.store.calls) if act == "list" and key in candidates]
    read = [at for at, (_, key) in enumerate(world.store.calls) if "/pages/" in key]
    assert len(listed) == 2
    assert max(listed) < min(read)
    for _ in range(3):
        world.collect()
        world.clock.seconds += GRACE_S
    assert world.segments("a") == [0]


@pytest.mark.parametrize(
    "moment", ["before listing", "after listing", "before the index", "after the index", "deleting"]
)
def test_a_generation_opened_at_any_moment_of_any_round_loses_nothing(moment: str) -> None:
    """Region 1 moves into a log whose early segments nobody needs any more, while these are being collected."""
    for round_ in range(4):
        world = World(partitions=2)
        old, writer = world.writer("old"), world.writer("a")
        world.open(old, 1)
        world.append(old, 1)
        world.open(writer, 0)
        world.generation(writer, 0)
        world.append(writer, 0)
        world.clock.seconds += WINDOW_S

        def moves(world: World = world, writer: Writer = writer) -> None:
            world.open(writer, 1)
            world.append(writer, 1)
            world.append(writer, 0, 1)

        index = paths.page_prefix(world.page(1))
        for number in range(4):
            if number == round_:
                match moment:
                    case "before listing":
                        world.store.before("list", paths.WAL, moves)
                    case "after listing":
                        world.store.after("list", paths.WAL, moves)
                    case "before the index":
                        world.store.before("get", index, moves)
                    case "after the index":
                        world.store.after("get", index, moves)
                    case _:
                        world.store.before("delete", "", moves)
            world.collect()
            world.clock.seconds += GRACE_S
        if world.newest(1).owner != "a":
            moves()
        assert (world.durable(0), world.durable(1)) == (4, 3)
        rows = world.load(world.plan())
        assert {row["k"]: row["v"] for row in rows} == {0: "v3", 1: "v2"}


@pytest.mark.parametrize("segments", [1, 3])  # where one is trimmed, the walk meets what lies behind it
def test_a_claimer_whose_index_is_out_of_date_does_not_end_a_log_where_it_was_trimmed(segments: int) -> None:
    """The claimer stands still between index and walk: the owner re-anchors, writes on, and old segments are collected.

    What it then finds absent, and fences, is no end; claiming on it would hide the owner's durable rows.
    """
    world = World(partitions=2)
    owner, claimer = world.writer("owner"), world.writer("claimer")
    world.open(owner, 0)
    world.open(owner, 1)
    world.generation(owner, 1, segments=segments)

    def meanwhile() -> None:
        world.reanchor(owner, 0)
        world.clock.seconds += WINDOW_S
        world.collect_fully()
        assert world.segments("owner") == []
        world.append(owner, 0)

    slow = ScriptedStore(world.clock, world.store.bucket)
    slow.before("get", paths.wal_segment(owner.log.log, Sequence(0)), meanwhile)
    context = world.ingest(slow)
    with pytest.raises(OwnershipLost):
        world.ingest_opens(context, claimer)
    assert (world.newest().owner, world.durable(0)) == ("owner", 1)
    opened = world.ingest_opens(context, claimer)
    assert (opened.record.owner, opened.record.first) == ("claimer", 1)
    assert [(r.first, r.next) for r in opened.unflushed] == [(0, 1)]
    assert {row["k"]: row["v"] for row in world.load(world.plan())} == {0: "v0"}


def test_two_collectors_at_the_same_time_do_what_one_does(world: World) -> None:
    merged_once(world)
    world.clock.seconds += WINDOW_S
    contexts = [world.collector(), world.collector()]
    states = [GarbageState(), GarbageState()]
    world.store.before("put", "/pages/", lambda: collect_garbage(contexts[1], states[1]))
    for _ in range(3):
        for context, state in zip(contexts, states, strict=True):
            collect_garbage(context, state)
        world.clock.seconds += GRACE_S
    assert (world.segments("a"), world.flushes()) == ([2], [])
    assert [r.generation for r in world.index().generations] == [2]


# -- readers -----------------------------------------------------------------------------------------------------


def test_a_running_plan_reads_on_during_the_grace_period_and_is_stale_after_it(world: World) -> None:
    writer = world.writer("a")
    world.open(writer)
    world.append(writer, 0)
    world.seal(writer)
    world.flush()
    plan = world.plan()  # names the flush of generation 1
    record = world.index().generations[0]
    world.merge()
    world.clock.seconds += WINDOW_S
    world.collect()
    assert [row["v"] for row in world.load(plan)] == ["v0"]
    world.clock.seconds += GRACE_S
    world.collect()
    with pytest.raises(ObjectMissing, match="and so are its WAL entries"):
        world.load(plan)
    with pytest.raises(PlanStale, match="does not show all of them"):
        entries_of(world.opened(world.plain), world.region(), record)
    again = world.plan()
    assert world.load(again) == []
    assert again.cut == {world.region(): 1}


def test_a_plan_of_wal_entries_is_stale_once_they_are_trimmed(world: World) -> None:
    writer = world.writer("a")
    world.open(writer)
    world.append(writer, 0)
    plan = world.plan()
    world.seal(writer)
    world.flush()
    world.merge()
    world.clock.seconds += WINDOW_S
    world.collect_fully()
    with pytest.raises(PlanStale, match="has vanished"):
        world.load(plan)


def test_a_strong_read_while_its_log_is_trimmed_plans_again(world: World) -> None:
    """The reader has the index, and not yet the log, when the first segments of its walk go."""
    world = World(partitions=2)
    writer = world.writer("a")
    world.open(writer, 0)
    world.open(writer, 1)
    world.generation(writer, 1)

    def meanwhile() -> None:
        world.reanchor(writer, 0)
        world.clock.seconds += WINDOW_S
        world.collect_fully()
        assert world.segments("a") == []
        world.append(writer, 0)

    slow = ScriptedStore(world.clock, world.store.bucket)
    slow.before("get", paths.wal_segment(writer.log.log, Sequence(0)), meanwhile)
    assert plan_strong(PlanContext(*world.opened(slow).parts, None)).cut == {world.region(0): 1, world.region(1): 2}


# -- damage of one region ----------------------------------------------------------------------------------------


def damaged_beside_sound() -> tuple[World, bytes, str]:
    """Two regions in one page and one log, merged; the record of the first is damaged, the second goes on."""
    world = World(partitions=2)
    writer = world.writer("a")
    for partition in range(2):
        world.open(writer, partition)
        world.generation(writer, partition)
        world.append(writer, partition)
    key = paths.page_version(world.page(), world.versions()[-1])
    whole = world.store.bucket.get(key) or b""
    world.store.bucket.delete(key)
    world.plain.put_if_absent(key, with_flipped_record(whole, 0))
    # Indexes that remember the page as it was would write what they remember.
    world.states = RegionStates(world.plain, world.clock, 128, None)
    for _ in range(VERSIONS_KEPT + 5):
        world.touch(1)
    world.generation(writer, 1)
    return world, whole, key


def test_of_a_damaged_region_nothing_goes_while_others_are_trimmed() -> None:
    world, whole, _ = damaged_beside_sound()
    versions, segments = world.versions(), world.segments("a")
    # It may be of the damaged region, whose record may name its flush: a manifest that was lost may be put back.
    whose = paths.flush_file("00ff", paths.FlushFile.DELETES)
    world.plain.put_if_absent(whose, b"x")
    world.clock.seconds += 30 * DAY_S
    world.touch(1)
    report = collect_garbage(world.context, world.state)
    assert {region.partition for region in report.damaged} == {0}
    assert {region.partition: boundary for region, boundary in report.trimmed.items()} == {1: 2}
    world.collect_fully()
    assert (world.flushes(0), world.flushes(1)) == ([1], [])
    assert (world.segments("a"), set(world.versions()) >= set(versions)) == (segments, True)
    assert world.plain.get(whose) is not None
    # Once its record is repaired, all goes.
    newest = paths.page_version(world.page(), world.versions()[-1])
    page = decode_page(world.store.bucket.get(newest) or b"", newest)
    world.store.bucket.delete(newest)
    record = decode_page(whole, newest).records[0]
    world.plain.put_if_absent(newest, encode_page(page.with_records({0: record})))
    world.collect_fully()
    world.touch(1)
    world.clock.seconds += 8 * DAY_S
    world.collect_fully()
    assert (world.flushes(0), world.index(0).trimmed_generation) == ([], 1)
    assert world.plain.get(whose) is None
    assert len(world.segments("a")) < len(segments)
    assert not set(world.versions()) >= set(versions)


def test_a_damaged_history_page_is_its_region_s_alone() -> None:
    world = World(partitions=2)
    writer = world.writer("a")
    for partition in range(2):
        world.open(writer, partition)
        for _ in range(HISTORY_PAGE_AT):
            world.generation(writer, partition, segments=1)
    world.collect()
    (key,) = [info.key for info in world.plain.list(paths.history_prefix(world.region(0), None))]
    whole = world.store.bucket.get(key) or b""
    world.store.bucket.delete(key)
    world.plain.put_if_absent(key, whole[:-1] + b"?")
    segments = world.segments("a")
    world.clock.seconds += 30 * DAY_S
    report = collect_garbage(world.context, world.state)
    assert {region.partition for region in report.damaged} == {0}
    assert {region.partition for region in report.trimmed} == {1}
    world.collect_fully()
    assert world.segments("a") == segments
    assert len(world.flushes(0)) == HISTORY_PAGE_AT


# -- what a collector knows of the last round --------------------------------------------------------------------


def test_history_pages_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for one that is put anew, and what there is no room for."""
    monkeypatch.setattr(find, "HISTORY_PAGE_AT", 4)
    monkeypatch.setattr(find, "HISTORY_PAGE_REST", 1)
    world = World()
    writer = world.writer("a")
    world.open(writer)
    for _ in range(3):
        for _ in range(4):
            world.generation(writer, segments=1)
        world.collect()
    keys = sorted(info.key for info in world.plain.list(paths.history_prefix(world.region(), None)))
    assert len(keys) == 3

    def read(state: GarbageState) -> list[str]:
        world.store.calls.clear()
        report = collect_garbage(world.context, state)
        assert not report.damaged
        return sorted(key for act, key in world.store.calls if act == "get" and key in keys)

    state, small = GarbageState(), GarbageState(pages=KnownPages(7))
    assert (read(state), read(small)) == (keys, keys)
    assert (read(state), len(read(small))) == ([], 1)
    data = world.store.bucket.get(keys[1]) or b""
    world.store.bucket.delete(keys[1])
    world.clock.seconds += 1
    world.plain.put_if_absent(keys[1], data)
    assert read(state) == [keys[1]]
    world.clock.seconds += WINDOW_S
    trimmed = collect_garbage(world.context, state).trimmed
    assert trimmed == {world.region(): world.newest().generation - 1}
    assert world.pages() == []
    assert read(state) == []
