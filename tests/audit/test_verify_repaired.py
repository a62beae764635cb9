"""``lancewal verify`` after ``lancewal repair segment``: what the segment held lies in a snapshot, and nothing misses it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lancewal_audit.repair_segment import plan_segment, repair_segment
from lancewal_audit.verify.report import report_text
from lancewal_core import paths
from lancewal_core.ids import Sequence
from tests.audit.test_repair_segment import MemoryRecords
from tests.audit.test_verify_wal import verify
from tests.support.pipeline import Pipeline
from tests.support.repairs import check_strong, flip, repairing


@pytest.mark.parametrize("damaged", [False, True])
def test_a_repaired_segment_is_no_difference(tmp_path: Path, damaged: bool) -> None:
    pipeline = Pipeline(tmp_path, partitions=1, seed=5, seal_rows=100_000, batch=10)
    for _ in range(4):
        pipeline.produce(30)
        pipeline.ingest()
    key = paths.wal_segment(pipeline._worker._writer.log, Sequence(2))
    if damaged:
        flip(Path(pipeline.uri) / key)
    else:
        pipeline.store.delete([key])
    with repairing(pipeline) as context:
        records = MemoryRecords(pipeline)
        repair_segment(context, records, plan_segment(context, records, key))
    pipeline.crash()
    pipeline.merge_all()
    check_strong(pipeline)
    report = verify(pipeline)
    assert (report.equal, report.counts) == (True, {}), report_text(report)
    assert "the WAL lacks" in report.regions[0].why_not
    # Another segment of another log is missed as before.
    pipeline.produce(30)
    pipeline.ingest()
    pipeline.hand_over()
    other = [k for k in map(str, pipeline.objects("")) if "/wal/" in k and str(pipeline._workers[-2]._writer.log) in k]
    Path(other[-1]).unlink()
    pipeline.merge()
    assert not verify(pipeline).equal
    pipeline.close()
