"""A DataFrame loaded on a local Spark: what comes in is what Spark itself says that the DataFrame holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lancewal_core.errors import InvalidSchema
from lancewal_core.settings.load import Settings
from lancewal_core.settings.sections import TableSettings
from lancewal_tables.load.dataframe import load_dataframe
from lancewal_tables.load.whole import LoadBounds
from tests.spark_versions import loaded
from tests.support.flusher_tables import FlusherTable, delete, upserts
from tests.support.spark import LocalSpark

pytestmark = pytest.mark.spark

OUTPUT, REBASE = "spark.sql.parquet.outputTimestampType", "spark.sql.parquet.datetimeRebaseModeInWrite"
QUERY = "select concat('r', id % 2) region, id, id * 2 a, cast(id as string) s, array('x', null) tags from range(100)"


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    made = FlusherTable(tmp_path)
    made.generation(0, upserts(range(0, 10, 2)))
    made.round()
    yield made
    made.close()


def test_a_dataframe_comes_in(spark: LocalSpark, table: FlusherTable, tmp_path: Path) -> None:
    settings = Settings(table=TableSettings(uri=table.uri))
    frame = spark.session.sql(QUERY)
    with pytest.raises(InvalidSchema, match=r"the DataFrame cannot be loaded: column 'a' has type string"):
        load_dataframe(
            settings, frame.selectExpr("region", "id", "cast(a as string) a", "s", "tags"), str(tmp_path / "w")
        )
    staging = tmp_path / "staging"
    bounds = LoadBounds(part_rows=30)
    done = load_dataframe(settings, frame, str(staging), bounds=bounds)
    assert (done.inserted, done.present, done.files) == (95, 5, 2)
    expected = {(row.region, row.id): row.asDict() for row in frame.collect()}
    table.model = {**expected, **table.model}
    table.check()
    # Again, with what Kafka has deleted since: Spark computes nothing, and no deleted row comes back.
    written = sorted(staging.iterdir())
    table.generation(0, [delete(20), delete(4)])
    table.round()
    again = load_dataframe(settings, frame, str(staging), bounds=bounds)
    assert (again.inserted, again.deleted, sorted(staging.iterdir())) == (0, 2, written)
    table.check()


def test_all_types_of_spark_come_in_exactly(spark: LocalSpark, tmp_path: Path) -> None:
    """Also in years of which nanoseconds know nothing, whatever the session writes times as."""
    made = FlusherTable(tmp_path, columns=loaded.COLUMNS)
    frame = spark.session.sql(loaded.SQL)
    said = spark.session.conf.get(OUTPUT)
    done = load_dataframe(Settings(table=TableSettings(uri=made.uri)), frame, str(tmp_path / "staging"))
    assert done.inserted == len(loaded.ROWS)
    found = made.dataset.to_table(columns=loaded.COLUMNS.names).sort_by("id").to_pylist()
    assert found == loaded.ROWS
    assert spark.session.conf.get(OUTPUT) == said == "INT96"
    written = [pq.ParquetFile(file).schema for file in (tmp_path / "staging").glob("*.parquet")]
    assert written
    assert not [s.column(i) for s in written for i in range(len(s)) if s.column(i).physical_type == "INT96"]
    made.close()


def test_a_session_that_writes_the_former_calendar_is_told_so(spark: LocalSpark, tmp_path: Path) -> None:
    made = FlusherTable(tmp_path, columns=loaded.COLUMNS)
    settings = Settings(table=TableSettings(uri=made.uri))
    frame = spark.session.sql(loaded.SQL)
    spark.session.conf.set(REBASE, "LEGACY")
    try:
        with pytest.raises(InvalidSchema, match=rf"legacy calendar, and column .*{REBASE}=CORRECTED"):
            load_dataframe(settings, frame, str(tmp_path / "old"))
        recent = frame.where("year(at) IN (1969, 2026)")
        assert load_dataframe(settings, recent, str(tmp_path / "recent")).inserted == 2
    finally:
        spark.session.conf.unset(REBASE)
    found = made.dataset.to_table(columns=loaded.COLUMNS.names).sort_by("id").to_pylist()
    assert found == [row for row in loaded.ROWS if row["at"] and row["at"].year in (1969, 2026)]
    made.close()
