"""Tables keyed by bytes, from the record to the read: an oracle dict, keys of another system, and keys that conflict."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any
from unittest.mock import patch

import lance
import pyarrow as pa
import pytest

from lancewal_audit.verify.report import report_text
from lancewal_audit.verify.verification import VerifyRequest, verify_table
from lancewal_core.errors import InvalidInput, RegionConflict, VersionGone
from lancewal_core.rows.murmur2 import partition_of
from lancewal_core.settings.load import Settings
from lancewal_core.table.watermarks import Watermarks
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_reader.commands.options import RowsAsked
from lancewal_reader.commands.read import command as read_command
from lancewal_reader.plan import strong
from lancewal_reader.plan.at_point import plan_at_point
from lancewal_reader.point.receipt import receipt_of
from lancewal_reader.reading import reads
from lancewal_reader.spark.source import pin_read
from lancewal_reader.spark.task import BaseTask, DeltaTask, run_task
from lancewal_reader.table import open_table
from lancewal_reader.unmerged.left_out import left_out_of
from tests.support.pipeline import SMALL, Key, Pipeline, Row, by_key

PARTITIONS = 3


def foreign_key(region: str, id: int) -> bytes:
    """As another system writes it: an object, with spaces, not the canonical array."""
    return json.dumps({"id": id, "region": region}).encode()


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path, SMALL, partitions=PARTITIONS, keyed_by=foreign_key)
    yield made
    made.close()


@pytest.mark.in_turns("seed", each=3)
@pytest.mark.parametrize("seed", range(3))
def test_every_read_is_the_fold_of_what_is_durable(tmp_path: Path, seed: int) -> None:
    pipeline = Pipeline(tmp_path, SMALL, seed=seed, partitions=PARTITIONS, keyed_by=foreign_key)
    kept = open_table(pipeline.uri)
    merged: dict[Key, Row] = {}
    receipts = []
    for _ in range(6):
        pipeline.produce(pipeline.rng.randrange(80))
        pipeline.ingest()
        for reader in (kept, open_table(pipeline.uri)):
            rows = reader.to_arrow()
            assert by_key(rows) == pipeline.oracle
            assert by_key(reader.to_arrow(consistency="eventual")) == merged
        receipts.append((receipt_of(kept.to_arrow().schema), dict(pipeline.oracle)))
        if pipeline.rng.random() < 0.5:
            pipeline.merge_all(pipeline.rng.choice([MergeLimits(), MergeLimits(adopt_rows=1)]))
            merged = dict(pipeline.oracle)
    assert all(pipeline.messages(partition) for partition in range(PARTITIONS))
    for receipt, expected in receipts:
        assert by_key(kept.to_arrow(at=receipt)) == expected
    pipeline.close()


def through_two(pipeline: Pipeline, *, between: str) -> None:
    """One primary key in two partitions, by keys that differ in something that is not in the row."""
    ends = [len(pipeline.messages(p)) for p in range(PARTITIONS)]
    for salt in itertools.count():
        pipeline.keyed_by = lambda region, id, salt=salt: foreign_key(f"{region}{salt}", id)
        pipeline.upsert("secret", 1, a=salt)
        ours = [p for p in range(PARTITIONS) if len(pipeline.messages(p)) > ends[p]]
        if len(ours) == 2:
            return
        if salt == 0 and between == "snapshot":
            pipeline.ingest()
            pipeline.hand_over()


@pytest.mark.parametrize("between", ["nothing", "snapshot"])
def test_a_key_in_the_deltas_of_two_regions(
    pipeline: Pipeline, between: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """It shows what the table has of it, here nothing; all others are read, and the read says so."""
    pipeline.produce(50)
    pipeline.merge_all()
    merged = dict(pipeline.oracle)
    through_two(pipeline, between=between)
    pipeline.upsert("others", 2, a=5)
    expected = {key: row for key, row in pipeline.oracle.items() if key != ("secret", 1)}
    pipeline.ingest()
    reader = open_table(pipeline.uri)
    for read in (reader.to_arrow(), reader.to_arrow()):
        assert by_key(read) == expected
        said = left_out_of(read.schema)
        assert (said.waiting, said.unmerged, len(said.partitions)) == (0, 1, 2)
        assert receipt_of(read.schema).left_out == 1
    assert reader.to_arrow(columns=["a"]).num_rows == len(expected)
    assert by_key(reader.to_arrow(at=receipt_of(reader.to_arrow().schema))) == expected
    assert [("lancewal.reader", "secret" in record.message) for record in caplog.records] == [
        ("lancewal.reader", False)
    ]
    for columns in (None, ["a"]):
        with pytest.raises(RegionConflict, match="nothing says which row is newer") as raised:
            open_table(pipeline.uri, conflicts="fail").to_arrow(columns=columns)
        assert raised.value.where["keys"] == 1
        assert "secret" not in str(raised.value)
    assert by_key(open_table(pipeline.uri).to_arrow(consistency="eventual")) == merged
    read_command(RowsAsked(pipeline.uri, output="jsonl"))
    assert "left out: unmerged records of 1 key in conflict, through partitions [" in capsys.readouterr().err


def test_a_key_that_waits_for_a_decision(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records of others than the owner are left out, merged or not; the owner's count."""
    pipeline.upsert("secret", 1, a=1)
    pipeline.merge_all()
    usual = pipeline.keyed_by
    move_to_another_partition(pipeline)
    pipeline.upsert("secret", 1, a=2)
    pipeline.merge_all()
    pipeline.upsert("secret", 1, a=3)
    pipeline.keyed_by = usual
    pipeline.patch("secret", 1, a=4)
    pipeline.ingest()
    read = open_table(pipeline.uri).to_arrow()
    assert read["a"].to_pylist() == [4]
    assert (left_out_of(read.schema).waiting, left_out_of(read.schema).unmerged) == (1, 1)
    eventual = open_table(pipeline.uri).to_arrow(consistency="eventual")
    assert eventual["a"].to_pylist() == [1]
    assert left_out_of(eventual.schema).waiting == 1
    pipeline.merge_all()
    read_command(RowsAsked(pipeline.uri, output="jsonl"))
    assert "left out: 1 key in conflict, to be decided\n" in capsys.readouterr().err
    assert "came through two partitions" in caplog.messages[-1]
    assert "unmerged" not in caplog.messages[-1]
    for consistency in ("strong", "eventual"):
        with pytest.raises(RegionConflict, match="wait for a decision"):
            open_table(pipeline.uri, conflicts="fail").to_arrow(consistency=consistency)
    with pytest.raises(RegionConflict, match="wait for a decision"):
        pin_read({"table": pipeline.uri, "conflicts": "fail"})
    for wrong in ("?", "LEAVE"):
        with pytest.raises(InvalidInput):
            pin_read({"table": pipeline.uri, "conflicts": wrong})
        with pytest.raises(InvalidInput):
            open_table(pipeline.uri, conflicts=wrong)  # type: ignore[arg-type] # what a user may write


