"""``lancewal repair watermark``: versions that said what is merged are gone; the conclusion is shown, and a person accepts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pytest

from lancewal_audit.repair_watermark import accept_watermark, plan_watermark
from lancewal_core import failpoints, paths
from lancewal_core.errors import RepairRefused, TableRestored, WatermarkUnknown
from lancewal_core.failpoints import FailpointError
from lancewal_flusher.plan import MergeLimits
from lancewal_reader import open_table
from tests.support.pipeline import Pipeline
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
    recorded = sorted(v for i in made.store.list(paths.merges_prefix()) if (v := paths.parse_merge_record(i.key)))
    made.store.delete([paths.merge_record(v) for v in recorded[2:]])
    lance.dataset(made.uri).update_config({"by": "a user"})
    lance.dataset(made.uri).cleanup_old_versions(timedelta(0))
    yield made
    made.close()


def test_a_person_accepts_what_it_concludes(pipeline: Pipeline) -> None:
    for stops in (lambda: open_table(pipeline.uri).to_arrow(), lambda: pipeline.merge()):
        with pytest.raises(WatermarkUnknown, match="lancewal repair watermark"):
            stops()
    said = dry(pipeline, "watermark")
    assert "by its index" in said
    before = content(pipeline.uri)
    assert command(pipeline, "watermark") == said  # without --accept it is only shown
    assert content(pipeline.uri) == before
    assert "recorded for table version" in command(pipeline, "watermark", "--accept")
    check_strong(pipeline)
    # The merge that nobody marked is merged again: the same rows, and the same files a second time.
    assert pipeline.merge(ADOPT).merges
    check_merged(pipeline)
    pipeline.produce(100)
    pipeline.merge_all(ADOPT)
    check_strong(pipeline)
    check_merged(pipeline)
    assert "nothing to do" in command(pipeline, "watermark", "--accept")


def test_without_any_record_the_indexes_say_it(pipeline: Pipeline) -> None:
    for info in pipeline.store.list(paths.merges_prefix()):
        pipeline.store.delete([info.key])
    assert "no watermarks are left at all" in dry(pipeline, "watermark")
    command(pipeline, "watermark", "--accept")
    check_strong(pipeline)
    pipeline.merge()
    check_merged(pipeline)


def test_of_two_persons_one_decides(pipeline: Pipeline) -> None:
    with repairing(pipeline) as context:
        plan = plan_watermark(context)
        assert plan is not None
        key = paths.merge_record(plan.version)
        command(pipeline, "watermark", "--accept")
        other = pipeline.store.get(key)
        assert other is not None
        accept_watermark(context, plan)  # the same word
        pipeline.store.delete([key])
        pipeline.store.put_if_absent(key, other.replace(b'"next": ', b'"next": 1'))
        with pytest.raises(RepairRefused, match="something else"):
            accept_watermark(context, plan)


def test_a_restore_is_decided_first(pipeline: Pipeline) -> None:
    newest: Any = lance.dataset(pipeline.uri, version=lance.dataset(pipeline.uri).version)
    newest.restore()
    with pytest.raises(TableRestored):
        command(pipeline, "watermark", "--accept")
    with pytest.raises(WatermarkUnknown, match="other choice"):
        command(pipeline, "restored", "--after-restore", "keep")
