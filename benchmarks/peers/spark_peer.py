"""The common part of peers on Spark: a session with two cores, and a table that SQL can read and MERGE into.

Rows to upsert are a cached DataFrame in two partitions, so that reading them costs no peer any time.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

COLUMNS = ("id", "region", "a", "b", "name", "ts", "pad")
_CORES = 2
_COMMON = {
    "spark.master": f"local[{_CORES}]",
    "spark.driver.memory": "6g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # For two cores: the defaults (200 and 128 MiB) are for clusters, and slow here.
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.files.maxPartitionBytes": "32m",
}


def session(options: Mapping[str, str]) -> Any:
    """A Spark session with the jars of the peer (``fetch``); it fetches none by itself."""
    from pyspark.sql import SparkSession

    jars = sorted(map(str, Path(os.environ["BENCHMARK_PEERS_JARS"]).glob("*.jar")))
    builder: Any = SparkSession.builder
    for name, value in {**_COMMON, "spark.jars": ",".join(jars), **options}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


class SparkPeer:
    """A ``Peer`` by SQL's MERGE INTO; engines differ in ``create`` and ``compact``, Hudi also in ``upsert``."""

    def __init__(self, spark: Any, table: str, folder: Path) -> None:
        self.spark = spark
        self.table = table
        self.folder = folder
        self.given: Any = None

    def pids(self) -> list[int]:
        return []

    def close(self) -> None:
        self.spark.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def give(self, rows: Path) -> None:
        if self.given is not None:
            self.given.unpersist()
        self.given = self.spark.read.parquet(str(rows)).repartition(_CORES).cache()
        self.given.count()

    def upsert(self) -> None:
        self.given.createOrReplaceTempView("given")
        self.spark.sql(
            f"MERGE INTO {self.table} t USING given s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    def read(self) -> Any:
        return self.spark.table(self.table)

    def aggregate(self) -> tuple[int, int, float]:
        (found,) = self.read().selectExpr("count(*)", "sum(a)", "sum(b)").collect()
        return found[0], found[1], found[2]

    def scan(self) -> int:
        """Rows as Spark's inner rows, dropped: the sink ``noop`` does the same, but not every engine takes it."""
        return int(self.read().select(*COLUMNS)._jdf.queryExecution().toRdd().count())

    def view(self, rows: Path) -> None:
        """The base rows as the view ``base``."""
        self.spark.read.parquet(str(rows)).createOrReplaceTempView("base")
