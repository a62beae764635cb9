"""Moments of an ingest worker's life that cost rows, generations or the whole service: a worker on twins, one thread, its
Kafka driven by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

import pytest

from lancewal_core.errors import (
    ActionNeeded,
    DeadLetterRefused,
    KafkaUnavailable,
    LancewalError,
    OwnershipLost,
    RetentionLost,
    StoreInconsistent,
    TopicTruncated,
)
from lancewal_core.names import paths
from lancewal_core.names.ids import OwnerId, Position, Region
from lancewal_core.names.ids import Sequence as Number
from lancewal_core.names.paths import FLUSHES
from lancewal_core.process.health import LOOP_LIMIT_S
from lancewal_core.process.tasks import Task
from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.state import GenerationRecord, GenerationState
from lancewal_core.region.states import RegionStates
from lancewal_core.rows.murmur2 import partition_of
from lancewal_core.settings.load import Settings
from lancewal_core.store.object_store import PutOutcome, PutUnknown
from lancewal_core.table.contract import Column, Contract
from lancewal_core.table.watermarks import TABLE_UUID
from lancewal_core.wal.log_end import end_log
from lancewal_core.wal.segment import Segment, decode_segment
from lancewal_ingest.append.job import Terms
from lancewal_ingest.append.prepare import Preparer, lenient
from lancewal_ingest.context import IngestContext
from lancewal_ingest.decode.outcomes import Rejected
from lancewal_ingest.kafka.dead_letters import RefusedDeadLetters
from lancewal_ingest.kafka.source import Offsets, Polled, PollListener, Positions
from lancewal_ingest.observer import Claim, Observer
from lancewal_ingest.regions.policy import MemoryPolicy, SealPolicy, WorkerLimits
from lancewal_ingest.service.worker import IngestWorker
from lancewal_kafka.records import Records
from lancewal_kafka.topic import TopicFacts
from tests.support.regions import by_number, by_region, numbers, region
from tests.support.silent_observer import SilentObserver
from tests.twins.memory_store import MemoryBucket, MemoryStore
from tests.twins.memory_table import MemoryDataset, MemoryTable

T = TypeVar("T")
A = TypeVar("A")
OTHER = OwnerId("other")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def now_ms(self) -> int:
        return int(self.now * 1000)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Ended:
    """A task that ran when it was started."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._error: BaseException | None = None
        try:
            self._value: object = call()
        except Exception as error:
            self._error = error

    def wait(self, timeout_s: float) -> None: ...

    def done(self) -> bool:
        return True

    def result(self) -> object:
        if self._error is not None:
            raise self._error
        return self._value


class AtOnce:
    def start(self, call: Callable[[], T]) -> Task[T]:
        return Ended(call)  # type: ignore[return-value] # what it holds is what the call returned

    def map(self, call: Callable[[A], T], items: Sequence[A]) -> list[T]:
        return [call(item) for item in items]


class Store(MemoryStore):
    """``silent``: puts of keys with this prefix hang until they time out, and nothing is stored."""

    silent: str | None = None
    timeout_s: float = 0.0
    put_takes_s: float = 0.0
    refused: int = 0

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        if self.silent is not None and key.startswith(self.silent):
            self._clock.sleep(self.timeout_s)
            self.refused += 1
            return PutUnknown("no answer")
        self._clock.sleep(self.put_takes_s)
        return super().put_if_absent(key, data)


@dataclass
class Source:
    """A consumer that delivers what a test puts into ``coming``."""

    partitions: int
    coming: list[Polled | ActionNeeded] = field(default_factory=list)
    ends: dict[int, Offsets | KafkaUnavailable] = field(default_factory=dict)
    started: dict[int, Position] = field(default_factory=dict)
    stopped: list[int] = field(default_factory=list)
    member: bool = True
    commits: list[dict[int, Position]] = field(default_factory=list)
    held: set[int] = field(default_factory=set)
    asked_together: list[tuple[int, ...]] = field(default_factory=list)
    """For offsets, at once."""
    polls: int = 0
    gathered: list[float] = field(default_factory=list)
    """How long each poll was told to collect."""

    def subscribe(self, listener: PollListener) -> None: ...

    def poll(self, records_max: int, timeout_s: float, gather_s: float = 0.0) -> Polled:
        self.polls += 1
        self.gathered.append(gather_s)
        polled = self.coming.pop(0) if self.coming else Polled({}, {})
        if isinstance(polled, ActionNeeded):
            raise polled
        return polled

    def start(self, region: Region, position: Position) -> None:
        self.started[region.partition] = position

    def stop(self, region: Region) -> None:
        self.stopped.append(region.partition)

    def pause(self, regions: Sequence[Region]) -> None:
        self.held |= set(numbers(regions))

    def resume(self, regions: Sequence[Region]) -> None:
        self.held -= set(numbers(regions))

    def facts(self, topic: str) -> TopicFacts:
        return TopicFacts("topic-id", self.partitions)

    def offsets(self, region: Region) -> Offsets:
        found = self.ends.get(region.partition, Offsets(Position(0), Position(10**9)))
        if isinstance(found, KafkaUnavailable):
            raise found
        return found

    def offsets_of_each(self, regions: Collection[Region]) -> dict[Region, Offsets | LancewalError]:
        self.asked_together.append(tuple(region.partition for region in regions))
        return {region: self.ends.get(region.partition, Offsets(Position(0), Position(10**9))) for region in regions}

    def commit_soon(self, positions: Positions, done: Callable[[bool], None]) -> None:
        done(self.commit(positions))

    def commit(self, positions: Positions) -> bool:
        self.commits.append(by_number(positions))
        return self.member

    def close(self) -> None: ...


