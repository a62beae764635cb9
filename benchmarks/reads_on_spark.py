"""Compare reads in Spark with a minimal Python source over the same files: the same rows, two cores, medians, in turns.

The minimal source has one task for each fragment, which only passes the batches of a Lance scanner to Spark: it has no
unmerged rows, filters or pins.  The table has ``ROWS`` base rows and ``ROUNDS`` rounds of merged upserts of random
keys.  At last 1 % of the keys are upserted once more and stay unmerged; the minimal source does not see these rows.

*Full* reads all columns as Spark rows into the sink ``noop``. *Aggregate* sums two columns; both sources are told to
       read only these.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.elapsed import seconds
from benchmarks.spark_session import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, ROUNDS, ROUND_ROWS = 2_000_000, 5, 40_000
RUNS = 9
TWO = ("a", "b")


def run() -> dict[str, float]:
    """Spark in a process of its own: its workers must be there before Lance is loaded."""
    from benchmarks.ingested_table import IngestedTable

    with tempfile.TemporaryDirectory(prefix="lancewal-benchmark-") as folder:
        made = IngestedTable(Path(folder) / "table", ROWS)
        made.index()
        for _ in range(ROUNDS):
            made.upsert_flushed(ROUND_ROWS)
            made.merge()
        found = _on_spark(made.uri, "merged")
        made.upsert(ROWS // 100)
        return found | _on_spark(made.uri, "unmerged")


def _on_spark(uri: str, state: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.reads_on_spark", uri, state]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(uri: str, state: str) -> None:
    spark = local_session()
    spark.dataSource.register(_barest())
    try:
        print(json.dumps(_compare(spark, uri, state)))
    finally:
        spark.stop()


def _compare(spark: SparkSession, uri: str, state: str) -> dict[str, float]:
    def read(source: str, columns: tuple[str, ...], options: dict[str, str]) -> Any:
        named = {"table": uri, **options} | ({"columns": ",".join(columns)} if columns else {})
        return spark.read.format(source).options(**named).load()

    def full(source: str, **options: str) -> Callable[[], object]:
        return lambda: read(source, (), options).write.format("noop").mode("overwrite").save()

    def aggregate(source: str, **options: str) -> Callable[[], object]:
        return lambda: read(source, TWO, options).selectExpr("count(*)", "sum(a)", "sum(b)").collect()

    found: dict[str, float] = {}
    for name, kind in (("full", full), ("aggregate", aggregate)):
        sides = {"barest": kind("barest"), "strong": kind("lancewal")}
        if state == "merged":
            sides["eventual"] = kind("lancewal", consistency="eventual")
            if name == "aggregate" and len({str(act()) for act in sides.values()}) != 1:
                raise AssertionError("not the same sums")
        spent: dict[str, list[float]] = {side: [] for side in sides}
        for _ in range(RUNS + 1):
            for side, act in sides.items():
                spent[side].append(seconds(act))
        took = {side: statistics.median(times[1:]) for side, times in spent.items()}  # the first warms
        found |= {f"{state}_{name}_{side}_s": took[side] for side in sides}
        found |= {f"{state}_{name}_{side}_ratio": took[side] / took["barest"] for side in sides if side != "barest"}
    return found


def _barest() -> type[Any]:
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Barest(DataSource, DataSourceReader):
        @classmethod
        def name(cls) -> str:
            return "barest"

        def schema(self) -> Any:
            import lance
            from pyspark.sql.pandas.types import from_arrow_schema

            dataset = lance.dataset(self.options["table"])
            return from_arrow_schema(dataset.scanner(columns=self._columns()).projected_schema)

        def reader(self, schema: Any) -> Any:
            return self

        def partitions(self) -> list[InputPartition]:
            import lance

            return [InputPartition(f.fragment_id) for f in lance.dataset(self.options["table"]).get_fragments()]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            import lance

            dataset = lance.dataset(self.options["table"])
            fragments = [f for f in dataset.get_fragments() if f.fragment_id == partition.value]
            yield from dataset.scanner(columns=self._columns(), fragments=fragments).to_batches()

        def _columns(self) -> list[str] | None:
            return self.options["columns"].split(",") if "columns" in self.options else None

    return Barest


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(*sys.argv[1:])
    else:
        print(json.dumps(run(), indent=1))
