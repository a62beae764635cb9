"""Hudi: a merge-on-read table with a bucket index; upserts by its data source, compaction apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.peers.spark_peer import SparkPeer, session

_SESSION = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
}
_TABLE = {
    "hoodie.table.name": "upserted",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
    "hoodie.bulkinsert.shuffle.parallelism": "8",
    "hoodie.upsert.shuffle.parallelism": "4",
    # By default every fifth upsert would compact.
    "hoodie.compact.inline": "false",
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": "8",
    "hoodie.storage.layout.type": "BUCKET",
    "hoodie.storage.layout.partitioner.class": "org.apache.hudi.table.action.commit.SparkBucketIndexPartitioner",
}


class HudiPeer(SparkPeer):
    def create(self, rows: Path) -> None:
        self._write(self.spark.read.parquet(str(rows)), "bulk_insert", "overwrite")

    def upsert(self) -> None:
        self._write(self.given, "upsert", "append")

    def read(self) -> Any:
        return self.spark.read.format("hudi").load(str(self.folder))

    def compact(self) -> None:
        options = "options => 'hoodie.compact.inline.max.delta.commits=1'"
        for act in ("schedule", "run"):
            self.spark.sql(f"CALL run_compaction(op => '{act}', path => '{self.folder}', {options})").collect()

    def _write(self, rows: Any, operation: str, mode: str) -> None:
        options = {**_TABLE, "hoodie.datasource.write.operation": operation}
        rows.write.format("hudi").options(**options).mode(mode).save(str(self.folder))


def open_peer(folder: Path) -> HudiPeer:
    return HudiPeer(session(_SESSION), "", folder / "table")
