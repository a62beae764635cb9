"""A worker that cannot seal says that it is not ready."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from lancewal_core.errors import StoreUnavailable
from lancewal_core.names.ids import Region
from lancewal_ingest.regions import sealing
from lancewal_ingest.regions.seal import Fixed
from tests.support.pipeline import Pipeline


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path, partitions=1, seed=7, seal_rows=3)
    yield made
    made.close()


def progressing(pipeline: Pipeline) -> bool:
    return pipeline._worker.idle_or_progressing


def refuse(_: object, full: Iterable[Fixed], __: object) -> Mapping[Region, StoreUnavailable]:
    return {fixed.memtable.region: StoreUnavailable("away") for fixed in full}


def test_for_as_long_as_it_lasts(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(sealing, "seal_and_reanchor", refuse)
        for id in range(5):
            pipeline.upsert("r1", id, a=id)
        pipeline.ingest()
        assert progressing(pipeline)
        pipeline.clock.ahead_s += 6.0
        assert not progressing(pipeline)
        pipeline._worker.step(0)
        assert not pipeline._worker.ready
    while not pipeline._worker.ready:
        pipeline._worker.step(0)


def test_while_one_try_takes_long(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop itself says nothing then: what it shows is asked by another thread."""
    seen: list[bool] = []

    def slow(_: object, full: Iterable[Fixed], __: object) -> Mapping[Region, StoreUnavailable]:
        seen.append(progressing(pipeline))
        pipeline.clock.ahead_s += 6.0
        seen.append(progressing(pipeline))
        return refuse(_, full, __)

    for id in range(5):
        pipeline.upsert("r1", id, a=id)
    with monkeypatch.context() as patched:
        patched.setattr(sealing, "seal_and_reanchor", slow)
        while not seen:
            pipeline._worker.step(0)
    assert seen[:2] == [True, False]