class Place:
    """Everything around one worker."""

    def __init__(self, partitions: int = 1, regions_per_page: int = 128, topic: str = "orders") -> None:
        self.contract = Contract(
            table_uuid="table", topic=topic, topic_id="topic-id", partitions=partitions, primary_key=("k",),
            regions_per_page=regions_per_page,
            region_key=("k",), start=tuple([0] * partitions), history_window_s=60, grace_s=60, on_bad_record="stop",
            columns=(Column(name="k", type="int64", field_ids=(0,)), Column(name="a", type="string", field_ids=(1,))),
        )  # fmt: skip
        self.clock = Clock()
        self.bucket = MemoryBucket()
        self.store = Store(self.clock, self.bucket)
        self.table = MemoryTable(MemoryDataset(self.contract.rows.table, {TABLE_UUID: "table"}))
        self.source = Source(partitions)
        self._ids = 0
        opened = OpenedTable.over(self.store, self.table, self.contract, AtOnce(), self.clock)
        self.context = IngestContext(*opened.parts, self._new_id)

    def _new_id(self) -> str:
        self._ids += 1
        return f"{self._ids:016x}"

    def worker(
        self,
        seal: SealPolicy | None = None,
        limits: WorkerLimits | None = None,
        memory: MemoryPolicy | None = None,
        observer: Observer | None = None,
    ) -> IngestWorker:
        return IngestWorker(
            self.context, self.source, RefusedDeadLetters(), Preparer(self.contract), OwnerId("me"),
            observer or SilentObserver(), seal, memory, limits or WorkerLimits(linger_s=0.0, idle_position_s=1e9),
        )  # fmt: skip

    def region(self, partition: int = 0) -> Region:
        return self.contract.regions[partition]

    def regions(self, *partitions: int) -> list[Region]:
        return [self.contract.regions[partition] for partition in partitions]

    def records(self, first: int, count: int, partition: int = 0) -> Polled:
        keys = [k for k in range(10_000) if partition_of(encode_region_key(k), self.contract.partitions) == partition]
        chosen = keys[:count]
        records = Records(
            list(range(first, first + count)),
            [0] * count,
            [encode_region_key(k) for k in chosen],
            [json.dumps({"k": k, "a": "x"}).encode() for k in chosen],
            [None] * count,
        )
        region = self.region(partition)
        return Polled({region: records}, {region: Position(first + count)})


def _ready(worker: IngestWorker) -> bool:
    return worker.ready


def test_what_was_consumed_before_retention_took_the_rest_becomes_durable() -> None:
    place = Place()
    worker = place.worker()
    worker.assigned(place.regions(0))
    place.store.silent = "_lancewal/wal/"
    place.source.coming = [Polled({}, {}), place.records(0, 3), place.records(3, 4)]
    for _ in range(3):
        worker.step()
    assert by_number(worker.durable) == {0: 0}  # 0 to 2 are in flight, 3 to 6 wait behind them
    lost = RetentionLost("7 is gone", topic="orders", partition=0)
    place.source.coming = [lost]
    worker.step()
    place.store.silent = None
    for _ in range(5):
        place.clock.sleep(1)
        worker.step()
    assert by_number(worker.stopped) == {0: lost}
    assert by_number(worker.durable) == {0: 7}


def test_a_partition_that_the_store_lets_nobody_open_is_shown_until_it_is_open() -> None:
    place = Place()
    worker = place.worker()
    place.store.silent = "_lancewal/pages/"
    worker.assigned(place.regions(0))
    worker.step()
    assert {p: error.kind for p, error in by_number(worker.refused).items()} == {0: "store_unavailable"}
    worker.revoked(place.regions(0))
    assert by_number(worker.refused) == {}
    worker.assigned(place.regions(0))
    worker.step()
    assert numbers(worker.refused) == [0]
    place.store.silent = None
    place.clock.sleep(1)
    worker.step()
    assert (worker.refused, numbers(worker.durable)) == ({}, [0])


class Takeover(SilentObserver):
    """What is told of taking partitions over."""

    def __init__(self) -> None:
        self.claims: list[str] = []
        self.opened_after: list[float] = []
        self.replays: list[int] = []

    def claimed(self, region: Region, outcome: Claim) -> None:
        self.claims.append(outcome)

    def opened(self, region: Region, record: GenerationRecord, seconds: float) -> None:
        self.opened_after.append(seconds)

    def replayed(self, rows: int, seconds: float) -> None:
        self.replays.append(rows)


def test_what_a_takeover_costs_is_told() -> None:
    place, seen = Place(), Takeover()
    gone = place.worker()
    gone.assigned(place.regions(0))
    place.source.coming = [Polled({}, {}), place.records(0, 3)]
    for _ in range(3):
        gone.step()
    assert by_number(gone.durable) == {0: 3}
    # It hands nothing over; the next owner has to end its log, and to flush from it what only it had in memory.
    worker = place.worker(observer=seen)
    place.source.ends[0] = Offsets(Position(0), Position(7))
    place.store.silent = "_lancewal/pages/"
    worker.assigned(place.regions(0))
    worker.step()
    assert (seen.claims, seen.opened_after, worker.ends_at_opening) == (["failed"], [], {})
    waited = place.clock.now
    place.store.silent = None
    place.clock.sleep(4)
    for _ in range(4):
        worker.step()
    assert seen.claims == ["failed", "won"]
    assert seen.opened_after[0] >= place.clock.now - waited >= 4
    assert by_number(worker.ends_at_opening) == {0: 7}
    assert seen.replays == [3]


