"""Segments in a row that are lost, with later ones there: for whoever reads or claims, the log does not end before them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import cast

import pytest

from lancewal_core.errors import ObjectMissing
from lancewal_core.names import paths
from lancewal_core.names.ids import LogId, Sequence
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.region.durable_position import durable_position
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.state import GenerationRecord
from lancewal_core.rows.murmur2 import partition_of
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.wal.segment_cache import SegmentCache
from lancewal_ingest.regions.seal import seal_and_reanchor, to_move
from lancewal_reader.plan.strong import PlanContext, plan_strong
from lancewal_reader.point.receipt import receipt_of
from lancewal_reader.table import open_table
from lancewal_tables.status.unmerged_counts import UnmergedCounts, count_entries, walk_held
from tests.audit.repair.test_segment import feed, goes_on, pieces, repair, state_of
from tests.reader.plan.test_at_least import Short
from tests.support.pipeline import Pipeline, by_key
from tests.support.regions import region
from tests.support.repairs import check_strong, content, repairing

ROWS = [(1, 2), (4, 4)]
"""First lost segment, from the first of the OPEN generation on, and how many: a walk asks for 2, 4, 8, ... at once."""


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    """An OPEN generation of one region, which has an entry in every segment."""
    made = Pipeline(tmp_path, partitions=1, seed=23, seal_rows=10_000, batch=12)
    feed(made, 8)
    yield made
    made.close()


def lose(pipeline: Pipeline, first: int, count: int) -> list[Path]:
    """Where these segments were."""
    record = state_of(pipeline, 0).generations[-1]
    begin = record.first_sequence + first
    assert {p.sequence for p in pieces(pipeline, record.log)} >= set(range(begin, begin + count + 1))
    keys = [paths.wal_segment(record.log, Sequence(begin + n)) for n in range(count)]
    pipeline.store.delete(keys)
    return [Path(pipeline.uri) / key for key in keys]


@pytest.mark.parametrize(("first", "count"), ROWS)
def test_a_strong_read_does_not_end_before_them(pipeline: Pipeline, first: int, count: int) -> None:
    before = open_table(pipeline.uri)
    assert by_key(before.to_arrow()) == pipeline.oracle
    lost = lose(pipeline, first, count)
    with pytest.raises(ObjectMissing, match=f"{lost[0].stem}.*lancewal repair segment"):
        open_table(pipeline.uri).to_arrow()
    # Who has read them remembers them; from behind what it knows, its walk is the first to miss any.
    assert by_key(before.to_arrow()) == pipeline.oracle
    feed(pipeline, 1)
    assert by_key(before.to_arrow()) == pipeline.oracle


def test_a_strong_read_names_one_that_only_some_regions_need(tmp_path: Path) -> None:
    """The first region's generation begins behind it: what that region keeps says nothing about it."""
    pipeline = Pipeline(tmp_path, partitions=2, seed=23, seal_rows=10_000)
    (name, *_) = (f"r{n}" for n in range(99) if partition_of(encode_region_key(f"r{n}"), 2) == 1)
    for id in range(3):
        pipeline.upsert(name, id)
        pipeline.ingest()
    worker = pipeline._worker
    empty = worker._partitions.open[region(0)].memtable
    (moved,) = seal_and_reanchor(worker._context, (), to_move(worker._context, worker._writer, [empty])).values()
    assert isinstance(moved, GenerationRecord)
    feed(pipeline, 2)
    behind, before = (state_of(pipeline, partition).generations[-1] for partition in (0, 1))
    assert behind.log == before.log
    assert before.first_sequence + 1 < behind.first_sequence
    lost = paths.wal_segment(before.log, Sequence(before.first_sequence + 1))
    pipeline.store.delete([lost])
    with pytest.raises(ObjectMissing, match=f"{lost}.*lancewal repair segment"):
        open_table(pipeline.uri).to_arrow()
    pipeline.close()


@contextmanager
def begins_behind(tmp_path: Path) -> Iterator[tuple[OpenedTable, str]]:
    """A generation begins behind two lost segments that another needs, and listings of the log are out of date; and what is
    said of the first of these segments."""
    pipeline = Pipeline(tmp_path, partitions=2, seed=23, seal_rows=10_000)
    (name, *_) = (f"r{n}" for n in range(99) if partition_of(encode_region_key(f"r{n}"), 2) == 1)
    for id in range(4):
        pipeline.upsert(name, id)
        pipeline.ingest()
    worker = pipeline._worker
    empty = worker._partitions.open[region(0)].memtable
    (moved,) = seal_and_reanchor(worker._context, (), to_move(worker._context, worker._writer, [empty])).values()
    assert isinstance(moved, GenerationRecord)
    feed(pipeline, 2)
    behind, before = (state_of(pipeline, partition).generations[-1] for partition in (0, 1))
    assert behind.log == before.log
    lost = [paths.wal_segment(before.log, Sequence(before.first_sequence + n)) for n in (1, 2)]
    assert lost[-1] < paths.wal_segment(behind.log, behind.first_sequence)
    pipeline.store.delete(lost)
    stale = cast("ObjectStore", Short(pipeline.store, lambda key: key.startswith(paths.log_prefix(before.log))))
    tasks = ThreadTasks()
    opened = OpenedTable.over(stale, pipeline.table, pipeline.contract, tasks, pipeline.clock)
    yield opened, f"{lost[0]} is missing.*begins in segment {behind.first_sequence} of its log"
    tasks.close()
    pipeline.close()


