"""``spark.read.format("lancewal")`` on a local Spark with two cores, against a dict."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark import SparkFiles
from pyspark.errors import AnalysisException, PySparkException

import lancewal.spark
from lancewal_core.errors import InvalidInput, TableRestored
from lancewal_flusher.garbage.snapshots import drop_snapshot
from lancewal_reader.spark.source import receipt_of_dataframe
from lancewal_reader.table import open_table, reads_of
from lancewal_tables.snapshots.make import make_snapshot
from tests.security.test_column_names import all_columns
from tests.support.pipeline import EVERY_TYPE, KEY, SMALL, Pipeline, Row, by_key
from tests.support.spark import LocalSpark

pytestmark = pytest.mark.spark


def test_the_whole_table_by_tasks_in_executor_processes(spark: LocalSpark, pipeline: Pipeline) -> None:
    df = spark.read(pipeline.uri)
    spark.tasks()
    assert by_key(df.toArrow()) == pipeline.oracle
    tasks = spark.tasks()
    base = [task for task in tasks if task.kind == "base"]
    fragments = [f.fragment_id for f in lance.dataset(pipeline.uri).get_fragments()]
    assert len(fragments) >= 8
    assert 2 <= len(base) < len(fragments)
    assert sorted(f for task in base for f in task.fragments) == fragments
    assert [task.kind for task in tasks].count("delta") == 1
    assert len({task.pid for task in base}) >= 2
    assert os.getpid() not in {task.pid for task in tasks}
    receipt = receipt_of_dataframe(df)
    assert receipt.version == lance.dataset(pipeline.uri).version
    assert sum(receipt.positions.values()) == 8 * 80 + 2 * 60


def test_eventual_reads_the_merged_table(spark: LocalSpark, pipeline: Pipeline) -> None:
    df = spark.read(pipeline.uri, Consistency="eventual", COLUMNS="id, region, vec,local")
    found = df.toArrow()
    assert found.column_names == ["id", "region", "vec", "local"]
    merged = lance.dataset(pipeline.uri).to_table(columns=found.column_names)
    assert by_key(found) == by_key(merged)
    assert 0 < merged.num_rows != len(pipeline.oracle)
    assert {task.kind for task in spark.tasks()} == {"base"}


def test_a_restored_table_is_read_in_spark(spark: LocalSpark, tmp_path: Path) -> None:
    """An eventual read serves the restored version and claims no position; a strong one stops by name."""
    made = Pipeline(tmp_path, SMALL, partitions=2, seed=3)
    made.produce(80)
    made.merge_all()
    version, rows = made.table.newest().version, dict(made.oracle)
    made.produce(80)
    made.merge_all()
    earlier: Any = lance.dataset(made.uri, version=version)
    earlier.restore()
    df = spark.read(made.uri, consistency="eventual")
    receipt = receipt_of_dataframe(df)
    assert (receipt.version, receipt.positions) == (lance.dataset(made.uri).version, {})
    assert by_key(df.toArrow()) == rows
    with pytest.raises((PySparkException, TableRestored), match="is a restore"):
        spark.read(made.uri).toArrow()
    made.close()


def test_a_dataframe_at_the_receipt_of_another_read(spark: LocalSpark, pipeline: Pipeline) -> None:
    receipt = open_table(pipeline.uri).receipt()
    df = spark.read(pipeline.uri, at=str(receipt), filter="ok")
    assert receipt_of_dataframe(df) == receipt == receipt_of_dataframe(spark.read(pipeline.uri, At=receipt.to_json()))
    assert by_key(df.toArrow()) == {key: row for key, row in pipeline.oracle.items() if row["ok"]}
    context = pipeline.flusher()
    make_snapshot(context, reads_of(context, pipeline.uri), "kept")
    kept = spark.read(pipeline.uri, at="snapshot:kept")
    assert (by_key(kept.toArrow()), receipt_of_dataframe(kept)) == (pipeline.oracle, receipt)
    drop_snapshot(pipeline.table, "kept")


def test_a_user_schema_is_honoured(spark: LocalSpark, pipeline: Pipeline) -> None:
    reader = spark.session.read.format("lancewal").schema("f4 double, region string, id long, u8 int")
    df = reader.load(pipeline.uri)
    expected = {key: {name: row[name] for name in ("f4", "region", "id", "u8")} for key, row in pipeline.oracle.items()}
    assert by_key(df.toArrow()) == expected
    with pytest.raises(InvalidInput, match="no receipt"):
        receipt_of_dataframe(df)


CONDITIONS: list[tuple[str, Callable[[Row], bool]]] = [
    ("a > 0 AND f > 0.5", lambda r: r["a"] is not None and r["a"] > 0 and (r["f"] or 0) > 0.5),
    ("s LIKE 'a%' AND NOT ok", lambda r: (r["s"] or "").startswith("a") and r["ok"] is False),
    ("s IS NULL", lambda r: r["s"] is None),
    (
        "at >= timestamp '1990-01-01 00:00:00' AND u64 > 5",
        lambda r: r["at"] is not None and r["at"].timestamp() >= 631_170_000 and (r["u64"] or 0) > 5,  # in New York
    ),
]


@pytest.mark.parametrize(("sql", "passes"), CONDITIONS, ids=["floats", "text", "nulls", "instants"])
def test_a_frame_used_again_has_all_its_rows(
    spark: LocalSpark, pipeline: Pipeline, sql: str, passes: Callable[[Row], bool]
) -> None:
    """Spark keeps filters that a source took: later actions, and the other side of a join or union, would have them too."""
    rows = pipeline.oracle
    expected = {key: row for key, row in rows.items() if passes(row)}
    assert 0 < len(expected) < len(rows)
    some = {"columns": "region,id,a,f,s,ok,at,u64"}
    with spark.pushdown():
        df = spark.read(pipeline.uri)
        assert by_key(df.filter(sql).toArrow()) == expected
        assert by_key(df.toArrow()) == rows
        df = spark.read(pipeline.uri, **some)
        either = df.filter(sql).selectExpr("region", "id", "1 AS one").union(df.selectExpr("region", "id", "2"))
        assert dict(either.groupBy("one").count().collect()) == {1: len(expected), 2: len(rows)}
        assert df.join(df.filter(sql).select("region", "id"), ["region", "id"]).count() == len(expected)
        assert df.join(df.filter(sql).select("region", "id"), ["region", "id"], "left_anti").count() == len(rows) - len(
            expected
        )
        df = spark.read(pipeline.uri, **some)
        filtered = df.filter(sql).cache()
        assert (filtered.count(), df.count(), filtered.count()) == (len(expected), len(rows), len(expected))
        filtered.unpersist()
        whole = df.cache()
        assert (whole.filter(sql).count(), whole.count()) == (len(expected), len(rows))
        whole.unpersist()
        lancewal.spark.view(spark.session, pipeline.uri, "again", **some)
        counts = f"SELECT (SELECT count(*) FROM again WHERE {sql}), (SELECT count(*) FROM again)"
        assert spark.session.sql(counts).first() == (len(expected), len(rows))
        assert spark.session.sql("SELECT count(*) FROM again").first() == (len(rows),)
        both = spark.read(pipeline.uri, filter="ok", **some)  # the option stays, and is asked of Lance
        kept = {key: row for key, row in rows.items() if row["ok"]}
        assert both.filter(sql).count() == sum(map(passes, kept.values()))
        assert by_key(both.select("region", "id").toArrow()).keys() == kept.keys()


def test_columns_of_any_name(spark: LocalSpark, tmp_path: Path) -> None:
    """Names that differ in case alone need Spark to tell them apart."""
    made = Pipeline(tmp_path, all_columns(), partitions=2)
    names = made.contract.rows.columns.names[2:]
    made.produce(60)
    made.merge_all()
    made.produce(40)
    made.ingest()
    spark.session.conf.set("spark.sql.caseSensitive", "true")
    try:
        df = spark.read(made.uri)
        assert df.columns == ["region", "id", *names]
        assert by_key(df.toArrow()) == made.oracle
        nulls = df.selectExpr("region", "id", *(f"`{name}` IS NULL AS n{number}" for number, name in enumerate(names)))
        assert by_key(nulls.toArrow()) == {
            key: {
                "region": key[0],
                "id": key[1],
                **{f"n{number}": row[name] is None for number, name in enumerate(names)},
            }
            for key, row in made.oracle.items()
        }
        plain = ["region", "id", *(name for name in names if "," not in name and name == name.strip())]
        narrow = spark.read(made.uri, columns=",".join(plain), filter=f"`{names[-1]}` IS NULL")
        assert narrow.columns == plain
        assert set(by_key(narrow.toArrow())) == {key for key, row in made.oracle.items() if row[names[-1]] is None}
        others = spark.session.read.format("lancewal").schema(df.drop(*plain[2:]).schema).load(made.uri)
        assert {*others.columns} == {*df.columns} - {*plain[2:]}
        assert by_key(others.toArrow()) == by_key(df.select(*(f"`{name}`" for name in others.columns)).toArrow())
    finally:
        spark.session.conf.unset("spark.sql.caseSensitive")
    made.close()


def test_nanoseconds_before_1970_are_floored_and_filtered_as_seen(spark: LocalSpark, tmp_path: Path) -> None:
    """Merged and unmerged: the row's value, as Spark has it, is what a filter is asked of."""
    made = Pipeline(tmp_path, pa.schema([*KEY, ("at", pa.timestamp("ns", "UTC"))]))
    times = [-1_000_000_001, -1001, -1000, -999, -1, 0, 1, 999, 1000]
    for id, ns in enumerate(times):
        made.upsert("r1", id, at=pa.scalar(ns, pa.timestamp("ns", "UTC")).as_py())
        if id == 4:
            made.merge_all()
    made.ingest()
    seen = {id: ns // 1000 for id, ns in enumerate(times)}
    df = spark.read(made.uri)
    found = df.selectExpr("id", "unix_micros(at) AS us")
    assert {row.id: row.us for row in found.collect()} == seen
    conditions: list[tuple[str, Callable[[int], bool]]] = [
        ("at = timestamp_micros(-1)", lambda us: us == -1),
        ("at < timestamp_micros(-1)", lambda us: us < -1),
        ("at >= timestamp_micros(0)", lambda us: us >= 0),
        ("NOT at <= timestamp_micros(-1)", lambda us: us > -1),
    ]
    for sql, passes in conditions:
        assert {row.id for row in df.filter(sql).collect()} == {id for id, us in seen.items() if passes(us)}, sql
    made.close()


def test_one_dataframe_is_one_state(spark: LocalSpark, tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, SMALL, seed=9)
    pipeline.produce(60)
    pipeline.merge_all()
    pipeline.produce(30)
    pipeline.ingest()
    before = dict(pipeline.oracle)
    df = spark.read(pipeline.uri)
    spark.session.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW some USING lancewal OPTIONS(table '{pipeline.uri}', columns 'id')"
    )
    pipeline.produce(60)
    pipeline.merge_all()
    with spark.pushdown():  # a query with filters is planned anew
        assert by_key(df.filter("id >= 0").toArrow()) == before
    assert by_key(df.toArrow()) == before
    assert spark.session.sql("SELECT count(*) FROM some").first() == (len(before),)
    assert by_key(spark.read(pipeline.uri).toArrow()) == pipeline.oracle
    # What the state needs is gone: the task says what to do.
    pipeline.produce(20)
    pipeline.ingest()
    stale = spark.read(pipeline.uri)
    for segment in (Path(pipeline.uri) / "_lancewal" / "wal").rglob("*"):
        if segment.is_file():
            segment.unlink()
    with pytest.raises(PySparkException, match="Make the DataFrame again"):
        stale.toArrow()
    pipeline.close()


