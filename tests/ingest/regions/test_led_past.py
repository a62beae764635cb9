"""Stopped partitions go on once a person has led them past what stopped them, and only then."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from lancewal_core.errors import LancewalError, OwnershipLost, RetentionLost
from lancewal_core.names.ids import OwnerId, Position, Region
from lancewal_core.region.state import RegionState
from lancewal_core.region.states import RegionStates
from lancewal_core.wal.entry import Entry
from lancewal_ingest.commands.operator.entry import no_rows, write_entry
from lancewal_ingest.kafka.source import Offsets, Polled
from lancewal_ingest.regions.open import open_region
from lancewal_ingest.service.worker import IngestWorker
from tests.ingest.service.test_worker import Place
from tests.support.regions import by_number, numbers

WITHIN_S = 30


def stopped(place: Place) -> IngestWorker:
    """A worker of two partitions; the first has stopped at position 2."""
    worker = place.worker()
    worker.assigned(place.regions(0, 1))
    bad = place.records(0, 4)
    bad.records[place.region(0)].values[2] = b"{"
    place.source.coming = [Polled({}, {}), bad]
    turns(place, worker)
    assert by_number(worker.stopped).keys() == {0}
    assert by_number(worker.durable) == {0: 2, 1: 0}
    return worker


def turns(place: Place, worker: IngestWorker, seconds: int = WITHIN_S) -> None:
    for _ in range(seconds):
        worker.step()
        place.clock.sleep(1)


def decides(place: Place, region: Region, next_: int | None) -> None:
    """Another process takes the region over, writes an entry up to ``next_``, if at all, and hands it over."""

    class Undecided(Exception): ...

    def entry(at: Position) -> Entry:
        if next_ is None:
            raise Undecided
        return Entry(region, at, Position(next_), 1, no_rows(place.contract.rows.wal), ())

    try:
        write_entry(place.context, OwnerId("person"), region, lambda: Offsets(Position(0), Position(99)), entry)
    except Undecided:
        assert next_ is None


def test_it_goes_on_where_a_person_has_led_it() -> None:
    place = Place(partitions=2)
    worker = stopped(place)
    decides(place, place.region(0), 3)
    turns(place, worker)
    assert (by_number(worker.stopped), worker.ready) == ({}, True)
    assert place.source.started[0] == 3


def test_it_goes_on_where_its_log_was_found_ended_meanwhile() -> None:
    place = Place(partitions=2)
    worker = stopped(place)
    decides(place, place.region(0), 3)
    place.source.coming = [place.records(0, 3, partition=1)]
    turns(place, worker)
    assert by_number(worker.stopped) == {}
    place.source.coming = [place.records(0, 3, partition=1)]
    turns(place, worker)
    assert by_number(worker.durable) == {0: 3, 1: 3}


def test_it_stays_stopped_while_nobody_has_moved_it() -> None:
    """Neither by another process that has it open, nor by one that hands it over where it was."""
    place = Place(partitions=2)
    worker = stopped(place)
    turns(place, worker)
    decides(place, place.region(0), None)
    turns(place, worker)
    assert numbers(worker.stopped) == [0]
    worker._partitions.drop(place.region(0), OwnershipLost("claimed"))
    other = place.worker()
    open_region(place.context, other._writer, place.region(0), lambda: Offsets(Position(0), Position(99)))
    turns(place, worker)
    assert numbers(worker.stopped) == [0]


def test_what_could_not_be_opened_goes_on_too() -> None:
    place = Place(partitions=1)
    first = place.worker()
    first.assigned(place.regions(0))
    place.source.coming = [Polled({}, {}), place.records(0, 3)]
    turns(place, first)
    place.source.ends[0] = Offsets(Position(7), Position(99))
    worker = place.worker()
    worker.assigned(place.regions(0))
    turns(place, worker)
    assert isinstance(worker.stopped[place.region(0)], RetentionLost)
    decides_lost(place)
    turns(place, worker)
    assert (by_number(worker.stopped), by_number(worker.durable)) == ({}, {0: 7})


def decides_lost(place: Place) -> None:
    place.source.ends[0] = Offsets(Position(0), Position(99))
    decides(place, place.region(0), 7)
    place.source.ends[0] = Offsets(Position(7), Position(99))


def test_the_store_is_asked_only_while_one_is_stopped_and_not_at_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(partitions=2)
    worker = place.worker()
    worker.assigned(place.regions(0, 1))
    turns(place, worker)
    reads, read = list[int](), RegionStates.read_each

    def counting(states: RegionStates, regions: Collection[Region]) -> dict[Region, RegionState | LancewalError | None]:
        reads.append(1)
        return read(states, regions)

    monkeypatch.setattr(RegionStates, "read_each", counting)
    turns(place, worker)
    assert reads == []
    worker._partitions.stop(place.region(0), RetentionLost("gone", topic="orders", partition=0))
    turns(place, worker, 60)
    assert 3 <= len(reads) <= 7
