"""``lancewal repair merged-position``: versions that said what is merged are gone; a person accepts the conclusion."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lancewal_flusher.merge.merge
from lancewal_audit.repair.watermark import accept_watermark, plan_watermark
from lancewal_core.errors import MergedPositionUnknown, RepairRefused, TableRestored
from lancewal_core.names import paths
from lancewal_core.names.ids import Position, Region
from lancewal_core.process import failpoints
from lancewal_core.process.failpoints import FailpointError
from lancewal_core.table.watermarks import Watermarks
from lancewal_flusher.commit.send import send
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_reader.point.receipt import receipt_of
from lancewal_reader.table import open_table
from tests.support.pipeline import Pipeline, by_key
from tests.support.repairs import check_merged, check_strong, command, content, dry, repairing

ADOPT = MergeLimits(adopt_rows=1)


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    """A merge landed, its flusher died; a user changed the table and cleaned up; records are lost but for the first."""
    made = Pipeline(tmp_path, partitions=2, seed=3)
    made.produce(150)
    made.merge_all(ADOPT)
    made.produce(150)
    made.ingest()
    made.hand_over()

    failpoints.configure({"LANCEWAL_FAILPOINT": "commit.recv:after=error", "LANCEWAL_TESTING": "1"})
    with pytest.raises(FailpointError):
        made.merge(ADOPT)
    failpoints.configure({})
    recorded = sorted(v for i in made.store.list(paths.merges_prefix(None)) if (v := paths.parse_merge_record(i.key)))
    made.store.delete([paths.merge_record(v, None) for v in recorded[2:]])
    lance.dataset(made.uri).update_config({"by": "a user"})
    lance.dataset(made.uri).cleanup_old_versions(timedelta(0))
    yield made
    made.close()


def test_a_person_accepts_what_it_concludes(pipeline: Pipeline) -> None:
    for stops in (lambda: open_table(pipeline.uri).to_arrow(), lambda: pipeline.merge()):
        with pytest.raises(MergedPositionUnknown, match="lancewal repair merged-position"):
            stops()
    said = dry(pipeline, "merged-position")
    assert "by the region's state" in said
    before = content(pipeline.uri)
    assert content(pipeline.uri) == before
    assert "recorded for table version" in command(pipeline, "merged-position")
    check_strong(pipeline)
    # The table holds the merge that nobody marked: what a read of it alone has seen is not known.
    assert eventual_cut(pipeline) == {}
    # That is merged again: the same rows, and the same files a second time.
    assert pipeline.merge(ADOPT).merges
    check_merged(pipeline)
    pipeline.produce(100)
    pipeline.merge_all(ADOPT)
    check_strong(pipeline)
    check_merged(pipeline)
    assert "nothing to do" in command(pipeline, "merged-position")


def test_positions_are_known_again_when_each_region_has_been_merged_again(pipeline: Pipeline) -> None:
    command(pipeline, "merged-position")
    one_region_at_a_time = MergeLimits(adopt_rows=1, memory_bytes=30_000)  # a region takes 21 to 22 kB
    assert eventual_cut(pipeline) == {}
    merges = pipeline.merge(one_region_at_a_time).merges
    assert len(merges[0].generations) == 1
    watermarks = Watermarks(pipeline.store, pipeline.table, None)
    assert (watermarks.at(merges[0].version).exact, watermarks.at(merges[-1].version).exact) == (False, True)
    read = open_table(pipeline.uri).to_arrow(consistency="eventual")
    assert {int(position) for position in receipt_of(read.schema).positions.values()} == {
        len(pipeline.messages(partition)) for partition in range(2)
    }
    assert by_key(read) == pipeline.oracle


def eventual_cut(pipeline: Pipeline) -> dict[Region, Position]:
    return receipt_of(open_table(pipeline.uri).to_arrow(consistency="eventual").schema).positions


def test_without_any_record_the_indexes_say_it(pipeline: Pipeline) -> None:
    for info in pipeline.store.list(paths.merges_prefix(None)):
        pipeline.store.delete([info.key])
    assert "no merged positions are left at all" in dry(pipeline, "merged-position")
    command(pipeline, "merged-position")
    check_strong(pipeline)
    pipeline.merge()
    check_merged(pipeline)


def test_of_two_persons_one_decides(pipeline: Pipeline) -> None:
    with repairing(pipeline) as context:
        plan = plan_watermark(context)
        assert plan is not None
        key = paths.merge_record(plan.version, None)
        command(pipeline, "merged-position")
        other = pipeline.store.get(key)
        assert other is not None
        accept_watermark(context, plan)  # the same word
        pipeline.store.delete([key])
        pipeline.store.put_if_absent(key, other.replace(b'"next": ', b'"next": 1'))
        with pytest.raises(RepairRefused, match="other merged positions"):
            accept_watermark(context, plan)


def test_an_unfinished_merge_counts_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user appended one of its keys while it was on its way; nobody has hidden that row when its version is cleaned up."""
    pipeline = Pipeline(tmp_path, partitions=1, seed=3)
    pipeline.produce(60)
    pipeline.merge_all(ADOPT)
    pipeline.upsert("r1", 1, a=1)
    pipeline.ingest()
    pipeline.hand_over()
    row = pipeline.oracle["r1", 1]

    def send_behind_a_user(*arguments: Any) -> Any:
        lance.write_dataset(
            pa.Table.from_pylist([row], schema=lance.dataset(pipeline.uri).schema), pipeline.uri, mode="append"
        )
        return send(*arguments)

    monkeypatch.setattr(lancewal_flusher.merge.merge, "send", send_behind_a_user)
    failpoints.configure({"LANCEWAL_FAILPOINT": "merges.put:after=error", "LANCEWAL_TESTING": "1"})
    try:
        with pytest.raises(FailpointError):
            pipeline.merge(ADOPT)
    finally:
        failpoints.configure({})
    monkeypatch.undo()
    merged = pipeline.table.newest().version
    assert pipeline.store.get(paths.merge_record(merged, None)) is not None
    assert pipeline.store.get(paths.merge_finished(merged, None)) is None
    for n in range(2):
        lance.dataset(pipeline.uri).update_config({"by": str(n)})
    lance.dataset(pipeline.uri).cleanup_old_versions(timedelta(0))
    command(pipeline, "merged-position")
    pipeline.merge_all(ADOPT)
    assert lance.dataset(pipeline.uri).count_rows() == len(pipeline.oracle)
    check_merged(pipeline)
    pipeline.close()


