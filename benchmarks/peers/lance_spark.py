"""Lance's own connector for Spark: MERGE INTO."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.spark_peer import SparkPeer, session

_PACKAGE = "org.lance:lance-spark-3.5_2.12:0.4.0"


class LanceSparkPeer(SparkPeer):
    def create(self, rows: Path) -> None:
        self.view(rows)
        self.spark.sql(f"CREATE TABLE {self.table} AS SELECT * FROM base")

    def compact(self) -> None:
        self.spark.sql(f"OPTIMIZE {self.table}").collect()


def open_peer(folder: Path) -> LanceSparkPeer:
    place = folder / "tables"
    place.mkdir()
    catalog = {
        "spark.sql.extensions": "org.lance.spark.extensions.LanceSparkSessionExtensions",
        "spark.sql.catalog.peer": "org.lance.spark.LanceNamespaceSparkCatalog",
        "spark.sql.catalog.peer.impl": "dir",
        "spark.sql.catalog.peer.root": str(place),
    }
    return LanceSparkPeer(session(_PACKAGE, catalog), "peer.default.upserted", place)
