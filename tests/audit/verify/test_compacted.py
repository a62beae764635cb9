"""``lancewal verify`` against a topic of which compaction has removed records: what Kafka has left proves little."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lancewal_audit.verify import verification
from lancewal_audit.verify.evidence import Evidence
from lancewal_audit.verify.records.source import Range, RegionRecords
from lancewal_audit.verify.records.topic import _without_lost
from lancewal_audit.verify.report import Report, report_text
from lancewal_audit.verify.scope import Scope
from lancewal_audit.verify.verification import VerifyRequest, verify_table
from lancewal_core.names.ids import Position, Region
from lancewal_core.region.loss_record import LossRecord, write_loss
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.settings.load import Settings
from lancewal_core.table.contract import Contract
from lancewal_ingest.append.prepare import Consumed, Preparer
from lancewal_reader.point.receipt import receipt_of
from lancewal_reader.table import open_table
from tests.audit.repair.test_segment import MemoryRecords
from tests.support.pipeline import Pipeline

Losses = Mapping[Region, Sequence[LossRecord]]


class RemainingRecords:
    """The topic of a pipeline without the ``removed`` offsets of its one partition; stands for ``TopicRecords``."""

    def __init__(self, pipeline: Pipeline, removed: set[int], compacted: bool) -> None:
        self._pipeline = pipeline
        self._removed = removed
        self.compacted = compacted

    def ranges(self, cut: Mapping[Region, Position], beginnings: object, losses: Losses) -> dict[Region, Range]:
        return {region: Range(region, Position(0), end, whole=True) for region, end in cut.items()}

    def read(self, ranges: Mapping[Region, Range], losses: Losses) -> Iterator[RegionRecords]:
        for region, range_ in ranges.items():
            records = MemoryRecords(self._pipeline).read(region, Position(0), range_.end)
            consumed = Consumed(region, Position(0), range_.end, records)
            entry, _, _ = Preparer(self._pipeline.contract).prepare(consumed)
            assert entry is not None
            offsets = entry.rows.column("_offset").to_pylist()
            kept = entry.rows.filter(pa.array([offset not in self._removed for offset in offsets]))
            yield RegionRecords(region, _without_lost(kept, losses[region]), [])


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    """The row of key 1 is deleted, that of key 2 merged."""
    made = Pipeline(tmp_path, partitions=1, seed=5, grace_s=0, history_window_s=10)
    made.upsert("r1", 1, a=1)
    made.delete("r1", 1)
    made.upsert("r1", 2, a=1)
    made.merge_all()
    yield made
    made.close()


def verify(
    pipeline: Pipeline,
    monkeypatch: pytest.MonkeyPatch,
    removed: set[int],
    *,
    compacted: bool = True,
    from_wal: bool = True,
    at: str | None = None,
) -> Report:
    real = verification._evidence

    def both(settings: Settings, opened: OpenedTable, scope: Scope, sources: verification.Sources) -> Evidence:
        topic: Any = RemainingRecords(pipeline, removed, compacted)
        return Evidence(scope, real(settings, opened, scope, "wal").wal_records, topic, from_wal=from_wal)

    with monkeypatch.context() as patch:
        patch.setattr(verification, "_evidence", both)
        return verify_table(Settings(), pipeline.uri, VerifyRequest(sources="wal", at=at))


def test_a_deleted_row_that_is_back_is_a_difference(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.append_by_hand([{"region": "r1", "id": 1, "a": 1}])
    report = verify(pipeline, monkeypatch, {0, 1})
    assert report.counts == {"deleted": 1}, report_text(report)
    assert report.regions[0].compared_from == "wal"
    assert report.regions[0].from_the_beginning


def test_where_the_wal_is_trimmed_nothing_is_claimed(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        pipeline.clock.ahead_s += 60
        pipeline.collect()
    pipeline.append_by_hand([{"region": "r1", "id": 1, "a": 1}])
    for from_wal in (True, False):
        report = verify(pipeline, monkeypatch, {0, 1}, from_wal=from_wal)
        assert (report.equal, report.counts, report.rows_unchecked) == (True, {}, 1), report_text(report)
        assert report.regions[0].compared_from == "topic"
        assert not report.regions[0].from_the_beginning
        assert "compacted" in report.regions[0].why_not


def test_a_record_whose_delete_is_removed_proves_no_row(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of keys in any text: the row of key 1 was deleted under another text than its record has."""
    for _ in range(3):
        pipeline.clock.ahead_s += 60
        pipeline.collect()
    assert verify(pipeline, monkeypatch, {1}).counts == {"missing": 1}
    monkeypatch.setattr(Contract, "rows_tell_partition", False)
    report = verify(pipeline, monkeypatch, {1})
    assert (report.equal, report.counts) == (True, {}), report_text(report)
    assert verify(pipeline, monkeypatch, {1}, compacted=False).counts == {"missing": 1}


def test_merged_rows_with_newer_records_are_not_foreign(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    before = receipt_of(open_table(pipeline.uri).to_arrow().schema).to_json()
    pipeline.upsert("r1", 2, a=2)
    pipeline.ingest()
    for from_wal in (True, False):
        for at in (None, before):
            report = verify(pipeline, monkeypatch, {0, 1, 2}, from_wal=from_wal, at=at)
            assert (report.equal, report.counts) == (True, {}), report_text(report)


def test_a_topic_that_is_not_compacted_judges_from_its_beginning(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = verify(pipeline, monkeypatch, set(), compacted=False)
    assert report.equal
    assert report.regions[0].compared_from == "topic"
    assert report.regions[0].from_the_beginning


def test_an_accepted_loss_of_deletes_alone_leaves_no_record_out(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = LossRecord(first=1, next=3, accepted_at_ms=0, accepted_by="person", kind="tombstones")
    write_loss(pipeline.store, pipeline.contract.regions[0], loss, None)
    report = verify(pipeline, monkeypatch, set(), compacted=False)
    assert (report.equal, report.counts) == (True, {}), report_text(report)