def test_verify_counts_what_nothing_orders(pipeline: Pipeline) -> None:
    pipeline.produce(50)
    pipeline.upsert("secret", 1, a=1)
    pipeline.merge_all()
    move_to_another_partition(pipeline)
    pipeline.upsert("secret", 1, a=2)
    pipeline.merge_all()
    report = verify_table(Settings(), pipeline.uri, VerifyRequest(sources="wal"))
    assert (report.equal, report.counts, report.keys_in_conflict, report.rows_in_conflict) == (True, {}, 1, 1)
    assert (report.records, report.rows_unchecked) == (50, 0)
    shown = report_text(report)
    assert f"checked   {report.rows_read - 1} rows; unchecked 0" in shown
    assert "conflicts 1 row of 1 key, not compared" in shown
    assert shown.endswith("equal, as far as it was compared")


def test_no_version_stands_in_for_one_that_set_nothing_aside(pipeline: Pipeline) -> None:
    """Where the row of a key was read of an unmerged record that was set aside since."""
    pipeline.upsert("secret", 1, a=1)
    pipeline.merge_all()
    move_to_another_partition(pipeline)
    pipeline.upsert("secret", 1, a=2)
    pipeline.ingest()
    read = open_table(pipeline.uri).to_arrow()
    assert read["a"].to_pylist() == [2]
    receipt = receipt_of(read.schema)
    assert open_table(pipeline.uri).to_arrow(at=receipt)["a"].to_pylist() == [2]
    pipeline.merge_all()
    lance.dataset(pipeline.uri).cleanup_old_versions(timedelta(0))
    with pytest.raises(VersionGone):
        open_table(pipeline.uri).to_arrow(at=receipt)


def test_a_reader_that_has_folded_the_first_of_them(pipeline: Pipeline) -> None:
    """What it remembers must not hide that the next entry is of another region."""
    kept = open_table(pipeline.uri)
    pipeline.produce(20)
    pipeline.ingest()
    kept.to_arrow()
    pipeline.upsert("secret", 1, a=1)
    pipeline.ingest()
    assert by_key(kept.to_arrow()) == pipeline.oracle
    here = partition_of(foreign_key("secret", 1), PARTITIONS)
    there = next(s for s in itertools.count() if partition_of(foreign_key(f"secret{s}", 1), PARTITIONS) != here)
    pipeline.keyed_by = lambda region, id: foreign_key(f"{region}{there}", id)
    pipeline.upsert("secret", 1, a=2)
    pipeline.ingest()
    assert by_key(kept.to_arrow()) == {key: row for key, row in pipeline.oracle.items() if key != ("secret", 1)}


