"""What is due of many regions goes to the store together: a swap a page, and each region goes its own way."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from threading import Event
from typing import Any

import pytest

from lancewal_core.errors import KafkaUnavailable, ObjectCorrupt
from lancewal_core.names import paths
from lancewal_core.names.ids import LogId, Page, Position, Region, Sequence
from lancewal_core.process.clock import Clock, SystemClock
from lancewal_core.process.tasks import Tasks, ThreadTasks
from lancewal_core.region import flush, generation_entries
from lancewal_core.region.flush_files import Flushable, write_flush
from lancewal_core.region.flushes.manifest import Flush
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.pages.state_page import decode_page, encode_page
from lancewal_core.region.state import GenerationState
from lancewal_core.region.states import page_family
from lancewal_core.store.object_store import ObjectStore, PutOutcome
from lancewal_core.wal.segment import Segment, Trailer, decode_trailer
from lancewal_core.wal.walk import Walk, walk
from lancewal_ingest.context import IngestContext
from lancewal_ingest.kafka.source import Polled
from lancewal_ingest.observer import Claim
from lancewal_ingest.regions.flush_queue import FlushQueue
from lancewal_ingest.regions.policy import SealPolicy, WorkerLimits
from lancewal_ingest.service.worker import IngestWorker
from tests.ingest.service.test_worker import Place, Store
from tests.support.regions import by_number, numbers, region
from tests.support.silent_observer import SilentObserver
from tests.twins.memory_store import MemoryBucket

NOT_YET = SealPolicy(rows=10**9, age_s=1e9, log_distance=10**9)
AT_ONCE = SealPolicy(rows=1, log_distance=1)


class Told(SilentObserver):
    """What failed."""

    def __init__(self) -> None:
        self.failures: list[tuple[str, object]] = []
        self.claims: list[tuple[int, Claim]] = []
        self.replays: list[float] = []

    def failed(self, act: str, cause: object) -> None:
        self.failures.append((act, cause))

    def claimed(self, region: Region, outcome: Claim) -> None:
        self.claims.append((region.partition, outcome))

    def replayed(self, rows: int, seconds: float) -> None:
        self.replays.append(seconds)


def opened(place: Place, rows: Seq[int], told: Told | None = None) -> IngestWorker:
    """A worker that has all partitions, with a durable record in each of ``rows``."""
    limits = WorkerLimits(linger_s=0.0, idle_position_s=1e9, retry_s=1e9, damaged_s=1e9)
    worker = place.worker(NOT_YET, limits, observer=told)
    worker.assigned(place.regions(*range(place.contract.partitions)))
    came = [place.records(0, 1, partition) for partition in rows]
    records = {p: found for polled in came for p, found in polled.records.items()}
    place.source.coming = [Polled({}, {}), Polled(records, {p: n for polled in came for p, n in polled.next.items()})]
    for _ in range(3):
        worker.step()
    assert by_number(worker.durable) == {p: int(p in rows) for p in range(place.contract.partitions)}
    return worker


def pages(place: Place) -> int:
    """Versions of pages that were put so far."""
    return len(place.bucket.listing(paths.pages_prefix(None)))


def states(place: Place) -> dict[int, list[GenerationState]]:
    states = place.context.states.read(place.contract.regions)
    return {region.partition: [r.state for r in state.generations] for region, state in states.items()}


def damage(place: Place, partition: int) -> str:
    """Another process swaps the page, in which the partition's record is damaged by now; the key of this version."""
    family = page_family(Page.of(place.region(partition), place.contract.regions_per_page, None))
    numbers = [number for info in place.bucket.listing(family.prefix) if (number := family.parse(info.key))]
    before, following = family.key(max(numbers)), family.key(max(numbers) + 1)
    page = decode_page(place.bucket.get(before) or b"", before)
    record = page.records[partition]
    harmed = page.with_records({partition: replace(record, data=record.data[:-1] + b"?")})
    place.bucket.put(following, encode_page(replace(harmed, write_id="another")), 0)
    return following


def test_what_is_due_in_a_turn_is_a_swap_a_page() -> None:
    place = Place(4, regions_per_page=2)
    worker = opened(place, [0, 1, 3])
    before = pages(place)
    worker._sealing.policy = AT_ONCE
    worker._sealing.advance(worker._writer)
    sealed = [GenerationState.SEALED, GenerationState.OPEN]
    assert states(place) == {0: sealed, 1: sealed, 2: [GenerationState.OPEN], 3: sealed}
    assert worker.memtables[region(2)].first_sequence == 1
    assert pages(place) - before == 2
    worker._flushes.advance()
    flushed = [GenerationState.FLUSHED, GenerationState.OPEN]
    assert states(place) == {0: flushed, 1: flushed, 2: [GenerationState.OPEN], 3: flushed}
    assert pages(place) - before == 4


