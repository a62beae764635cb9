"""Changes on a local Spark: batches against Python, and streams that keep a dict equal over restarts of their query."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

import lancewal.spark
from lancewal_reader.table import open_table
from tests.support.pipeline import EVERY_TYPE, SMALL, Key, Pipeline, Row
from tests.support.spark import LocalSpark

pytestmark = pytest.mark.spark

ADDED = ("_change_type", "_commit_version", "_commit_timestamp", "_sequence")
_END_S = 240
_STARTS_MAX = 20


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path, SMALL, partitions=2, seed=9)
    made.produce(80)
    made.merge_all()
    made.produce(40)
    made.ingest()
    yield made
    made.close()


def ended(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Run a query to its end.  Spark waits ten seconds for the process that makes offsets: on a busy machine, begin again."""
    for _ in range(_STARTS_MAX):
        query = start()
        try:
            assert query.awaitTermination(_END_S)
            return query
        except StreamingQueryException as error:
            if "Python worker failed to connect back" not in str(error):
                raise
    raise AssertionError("Spark starts no process in time")


class Copy:
    """A copy of the table that a stream keeps by ``foreachBatch``."""

    def __init__(self, spark: LocalSpark, pipeline: Pipeline, checkpoint: Path) -> None:
        self.spark, self.pipeline, self.checkpoint = spark, pipeline, checkpoint
        self.rows: dict[Key, Row] = {}
        self.ends: set[int] = set()
        self.sizes: list[int] = []
        self.fail = False

    def query(self, **options: str) -> StreamingQuery:
        """Start the query; it ends with what is there by now."""
        stream = self.spark.session.readStream.format("lancewal").options(**options).load(self.pipeline.uri)
        writer = stream.writeStream.foreachBatch(self._batch).option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(availableNow=True).start()

    def run(self, **options: str) -> list[dict[str, Any]]:
        """Run the query to its end, and return its progress."""
        query = ended(lambda: self.query(**options))
        return [json.loads(progress.json) for progress in query.recentProgress]

    def _batch(self, batch: DataFrame, number: int) -> None:
        rows = batch.collect()
        if self.fail:
            self.fail = False
            raise RuntimeError("the job is killed after it has read a batch")
        self.sizes.append(len(rows))
        for row in sorted((row.asDict() for row in rows), key=lambda row: row["_change_type"] != "update_preimage"):
            key = (row["region"], row["id"])
            cells = {name: value for name, value in row.items() if name not in ADDED}
            match row["_change_type"]:
                case "insert":
                    assert key not in self.rows
                    self.rows[key] = cells
                case "update_preimage":
                    assert self.rows[key] == cells
                case "update_postimage":
                    self.rows[key] = cells
                case "delete":
                    assert self.rows.pop(key) == cells
        self.ends.add(number)


def test_changes_in_each_mode_are_those_of_python(spark: LocalSpark, tmp_path: Path) -> None:
    made = Pipeline(tmp_path, EVERY_TYPE, partitions=2, seed=5)
    for _ in range(2):
        made.produce(60)
        made.merge_all()
    table = open_table(made.uri)
    start = str(table.receipt())
    made.produce(60)
    made.merge_all()
    made.produce(40)
    made.ingest()
    plain = ["region", "id", "a", "s", "ok", "f", "dec", "bin", "day", "at", "local", "tags", "st", *ADDED]
    for options, arguments, kinds in (
        ({"start": start}, (start,), {"changes"}),
        ({"start": "earliest"}, ("earliest",), {"base", "delta"}),
        ({"startingVersion": "4"}, ("version:3", "now", "commits"), {"changes"}),
    ):
        spark.tasks()
        df = spark.read(made.uri, **options)
        expected = table.changes(*arguments)
        assert df.schema.names == expected.schema.names
        assert lancewal.spark.receipt_of(df) == expected.receipt
        found = df.select(plain).toArrow()
        assert found.num_rows > 0
        assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_arrow().select(plain).to_pylist()))
        assert {task.kind for task in spark.tasks()} == kinds
        assert df.filter("_change_type = 'insert'").count() == expected.to_pandas()["_change_type"].eq("insert").sum()
    made.close()


def test_a_stream_keeps_a_copy_equal_over_restarts(spark: LocalSpark, made: Pipeline, tmp_path: Path) -> None:
    copy = Copy(spark, made, tmp_path / "checkpoint")
    options = {"start": "earliest", "changes": "net", "max_rows_per_trigger": "30"}
    stream = spark.session.readStream.format("lancewal").options(**options).load(made.uri)
    copy.run(**options)
    assert copy.rows == made.oracle
    assert len([size for size in copy.sizes if size]) >= 3
    assert max(copy.sizes) <= 60
    made.produce(50)
    made.merge_all()
    dataset: Any = lance.dataset(made.uri)
    dataset.optimize.compact_files(target_rows_per_fragment=10_000)
    made.produce(20)
    made.ingest()
    copy.fail = True
    with pytest.raises(StreamingQueryException, match="the job is killed"):
        copy.run(**options)
    told = copy.run(**options)[-1]["sources"][0]["latestOffset"]
    assert (told["records_behind"], told["seconds_behind"]) == (0, 0)
    assert copy.rows == made.oracle
    made.change_columns({}, {"more": "int64"})
    made.produce(20)
    made.merge_all()
    writer = stream.writeStream.foreachBatch(copy._batch).option("checkpointLocation", str(copy.checkpoint))
    with pytest.raises(StreamingQueryException, match="Restart the query to go on with the new columns"):
        ended(writer.trigger(availableNow=True).start)
    copy.rows = {key: {**row, "more": None} for key, row in copy.rows.items()}
    copy.run(**options)
    assert copy.rows == made.oracle


def test_the_first_batch_is_read_again_after_a_failure(spark: LocalSpark, made: Pipeline, tmp_path: Path) -> None:
    """Spark asks for the first offset again; the table has changed by then."""
    copy = Copy(spark, made, tmp_path / "checkpoint")
    copy.rows = {key: dict(row) for key, row in made.oracle.items()}
    start = str(open_table(made.uri).receipt())
    made.produce(30)
    made.ingest()
    copy.fail = True
    with pytest.raises(StreamingQueryException, match="the job is killed"):
        copy.run(start=start)
    made.produce(30)
    made.merge_all()
    copy.run(start=start)
    assert copy.rows == made.oracle
