"""Credentials that may not delete: collecting says so and ends, nothing else needs it, and what waits goes once they may."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from lancewal_core.errors import StoreUnavailable
from lancewal_core.store.folder import FolderStore
from lancewal_reader.table import open_table
from tests.support.pipeline import Pipeline, by_key

HOUR_S = 3600.0


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path, seed=3, partitions=2, history_window_s=1, grace_s=1)
    made.produce(80)
    made.merge_all()
    made.produce(80)
    made.merge_all()
    yield made
    made.close()


def test_the_collector_says_so_and_all_else_goes_on(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(store: FolderStore, keys: Sequence[str]) -> None:
        raise StoreUnavailable(f"could not delete {keys[0]!r}: denied", object=keys[0])

    before = set(pipeline.objects(".arrow"))
    with monkeypatch.context() as patched:
        patched.setattr(FolderStore, "delete", forbidden)
        said = None
        for _ in range(3):
            pipeline.clock.ahead_s += HOUR_S
            try:
                pipeline.collect()
            except StoreUnavailable as error:
                said = error
        assert said is not None
        assert "denied" in str(said)
        assert before <= set(pipeline.objects(".arrow"))
        pipeline.produce(40)
        pipeline.merge_all()
        assert by_key(open_table(pipeline.uri).to_arrow()) == pipeline.oracle
    for _ in range(3):
        pipeline.clock.ahead_s += HOUR_S
        pipeline.collect()
    assert not before <= set(pipeline.objects(".arrow"))
    assert by_key(open_table(pipeline.uri).to_arrow()) == pipeline.oracle