def test_generations_end_the_sooner_the_more_entries_segments_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen in each: a segment counts twice.  What has none is moved as often."""
    monkeypatch.setattr(FlushQueue, "advance", lambda _: None)
    place, idle = Place(17), 16
    policy = SealPolicy(nbytes=1 << 60, rows=10**9, age_s=1e9, log_distance=8)
    worker = place.worker(policy, WorkerLimits(linger_s=0.0, idle_position_s=1e9, retry_s=1e9, damaged_s=1e9))
    worker.assigned(place.regions(*range(17)))
    place.source.coming = [Polled({}, {})]
    worker.step()
    coming = {region(p): place.records(0, 20, p).records[region(p)] for p in range(16)}
    moved = set()
    for n in range(20):
        one_of_each = {one: records.part(n, n + 1) for one, records in coming.items()}
        place.source.coming = [Polled(one_of_each, dict.fromkeys(one_of_each, Position(n + 1)))]
        for _ in range(2):
            worker.step()
        moved.add(worker.memtables[region(idle)].first_sequence)
    assert by_number(worker.durable) == {**dict.fromkeys(range(16), 20), idle: 0}
    assert moved == {0, 4, 8, 12, 16, 20}
    states = place.context.states.read(place.contract.regions)
    for partition in range(16):
        began = [record.first_sequence for record in states[place.region(partition)].generations]
        assert began[1] <= 4
        assert {later - earlier for earlier, later in pairwise(began[1:])} == {4}


def test_regions_that_fall_due_together_stop_no_consumption() -> None:
    place = Place(20)
    worker = opened(place, range(20))
    worker._sealing.policy = AT_ONCE
    worker._sealing.advance(worker._writer)
    worker._sealing.policy = NOT_YET
    assert len(worker._flushes) == 20
    place.source.coming = [place.records(1, 1, 7)]
    worker.step()
    assert not worker.throttled
    assert worker.consumed[place.region(7)] == 2


def damage_flushes(monkeypatch: pytest.MonkeyPatch, region: Region) -> None:
    """No flush that has something of the region is written."""

    def write(opened: OpenedTable, flushable: Seq[Flushable], name: str) -> Flush:
        if any(one.region == region for one in flushable):
            raise ObjectCorrupt("cannot be written", object=name)
        return write_flush(opened, flushable, name)

    monkeypatch.setattr(flush, "write_flush", write)


def test_what_a_former_owner_has_left_is_read_from_its_log_together(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(4, regions_per_page=2)
    opened(place, range(4))
    told = Told()
    worker = place.worker(NOT_YET, WorkerLimits(linger_s=0.0, idle_position_s=1e9), observer=told)
    worker.assigned(place.regions(*range(4)))
    walked: list[LogId] = []

    def read(store: ObjectStore, tasks: Tasks, log: LogId, *of: Any, **named: Any) -> Walk[Segment]:
        walked.append(log)
        place.clock.sleep(2.0)
        return walk(store, tasks, log, *of, **named)

    monkeypatch.setattr(generation_entries, "walk", read)
    for _ in range(3):
        worker.step()
    assert states(place) == {p: [GenerationState.FLUSHED, GenerationState.OPEN] for p in range(4)}
    assert len(walked) == 1
    assert told.replays == [0.5] * 4


def test_generations_of_a_region_that_nobody_flushes_stop_it(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(2)
    worker = opened(place, [0, 1])
    damage_flushes(monkeypatch, place.region(0))
    worker._sealing.policy = AT_ONCE
    for n in range(1, 9):
        place.source.coming = [place.records(n, 1)]
        worker.step()
        assert not worker.throttled
    place.source.coming = [place.records(9, 1)]
    worker.step()
    worker._sealing.advance(worker._writer)
    worker.step()
    assert worker.throttled


def test_a_region_that_cannot_be_sealed_stops_no_other() -> None:
    place, told = Place(4, regions_per_page=2), Told()
    worker = opened(place, [0, 1, 2, 3], told)
    damaged = damage(place, 1)
    worker._sealing.policy = AT_ONCE
    worker._sealing.advance(worker._writer)
    assert numbers(worker.durable) == [0, 2, 3]
    assert {p: (error.kind, error.where["object"]) for p, error in by_number(worker.refused).items()} == {
        1: ("object_corrupt", damaged)
    }
    assert [act for act, _ in told.failures] == ["seal"]
    assert {m.generation for m in worker.memtables.values()} == {2}


def test_a_store_that_fails_for_a_page_is_told_once_and_the_other_page_is_sealed() -> None:
    place, told = Place(4, regions_per_page=2), Told()
    worker = opened(place, [0, 1, 2, 3], told)
    place.store.silent = paths.page_prefix(Page.of(place.region(0), 2, None))
    worker._sealing.policy = AT_ONCE
    worker._sealing.advance(worker._writer)
    sealed = [GenerationState.SEALED, GenerationState.OPEN]
    place.store.silent = None
    assert states(place) == {0: [GenerationState.OPEN], 1: [GenerationState.OPEN], 2: sealed, 3: sealed}
    assert [act for act, _ in told.failures] == ["seal"]
    place.clock.sleep(1.0)
    worker._sealing.advance(worker._writer)
    assert states(place) == dict.fromkeys(range(4), sealed)
    assert {m.generation for m in worker.memtables.values()} == {2}


def test_what_is_handed_over_goes_side_by_side() -> None:
    place, told = Place(4, regions_per_page=2), Told()
    worker = opened(place, [0, 1, 3], told)
    before = pages(place)
    worker.revoked(place.regions(0, 1, 2, 3))
    assert pages(place) - before == 2
    assert states(place) == {p: [GenerationState.SEALED] for p in range(4)}
    assert by_number(worker.durable) == {}
    worker._flushes.advance()
    assert states(place) == {p: [GenerationState.FLUSHED] for p in range(4)}
    assert pages(place) - before == 4
    assert told.failures == []


def test_a_page_that_fails_leaves_its_regions_to_their_next_owner() -> None:
    place, told = Place(4, regions_per_page=2), Told()
    worker = opened(place, [0, 1, 3], told)
    place.store.silent = paths.page_prefix(Page.of(place.region(0), 2, None))
    assert not worker.drain(60.0)
    place.store.silent = None
    assert states(place) == {
        0: [GenerationState.OPEN],
        1: [GenerationState.OPEN],
        2: [GenerationState.FLUSHED],
        3: [GenerationState.FLUSHED],
    }
    assert [act for act, _ in told.failures] == ["hand-over"]


class HeldStore(Store):
    """Puts of keys with the prefix ``held`` wait until they are let go."""

    held: str | None = None

    def __init__(self, clock: Clock, bucket: MemoryBucket) -> None:
        super().__init__(clock, bucket)
        self.came, self.go = Event(), Event()

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        if self.held is not None and key.startswith(self.held):
            self.came.set()
            assert self.go.wait(60)
        return super().put_if_absent(key, data)


@pytest.fixture
def beside() -> Iterator[tuple[Place, HeldStore]]:
    """A place whose tasks are threads."""
    place = Place(4, regions_per_page=2)
    store = HeldStore(place.clock, place.bucket)
    tasks = ThreadTasks(workers=8)
    opened = OpenedTable.over(store, place.table, place.contract, tasks, SystemClock())
    place.context = IngestContext(*opened.parts, lambda: uuid.uuid4().hex)
    yield place, store
    store.go.set()
    tasks.close()


def durable_in_all(place: Place) -> IngestWorker:
    worker = place.worker(NOT_YET, WorkerLimits(linger_s=0.0, idle_position_s=1e9))
    worker.assigned(place.regions(*range(4)))
    worker.step()
    place.source.coming = [place.records(0, 1, partition) for partition in range(4)]
    await_(lambda: by_number(worker.durable) == dict.fromkeys(range(4), 1), lambda: worker.step(0.01))
    return worker


def await_(condition: Callable[[], bool], turn: Callable[[], None] = lambda: time.sleep(0.001)) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        turn()


@pytest.mark.parametrize("sealing", [False, True], ids=["at rest", "beside a seal"])
def test_who_stops_hands_over_what_answers_while_a_page_is_silent(
    beside: tuple[Place, HeldStore], *, sealing: bool
) -> None:
    """Nobody waits for the deadline: the rest follows as soon as the page answers."""
    place, store = beside
    worker = durable_in_all(place)
    store.held = paths.page_prefix(Page.of(place.region(0), 2, None))
    if sealing:
        worker._sealing.policy = AT_ONCE
        worker._sealing.advance(worker._writer)
        await_(lambda: numbers(worker._sealing.unsettled) == [0, 1], worker._sealing.settle)
    with ThreadPoolExecutor(1) as loop:
        drained = loop.submit(worker.drain, 60.0)
        await_(lambda: {2, 3} <= {p for p, found in states(place).items() if GenerationState.OPEN not in found})
        await_(lambda: all(found[0] is GenerationState.FLUSHED for p, found in states(place).items() if p in (2, 3)))
        assert not drained.done()
        assert states(place)[0] == states(place)[1] == [GenerationState.OPEN]
        store.go.set()
        assert drained.result(60)
    assert {found[0] for found in states(place).values()} == {GenerationState.FLUSHED}
    assert GenerationState.OPEN not in {found[-1] for found in states(place).values()}


def test_a_flush_that_waits_for_a_silent_page_holds_up_none_of_another(beside: tuple[Place, HeldStore]) -> None:
    place, store = beside
    worker = durable_in_all(place)
    worker._sealing.policy = AT_ONCE
    worker._sealing.advance(worker._writer)
    worker._sealing.policy = NOT_YET
    await_(lambda: not worker._sealing.busy, worker._sealing.settle)
    store.held = paths.page_prefix(Page.of(place.region(0), 2, None))
    await_(lambda: len(worker._flushes) == 2, worker._flushes.advance)
    assert [states(place)[p][0] for p in range(4)] == [
        GenerationState.SEALED,
        GenerationState.SEALED,
        GenerationState.FLUSHED,
        GenerationState.FLUSHED,
    ]
    place.source.coming = [place.records(1, 1, partition) for partition in range(4)]
    await_(lambda: by_number(worker.durable) == dict.fromkeys(range(4), 2), lambda: worker.step(0.01))
    worker._sealing.policy = AT_ONCE
    worker._sealing.advance(worker._writer)
    await_(lambda: [states(place)[p][1] for p in (2, 3)] == [GenerationState.FLUSHED] * 2, lambda: turn(worker))
    assert {states(place)[p][0] for p in (0, 1)} == {GenerationState.SEALED}
    store.go.set()
    await_(lambda: not worker._sealing.busy and not len(worker._flushes), lambda: turn(worker))
    assert {found[1] for found in states(place).values()} == {GenerationState.FLUSHED}


def turn(worker: IngestWorker) -> None:
    worker._sealing.settle()
    worker._flushes.advance()
    worker._flushes.wait(0.01)


def test_what_is_read_from_a_log_answers_page_by_page(beside: tuple[Place, HeldStore]) -> None:
    place, store = beside
    durable_in_all(place).revoked(place.regions(*range(4)))
    heir = place.worker(NOT_YET, WorkerLimits(linger_s=0.0, idle_position_s=1e9))
    heir._flushes.advance = lambda: None  # type: ignore[method-assign] # until a page is silent
    heir.assigned(place.regions(*range(4)))
    heir.step(0.01)
    assert len(heir._flushes) == 4
    del heir._flushes.advance
    store.held = paths.page_prefix(Page.of(place.region(0), 2, None))
    await_(lambda: len(heir._flushes) == 2, heir._flushes.advance)
    assert [states(place)[p][0] for p in range(4)] == [
        GenerationState.SEALED,
        GenerationState.SEALED,
        GenerationState.FLUSHED,
        GenerationState.FLUSHED,
    ]
    store.go.set()
    await_(lambda: not len(heir._flushes), heir._flushes.advance)
    assert {found[0] for found in states(place).values()} == {GenerationState.FLUSHED}


def test_a_flush_that_fails_holds_up_none_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    place, told = Place(3, regions_per_page=2), Told()
    worker = opened(place, [0, 1, 2], told)
    worker._sealing.policy = AT_ONCE
    worker._sealing.advance(worker._writer)
    damage_flushes(monkeypatch, place.region(1))
    worker._flushes.advance()
    worker._flushes.advance()
    monkeypatch.undo()
    assert {p: found[0] for p, found in states(place).items()} == {
        0: GenerationState.FLUSHED,
        1: GenerationState.SEALED,
        2: GenerationState.FLUSHED,
    }
    assert [act for act, _ in told.failures] == ["flush"]
    for item in worker._flushes._waiting:
        item.again_at = 0.0
    worker._flushes.advance()
    assert {p: found[0] for p, found in states(place).items()} == dict.fromkeys(range(3), GenerationState.FLUSHED)
    assert len(worker._flushes) == 1  # what it said is taken at the next turn
    worker._flushes.advance()
    assert len(worker._flushes) == 0


def reads_of(place: Place, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each object is asked for from now on."""
    asked = Counter[str]()
    get = place.store.get

    def counted(key: str) -> bytes | None:
        asked[key] += 1
        return get(key)

    monkeypatch.setattr(place.store, "get", counted)
    return asked