def test_a_partition_without_a_leader_costs_no_generations() -> None:
    place = Place()
    worker = place.worker()
    worker.assigned(place.regions(0))
    place.source.ends[0] = KafkaUnavailable("leader not available")
    for _ in range(20):
        worker.step()
        place.clock.sleep(1)
    del place.source.ends[0]
    worker.step()
    state = place.context.states.read([place.region()]).get(place.region())
    assert by_number(worker.durable) == {0: 0}
    assert state is not None
    assert [r.generation for r in state.generations] == [1]


def test_a_partition_that_lost_its_records_is_not_claimed() -> None:
    place = Place()
    worker = place.worker()
    worker.assigned(place.regions(0))
    place.source.coming = [Polled({}, {}), place.records(0, 3)]
    for _ in range(3):
        worker.step()
    worker.revoked(place.regions(0))
    before = place.context.states.read([place.region()]).get(place.region())
    place.source.ends[0] = Offsets(Position(50), Position(60))
    worker.assigned(place.regions(0))
    worker.step()
    assert isinstance(worker.stopped[place.region(0)], RetentionLost)
    # An OPEN generation of a partition that does not run would pin the log, and the next owner would have to fence it.
    after = place.context.states.read([place.region()]).get(place.region())
    assert before is not None
    assert after is not None
    assert [r.generation for r in after.generations] == [r.generation for r in before.generations]
    assert all(r.state is not GenerationState.OPEN for r in after.generations)


def test_a_restored_table_does_not_end_consuming() -> None:
    place = Place()
    place.table.append(place.contract.rows.table.empty_table())
    place.table.restore(1)
    worker = place.worker()
    worker.assigned(place.regions(0))
    place.source.coming = [Polled({}, {}), place.records(0, 3)]
    for _ in range(3):
        worker.step()
    assert by_number(worker.durable) == {0: 3}


def test_a_stop_found_while_leaving_does_not_stay() -> None:
    place = Place()
    worker = place.worker()
    worker.assigned(place.regions(0))
    bad = Polled(by_region({0: Records([0], [0], [b"0"], [b"no json"], [None])}), by_region({0: Position(1)}))
    place.source.coming = [Polled({}, {}), bad]
    worker.step()
    worker.step()  # in flight
    worker.revoked(place.regions(0))
    assert by_number(worker.stopped) == {}
    assert worker.ready


def fenced(place: Place) -> IngestWorker:
    """One whose log another has ended, as the segment behind the fence has told it."""
    worker = place.worker(SealPolicy(rows=1))
    worker.assigned(place.regions(0))
    place.source.coming = [Polled({}, {}), place.records(0, 3)]
    for _ in range(3):
        worker.step()
    state = place.context.states.read([place.region()]).get(place.region())
    assert state is not None
    newest = state.generations[-1]
    end_log(place.store, AtOnce(), place.clock, newest.log, {place.region(): Number(0)}, OTHER)
    place.source.coming = [place.records(3, 3)]
    for _ in range(2):
        worker.step()
    return worker


def test_a_fenced_member_that_is_told_to_end_has_nothing_to_hand_over() -> None:
    place = Place()
    worker = fenced(place)
    assert worker.has_partitions
    assert by_number(worker.durable) == {}
    assert worker.drain(10)


def test_a_fenced_member_without_partitions_goes_on() -> None:
    place = Place()
    worker = fenced(place)
    place.source.member = False
    for _ in range(3):
        place.clock.sleep(1)
        worker.step()
    assert not _ready(worker)  # declared dead, and the partition may still be ours
    worker.lost(place.regions(0))
    for _ in range(3):
        place.clock.sleep(1)
        worker.step()
    assert _ready(worker)
    flushed = place.context.states.read([place.region()]).get(place.region())
    assert flushed is not None
    assert flushed.generations[0].state is GenerationState.FLUSHED


def test_generations_of_a_topic_that_falls_silent_are_flushed_without_a_pause_between_them() -> None:
    partitions = 4
    place = Place(partitions)
    worker = place.worker(SealPolicy(rows=3))
    worker.assigned(place.regions(*range(partitions)))
    of_each = [place.records(0, 3, p) for p in range(partitions)]
    together = Polled(
        {r: records for polled in of_each for r, records in polled.records.items()},
        dict.fromkeys(place.contract.regions, Position(3)),
    )
    place.source.coming = [Polled({}, {}), together]
    poll = place.source.poll

    def wait_for_records(records_max: int, timeout_s: float, gather_s: float = 0.0) -> Polled:
        if not place.source.coming:
            place.clock.sleep(timeout_s)
        return poll(records_max, timeout_s, gather_s)

    place.source.poll = wait_for_records  # type: ignore[method-assign] # a topic that has nothing to give lets time pass
    while by_number(worker.durable) != dict.fromkeys(range(partitions), 3):
        worker.step()
    silent = place.clock.now

    def states() -> list[GenerationState]:
        found = [place.context.states.read([place.region(p)]).get(place.region(p)) for p in range(partitions)]
        return [index.generations[0].state for index in found if index is not None]

    while states() != [GenerationState.FLUSHED] * partitions:
        worker.step()
    assert place.clock.now - silent < 0.1


