"""While a store shows no table where there was one, partitions wait to be opened, and the process lives."""

from __future__ import annotations

from pathlib import Path

import pytest

from lancewal_core.errors import StoreUnavailable, TableMissing
from lancewal_core.table.lance.pinned import LancePinnedTable
from lancewal_core.table.lance.table import LanceTable
from lancewal_reader.table import open_table
from tests.support.pipeline import Failures, Pipeline, by_key


def test_a_404_while_partitions_are_opened_is_an_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = Failures()
    pipeline = Pipeline(tmp_path, partitions=2, seed=3, observer=failures)
    pipeline.produce(40)
    newest, answers = LanceTable.newest, iter([True] * 5)

    def shown_later(table: LanceTable) -> LancePinnedTable:
        if next(answers, False):
            raise TableMissing("there is no Lance table")
        return newest(table)

    with monkeypatch.context() as patched:
        patched.setattr(LanceTable, "newest", shown_later)
        pipeline._worker.step(0)
        refused = pipeline._worker.refused
        assert {type(error) for error in refused.values()} == {StoreUnavailable}
        pipeline.ingest()
    assert len(failures.seen) == 5
    assert "The table existed when this process started" in str(failures.seen[0])
    assert by_key(open_table(pipeline.uri).to_arrow()) == pipeline.oracle
    pipeline.close()
