"""Iceberg, format version 3: MERGE INTO, merge on read, with deletion vectors."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.spark_peer import SparkPeer, session

_PROPERTIES = {
    "format-version": "3",
    "write.merge.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.delete.mode": "merge-on-read",
}


class IcebergPeer(SparkPeer):
    def create(self, rows: Path) -> None:
        self.view(rows)
        properties = ", ".join(f"'{name}'='{value}'" for name, value in _PROPERTIES.items())
        self.spark.sql(f"CREATE TABLE {self.table} USING iceberg TBLPROPERTIES({properties}) AS SELECT * FROM base")

    def compact(self) -> None:
        self.spark.sql(
            "CALL peer.system.rewrite_data_files(table => 'db.upserted', options => map('rewrite-all', 'true'))"
        )


def open_peer(folder: Path) -> IcebergPeer:
    place = folder / "warehouse"
    catalog = {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.peer": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.peer.type": "hadoop",
        "spark.sql.catalog.peer.warehouse": str(place),
    }
    return IcebergPeer(session(catalog), "peer.db.upserted", place)
