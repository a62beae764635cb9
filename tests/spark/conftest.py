"""The session and one table that most tests read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.pipeline import EVERY_TYPE, Pipeline
from tests.support.spark import LocalSpark, local_spark


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSpark]:
    """One session for the run; its first query takes seconds, the others about one."""
    with local_spark(tmp_path_factory.mktemp("spark")) as started:
        yield started


@pytest.fixture(scope="session")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """Every column type; at least eight fragments, unmerged snapshots, a WAL tail, patches of merged rows."""
    made = Pipeline(tmp_path_factory.mktemp("table"), EVERY_TYPE, seed=4, seal_rows=10_000)
    for _ in range(8):
        made.produce(80)
        made.merge_all()
    made.produce(60)
    made.ingest()
    made.hand_over()
    made.produce(60)
    made.ingest()
    yield made
    made.close()