def test_drain_says_when_a_region_was_not_handed_over() -> None:
    place = Place()
    worker = place.worker()
    worker.assigned(place.regions(0))
    worker.step()
    place.store.silent = "_lancewal/pages/"
    assert not worker.drain(60.0)


def test_a_silent_store_uses_up_the_time_of_a_rebalance_once() -> None:
    place = Place(partitions=50)
    worker = place.worker()
    worker.assigned(place.regions(*range(50)))
    worker.step()
    assert len(worker.durable) == 50
    place.store.silent = "_lancewal/pages/"
    began = place.clock.now
    worker.revoked(place.regions(*range(50)))
    assert by_number(worker.durable) == {}
    assert place.clock.now - began < 60


@pytest.mark.parametrize("silent", ["_lancewal/pages/", "_lancewal/wal/"])
def test_the_loop_turns_while_requests_hang(silent: str) -> None:
    place = Place(partitions=10)
    gone = place.worker()
    gone.assigned(place.regions(*range(10)))
    gone.step()
    worker = place.worker(SealPolicy(rows=1))
    place.source.coming = [Polled({}, {}), *(place.records(0, 1, partition) for partition in range(5))]
    worker.assigned(place.regions(*range(5)))
    for _ in range(7):
        worker.step()
        place.clock.sleep(0.1)
    assert numbers(worker.durable) == list(range(5))
    place.store.silent, place.store.timeout_s = silent, 30.0
    worker.assigned(place.regions(*range(5, 10)))  # to be fenced
    place.source.coming = [place.records(1, 1, partition) for partition in range(5)]
    for _ in range(10):
        began = place.clock.now
        worker.step()
        assert place.clock.now - began < LOOP_LIMIT_S
    place.store.silent = None
    for _ in range(60):
        place.clock.sleep(0.3)
        worker.step()
    assert numbers(worker.durable) == list(range(10))


def test_drain_ends_when_its_time_is_up() -> None:
    place = Place(partitions=30)
    worker = place.worker()
    worker.assigned(place.regions(*range(30)))
    worker.step()
    place.store.silent, place.store.timeout_s = "_lancewal/pages/", 30.0
    began = place.clock.now
    assert not worker.drain(60.0)
    assert place.clock.now - began < 120


def test_a_stale_listing_does_not_end_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place()
    worker = place.worker(SealPolicy(rows=1))
    worker.assigned(place.regions(0))
    place.source.coming = [Polled({}, {}), place.records(0, 3)]
    worker.step()
    worker.step()

    def stale(*_: object) -> object:
        raise StoreInconsistent("the listing leads to an older version")

    with monkeypatch.context() as patched:
        patched.setattr(RegionStates, "swap", stale)
        worker.step()
    worker.step()
    state = place.context.states.read([place.region()]).get(place.region())
    assert state is not None
    assert state.generations[0].state is not GenerationState.OPEN


def test_many_partitions_are_opened_over_several_turns() -> None:
    place = Place(partitions=8)
    worker = place.worker()
    offsets = place.source.offsets

    def slow(region: Region) -> Offsets:
        place.clock.sleep(0.4)
        return offsets(region)

    place.source.offsets = slow  # type: ignore[method-assign]
    worker.assigned(place.regions(*range(8)))
    began = place.clock.now
    worker.step()
    assert place.clock.now - began < 2
    for _ in range(8):
        worker.step()
    assert len(worker.durable) == 8


def test_headers_and_keys_count_as_memory() -> None:
    place = Place()
    used: list[int] = []

    class Watching(SilentObserver):
        def memory(self, used_: int, paused: bool) -> None:
            used.append(used_)

    worker = place.worker()
    worker._observer = Watching()
    worker.assigned(place.regions(0))
    worker.step()
    place.store.silent = "_lancewal/wal/"
    big = Polled(
        by_region({0: Records([0], [0], [b"0"], [b'{"k": 0}'], [[("trace", b"x" * 1_000_000)]])}),
        by_region({0: Position(1)}),
    )
    place.source.coming = [big]
    worker.step()
    assert used[-1] >= 1_000_000


def test_a_failed_commit_of_positions_is_repeated() -> None:
    place = Place()
    worker = place.worker()
    worker.assigned(place.regions(0))
    place.source.coming = [Polled({}, {}), place.records(0, 3)]
    for _ in range(3):
        worker.step()
    place.source.member = False
    place.clock.sleep(10)
    worker.step()
    place.source.member = True
    place.clock.sleep(10)
    worker.step()
    assert place.source.commits[-2:] == [{0: 3}, {0: 3}]


class Endless(Source):
    """Always has as many records as are asked for, unless paused."""

    def __init__(self, place: Place) -> None:
        super().__init__(1)
        self.place = place
        self.next = 0
        self.paused: list[bool] = [False]

    def poll(self, records_max: int, timeout_s: float, gather_s: float = 0.0) -> Polled:
        if self.paused[-1] or 0 not in self.started:
            return Polled({}, {})
        polled = self.place.records(self.next, records_max)
        self.next += records_max
        return polled

    def pause(self, regions: Sequence[Region]) -> None:
        self.paused.append(True)

    def resume(self, regions: Sequence[Region]) -> None:
        self.paused.append(False)


