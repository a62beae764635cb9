"""A DataFrame loaded on a local Spark: what comes in is what Spark itself says that the DataFrame holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lancewal_core.errors import InvalidSchema
from lancewal_core.settings.load import Settings
from lancewal_core.settings.sections import TableSettings
from lancewal_flusher.load.dataframe import load_dataframe
from lancewal_flusher.load.whole import LoadBounds
from tests.support.flusher_tables import FlusherTable, delete, upserts
from tests.support.spark import LocalSpark

pytestmark = pytest.mark.spark

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
