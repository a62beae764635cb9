"""Bundles are written beside the loop: of what the store has confirmed, bounded, and never waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa
import pytest

from lancewal_core.names import paths
from lancewal_core.names.ids import LogId, OwnerId, Position, Region, Sequence, TopicId
from lancewal_core.process.tasks import Task
from lancewal_core.rows.schema import RowSchema
from lancewal_core.wal.bundle import Bundle, decode_bundle
from lancewal_core.wal.entry import Entry
from lancewal_core.wal.segment import decode_segment
from lancewal_core.wal.writer import Durable, LogWriter
from lancewal_ingest.append import bundling
from lancewal_ingest.append.bundling import LEAST, Bundling
from tests.support.scripted import InlineTasks, ManualClock, ScriptedStore
from tests.twins.faults import PutFault

SCHEMA = RowSchema(pa.schema([("k", pa.int64()), ("v", pa.string())]), ("k",), ("k",))
REGION = Region("orders", TopicId("topic-id-1"), 0)
T = TypeVar("T")


class _Later:
    """A call that is made when the test says so."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self.over = False

    def run(self) -> None:
        self._call()
        self.over = True

    def done(self) -> bool:
        return self.over

    def wait(self, timeout_s: float) -> None: ...

    def result(self) -> None:
        assert self.over


class LaterTasks(InlineTasks):
    def __init__(self) -> None:
        self.started: list[_Later] = []

    def start(self, call: Callable[[], T]) -> Task[T]:
        later = _Later(call)
        self.started.append(later)
        return later  # type: ignore[return-value]  # of calls that return nothing


class Place:
    def __init__(self, segments: int = 10) -> None:
        self.clock = ManualClock()
        self.store = ScriptedStore(self.clock)
        self.tasks = LaterTasks()
        self.bundling = Bundling(self.store, self.tasks, segments)
        self.writer = self.log("log-a")
        self.offset = 0

    def log(self, name: str) -> LogWriter:
        return LogWriter(self.store, self.clock, LogId(name), OwnerId("ours"), SCHEMA.wal)

    def append(self, count: int = 1, value: str = "v") -> None:
        for _ in range(count):
            self.clock.seconds += 1
            rows = [{"k": self.offset, "v": value, "_offset": self.offset, "_timestamp": 0, "_op": 0}]
            batch = pa.RecordBatch.from_pylist(rows, schema=self.writer.schema)
            entries = (Entry(REGION, Position(self.offset), Position(self.offset + 1), 1, batch, ()),)
            self.offset += 1
            result = self.writer.put(entries)
            while not isinstance(result, Durable):
                result = self.writer.put_again()
            self.bundling.add(self.writer, result, entries)
            self.bundling.advance()

    def write(self) -> None:
        """What is on its way lands, and what waits."""
        while self.tasks.started:
            self.tasks.started.pop(0).run()
            self.bundling.advance()

    def bundles(self) -> list[tuple[int, int]]:
        found = [paths.parse_wal_bundle(info.key) for info in self.store.bucket.listing(paths.WAL)]
        return [(bundle[1], bundle[2]) for bundle in found if bundle is not None]


def test_a_bundle_copies_what_lies_in_the_log() -> None:
    place = Place()
    place.append(25)
    place.write()
    assert place.bundles() == [(0, 9), (10, 19)]
    listed = {info.key: info for info in place.store.list(paths.WAL)}
    for first, last in place.bundles():
        key = paths.wal_bundle(place.writer.log, Sequence(first), Sequence(last))
        bundle = decode_bundle(place.store.bucket.get(key) or b"", key)
        assert isinstance(bundle, Bundle)
        for number, copy in enumerate(bundle.copies, first):
            segment = paths.wal_segment(place.writer.log, Sequence(number))
            assert copy.segment == decode_segment(place.store.bucket.get(segment) or b"", segment)
            assert copy.is_of(listed[segment])


def test_a_bundle_ends_where_columns_change() -> None:
    place = Place()
    place.append(9)
    place.writer.schema = pa.schema([*list(SCHEMA.wal)[:2], ("new", pa.string()), *list(SCHEMA.wal)[2:]])
    place.append(12)
    place.write()
    assert place.bundles() == [(0, 8), (9, 18)]


def test_no_append_waits_and_what_is_held_is_bounded() -> None:
    """Nothing comes of the first bundle; the second waits behind it, and those that come full meanwhile are dropped."""
    place = Place()
    place.append(10)
    one = place.bundling.nbytes
    place.append(200)
    assert len(place.tasks.started) == 1
    assert place.bundling.nbytes < 3.5 * one
    assert place.bundles() == []
    place.write()
    assert place.bundles() == [(0, 9), (10, 19)]
    place.append(10)
    place.write()
    assert place.bundles() == [(0, 9), (10, 19), (210, 219)]
    assert place.bundling.nbytes == 0


@pytest.mark.parametrize("fault", [PutFault.NEVER_ARRIVED, PutFault.REFUSED])
def test_a_bundle_that_is_not_taken_is_dropped(fault: PutFault) -> None:
    place = Place()
    place.append(10)
    place.store.faults.puts.append(fault)
    place.write()
    assert place.bundles() == []
    place.append(10)
    place.write()
    assert place.bundles() == [(10, 19)]


def test_a_store_that_does_not_answer_ends_nothing() -> None:
    place = Place()
    place.append(10)
    place.store.fail("put", ".bundle-")
    place.write()
    place.append(10)
    place.write()
    assert place.bundles() == [(10, 19)]


def test_a_segment_whose_reply_was_lost_is_in_no_bundle() -> None:
    """That it is there was told by its bytes; which object that is, nobody has said."""
    place = Place()
    place.append(LEAST + 1)
    place.store.faults.puts.append(PutFault.REPLY_LOST)
    place.append(1)
    place.append(10)
    place.write()
    assert place.bundles() == [(0, LEAST), (LEAST + 2, LEAST + 11)]


def test_a_large_segment_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place()
    place.append(LEAST - 1)
    monkeypatch.setattr(bundling, "SMALL_BYTES", 10)
    place.append(1)
    monkeypatch.undo()
    place.append(10)
    place.write()
    assert place.bundles() == [(LEAST, LEAST + 9)]  # a run of fewer than LEAST is worth no bundle


def test_many_rows_make_a_full_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundling, "ROWS_BYTES_MAX", 5_000)
    place = Place(100)
    place.append(20, "v" * 500)
    place.write()
    (first, *_) = place.bundles()
    assert first[0] == 0
    assert LEAST <= first[1] + 1 <= 10


def test_a_bundle_is_of_one_log() -> None:
    place = Place()
    place.append(LEAST)
    place.writer = place.log("log-b")
    place.append(10)
    place.write()
    found = [paths.parse_wal_bundle(info.key) for info in place.store.bucket.listing(paths.WAL)]
    assert [bundle for bundle in found if bundle is not None] == [("log-a", 0, LEAST - 1), ("log-b", 0, 9)]


def test_what_is_not_on_its_way_is_let_go() -> None:
    place = Place()
    place.append(25)
    place.bundling.drop()
    place.append(10)
    place.write()
    assert place.bundles() == [(0, 9), (25, 34)]


def test_none_are_written_where_they_are_switched_off() -> None:
    place = Place(0)
    place.append(100)
    assert (place.tasks.started, place.bundling.nbytes) == ([], 0)