def test_an_empty_table(spark: LocalSpark, tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, SMALL)
    found = spark.read(pipeline.uri).toArrow()
    assert (found.num_rows, found.column_names) == (0, SMALL.names)
    pipeline.close()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"column": "id"}, "option 'column' is unknown"),
        ({"aws_secret_access_key": "hush"}, "come from the environment of driver and executors"),
    ],
)
def test_wrong_options_are_named(spark: LocalSpark, pipeline: Pipeline, options: dict[str, str], text: str) -> None:
    with pytest.raises(AnalysisException, match=text) as caught:
        spark.read(pipeline.uri, **options)
    said = str(caught.value).strip().splitlines()
    assert "lancewal_core.errors.InvalidInput: option" in said[0]
    assert said[1:] == [" SQLSTATE: 38000"]  # no traceback


def test_a_table_of_sparks_own_is_refused_and_a_view_is_named(spark: LocalSpark, pipeline: Pipeline) -> None:
    """Spark gives the options of a table in its catalog to no read of a Python source: none of these could ever work."""
    options = f"OPTIONS (table '{pipeline.uri}')"
    with_columns = f"CREATE TABLE no_view (id BIGINT, region STRING) USING lancewal {options}"
    spark.session.sql(with_columns)  # Spark asks nobody
    try:
        for sql in (
            f"CREATE TABLE never_made USING lancewal {options}",
            "SELECT id FROM no_view",
        ):
            with pytest.raises(AnalysisException, match=r"use a temporary view: lancewal\.spark\.view\(") as caught:
                spark.session.sql(sql).collect()
            said = str(caught.value).strip().splitlines()
            assert "lancewal_core.errors.InvalidInput: " in said[0]
            assert said[1:] == [" SQLSTATE: 38000"], sql
        assert not spark.session.catalog.tableExists("never_made")
    finally:
        spark.session.sql("DROP TABLE no_view")