def heir(place: Place, told: Told) -> IngestWorker:
    """Another worker, which has opened what it could."""
    limits = WorkerLimits(linger_s=0.0, idle_position_s=1e9, retry_s=1.0, damaged_s=1.0)
    worker = place.worker(NOT_YET, limits, observer=told)
    worker.assigned(place.regions(*range(place.contract.partitions)))
    worker.step()
    return worker


def spoil(place: Place, key: str, partition: int) -> bytes:
    """Damage the rows of a partition's entry in a segment; what it was."""
    whole = place.bucket.get(key) or b""
    trailer = decode_trailer(whole, key, len(whole))
    assert isinstance(trailer, Trailer)
    (batch,) = [b for b in trailer.batches if any(e.region.partition == partition for e in b.entries)]
    at = batch.section.start + batch.section.length - 1
    place.bucket.delete(key)
    place.bucket.put(key, whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :], 0)
    return whole


def test_what_is_opened_together_asks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FlushQueue, "advance", lambda _: None)
    place, told = Place(4, regions_per_page=2), Told()
    gone = opened(place, [0, 1, 3])
    before, asked = pages(place), reads_of(place, monkeypatch)
    worker = heir(place, told)
    assert by_number(worker.durable) == {0: 1, 1: 1, 2: 0, 3: 1}
    assert told.failures == []
    assert pages(place) - before == 2
    assert place.source.asked_together == [(0, 1, 2, 3), (0, 1, 2, 3)]  # once by each worker
    log = [asked[paths.wal_segment(gone._writer.log, Sequence(number))] for number in range(3)]
    assert log == [1, 1, 1]  # its segment, the number of the fence, and one behind it
    assert worker.memtables[region(3)].generation == 2