def _rows_of_segments(place: Place) -> list[int]:
    keys = [info.key for info in place.store.list("_lancewal/wal/") if not paths.parse_wal_bundle(info.key)]
    segments = [decode_segment(place.store.get(key) or b"", key) for key in keys]
    return [sum(e.rows.num_rows for e in s.entries) for s in segments if isinstance(s, Segment)]


def test_while_the_store_is_silent_one_segment_is_consumed_ahead() -> None:
    place = Place()
    place.source = source = Endless(place)
    worker = place.worker(limits=WorkerLimits(linger_s=0.0, idle_position_s=1e9, segment_rows=7, poll_records=3))
    worker.assigned(place.regions(0))
    worker.step()
    for _ in range(10):
        worker.step()
    place.store.silent = "_lancewal/wal/"
    for _ in range(20):
        worker.step()
        place.clock.sleep(0.1)
    ahead = source.next
    assert ahead == worker.durable[place.region(0)] + 3 + 7  # in flight, and waiting
    assert source.paused == [False, True]  # the loop goes on polling a paused consumer
    place.store.silent = None
    for _ in range(20):
        worker.step()
        place.clock.sleep(0.6)
    assert source.paused == [False, True, False]
    assert worker.durable[place.region(0)] > ahead
    assert max(_rows_of_segments(place)) == 7


class MemoryObserver(SilentObserver):
    def __init__(self) -> None:
        self.seen: list[tuple[int, bool]] = []

    def memory(self, used: int, paused: bool) -> None:
        self.seen.append((used, paused))


def _memory_while_a_segment_is_full(budget: int) -> list[tuple[int, bool]]:
    place, observer = Place(), MemoryObserver()
    place.source = Endless(place)
    limits = WorkerLimits(linger_s=0.0, idle_position_s=1e9, segment_rows=7, poll_records=3)
    worker = place.worker(limits=limits, memory=MemoryPolicy(budget), observer=observer)
    worker.assigned(place.regions(0))
    worker.step()
    place.store.silent = "_lancewal/wal/"
    for _ in range(10):
        worker.step()
    return observer.seen


