"""One table that most tests read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.pipeline import EVERY_TYPE, Pipeline


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
