"""``lancewal verify`` after ``lancewal repair segment``: what the segment held lies in a flush, and nothing misses it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from lancewal_audit.repair.segment import plan_segment, repair_segment
from lancewal_audit.verify.report import report_text
from lancewal_core.names import paths
from lancewal_core.names.ids import Sequence
from lancewal_core.region.state import GenerationState
from lancewal_core.wal.segment import Segment, decode_segment
from lancewal_ingest.regions.flush_queue import FlushQueue
from tests.audit.repair.test_segment import MemoryRecords, damage, feed, pieces, state_of
from tests.audit.verify.records.test_wal import verify
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


@pytest.mark.parametrize("how", ["lost", "its trailer", "its rows"])
def test_so_is_one_of_generations_that_had_ended_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """An ingest sealed them, and died before it flushed."""
    pipeline = Pipeline(tmp_path, partitions=2, seed=19, seal_rows=30, batch=12, history_window_s=3600)
    with monkeypatch.context() as patched:
        patched.setattr(FlushQueue, "advance", lambda self: None)
        feed(pipeline, 8)
    record = state_of(pipeline, 1).generations[0]
    key = paths.wal_segment(record.log, Sequence(record.first_sequence + 1))
    damage(Path(pipeline.uri) / key, how)
    with repairing(pipeline) as context:
        records = MemoryRecords(pipeline)
        plan = plan_segment(context, records, key)
        assert any(g.record.state is GenerationState.SEALED and g.gaps for g in plan.needed)
        repair_segment(context, records, plan)
    pipeline.produce(60)
    pipeline.crash()
    pipeline.merge_all()
    check_strong(pipeline)
    assert wrong(pipeline) == {}
    pipeline.collect()
    assert wrong(pipeline) == {}
    # Another segment, of a generation that nobody has repaired, is missed as before.
    later = next(r for r in reversed(state_of(pipeline, 1).generations) if r.next not in (None, r.first))
    assert later.log != record.log
    held = next(p for p in pieces(pipeline, later.log) if p.first == later.first)
    (Path(pipeline.uri) / paths.wal_segment(held.log, held.sequence)).unlink()
    assert wrong(pipeline).keys() == {"wal_missing"}
    pipeline.close()


def wrong(pipeline: Pipeline) -> Mapping[str, int]:
    return verify(pipeline).counts


@pytest.mark.parametrize(("merged", "how"), [(False, "flipped"), (True, "flipped"), (True, "a folder")])
def test_a_damaged_segment_that_nothing_needs_is_named_and_no_difference(
    tmp_path: Path, merged: bool, how: str
) -> None:
    """Its generation is FLUSHED, or merged.  That it is gone altogether is one: something deletes what it must not."""
    pipeline = Pipeline(tmp_path, partitions=1, seed=5, seal_rows=100_000, batch=10, history_window_s=3600)
    feed(pipeline, 4)
    path = Path(pipeline.uri) / paths.wal_segment(pipeline._worker._writer.log, Sequence(1))
    pipeline.hand_over()
    if merged:
        pipeline.merge()
    if how == "a folder":
        path.unlink()
        path.mkdir()
    else:
        flip(path)
    report = verify(pipeline)
    assert (report.equal, report.counts) == (True, {"wal_held": 1}), report_text(report)
    assert report_text(report).count(path.name) == 1
    (held,) = report.findings
    assert "Its rows are held by " + ("the table" if merged else "flush _lancewal/") in held.text
    assert "the WAL lacks" in report.regions[0].why_not
    next_one = path.with_name(f"{2:020d}.arrow")
    data = next_one.read_bytes()
    next_one.unlink()
    report = verify(pipeline)
    assert not report.equal
    assert report.counts.keys() == {"wal_held", "wal_missing"}
    next_one.write_bytes(data)
    # One that is gone elsewhere says nothing of what the damaged one held.
    another = path.with_name(f"{3:020d}.arrow")
    data = another.read_bytes()
    decoded = decode_segment(data, another.relative_to(pipeline.uri).as_posix())
    assert isinstance(decoded, Segment)
    (own,) = decoded.entries
    another.unlink()
    report = verify(pipeline)
    assert report.counts == {"wal_held": 1, "wal_missing": 1}, report_text(report)
    assert [f.offset for f in report.findings if f.kind == "wal_missing"] == [own.first]
    another.write_bytes(data)
    (Path.rmdir if path.is_dir() else Path.unlink)(path)
    report = verify(pipeline)
    assert not report.equal
    assert report.counts.keys() == {"wal_missing"}
    pipeline.close()