def test_a_damaged_entry_is_its_region_s_alone() -> None:
    place, told = Place(4, regions_per_page=2), Told()
    opened(place, [0])
    (key,) = [info.key for info in place.bucket.listing(paths.WAL)]
    whole = spoil(place, key, 0)
    worker = heir(place, told)
    assert by_number(worker.durable) == {1: 0, 2: 0, 3: 0}
    assert {p: (error.kind, error.where["object"]) for p, error in by_number(worker.refused).items()} == {
        0: ("object_corrupt", key)
    }
    place.bucket.delete(key)
    place.bucket.put(key, whole, 0)
    place.clock.sleep(1.0)
    worker.step()
    assert by_number(worker.durable) == {0: 1, 1: 0, 2: 0, 3: 0}


def test_a_damaged_state_and_a_partition_without_a_leader_hold_up_no_other() -> None:
    place, told = Place(4, regions_per_page=2), Told()
    opened(place, [0, 1, 2, 3])
    damaged = damage(place, 0)
    place.source.ends[2] = KafkaUnavailable("leader not available")
    worker = heir(place, told)
    assert by_number(worker.durable) == {1: 1, 3: 1}
    assert {p: error.kind for p, error in by_number(worker.refused).items()} == {
        0: "object_corrupt",
        2: "kafka_unavailable",
    }
    assert worker.refused[place.region(0)].where["object"] == damaged
    assert sorted(told.claims) == [(0, "failed"), (1, "won"), (2, "failed"), (3, "won")]


def test_a_page_without_a_verdict_holds_up_its_regions_alone() -> None:
    place, told = Place(4, regions_per_page=2), Told()
    place.store.silent = paths.page_prefix(Page.of(place.region(0), 2, None))
    worker = heir(place, told)
    assert by_number(worker.durable) == {2: 0, 3: 0}
    assert [act for act, _ in told.failures] == ["open"]
    place.store.silent = None
    place.clock.sleep(1.0)
    worker.step()
    assert by_number(worker.durable) == dict.fromkeys(range(4), 0)
