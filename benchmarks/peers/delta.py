"""Delta Lake: MERGE INTO with deletion vectors."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.spark_peer import SparkPeer, session

_OPTIONS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # The state of the log in two parts instead of 50: what suits two cores.
    "spark.databricks.delta.snapshotPartitions": "2",
}


class DeltaPeer(SparkPeer):
    def create(self, rows: Path) -> None:
        self.view(rows)
        properties = "TBLPROPERTIES('delta.enableDeletionVectors'='true')"
        self.spark.sql(f"CREATE TABLE {self.table} USING delta {properties} AS SELECT * FROM base")

    def compact(self) -> None:
        self.spark.sql(f"OPTIMIZE {self.table}")


def open_peer(folder: Path) -> DeltaPeer:
    place = folder / "table"
    return DeltaPeer(session(_OPTIONS), f"delta.`{place}`", place)
