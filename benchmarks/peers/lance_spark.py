"""Lance's own connector for Spark: MERGE INTO."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.peers.spark_peer import SparkPeer, session


class LanceSparkPeer(SparkPeer):
    def create(self, rows: Path) -> None:
        self.view(rows)
        self.spark.sql(f"CREATE TABLE {self.table} AS SELECT * FROM base")

    def compact(self) -> None:
        self.spark.sql(f"OPTIMIZE {self.table}").collect()

    def aggregate_of(self, place: Path) -> tuple[int, int, float]:
        return self._of(place).aggregate()

    def scan_of(self, place: Path) -> int:
        return self._of(place).scan()

    def _of(self, place: Path) -> SparkPeer:
        """A data set that others wrote, by its folder."""
        return _Reader(self.spark, str(place), self.folder)


class _Reader(SparkPeer):
    def read(self) -> Any:
        return self.spark.read.format("lance").load(self.table)


def open_peer(folder: Path) -> LanceSparkPeer:
    place = folder / "tables"
    place.mkdir()
    catalog = {
        "spark.sql.extensions": "org.lance.spark.extensions.LanceSparkSessionExtensions",
        "spark.sql.catalog.peer": "org.lance.spark.LanceNamespaceSparkCatalog",
        "spark.sql.catalog.peer.impl": "dir",
        "spark.sql.catalog.peer.root": str(place),
    }
    return LanceSparkPeer(session(catalog), "peer.default.upserted", place)
