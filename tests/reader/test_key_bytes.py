"""Tables keyed by bytes, from the record to the read: an oracle dict, keys of another system, and keys that conflict."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lancewal_core.errors import RegionConflict, VersionGone
from lancewal_core.rows.murmur2 import partition_of
from lancewal_core.table.watermarks import Watermarks
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_reader import open_table, receipt_of
from lancewal_reader.spark.source import pin_read
from lancewal_reader.spark.task import BaseTask, DeltaTask, run_task
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
def test_a_key_in_the_deltas_of_two_regions(pipeline: Pipeline, between: str) -> None:
    pipeline.produce(50)
    pipeline.merge_all()
    merged = dict(pipeline.oracle)
    through_two(pipeline, between=between)
    pipeline.ingest()
    for columns in (None, ["a"]):
        with pytest.raises(RegionConflict, match="nothing says which row is newer") as raised:
            open_table(pipeline.uri).to_arrow(columns=columns)
        assert raised.value.where["keys"] == 1
        assert "secret" not in str(raised.value)
    assert by_key(open_table(pipeline.uri).to_arrow(consistency="eventual")) == merged


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
    with pytest.raises(RegionConflict):
        kept.to_arrow()


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
    read = pin_read({"table": pipeline.uri})
    for place in range(len(read.pinned_plan.plan.deltas)):
        with pytest.raises(RegionConflict):
            list(run_task(read.pinned_plan, DeltaTask((place,)), ["id"], None))


def test_the_merge_of_what_a_read_refuses(pipeline: Pipeline) -> None:
    through_two(pipeline, between="nothing")
    pipeline.ingest()
    pipeline.hand_over()
    version = pipeline.table.newest().version
    with pytest.raises(RegionConflict):
        pipeline.merge()
    assert pipeline.table.newest().version == version


def move_to_another_partition(pipeline: Pipeline) -> None:
    """From here on producers key one primary key otherwise."""
    here = partition_of(foreign_key("secret", 1), PARTITIONS)
    salt = next(s for s in itertools.count() if partition_of(foreign_key(f"secret{s}", 1), PARTITIONS) != here)
    pipeline.keyed_by = lambda region, id: foreign_key(f"{region}{salt}", id)


def test_a_deletion_that_is_merged_while_a_read_plans(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """What meets in the delta of the version pinned has been merged, one behind the other."""
    pipeline.upsert("secret", 1, a=1)
    pipeline.merge_all()
    newest = Watermarks.newest

    def late(self: Watermarks) -> Any:
        pinned = newest(self)
        monkeypatch.setattr(Watermarks, "newest", newest)
        pipeline.delete("secret", 1)
        pipeline.merge_all()
        move_to_another_partition(pipeline)
        pipeline.upsert("secret", 1, a=2)
        pipeline.ingest()
        return pinned

    reader = open_table(pipeline.uri)
    monkeypatch.setattr(Watermarks, "newest", late)
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
