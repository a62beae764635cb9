"""The tail of a log, looked at again and again: what it says is reached, and what a look costs."""

from __future__ import annotations

import pytest

from lancewal_core.names import paths
from lancewal_core.names.ids import LogId, OwnerId, Position, Region, Sequence
from lancewal_core.wal.segment import Fence, encode_fence
from lancewal_core.wal.tail import LogTail
from lancewal_core.wal.writer import Durable, LogWriter
from tests.core.wal.test_log import LOG, NORTH, SCHEMA, SOUTH, entry
from tests.support.scripted import ManualClock
from tests.twins.memory_store import MemoryStore


class Counting(MemoryStore):
    """Tells which segments were read, whole or in part."""

    def __init__(self) -> None:
        super().__init__(ManualClock())
        self.read: list[int] = []

    def get_range(self, key: str, start: int, end: int) -> bytes | None:
        found = paths.parse_wal_segment(key)
        assert found is not None
        self.read.append(found[1])
        return super().get_range(key, start, end)


class Written:
    """A log, written as ingest does."""

    def __init__(self, log: LogId = LOG) -> None:
        self.log = log
        self.store = Counting()
        self._writer = LogWriter(self.store, ManualClock(), log, OwnerId("ours"), SCHEMA.wal)
        self._at: dict[Region, int] = {}

    def put(self, *regions: Region, count: int = 1) -> None:
        entries = []
        for region in regions:
            entries.append(entry(region, self._at.get(region, 0), count))
            self._at[region] = self._at.get(region, 0) + count
        assert isinstance(self._writer.put(entries), Durable)

    def look(self, tail: LogTail, *wanted: Region) -> tuple[dict[Region, Position], list[int]]:
        """What is reached, and which segments the look has read."""
        self.store.read = []
        tail.look(dict.fromkeys(wanted, Sequence(0)))
        return dict(tail.reached), self.store.read


def test_a_look_reads_the_newest_segments_until_it_has_met_every_region() -> None:
    log = Written()
    tail = LogTail(log.store, LOG, Sequence(0))
    assert log.look(tail, NORTH) == ({}, [])
    for _ in range(5):
        log.put(NORTH)
    log.put(SOUTH, count=7)
    log.put(NORTH, count=3)
    assert log.look(tail, NORTH, SOUTH) == ({NORTH: 8, SOUTH: 7}, [6, 5])
    # Nothing new: nothing is read.
    assert log.look(tail, NORTH, SOUTH) == ({NORTH: 8, SOUTH: 7}, [])
    log.put(NORTH)
    log.put(NORTH)
    # One that nobody asked for may lie behind; what came since it was asked for is gone through where it is not met.
    assert log.look(tail, NORTH) == ({NORTH: 10, SOUTH: 7}, [8])
    log.put(NORTH)
    assert log.look(tail, NORTH, SOUTH) == ({NORTH: 11, SOUTH: 7}, [9, 8, 7])
    assert log.look(tail, NORTH, SOUTH) == ({NORTH: 11, SOUTH: 7}, [])


def test_what_a_look_for_others_has_left_out_is_met_by_the_next_one() -> None:
    log = Written()
    tail = LogTail(log.store, LOG, Sequence(0))
    log.put(NORTH, SOUTH)
    assert log.look(tail, NORTH, SOUTH) == ({NORTH: 1, SOUTH: 1}, [0])
    log.put(SOUTH)
    log.put(NORTH)
    assert log.look(tail, NORTH) == ({NORTH: 2, SOUTH: 1}, [2])
    assert log.look(tail, SOUTH) == ({NORTH: 2, SOUTH: 2}, [2, 1])


@pytest.mark.parametrize("hidden", [[2], [3], [2, 3]])
def test_a_segment_that_a_listing_leaves_out_below_another_is_asked_for_by_its_number(hidden: list[int]) -> None:
    """It was there before the one that the listing shows; and what is lost is passed over."""
    log = Written()
    tail = LogTail(log.store, LOG, Sequence(0))
    log.put(NORTH)
    log.put(SOUTH)
    assert log.look(tail, NORTH, SOUTH) == ({NORTH: 1, SOUTH: 1}, [1, 0])
    log.put(SOUTH)
    log.put(NORTH)
    log.put(NORTH)
    keys = [paths.wal_segment(LOG, Sequence(number)) for number in hidden]
    listed = log.store.list
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log.store, "list", lambda *of, **named: [i for i in listed(*of, **named) if i.key not in keys])
        tail.look(dict.fromkeys([NORTH, SOUTH], Sequence(0)))
    assert tail.reached == {NORTH: 3, SOUTH: 2}
    log.put(SOUTH)
    log.put(NORTH)
    log.store.delete([paths.wal_segment(LOG, Sequence(5))])
    tail.look(dict.fromkeys([NORTH, SOUTH], Sequence(0)))
    assert tail.reached == {NORTH: 4, SOUTH: 2}


def test_of_a_generation_nothing_is_read_that_lies_before_it() -> None:
    """Its region was followed here long ago, and came back: what lies between is of others, and perhaps trimmed."""
    log = Written()
    tail = LogTail(log.store, LOG, Sequence(0))
    log.put(NORTH, SOUTH)
    assert log.look(tail, NORTH, SOUTH) == ({NORTH: 1, SOUTH: 1}, [0])
    for _ in range(5):
        log.put(NORTH)
    assert log.look(tail, NORTH) == ({NORTH: 6, SOUTH: 1}, [5])
    log.store.read = []
    tail.look({NORTH: Sequence(0), SOUTH: Sequence(4)})
    assert log.store.read == [5, 4]


def test_it_begins_where_it_is_told_to() -> None:
    log = Written()
    log.put(NORTH)
    log.put(SOUTH)
    assert log.look(LogTail(log.store, LOG, Sequence(1)), NORTH, SOUTH) == ({SOUTH: 1}, [1])


def test_a_fence_and_what_was_trimmed_are_passed_over() -> None:
    log = Written()
    log.put(NORTH)
    log.put(NORTH)
    log.store.put_if_absent(paths.wal_segment(LOG, Sequence(2)), encode_fence(Fence(LOG, Sequence(2), "theirs", 5)))

    class Trimmed(Counting):
        def get_range(self, key: str, start: int, end: int) -> bytes | None:
            return None if key == paths.wal_segment(LOG, Sequence(1)) else super().get_range(key, start, end)

    assert log.look(LogTail(log.store, LOG, Sequence(0)), NORTH) == ({NORTH: 2}, [2, 1])
    trimmed = Trimmed()
    trimmed.bucket = log.store.bucket
    tail = LogTail(trimmed, LOG, Sequence(0))
    tail.look({NORTH: Sequence(0)})
    assert tail.reached == {NORTH: 1}


def test_a_trailer_that_is_longer_than_most_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lancewal_core.wal.tail.TRAILER_HINT", 200)
    log = Written()
    regions = [Region("orders", NORTH.topic_id, partition) for partition in range(10)]
    log.put(*regions)
    tail = LogTail(log.store, LOG, Sequence(0))
    reached, read = log.look(tail, *regions)
    assert reached == dict.fromkeys(regions, 1)
    assert read == [0, 0]