def test_errors_of_a_plan_are_one_line(spark: LocalSpark, pipeline: Pipeline) -> None:
    plans: list[tuple[str, Callable[[], object]]] = [
        ("TableMissing: there is no table at", lambda: spark.read(f"{pipeline.uri}-none")),
        ("InvalidInput: there is no table version 99999 yet", lambda: spark.read(pipeline.uri, at="version:99999")),
        ("InvalidInput: filter 'no = 3' is not accepted", lambda: spark.read(pipeline.uri, filter="no = 3")),
        (
            "InvalidInput: column 'id' has type bigint in Spark",
            lambda: spark.session.read.format("lancewal").schema("id string").load(pipeline.uri).collect(),
        ),
    ]
    for text, plan in plans:
        with pytest.raises(AnalysisException) as caught:
            plan()
        said = str(caught.value).strip().splitlines()
        assert f"lancewal_core.errors.{text}" in said[0]
        assert len(said) == 2


def test_counts_give_as_many_as_there_are_rows_and_send_none(spark: LocalSpark, pipeline: Pipeline) -> None:
    spark.tasks()
    assert lancewal.spark.count(spark.session, pipeline.uri) == len(pipeline.oracle)
    assert [task.kind for task in spark.tasks()] == ["count"]
    open_ones = sum(1 for row in pipeline.oracle.values() if row["ok"])
    assert lancewal.spark.count(spark.session, pipeline.uri, "ok") == open_ones
    assert "count" not in {task.kind for task in spark.tasks()}
    merged = lance.dataset(pipeline.uri)
    for read in ({"consistency": "eventual"}, {"at": lancewal.At.version(merged.version)}):
        assert lancewal.spark.count(spark.session, pipeline.uri, at_least=None, **read) == merged.count_rows()
        assert lancewal.spark.count(spark.session, pipeline.uri, filter="ok", **read) == merged.count_rows("ok")
    with pytest.raises(AnalysisException, match="InvalidInput: filter 'no = 3'"):
        lancewal.spark.count(spark.session, pipeline.uri, filter="no = 3")


