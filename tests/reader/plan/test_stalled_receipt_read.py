"""A receipt's read that stalls between the indexes and its walk, while one region's part of the log is trimmed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from lancewal_core.errors import OutsideHistoryWindow
from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.region.state import GenerationRecord
from lancewal_core.rows.murmur2 import partition_of
from lancewal_ingest.regions.seal import seal_and_reanchor, to_move
from lancewal_reader.plan import at_receipt as plan_at
from lancewal_reader.point.receipt import receipt_of
from lancewal_reader.table import open_table
from tests.audit.repair.test_segment import state_of
from tests.support.pipeline import Pipeline
from tests.support.regions import region


def test_what_was_trimmed_is_not_called_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other region's generation begins behind what was trimmed, so that one's being kept says nothing of it."""
    pipeline = Pipeline(tmp_path, partitions=2, seed=1, seal_rows=10, grace_s=0, history_window_s=0)
    zero, one = (next(f"r{n}" for n in range(99) if partition_of(encode_region_key(f"r{n}"), 2) == p) for p in (0, 1))
    for id in range(3):
        pipeline.upsert(zero, id)
        pipeline.ingest()
    worker = pipeline._worker
    empty = worker._partitions.open[region(1)].memtable
    (moved,) = seal_and_reanchor(worker._context, (), to_move(worker._context, worker._writer, [empty])).values()
    assert isinstance(moved, GenerationRecord)
    for id in range(2):
        pipeline.upsert(one, id)
        pipeline.ingest()
    receipt = receipt_of(open_table(pipeline.uri).scan().schema)
    for id in range(10, 22):
        pipeline.upsert(zero, id)
    pipeline.ingest()
    pipeline.settle()
    walk_logs = plan_at.walk_parts
    stalled: list[bool] = []

    def walked_late(context: Any, parts: Sequence[Any]) -> Mapping[Any, Any]:
        if not stalled:
            stalled.append(True)
            pipeline.merge()
            for _ in range(4):
                pipeline.collect()
            assert state_of(pipeline, 0).trimmed_generation == 1
            assert state_of(pipeline, 1).trimmed_generation == 0
        return walk_logs(context, parts)

    monkeypatch.setattr(plan_at, "walk_parts", walked_late)
    with pytest.raises(OutsideHistoryWindow):
        open_table(pipeline.uri).to_arrow(at=receipt)
    assert stalled
    pipeline.close()
