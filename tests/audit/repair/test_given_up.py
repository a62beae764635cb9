"""Receipts, and verify, where a lost segment's records were given up, or made good."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import lance
import pytest

from lancewal_audit.repair.segment import plan_segment, repair_segment
from lancewal_audit.verify.report import report_text
from lancewal_core.errors import RecordsGivenUp
from lancewal_core.names import paths
from lancewal_core.names.ids import Sequence
from lancewal_ingest.regions.flush_queue import FlushQueue
from lancewal_reader.point.receipt import receipt_of
from lancewal_reader.table import open_table
from tests.audit.repair.test_segment import MemoryRecords, damage, feed, state_of
from tests.audit.repair.test_segment_loss import check, dropped, give_up, held_by, held_in_both, rows_without
from tests.audit.verify.records.test_wal import verify
from tests.support.pipeline import Pipeline, by_key
from tests.support.repairs import repairing


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    """Merged rows, and an OPEN generation of each region with many entries."""
    made = Pipeline(tmp_path, partitions=2, seed=23, seal_rows=10_000, batch=12)
    made.produce(60)
    made.merge_all()
    feed(made, 6)
    yield made
    made.close()


def test_a_later_version_does_not_stand_in_for_what_was_given_up(pipeline: Pipeline) -> None:
    """The merge of what is left reaches exactly the receipt's cut, and the receipt's own version is cleaned up."""
    read = open_table(pipeline.uri).scan()
    receipt = receipt_of(read.schema)
    assert by_key(read.to_arrow()) == pipeline.oracle
    path = held_in_both(pipeline)
    lost = held_by(pipeline, path)
    damage(path, "lost")
    give_up(pipeline, path, dropped(pipeline))
    pipeline.merge_all()
    assert rows_without(pipeline, lost) != pipeline.oracle
    check(pipeline, lost)
    lance.dataset(pipeline.uri).cleanup_old_versions(datetime.timedelta(0))
    with pytest.raises(RecordsGivenUp):
        open_table(pipeline.uri).to_arrow(at=receipt)


def test_a_gap_over_two_repaired_generations_is_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last segment of one generation and the first of the next are lost."""
    pipeline = Pipeline(tmp_path, partitions=1, seed=19, seal_rows=30, batch=12, history_window_s=3600)
    with monkeypatch.context() as patched:
        patched.setattr(FlushQueue, "advance", lambda self: None)
        feed(pipeline, 8)
    one, two = state_of(pipeline, 0).generations[:2]
    assert one.log == two.log
    assert one.end_sequence is not None
    keys = [paths.wal_segment(one.log, Sequence(n)) for n in (one.end_sequence - 1, two.first_sequence)]
    assert one.end_sequence == two.first_sequence
    for key in keys:
        damage(Path(pipeline.uri) / key, "lost")
    for key in keys:
        with repairing(pipeline) as context:
            records = MemoryRecords(pipeline)
            repair_segment(context, records, plan_segment(context, records, key))
    pipeline.produce(60)
    pipeline.crash()
    pipeline.merge_all()
    check(pipeline, {})
    report = verify(pipeline)
    assert (report.equal, report.counts) == (True, {}), report_text(report)
    pipeline.close()
