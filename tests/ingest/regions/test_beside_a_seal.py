"""A region's log goes on while the seal of its generation has no verdict."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from lancewal_core.errors import LancewalError, StoreUnavailable
from lancewal_core.names import paths
from lancewal_core.names.ids import Position, Region
from lancewal_core.names.ids import Sequence as Number
from lancewal_core.region.state import GenerationRecord, GenerationState
from lancewal_core.region.states import Decide, RegionStates, Swap
from lancewal_core.wal.log_end import end_log
from lancewal_core.wal.segment import Segment, decode_segment
from lancewal_ingest.kafka.source import Polled
from lancewal_ingest.regions import intake as intake_module
from lancewal_ingest.regions.flush_queue import FlushQueue
from lancewal_ingest.regions.memtable import MemTable
from lancewal_ingest.regions.policy import SealPolicy
from lancewal_ingest.service.worker import IngestWorker
from tests.ingest.service.test_worker import OTHER, AtOnce, Place
from tests.support.regions import by_number, region

PAGES = "_lancewal/pages/"


def sealing(place: Place) -> IngestWorker:
    """A worker with three durable rows, that would seal them, in a store that takes no page."""
    worker = place.worker(SealPolicy(rows=3, age_s=1e9, log_distance=10**9))
    worker.assigned(place.regions(0))
    place.source.coming = [Polled({}, {}), place.records(0, 3)]
    for _ in range(2):
        worker.step()
    place.store.silent = PAGES
    worker.step()
    assert by_number(worker.durable) == {0: 3}
    assert [(r.state, r.generation) for r in generations(place)] == [(GenerationState.OPEN, 1)]
    return worker


def go_on(place: Place, worker: IngestWorker, first: int, times: int) -> None:
    for n in range(times):
        place.clock.sleep(1)
        place.source.coming = [place.records(first + n, 1)]
        for _ in range(2):
            worker.step()


def generations(place: Place) -> tuple[GenerationRecord, ...]:
    return place.context.states.read([place.region()])[place.region()].generations


def test_appends_go_on_and_what_was_put_aside_is_what_is_sealed() -> None:
    place = Place()
    at_ms = place.clock.now_ms()  # it stands still until the store does not answer
    worker = sealing(place)
    go_on(place, worker, 3, 2)
    assert by_number(worker.durable) == {0: 5}
    assert [r.state for r in generations(place)] == [GenerationState.OPEN]
    place.store.silent = None
    place.clock.sleep(1)
    worker.step()
    first, second = generations(place)
    assert (first.first, first.next, first.end_sequence, first.sealed_at_ms) == (0, 3, 1, at_ms)
    assert (second.first, second.first_sequence, second.state) == (3, 1, GenerationState.OPEN)
    assert worker.memtables[region(0)].generation == 2
    assert (worker.memtables[region(0)].first, worker.memtables[region(0)].entries) == (3, 2)
    (log,) = {paths.parse_wal_segment(info.key)[0] for info in place.bucket.listing(paths.WAL)}  # type: ignore[index]
    written = []
    for number in range(3):
        key = paths.wal_segment(log, number)  # type: ignore[arg-type]
        segment = decode_segment(place.bucket.get(key) or b"", key)
        assert isinstance(segment, Segment)
        written.append(segment.written_at_ms)
    assert written[0] <= at_ms <= written[1]  # who reads at a time goes by it


def test_a_seal_that_landed_though_nobody_said_so_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place()
    worker = sealing(place)
    place.store.silent = None
    swap_each = RegionStates.swap_each

    def landed(self: RegionStates, decisions: Mapping[Region, Decide]) -> dict[Region, Swap | LancewalError]:
        swap_each(self, decisions)
        return {region: StoreUnavailable("no answer") for region in decisions}

    with monkeypatch.context() as patch:
        patch.setattr(RegionStates, "swap_each", landed)
        go_on(place, worker, 3, 1)
    assert [r.state for r in generations(place)] == [GenerationState.SEALED, GenerationState.OPEN]
    assert worker._sealing.busy
    go_on(place, worker, 4, 1)
    assert (by_number(worker.durable), worker._sealing.busy) == ({0: 5}, False)
    assert [r.state for r in generations(place)] == [GenerationState.FLUSHED, GenerationState.OPEN]


def test_what_the_index_has_as_one_generation_does_not_outgrow_one(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place()
    worker = sealing(place)
    aside = worker._sealing.nbytes
    assert 0 < aside <= worker._intake.nbytes
    go_on(place, worker, 3, 1)
    open_ = worker._partitions.open[place.region(0)]
    assert open_.unsealed_bytes == aside + worker.memtables[region(0)].nbytes > aside
    monkeypatch.setattr(intake_module, "GENERATION_BYTES_MAX", aside + 1)
    worker.step()
    assert place.source.held == set()  # it waits at first, and then pauses
    go_on(place, worker, 4, 2)
    assert place.source.held == {0}
    place.store.silent = None
    place.clock.sleep(1)
    for _ in range(3):
        worker.step()
    assert place.source.held == set()


def test_nothing_is_handed_over_before_the_seal_has_a_verdict() -> None:
    place = Place()
    worker = sealing(place)
    go_on(place, worker, 3, 1)
    worker.revoked(place.regions(0))
    assert by_number(worker.durable) == {}
    assert [r.state for r in generations(place)] == [GenerationState.OPEN]
    place.store.silent = None
    heir = place.worker()
    heir.assigned(place.regions(0))
    heir.step()
    assert by_number(heir.durable) == {0: 4}
    assert generations(place)[0].next == 4


def test_what_was_put_aside_is_not_flushed_as_what_a_later_opening_has_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place()
    worker = sealing(place)
    go_on(place, worker, 3, 1)
    place.store.silent = None
    (open_,) = generations(place)
    end_log(place.store, AtOnce(), place.clock, open_.log, {place.region(): Number(0)}, OTHER)
    place.source.coming = [place.records(4, 1), Polled({}, {}), Polled({}, {})]
    for _ in range(3):
        worker.step()
    # Opened anew, before it was time to try that seal again: the rows behind it are in the same generation now.
    assert [(r.first, r.next) for r in generations(place)] == [(0, 4), (4, None)]
    flushed: list[tuple[int, Position | None, Position]] = []
    add = FlushQueue.add

    def seen(self: FlushQueue, memtable: MemTable, record: GenerationRecord) -> None:
        flushed.append((record.generation, record.next, memtable.position))
        add(self, memtable, record)

    monkeypatch.setattr(FlushQueue, "add", seen)
    place.source.coming = [place.records(4, 3)]
    for _ in range(2):
        worker.step()
    place.clock.sleep(1)
    worker.step()
    assert flushed == [(2, 7, 7)]
    assert not worker._sealing.busy