@pytest.mark.parametrize("consistency", ["strong", "eventual"])
def test_tasks_of_a_spark_job_give_the_table(pipeline: Pipeline, consistency: str) -> None:
    pipeline.produce(100)
    pipeline.merge_all()
    merged = dict(pipeline.oracle)
    pipeline.produce(100)
    pipeline.ingest()
    read = pin_read({"table": pipeline.uri, "consistency": consistency})
    tasks = read.tasks()
    assert {type(task) for task in tasks} == ({BaseTask, DeltaTask} if consistency == "strong" else {BaseTask})
    batches = [batch for task in tasks for batch in run_task(read.pinned_plan, task, SMALL.names, None)]
    expected = pipeline.oracle if consistency == "strong" else merged
    assert by_key(pa.Table.from_batches(batches)) == expected


def test_every_task_of_a_spark_job(pipeline: Pipeline) -> None:
    """Each region's delta is a task of its own, and there is no base row that anybody would look for a mask for."""
    through_two(pipeline, between="nothing")
    pipeline.ingest()
    for conflicts in ("leave-out", "fail"):
        read = pin_read({"table": pipeline.uri, "conflicts": conflicts})
        for place in range(len(read.pinned_plan.plan.deltas)):
            if conflicts == "fail":
                with pytest.raises(RegionConflict):
                    list(run_task(read.pinned_plan, DeltaTask((place,)), ["id"], None))
            else:
                assert sum(b.num_rows for b in run_task(read.pinned_plan, DeltaTask((place,)), ["id"], None)) == 0


def test_the_merge_of_what_a_read_leaves_out(pipeline: Pipeline) -> None:
    pipeline.produce(50)
    through_two(pipeline, between="nothing")
    pipeline.oracle.pop(("secret", 1))
    pipeline.ingest()
    pipeline.merge_all()
    for consistency in ("strong", "eventual"):
        assert by_key(open_table(pipeline.uri).to_arrow(consistency=consistency)) == pipeline.oracle


def move_to_another_partition(pipeline: Pipeline) -> None:
    """From here on producers key one primary key otherwise."""
    here = partition_of(foreign_key("secret", 1), PARTITIONS)
    salt = next(s for s in itertools.count() if partition_of(foreign_key(f"secret{s}", 1), PARTITIONS) != here)
    pipeline.keyed_by = lambda region, id: foreign_key(f"{region}{salt}", id)


def test_a_deletion_that_is_merged_while_a_read_plans(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """What meets in the delta of the version pinned has been merged, one behind the other."""
    pipeline.upsert("secret", 1, a=1)
    pipeline.merge_all()
    newest, unmerged = Watermarks.newest, strong._unmerged
    pinned_first = Event()

    def behind(context: Any) -> Any:
        """What is unmerged is read beside; here behind it."""
        assert pinned_first.wait(60)
        return unmerged(context)

    def late(self: Watermarks) -> Any:
        pinned = newest(self)
        monkeypatch.setattr(Watermarks, "newest", newest)
        pipeline.delete("secret", 1)
        pipeline.merge_all()
        move_to_another_partition(pipeline)
        pipeline.upsert("secret", 1, a=2)
        pipeline.ingest()
        pinned_first.set()
        return pinned

    reader = open_table(pipeline.uri)
    monkeypatch.setattr(Watermarks, "newest", late)
    monkeypatch.setattr(strong, "_unmerged", behind)
    assert by_key(reader.to_arrow()) == pipeline.oracle


def test_a_version_that_stands_in_and_does_not_tell_the_order(pipeline: Pipeline) -> None:
    pipeline.upsert("secret", 1, a=1)
    pipeline.merge_all()
    dataset = lance.dataset(pipeline.uri)
    dataset.tags.create("kept", dataset.version)
    pipeline.delete("secret", 1)
    pipeline.merge_all()
    move_to_another_partition(pipeline)
    pipeline.upsert("secret", 1, a=2)
    pipeline.ingest()
    receipt = receipt_of(open_table(pipeline.uri).to_arrow().schema)
    for a in (3, 4):
        pipeline.merge_all()
        pipeline.upsert("secret", 1, a=a)
        pipeline.ingest()
    lance.dataset(pipeline.uri).cleanup_old_versions(timedelta(0), error_if_tagged_old_versions=False)
    with pytest.raises(VersionGone, match="in which order"):
        open_table(pipeline.uri).to_arrow(at=receipt)
    with (
        patch.object(reads, "plan_at_point", wraps=plan_at_point) as planned,
        pytest.raises(VersionGone, match="in which order"),
    ):
        pin_read({"table": pipeline.uri, "at": str(receipt)})
    assert planned.call_count == 1  # no other plan would tell more
