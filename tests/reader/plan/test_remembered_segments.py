"""What plans remember of a log follows what they go over."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lancewal_core.names import paths
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.wal.segment_cache import SegmentCache
from lancewal_reader.plan.at_receipt import plan_at
from lancewal_reader.plan.log_entries import EntryRef
from lancewal_reader.plan.strong import PlanContext, plan_strong
from lancewal_reader.point.receipt import receipt_of
from lancewal_reader.table import open_table
from tests.audit.repair.test_segment import feed, pieces, state_of
from tests.support.pipeline import Pipeline


def unmerged(pipeline: Pipeline) -> set[str]:
    """Keys of the segments of the OPEN generation of partition 0."""
    record = state_of(pipeline, 0).generations[-1]
    found = (piece.sequence for piece in pieces(pipeline, record.log))
    return {paths.wal_segment(record.log, number) for number in found if number >= record.first_sequence}


@pytest.mark.parametrize("at_receipt", [False, True])
def test_segments_that_are_merged_make_room_for_new_ones(tmp_path: Path, at_receipt: bool) -> None:
    pipeline, tasks = Pipeline(tmp_path, partitions=1, seed=23, seal_rows=10_000, batch=12), ThreadTasks()
    opened = OpenedTable.over(pipeline.store, pipeline.table, pipeline.contract, tasks, pipeline.clock)

    def plan(cache: SegmentCache) -> None:
        context = PlanContext(*opened.parts, cache)
        if at_receipt:
            plan_at(context, receipt_of(open_table(pipeline.uri).scan().schema))
        else:
            plan_strong(context)

    feed(pipeline, 6)
    all_of_them = SegmentCache(1 << 20)
    plan(all_of_them)
    assert set(all_of_them._segments) == unmerged(pipeline)
    cache = SegmentCache(all_of_them._bytes)
    plan(cache)
    assert set(cache._segments) == unmerged(pipeline)
    pipeline.merge_all()
    feed(pipeline, 2)
    for _ in range(2):
        plan(cache)
    assert set(cache._segments) == unmerged(pipeline)
    tasks.close()
    pipeline.close()


def test_rows_that_have_no_room_last_no_longer_than_their_plan(tmp_path: Path) -> None:
    pipeline, tasks = Pipeline(tmp_path, partitions=1, seal_rows=10_000, batch=12), ThreadTasks()
    for number in range(100):
        pipeline.upsert("r", 1, s=f"{number:0100000}")
    pipeline.ingest()
    pipeline.settle()
    opened = OpenedTable.over(pipeline.store, pipeline.table, pipeline.contract, tasks, pipeline.clock)
    context = PlanContext(*opened.parts, SegmentCache(0))
    before = pa.total_allocated_bytes()
    plan = plan_strong(context)
    assert sum(source.rows for source in plan.deltas[0].sources if isinstance(source, EntryRef)) == 100
    assert pa.total_allocated_bytes() - before < 1_000_000, "of ten"
    tasks.close()
    pipeline.close()