def test_a_restore_that_is_left_below_is_refused(pipeline: Pipeline) -> None:
    restored: Any = lance.dataset(pipeline.uri)
    restored.restore()
    lance.dataset(pipeline.uri).tags.create("restored", lance.dataset(pipeline.uri).version)
    for n in range(2):
        lance.dataset(pipeline.uri).update_config({"then": str(n)})
    lance.dataset(pipeline.uri).cleanup_old_versions(timedelta(0), error_if_tagged_old_versions=False)
    before = content(pipeline.uri)
    with pytest.raises(RepairRefused, match="is a restore that nobody has decided"):
        command(pipeline, "merged-position")
    assert content(pipeline.uri) == before


def test_refused_where_keys_have_changed_their_region_since(pipeline: Pipeline) -> None:
    with repairing(pipeline) as context:
        altered = context.contract.model_copy(update={"altered_at": (10**6, 0)})
        with pytest.raises(RepairRefused, match="the partitions of keys"):
            plan_watermark(replace(context, contract=altered))


def test_a_restore_is_decided_first(pipeline: Pipeline) -> None:
    newest: Any = lance.dataset(pipeline.uri, version=lance.dataset(pipeline.uri).version)
    newest.restore()
    with pytest.raises(TableRestored):
        command(pipeline, "merged-position")
    with pytest.raises(MergedPositionUnknown, match="other choice"):
        command(pipeline, "restored", "--rows-since", "drop")