def test_a_full_segment_is_no_full_memory() -> None:
    used = max(used for used, _ in _memory_while_a_segment_is_full(1 << 30))
    # Between where consuming goes on again after full memory and where it stops: memory was never full.
    seen = _memory_while_a_segment_is_full(int(used / 0.9))
    assert not any(paused for _, paused in seen)
    assert any(paused for _, paused in _memory_while_a_segment_is_full(used // 2))


def test_the_consumer_is_paused_only_where_the_work_in_flight_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place()
    place.source = source = Endless(place)
    waits: list[float] = []

    class InFlight:
        def __init__(self, call: Callable[[], Any]) -> None:
            self.call = call

        def done(self) -> bool:
            return place.clock.now >= done_at

        def wait(self, timeout_s: float) -> None:
            waits.append(timeout_s)
            place.clock.sleep(timeout_s)

        def result(self) -> Any:
            return self.call()

    worker = place.worker(limits=WorkerLimits(linger_s=0.0, idle_position_s=1e9, segment_rows=2, hold_s=1.0))
    worker.assigned(place.regions(0))
    worker.step()
    monkeypatch.setattr(place.context.tasks, "start", InFlight)
    done_at = place.clock.now + 0.5
    worker.step()  # starts a segment
    for _ in range(7):
        worker.step(0.1)
    assert waits
    assert source.paused == [False]
    done_at = place.clock.now + 1e9
    for _ in range(30):
        worker.step(0.1)
    assert source.paused == [False, True]


def test_a_segment_that_hangs_holds_up_neither_a_rebalance_nor_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(2)

    class Hanging:
        def __init__(self, call: Callable[[], Any]) -> None: ...

        def done(self) -> bool:
            return False

        def wait(self, timeout_s: float) -> None:
            place.clock.sleep(timeout_s)

        def result(self) -> Any:
            raise AssertionError("for ever")

    worker = place.worker(limits=WorkerLimits(linger_s=0.0, idle_position_s=1e9, settle_s=10.0))
    worker.assigned(place.regions(0, 1))
    worker.step()
    monkeypatch.setattr(place.context.tasks, "start", Hanging)
    place.source.coming = [place.records(0, 3)]
    worker.step()  # in flight
    began = place.clock.now
    worker.revoked(place.regions(0))
    assert place.clock.now == began + 10
    assert by_number(worker.durable) == {1: 0}
    newest = place.context.states.read([place.region(0)]).get(place.region(0))
    assert newest is not None
    assert [g.state for g in newest.generations] == [GenerationState.OPEN]  # not handed over: the next owner fences
    assert not worker.drain(5.0)
    assert place.clock.now == began + 15


def test_unflushed_generations_stop_consuming_at_the_budget_until_they_are_flushed() -> None:
    place, observer = Place(), MemoryObserver()
    place.source = source = Endless(place)
    budget = 20_000
    worker = place.worker(
        SealPolicy(rows=20),
        WorkerLimits(linger_s=0.0, idle_position_s=1e9, segment_rows=10, retry_s=5.0),
        MemoryPolicy(budget, memtables_ratio=1.0, unflushed_generations_max=1_000),
        observer,
    )
    worker.assigned(place.regions(0))
    place.store.silent = FLUSHES
    for _ in range(100):
        worker.step()
        place.clock.sleep(0.1)
    stopped_at = source.next
    assert observer.seen[-1][1]
    assert source.paused == [False, True]
    assert budget * 0.8 <= observer.seen[-1][0] < budget * 1.3  # beyond it, what one turn brings
    began, tries = place.clock.now, place.store.refused
    for _ in range(100):
        worker.step()
        place.clock.sleep(0.1)
    assert place.store.refused - tries == pytest.approx((place.clock.now - began) / 5.0, abs=1)
    assert source.next == stopped_at
    place.store.silent = None
    for _ in range(100):
        worker.step()
        place.clock.sleep(0.1)
    assert source.next > stopped_at
    assert source.paused == [False, True, False]
    worker.drain(100.0)
    state = place.context.states.read([place.region()]).get(place.region())
    assert state is not None
    assert {g.state for g in state.generations} == {GenerationState.FLUSHED}
    assert state.generations[-1].next == source.next


def test_a_segment_is_full_by_its_bytes_too() -> None:
    place = Place()
    place.source = source = Endless(place)
    worker = place.worker(limits=WorkerLimits(linger_s=0.0, idle_position_s=1e9, segment_bytes=2_000, poll_records=3))
    worker.assigned(place.regions(0))
    worker.step()
    place.store.silent = "_lancewal/wal/"
    for _ in range(30):
        worker.step()
    assert 3 + 2_000 / 300 < source.next < 3 + 3 + 2_000 / 200


def test_polls_begin_with_one_record_and_ask_for_what_fits_into_the_segment() -> None:
    """By the size of what came before, in steps: the first poll cannot know."""
    place = Place()
    place.source = source = Endless(place)
    worker = place.worker(
        limits=WorkerLimits(linger_s=0.0, idle_position_s=1e9, segment_bytes=2_000, poll_records=1_000)
    )
    worker.assigned(place.regions(0))
    worker.step()  # opens it
    worker.step()
    assert source.next == 1
    place.store.silent = "_lancewal/wal/"
    sent = source.next
    for _ in range(30):
        worker.step()
    assert 2_000 / 300 < source.next - sent < 2 * 2_000 / 200 + 1  # in flight, and waiting


def test_small_budgets_have_small_segments() -> None:
    """One waits, one is in flight and is held twice while it is decoded; there is more in memory than that."""
    for budget in (48 << 20, 384 << 20, 4 << 30):
        limits = WorkerLimits.of(Settings().ingest, MemoryPolicy(nbytes=budget))
        assert 3 * limits.segment_bytes <= budget / 2
        assert limits.segment_bytes >= min(32 << 20, budget // 10)


def test_a_poll_collects_while_no_segment_may_be_sent_and_a_trickle_goes_on_at_once() -> None:
    place = Place()
    worker = place.worker(limits=WorkerLimits(linger_s=0.05, idle_position_s=1e9))
    worker.assigned(place.regions(0))
    worker.step()
    place.source.coming = [place.records(0, 1)]
    worker.step()  # sends a segment
    assert place.source.gathered == [0.005, 0.005]
    for waited_s in (0.0, 0.04, 0.06):
        place.clock.sleep(waited_s)
        worker.step()
    assert place.source.gathered[2:] == pytest.approx([0.02, 0.01, 0.005])


def test_so_many_bytes_start_a_segment_before_it_lingered() -> None:
    place = Place()
    worker = place.worker(limits=WorkerLimits(linger_s=100.0, idle_position_s=1e9, segment_bytes=2_000))
    worker.assigned(place.regions(0))
    place.source.coming = [
        Polled({}, {}),
        place.records(0, 1),
        Polled({}, {}),
        place.records(1, 1),
        place.records(2, 20),
    ]
    for _ in range(4):
        worker.step()
    assert by_number(worker.durable) == {0: 1}
    for _ in range(6):
        worker.step()
    assert 22 - 2_000 / 200 < worker.durable[place.region(0)] < 22  # what is left fills no segment
    place.clock.sleep(100)
    for _ in range(2):
        worker.step()
    assert by_number(worker.durable) == {0: 22}


@pytest.mark.parametrize(
    ("puts", "put_s", "apart_s"), [(3.0, 0.4, 1.0), (3.0, 0.2, 0.6), (3.0, 0.01, 0.1), (0.0, 0.2, 0.2)]
)
def test_segments_are_as_far_apart_as_the_store_is_slow(puts: float, put_s: float, apart_s: float) -> None:
    place = Place()
    worker = place.worker(limits=WorkerLimits(linger_s=0.1, linger_puts=puts, idle_position_s=1e9))
    worker.assigned(place.regions(0))
    worker.step()
    place.store.put_takes_s = put_s
    one, offset, sent = place.records(0, 1).records[region(0)], 0, list[float]()
    while len(sent) < 5:
        records = Records([offset], [0], [one.keys[0]], [one.values[0]], [None])
        offset += 1
        place.source.coming = [Polled(by_region({0: records}), by_region({0: Position(offset)}))]
        before, begun = worker._writer.next_unsent, place.clock.now
        worker.step()
        if worker._writer.next_unsent > before:
            sent.append(begun)
        place.clock.sleep(0.001)
    apart = [later - earlier for earlier, later in pairwise(sent[1:])]
    assert apart == pytest.approx([apart_s] * len(apart), abs=0.01)


class Told(Endless):
    """Remembers what it was told of each partition."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.partitions = place.contract.partitions
        self.told: list[tuple[str, list[int]]] = []

    def start(self, region: Region, position: Position) -> None:
        super().start(region, position)
        self.told.append(("start", [region.partition]))

    def pause(self, regions: Sequence[Region]) -> None:
        super().pause(regions)
        self.told.append(("pause", numbers(regions)))

    def resume(self, regions: Sequence[Region]) -> None:
        super().resume(regions)
        self.told.append(("resume", numbers(regions)))


class Full(MemoryPolicy):
    """Memory is full as long as ``full`` says so."""

    full = False

    def paused(self, used: int, unflushed: int, was_paused: bool) -> bool:
        return Full.full


def test_while_paused_a_new_partition_starts_paused_and_a_stopped_one_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(3)
    place.source = source = Told(place)
    worker = place.worker(memory=Full())
    worker.assigned(place.regions(0, 1))
    worker.step()
    worker._partitions.stop(place.region(1), RetentionLost("gone", topic="orders", partition=1))
    monkeypatch.setattr(Full, "full", True)
    source.told.clear()
    for _ in range(3):
        worker.step()
        place.clock.sleep(2)
    worker.assigned(place.regions(2))
    worker.step()
    assert source.told == [("pause", [0]), ("start", [2]), ("pause", [2])]
    monkeypatch.setattr(Full, "full", False)
    source.told.clear()
    worker.step()
    assert source.told == [("resume", [0, 2])]


def test_a_stopped_partition_that_another_owner_claims_is_not_opened_again() -> None:
    place = Place(2)
    worker = place.worker()
    worker.assigned(place.regions(0, 1))
    worker.step()
    partitions = worker._partitions
    partitions.stop(place.region(1), RetentionLost("gone", topic="orders", partition=1))
    for partition in (0, 1):
        partitions.drop(place.region(partition), OwnershipLost("claimed"))
    assert numbers(partitions.to_open) == [0]
    place.clock.sleep(60)
    for _ in range(3):
        worker.step()
    assert numbers(partitions.open) == [0]
    assert numbers(worker.stopped) == [1]


def test_a_held_worker_makes_durable_what_it_has_and_consumes_nothing_more() -> None:
    place = Place(partitions=2)
    worker = place.worker()
    worker.assigned(place.regions(0))
    place.source.coming = [Polled({}, {}), place.records(0, 3)]
    worker.step()
    worker.step()
    worker.hold(True)
    for _ in range(3):
        worker.step()
    assert by_number(worker.durable) == {0: 3}
    assert place.source.held == {0}
    assert worker.ready
    worker.assigned(place.regions(1))  # still a member: what it gets it opens, and leaves where it is
    polls = place.source.polls
    worker.step()
    worker.step()
    assert by_number(worker.durable) == {0: 3, 1: 0}
    assert place.source.held == {0, 1}
    assert place.source.polls > polls
    worker.hold(False)
    place.source.coming = [place.records(3, 2)]
    for _ in range(3):
        worker.step()
    assert place.source.held == set()
    assert by_number(worker.durable) == {0: 5, 1: 0}


def test_a_worker_that_is_held_while_its_store_is_silent_waits_for_nothing() -> None:
    place = Place()
    worker = place.worker()
    worker.assigned(place.regions(0))
    place.source.coming = [Polled({}, {}), place.records(0, 3), place.records(3, 4)]
    place.store.silent = "_lancewal/wal/"
    for _ in range(3):
        worker.step()
    worker.hold(True)
    worker.step()
    assert place.source.held == {0}
    worker.hold(False)
    worker.step()
    worker.hold(True)
    place.store.silent = None
    for _ in range(5):
        place.clock.sleep(1)
        worker.step()
    assert by_number(worker.durable) == {0: 7}


class Refusing:
    """Dead letters of which some offsets are never taken."""

    def __init__(self, *offsets: int) -> None:
        self.offsets = offsets
        self.sent: list[int] = []

    def send(self, region: Region, records: Records, rejected: Sequence[Rejected]) -> None:
        for letter in rejected:
            assert records.values[records.offsets.index(letter.offset)] == b"{"
            if letter.offset in self.offsets:
                raise DeadLetterRefused("never", topic="orders", partition=region.partition, offset=letter.offset)
            self.sent.append(letter.offset)


def test_a_dead_letter_that_is_never_taken_stops_its_partition_right_before_it() -> None:
    place = Place(partitions=2)
    worker = place.worker()
    letters = Refusing(5)
    worker.terms = Terms(Preparer(lenient(place.contract)), letters)
    worker.assigned(place.regions(0, 1))
    bad = place.records(0, 9)
    for offset in (2, 5, 7):
        bad.records[region(0)].values[offset] = b"{"
    good = place.records(0, 4, 1)
    place.source.coming = [Polled({}, {}), Polled({**bad.records, **good.records}, {**bad.next, **good.next})]
    for _ in range(4):
        worker.step()
    assert by_number(worker.durable) == {0: 5, 1: 4}
    assert {p: error.kind for p, error in by_number(worker.stopped).items()} == {0: "dead_letter_refused"}
    assert letters.sent == [2]
    assert worker._partitions.open[place.region(0)].memtable.rows == 4
    assert place.source.stopped == [0]
    place.source.coming = [place.records(4, 3, 1)]
    for _ in range(3):
        worker.step()
    assert by_number(worker.durable) == {0: 5, 1: 7}


def test_a_dead_letter_that_is_never_taken_as_the_first_of_all() -> None:
    place = Place()
    worker = place.worker()
    worker.terms = Terms(Preparer(lenient(place.contract)), Refusing(0))
    worker.assigned(place.regions(0))
    bad = place.records(0, 3)
    bad.records[region(0)].values[0] = b"{"
    place.source.coming = [Polled({}, {}), bad]
    for _ in range(4):
        worker.step()
    assert by_number(worker.durable) == {0: 0}
    assert numbers(worker.stopped) == [0]


class Kept:
    """A topic of dead letters that takes all."""

    def __init__(self) -> None:
        self.sent: list[int] = []

    def send(self, region: Region, records: Records, rejected: Sequence[Rejected]) -> None:
        self.sent += [letter.offset for letter in rejected]


@pytest.mark.parametrize("policy", ["dead-letter", "ignore"])
@pytest.mark.parametrize("dropped", [False, True], ids=["open", "claimed by another"])
def test_a_partition_that_a_record_has_stopped_goes_on_by_another_policy(policy: str, dropped: bool) -> None:
    """From the record that stopped it; whatever stopped otherwise stays where it is."""
    place = Place(partitions=2)
    worker = place.worker()
    worker.assigned(place.regions(0, 1))
    bad = place.records(0, 4)
    bad.records[region(0)].values[2] = b"{"
    place.source.coming = [Polled({}, {}), bad]
    for _ in range(4):
        worker.step()
    worker._partitions.stop(place.region(1), RetentionLost("gone", topic="orders", partition=1))
    assert (worker.durable[place.region(0)], numbers(worker.stopped)) == (2, [0, 1])
    if dropped:
        worker._partitions.drop(place.region(0), OwnershipLost("claimed"))
    place.source.started.clear()
    altered = place.contract.model_copy(update={"version": 2, "on_bad_record": policy})
    letters = Kept()
    worker.take_up(Preparer(altered), letters)
    worker.step()
    assert numbers(worker.stopped) == [1]
    assert place.source.started == {0: 2}
    place.source.coming = [Polled(by_region({0: bad.records[region(0)].part(2, None)}), by_region({0: Position(4)}))]
    for _ in range(3):
        worker.step()
    assert worker.durable[place.region(0)] == 4
    assert letters.sent == ([2] if policy == "dead-letter" else [])


@pytest.mark.parametrize("terms", [{"on_bad_record": "ignore"}, {"dead_letter_topic": "larger"}])
def test_a_refused_dead_letter_is_tried_again_by_another_policy_or_topic(terms: dict[str, str]) -> None:
    place = Place()
    worker = place.worker()
    contract = lenient(place.contract)
    worker.terms = Terms(Preparer(contract), Refusing(2))
    worker.assigned(place.regions(0))
    bad = place.records(0, 4)
    bad.records[region(0)].values[2] = b"{"
    place.source.coming = [Polled({}, {}), bad]
    for _ in range(4):
        worker.step()
    assert {p: error.kind for p, error in by_number(worker.stopped).items()} == {0: "dead_letter_refused"}
    worker.take_up(Preparer(contract.model_copy(update={"version": 2, **terms})), Kept())
    worker.step()
    assert by_number(worker.stopped) == {}
    place.source.coming = [Polled(by_region({0: bad.records[region(0)].part(2, None)}), by_region({0: Position(4)}))]
    for _ in range(3):
        worker.step()
    assert by_number(worker.durable) == {0: 4}


def test_a_record_in_flight_hides_no_stop_that_came_before_it() -> None:
    """What only a running consumer can tell stays, whatever policy lets the record pass."""
    place = Place()
    worker = place.worker()
    worker.assigned(place.regions(0))
    place.store.silent = "_lancewal/wal/"
    bad = place.records(0, 4)
    bad.records[region(0)].values[2] = b"{"
    place.source.coming = [Polled({}, {}), bad]
    for _ in range(2):
        worker.step()
    truncated = TopicTruncated("it has grown again", topic="orders", partition=0)
    place.source.coming = [truncated]
    worker.step()
    place.store.silent = None
    for _ in range(5):
        place.clock.sleep(1)
        worker.step()
    assert by_number(worker.durable) == {0: 2}
    worker.take_up(Preparer(place.contract.model_copy(update={"version": 2, "on_bad_record": "ignore"})), Kept())
    worker.step()
    assert by_number(worker.stopped) == {0: truncated}


def test_what_a_stopped_partition_held_is_flushed_from_the_log_where_it_goes_on() -> None:
    place = Place()
    worker = place.worker()
    worker.assigned(place.regions(0))
    bad = place.records(0, 4)
    bad.records[region(0)].values[2] = b"{"
    place.source.coming = [Polled({}, {}), bad]
    for _ in range(4):
        worker.step()
    worker.take_up(Preparer(place.contract.model_copy(update={"version": 2, "on_bad_record": "ignore"})), Kept())
    for _ in range(3):
        worker.step()
    state = place.context.states.read([place.region()]).get(place.region())
    assert state is not None
    assert [(g.state, g.next) for g in state.generations] == [
        (GenerationState.FLUSHED, 2),
        (GenerationState.OPEN, None),
    ]
    assert worker.memtables[region(0)].rows == 0