@pytest.mark.parametrize("cached", [True, False])
def test_where_a_generation_begins_behind_them_no_listing_is_needed_to_tell(tmp_path: Path, cached: bool) -> None:
    """A listing that is out of date refutes no end; but what a generation begins behind was there."""
    with begins_behind(tmp_path) as (opened, said), pytest.raises(ObjectMissing, match=said):
        plan_strong(PlanContext(*opened.parts, SegmentCache(1 << 20) if cached else None))


def test_nor_does_the_status_of_a_table_need_one(tmp_path: Path) -> None:
    with begins_behind(tmp_path) as (opened, said):
        states = opened.states.read(opened.contract.regions)
        held = [(UnmergedCounts(region), state.generations[-1]) for region, state in states.items()]
        walked = walk_held(opened, held[0][1].log, held)
        with pytest.raises(ObjectMissing, match=said):
            count_entries(opened, walked, held, [])
        assert [counts.durable for counts, _ in held] == [None, None]


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize(("first", "count"), [(1, 1), *ROWS])
def test_a_read_at_a_receipt_names_them(pipeline: Pipeline, first: int, count: int, ended: bool) -> None:
    """Of a generation that is OPEN, and of one that the receipt's cut divides."""
    receipt = receipt_of(open_table(pipeline.uri).scan().schema)
    feed(pipeline, 2)
    lost = lose(pipeline, first, count)
    if ended:
        pipeline.hand_over()
    with pytest.raises(ObjectMissing, match=f"{lost[0].stem}.*receipt.*lancewal repair segment"):
        open_table(pipeline.uri).to_arrow(at=receipt)


@pytest.mark.parametrize(("first", "count"), ROWS)
def test_a_claim_ends_no_log_before_them(pipeline: Pipeline, first: int, count: int) -> None:
    copies = content(pipeline.uri)
    lost = lose(pipeline, first, count)
    damaged = content(pipeline.uri)
    with pytest.raises(ObjectMissing, match=f"{lost[0].stem}.*lancewal repair segment"):
        pipeline.crash()
    assert content(pipeline.uri) == damaged
    for path in lost:
        path.write_bytes(copies[path.relative_to(pipeline.uri).as_posix()])
    goes_on(pipeline, another=False)


@pytest.mark.parametrize(("first", "count"), [(0, 1), *ROWS])
def test_no_durable_position_is_told_from_what_lies_before_them(pipeline: Pipeline, first: int, count: int) -> None:
    """Else a table's partitions could be altered as if nothing were left to merge."""
    (region,) = pipeline.contract.regions
    with repairing(pipeline) as context:
        assert durable_position(context, region) == len(pipeline.messages(0))
        lost = lose(pipeline, first, count)
        with pytest.raises(ObjectMissing, match=f"{lost[0].stem}.*lancewal repair segment"):
            durable_position(context, region)


class TrimmingStore:
    """When its log is first asked for, the region is handed over, and the log trimmed but for its newest segment.  A walk asks
    for several at once: the others wait for it."""

    def __init__(self, pipeline: Pipeline, log: LogId) -> None:
        self._pipeline = pipeline
        self._lock = Lock()
        self._log: LogId | None = log
        self.get_range = pipeline.store.get_range
        self.put_if_absent = pipeline.store.put_if_absent
        self.list = pipeline.store.list
        self.delete = pipeline.store.delete

    def get(self, key: str) -> bytes | None:
        with self._lock:
            if self._log is not None and key.startswith(paths.log_prefix(self._log)):
                segments = sorted(info.key for info in self._pipeline.store.list(paths.log_prefix(self._log)))
                self._log = None
                self._pipeline.hand_over()
                self._pipeline.store.delete(segments[:-1])
        return self._pipeline.store.get(key)


def test_what_is_trimmed_meanwhile_is_no_loss(pipeline: Pipeline) -> None:
    (region,) = pipeline.contract.regions
    with repairing(pipeline, TrimmingStore(pipeline, state_of(pipeline, 0).generations[-1].log)) as context:
        found = durable_position(context, region)
    assert found == len(pipeline.messages(0))


@pytest.mark.parametrize("another", [True, False])
@pytest.mark.parametrize(("first", "count"), ROWS)
def test_they_are_repaired(pipeline: Pipeline, first: int, count: int, another: bool) -> None:
    """The repair of any of them puts all into flushes, and the others find nothing left to do."""
    lost = lose(pipeline, first, count)
    assert repair(pipeline, lost[-1])
    assert [repair(pipeline, path) for path in lost] == [[]] * count
    check_strong(pipeline)
    goes_on(pipeline, another=another)