def test_processes_of_an_executor_share_the_keys_of_one_cut(spark: LocalSpark, tmp_path: Path) -> None:
    made = Pipeline(tmp_path, SMALL, seed=21)
    for _ in range(4):
        made.produce(60)
        made.merge_all()
    made.produce(60)
    made.ingest()
    folder = Path(SparkFiles.getRootDirectory())
    before = set(folder.glob("lancewal-keys-*.arrow"))
    spark.tasks()
    for columns in ("id,region", "id,region,a,s", "id,region"):
        found = spark.read(made.uri, columns=columns).toArrow()
        assert {(row["region"], row["id"]) for row in found.to_pylist()} == set(made.oracle)
    assert len({task.pid for task in spark.tasks() if task.kind == "base"}) >= 2
    assert len(set(folder.glob("lancewal-keys-*.arrow")) - before) == 1
    made.close()


def test_a_view_is_one_state_under_a_name(spark: LocalSpark, pipeline: Pipeline) -> None:
    receipt = open_table(pipeline.uri).receipt()
    df = lancewal.spark.view(spark.session, pipeline.uri, "orders", columns=["id", "region"], at=receipt)
    assert receipt_of_dataframe(df) == receipt
    found = spark.session.sql("SELECT id, region FROM orders").collect()
    assert {(row.region, row.id) for row in found} == set(pipeline.oracle)
    assert spark.session.table("orders").columns == ["id", "region"]
    lancewal.spark.view(spark.session, pipeline.uri, "orders", filter="ok")
    expected = sum(1 for row in pipeline.oracle.values() if row["ok"])
    assert spark.session.sql("SELECT count(*) FROM orders").first() == (expected,)


def test_types_of_the_exchange(spark: LocalSpark, pipeline: Pipeline) -> None:
    kinds = dict(spark.read(pipeline.uri, consistency="eventual").dtypes)
    assert list(kinds) == EVERY_TYPE.names
    assert {name: kinds[name] for name in ("u8", "u32", "u64", "dec", "at", "fine", "local", "st", "vec", "bits")} == {
        "u8": "smallint",
        "u32": "bigint",
        "u64": "decimal(20,0)",
        "dec": "decimal(12,2)",
        "at": "timestamp",
        "fine": "timestamp",
        "local": "timestamp_ntz",
        "st": "struct<x:int,names:array<string>>",
        "vec": "array<float>",
        "bits": "array<smallint>",
    }
    assert pa.types.is_fixed_size_list(EVERY_TYPE.field("vec").type)
