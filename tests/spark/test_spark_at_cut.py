"""Spark reads tables at a cut of a catalog."""

from __future__ import annotations

from pathlib import Path

import pytest

import lancewal.spark
from lancewal_flusher.garbage.snapshots import drop_snapshot
from tests.support.pipeline import by_key
from tests.support.spark import LocalSpark
from tests.tables.cuts.lake import TABLES, Lake

pytestmark = pytest.mark.spark


def test_tables_are_read_at_a_cut(spark: LocalSpark, tmp_path: Path, seed: int) -> None:
    lake = Lake(tmp_path, seed=seed)
    lake.produce(40)
    made = lake.make("june")
    lake.produce(20)
    for table in lake.of.values():
        table.merge_all()
    at = {"catalog": str(lake.root), "at": "cut:june"}
    for name in TABLES:
        expected = lake.expected(made, name)
        read = spark.session.read.format("lancewal").options(table=name, **at).load()
        assert by_key(read.toArrow()) == expected != lake.of[name].oracle
        assert str(lancewal.spark.receipt_of(read)) == made.tables[name].receipt
        assert lancewal.spark.count(spark.session, name, **at) == len(expected)
    with pytest.raises(Exception, match="names a cut, and no catalog is known here"):
        spark.session.read.format("lancewal").options(table=lake.of["shop.orders"].uri, at="cut:june").load()
    name = TABLES[0]
    drop_snapshot(lake.of[name].table, made.tables[name].snapshot or "")
    with pytest.raises(
        Exception,
        match=rf"CutMissing: cut june is incomplete: its table {name} cannot be read\. The state is not there",
    ):
        spark.session.read.format("lancewal").options(table=name, **at).load()
    lake.close()
