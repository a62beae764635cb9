"""Spark reads tables by name: a batch, a count, changes and a stream."""

from __future__ import annotations

from pathlib import Path

import pytest

import lancewal.spark
from lancewal_core.catalog.catalog import change_table
from lancewal_core.catalog.opened import open_directory
from tests.spark.test_spark_changes import Copy
from tests.support.catalog_entries import entry
from tests.support.pipeline import SMALL, Pipeline, by_key
from tests.support.spark import LocalSpark

pytestmark = pytest.mark.spark


def test_a_table_is_read_by_its_name(spark: LocalSpark, tmp_path: Path) -> None:
    made = Pipeline(tmp_path, SMALL, partitions=2, seed=7)
    made.produce(60)
    made.merge_all()
    made.produce(20)
    made.ingest()
    one = entry("shop.orders", made.uri)
    change_table(open_directory(str(tmp_path)), one.name, lambda _: one)
    by_name = {"catalog": str(tmp_path), "table": "shop.orders"}
    read = spark.session.read.format("lancewal").options(**by_name).load()
    assert by_key(read.toArrow()) == made.oracle
    assert lancewal.spark.count(spark.session, "shop.orders", catalog=str(tmp_path)) == len(made.oracle)
    copy = Copy(spark, made, tmp_path / "checkpoint")
    made.uri = "shop.orders"  # what the stream is given as its path
    copy.run(catalog=str(tmp_path), start="earliest", changes="net")
    assert copy.rows == made.oracle
    made.close()
