"""One table that most tests read, and the flusher's runner for a test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lancewal_flusher.tasks import parcel as task_parcel
from lancewal_flusher.tasks import progress, spark_progress
from lancewal_flusher.tasks.spark_runner import SparkRunner
from tests.support.flusher_tables import FlusherTable
from tests.support.pipeline import EVERY_TYPE, Pipeline
from tests.support.spark import LocalSpark, spark_runner
from tests.support.spark_gate import Gate


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


@pytest.fixture
def runner(spark: LocalSpark, table: FlusherTable) -> SparkRunner:
    """Of the table that the module's own fixture makes."""
    spark.tasks()
    return spark_runner(spark, table)


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    (tmp_path / "gate").mkdir()
    return Gate(tmp_path / "gate")


@pytest.fixture
def seen_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is seen of large jobs alone, of small ones too: a parcel on the store, and progress."""
    monkeypatch.setattr(task_parcel, "INLINE_BYTES_MAX", 0)
    monkeypatch.setattr(spark_progress, "_ASK_S", 0.05)
    monkeypatch.setattr(progress, "PROGRESS_S", 0.0)
