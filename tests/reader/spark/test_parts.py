"""What the Spark source is made of, without a Spark session: options, types, filters, tasks, memory."""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import duckdb
import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import datasource as ds
from pyspark.sql.types import (
    ArrayType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from lancewal_core.errors import InvalidInput, InvalidSettings, PlanStale
from lancewal_core.settings.executor import storage_options
from lancewal_core.table.lance.pinned import LancePinnedTable
from lancewal_reader.point.at import At
from lancewal_reader.spark import source, task
from lancewal_reader.spark.feed_options import FEED_OPTIONS
from lancewal_reader.spark.options import COUNT, NOT_OF_A_COUNT, OPTIONS, parse_options
from lancewal_reader.spark.plain_errors import plain_errors
from lancewal_reader.spark.session_reads import count
from lancewal_reader.spark.source import (
    SPLIT_BYTES_MIN,
    TASK_BYTES,
    TASKS_MIN,
    LiveFragment,
    PinnedRead,
    PlainReader,
    TaskPartition,
    balanced,
    base_tasks,
    pin_read,
)
from lancewal_reader.spark.task import BaseTask, CountTask, DeltaTask, count_task, run_task
from lancewal_reader.spark.types import check_user_schema, spark_schema, target_schema, to_target
from lancewal_reader.table import open_table
from pyspark_lancewal import DefaultSource
from tests.columns.test_later_types import in_spark
from tests.support.flusher_tables import FlusherTable, delete, upserts
from tests.support.pipeline import EVERY_TYPE, KEY, LATER_TYPES, Pipeline, by_key, random_value

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path, EVERY_TYPE, seed=11)
    for _ in range(3):
        made.produce(60)
        made.merge_all()
    made.produce(120)
    made.ingest()
    yield made
    made.close()


# -- options -----------------------------------------------------------------------------------------------------


def test_options_ignore_case_and_know_an_alias() -> None:
    parsed = parse_options({"Path": "/t", "COLUMNS": "a, b", "Consistency": "Eventual"})
    assert (parsed.table, parsed.columns, parsed.read.consistency) == ("/t", ("a", "b"), "eventual")
    assert parse_options({"table": "/t", "path": "/t"}).table == "/t"
    assert parse_options({"table": "/t", "basePaths": "allow"}).base_paths == "allow"
    assert parse_options({"table": "/t", "FILTER": "a > 1", "At": "version:7"}).read.at == At.version(7)
    for text, seconds in (("5", 5.0), ("2.5", 2.5), ("500ms", 0.5), ("2m", 120.0)):
        assert parse_options({"table": "/t", "maxStalenessS": text}).read.max_staleness_s == seconds
    wanted = (
        "table, catalog, columns, filter, consistency, at, at_least, timeout_s, max_staleness_s, base_paths, conflicts"
    )
    assert set(OPTIONS) == {*wanted.split(", "), "unmerged_keys_max", *FEED_OPTIONS}
    assert not [name for name in OPTIONS if re.search("token|secret|password|credential|url", name)], (
        "Spark hides these"
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "option 'table' is missing"),
        ({"table": "/t", "column": "a"}, "option 'column' is unknown.*table:.*consistency:.*columns:"),
        ({"table": "/t", "path": "/u"}, "name different tables"),
        ({"table": "/t", "consistency": "weak"}, "use 'strong' or 'eventual'"),
        ({"table": "/t", "columns": "a,,b"}, "names separated by commas"),
        ({"table": "/t", "limit": "7"}, r"option 'limit' is unknown: use limit\(\) of the DataFrame"),
        ({"table": "/t", "at": "yesterday"}, "not a receipt, nor another point"),
        ({"table": "/t", "at": "version:7", "consistency": "eventual"}, "cannot be given together"),
        (
            {"table": "/t", "maxStalenessS": "soon"},
            "max_staleness_s='soon': expected a number of seconds, or a duration",
        ),
        (
            {"table": "/t", "max_staleness_s": "5s", "at": "version:7"},
            "at and max_staleness_s cannot be given together",
        ),
        ({"table": "/t", "base__paths_": "no"}, "use 'refuse' or 'allow'"),
        # As Spark 4.0 to 4.3 give them for CREATE TABLE x USING lancewal OPTIONS (table '/t'), and for a read of such a table.
        (
            {"owner": "ann", "option.table": "/t", "provider": "lancewal", "table": "/t"},
            r"^CREATE TABLE .*cannot be read.*use a temporary view: lancewal\.spark\.view\(spark, ADDRESS, NAME\)",
        ),
        ({"Provider": "lancewal", "path": "file:/t"}, "^CREATE TABLE .*use a temporary view"),
        ({}, r"made by CREATE TABLE has lost it.*use a temporary view: lancewal\.spark\.view\("),
        ({"table": "/t", "conflicts": "leave_out"}, "use 'leave-out' or 'fail'"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        parse_options(options)


@pytest.mark.parametrize(
    "name", ["aws_secret_access_key", "AWS_ACCESS_KEY_ID", "sessionToken", "password", "azure_storage_account_key"]
)
def test_credentials_are_refused_and_not_repeated(name: str) -> None:
    with pytest.raises(InvalidInput, match="come from the environment of driver and executors") as caught:
        parse_options({"table": "/t", name: "hush"})
    assert "hush" not in str(caught.value)


def test_storage_options_come_from_the_environment() -> None:
    assert storage_options({"AWS_REGION": "eu-1"}) == {}
    found = storage_options({"LANCEWAL_STORAGE__OPTIONS": '{"aws_region": "eu-1"}'})
    assert found == {"aws_region": "eu-1"}
    assert storage_options({"LANCEWAL_STORAGE__OPTIONS__AWS_REGION": "eu-2"}) == {"aws_region": "eu-2"}
    with pytest.raises(InvalidSettings):
        storage_options({"LANCEWAL_STORAGE__OPTIONS": "{}", "LANCEWAL_STOER__X": "1"})


def test_a_count_is_asked_for_by_its_own_function_alone() -> None:
    assert parse_options({"table": "/t", COUNT: "true", "filter": "a > 1"}).count
    assert not parse_options({"table": "/t"}).count
    for name in NOT_OF_A_COUNT:
        with pytest.raises(InvalidInput, match=f"count: the option {name} does not apply"):
            count(None, "/t", **{name: "a"})  # type: ignore[arg-type] # it comes to no session
    with pytest.raises(InvalidInput, match="filter: Spark takes a condition in Lance's SQL as text, not Expression"):
        count(None, "/t", pc.field("a") > 1)  # type: ignore[arg-type] # what a user may give


# -- types -------------------------------------------------------------------------------------------------------


def test_every_column_type_is_cast_to_what_spark_expects() -> None:
    rng = random.Random(1)
    for schema in (EVERY_TYPE, LATER_TYPES):
        rows = [{f.name: random_value(rng, f.type, 0.3 if f.nullable else 0) for f in schema} for _ in range(200)]
        batch = pa.RecordBatch.from_pylist(rows, schema)
        target = target_schema(spark_schema(schema))
        for part in (batch, batch.slice(7, 50)):
            cast = to_target(part, target)
            assert cast.schema.equals(target)
            assert cast.to_pylist() == [in_spark(row, schema) for row in part.to_pylist()]


def test_zoned_and_local_timestamps_stay_apart() -> None:
    kinds = {field.name: field.dataType for field in spark_schema(EVERY_TYPE)}
    assert isinstance(kinds["at"], TimestampType)
    assert isinstance(kinds["local"], TimestampNTZType)


def user_schema(*fields: StructField) -> StructType:
    return StructType(list(fields))


def test_a_user_schema_may_widen_numbers() -> None:
    fitting = user_schema(
        StructField("f4", DoubleType()), StructField("u8", IntegerType()), StructField("vec", ArrayType(DoubleType()))
    )
    check_user_schema(fitting, EVERY_TYPE)
    batch = pa.RecordBatch.from_pylist([{"f4": 0.5, "u8": 255, "vec": [1.0, 2.0, 3.0]}], pa.schema(
        [EVERY_TYPE.field(name) for name in ("f4", "u8", "vec")]))  # fmt: skip
    assert to_target(batch, target_schema(fitting)).to_pylist() == [{"f4": 0.5, "u8": 255, "vec": [1.0, 2.0, 3.0]}]


@pytest.mark.parametrize(
    ("field", "text"),
    [
        (StructField("nope", LongType()), "name each wanted column once"),
        (StructField("a", IntegerType()), "column 'a' has type bigint in Spark, the schema given says int"),
        (StructField("a", StringType()), "the schema given says string"),
        (StructField("f", FloatType()), "column 'f' has type double"),
        (StructField("a", LongType(), nullable=False), "the schema given says NOT NULL"),
    ],
)
def test_a_user_schema_that_does_not_fit_is_refused(field: StructField, text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        check_user_schema(user_schema(field), EVERY_TYPE)


# -- tasks -------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 1000), max_size=40), st.integers(1, 12))
def test_groups_are_complete_not_empty_and_balanced(sizes: list[int], count: int) -> None:
    groups = balanced(list(enumerate(sizes)), count)
    assert len(groups) == min(count, len(sizes))
    assert sorted(i for group in groups for i in group) == list(range(len(sizes)))
    weights = [sum(sizes[i] for i in group) for group in groups]
    assert all(groups)
    if groups:
        assert max(weights) - min(weights) <= max(sizes)


@given(st.lists(st.tuples(st.integers(0, 400 << 20), st.integers(1, 50)), max_size=30))
def test_each_row_is_one_tasks_and_no_task_has_more_than_it_should(sizes: list[tuple[int, int]]) -> None:
    fragments = [LiveFragment(id, *size) for id, size in enumerate(sizes)]
    total = sum(f.nbytes for f in fragments)
    share = min(TASK_BYTES, max(SPLIT_BYTES_MIN, -(-total // TASKS_MIN)))
    seen: dict[int, list[range]] = {f.fragment_id: [] for f in fragments}
    for cut in base_tasks(fragments):
        assert cut.fragment_ids
        assert cut.rows is None or len(cut.fragment_ids) == 1
        nbytes = 0.0
        for fragment in (fragments[id] for id in cut.fragment_ids):
            rows = range(fragment.rows) if cut.rows is None else cut.rows
            assert rows
            seen[fragment.fragment_id].append(rows)
            nbytes += fragment.nbytes * len(rows) / fragment.rows
        largest = max(fragments[id].nbytes / fragments[id].rows for id in cut.fragment_ids)
        assert nbytes <= share + max(largest, share if cut.rows is None else 0)
    for fragment in fragments:
        ranges = sorted(seen[fragment.fragment_id], key=lambda rows: rows.start)
        assert [row for rows in ranges for row in rows] == list(range(fragment.rows))
        assert (len(ranges) == 1) == (fragment.nbytes <= share or fragment.rows == 1)


@pytest.mark.parametrize("condition", [None, "a > 2", "ok AND a < 5", "id IN (3, 4, 5)"])
def test_ranges_of_large_fragments_together_give_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, condition: str | None
) -> None:
    """Rows of a fragment are hidden, patched in place and unmerged; a filter may be answered by an index."""
    made = Pipeline(tmp_path, EVERY_TYPE, seed=12)
    made.produce(200, regions=4)
    made.merge_all()
    lance.dataset(made.uri).optimize.compact_files()
    made.produce(100, regions=4)
    made.merge_all()
    lance.dataset(made.uri).create_scalar_index("id", "BTREE")
    made.produce(60, regions=4)
    made.ingest()
    monkeypatch.setattr(source, "TASK_BYTES", 1 << 10)
    monkeypatch.setattr(source, "SPLIT_BYTES_MIN", 1 << 10)
    read = pin_read({"table": made.uri})
    tasks = [task for task in read.tasks() if isinstance(task, BaseTask)]
    assert sum(task.rows is not None for task in tasks) > 2 * len({task.fragment_ids for task in tasks})
    assert any(fragment.deleted_rows for fragment in made.table.newest().fragments())
    with duckdb.connect() as engine:
        engine.register("rows", pa.Table.from_pylist(list(made.oracle.values()), EVERY_TYPE))
        found = engine.sql(f"SELECT region, id FROM rows WHERE {condition or 'true'}").fetchall()
    assert by_key(rows_of(read, EVERY_TYPE.names, condition)) == {key: made.oracle[key] for key in found}
    assert {(r["region"], r["id"]) for r in rows_of(read, ["id", "region"], condition).to_pylist()} == set(found)
    made.close()


def test_fragments_of_a_table_with_stable_row_ids_stay_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Lance takes to choose rows by are ids there, which stay when rows move."""
    table = FlusherTable(tmp_path, stable_row_ids=True)
    table.generation(0, upserts(range(50)))
    table.round()
    table.generation(0, [*upserts(range(40, 60), a=1), delete(2)])
    table.round()
    table.dataset.optimize.compact_files(target_rows_per_fragment=1_000)
    monkeypatch.setattr(source, "TASK_BYTES", 100)
    monkeypatch.setattr(source, "SPLIT_BYTES_MIN", 100)
    read = pin_read({"table": table.uri})
    assert [task for task in read.tasks() if isinstance(task, BaseTask)] == [
        BaseTask((f.fragment_id,)) for f in table.dataset.get_fragments()
    ]
    found = [b for task in read.tasks() for b in run_task(read.pinned_plan, task, ["region", "id"], None)]
    assert set(by_key(pa.Table.from_batches(found))) == set(table.model)
    table.close()


def rows_of(read: PinnedRead, columns: list[str], filter: str | None = None) -> pa.Table:
    """All tasks' rows, each from a copy of the plan as an executor gets it."""
    batches: list[pa.RecordBatch] = []
    for one in read.tasks():
        batches += run_task(pickle.loads(pickle.dumps(read.pinned_plan)), one, columns, filter)
    return pa.Table.from_batches(batches, pa.schema([EVERY_TYPE.field(name) for name in columns]))


def test_tasks_together_give_the_table(pipeline: Pipeline) -> None:
    read = pin_read({"table": pipeline.uri})
    assert by_key(rows_of(read, EVERY_TYPE.names)) == pipeline.oracle
    found = by_key(rows_of(read, ["id", "region", "s"], "a > 2"))
    assert set(found) == {key for key, row in pipeline.oracle.items() if row["a"] is not None and row["a"] > 2}
    kinds = [type(task) for task in read.tasks()]
    assert kinds.count(BaseTask) >= 2
    assert kinds.count(DeltaTask) == 1


def test_a_small_delta_is_read_behind_the_lightest_task_of_the_table(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = pin_read({"table": pipeline.uri})
    *others, (lightest, delta) = read.groups()
    assert all(len(group) == 1 and isinstance(group[0], BaseTask) for group in others)
    assert isinstance(lightest, BaseTask)
    assert isinstance(delta, DeltaTask)
    reader = read.reader(read.schema())
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    found = pa.Table.from_batches(batches)
    assert {(row["region"], row["id"]) for row in found.to_pylist()} == set(pipeline.oracle)
    assert found.num_rows == len(pipeline.oracle)
    monkeypatch.setattr(source, "APART_BYTES_MIN", 0)
    assert [len(group) for group in read.groups()] == [1] * (len(others) + 2)


def test_without_a_delta_no_key_is_read(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    scan = LancePinnedTable.scan

    def seen(self: LancePinnedTable, columns: list[str], **more: Any) -> Iterator[pa.RecordBatch]:
        asked.append(list(columns))
        return scan(self, columns, **more)

    monkeypatch.setattr(LancePinnedTable, "scan", seen)
    rows_of(pin_read({"table": pipeline.uri, "consistency": "eventual", "columns": "a"}), ["a"])
    pipeline.merge_all()
    rows_of(pin_read({"table": pipeline.uri, "columns": "a"}), ["a"])
    assert asked
    assert all(columns == ["a"] for columns in asked)


def test_a_dataframe_of_the_same_cut_folds_nothing_again(pipeline: Pipeline) -> None:
    first, second = (pin_read({"table": pipeline.uri}) for _ in range(2))
    assert first.pinned_plan.plan_id != second.pinned_plan.plan_id
    found = by_key(rows_of(first, EVERY_TYPE.names))
    for segment in (Path(pipeline.uri) / "_lancewal" / "wal").rglob("*"):
        if segment.is_file():
            segment.unlink()
    assert by_key(rows_of(second, EVERY_TYPE.names)) == found == pipeline.oracle


def test_what_is_kept_of_deltas_has_a_bound(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "KEPT_BYTES_MAX", 1000)
    monkeypatch.setattr(task, "_kept", None)
    read = pin_read({"table": pipeline.uri})
    assert by_key(rows_of(read, EVERY_TYPE.names)) == pipeline.oracle
    assert task._kept is not None
    assert task._kept[1]._nbytes() <= 1000


def test_a_pinned_read_does_not_move(pipeline: Pipeline) -> None:
    read = pin_read({"table": pipeline.uri})
    before = dict(pipeline.oracle)
    pipeline.produce(100)
    pipeline.merge_all()
    assert by_key(rows_of(read, EVERY_TYPE.names)) == before
    assert by_key(rows_of(pin_read({"table": pipeline.uri}), EVERY_TYPE.names)) == pipeline.oracle


def test_a_point_is_read_again(pipeline: Pipeline) -> None:
    table = open_table(pipeline.uri)
    receipt, before = table.receipt(), dict(pipeline.oracle)
    merged = by_key(table.to_arrow(consistency="eventual"))
    pipeline.produce(100)
    pipeline.merge_all()
    for at in (str(receipt), receipt.to_json()):
        read = pin_read({"table": pipeline.uri, "at": at})
        assert by_key(rows_of(read, EVERY_TYPE.names)) == before
        assert read.receipt == receipt
    read = pin_read({"table": pipeline.uri, "at": f"version:{receipt.version}"})
    assert by_key(rows_of(read, EVERY_TYPE.names)) == merged != before
    elsewhere = str(replace(receipt, place="s3://elsewhere"))
    with pytest.raises(InvalidInput, match="the receipt is of a read at s3://elsewhere"):
        pin_read({"table": pipeline.uri, "at": elsewhere})


def test_the_filter_of_an_option_alone_is_asked_of_lance(pipeline: Pipeline) -> None:
    read = pin_read({"table": pipeline.uri, "filter": "a > 2 OR a < 0"})
    reader = read.reader(read.schema())
    assert isinstance(reader, PlainReader)
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    wanted = {k: r for k, r in pipeline.oracle.items() if r["a"] is not None and (r["a"] > 2 or r["a"] < 0)}
    assert set(by_key(pa.Table.from_batches(batches))) == set(wanted)
    offered = [ds.EqualTo(("ok",), True)]
    assert list(reader.pushFilters(offered)) == offered  # type: ignore[arg-type] # a list of one kind
    with pytest.raises(InvalidInput, match="filter 'a >' is not accepted"):
        pin_read({"table": pipeline.uri, "filter": "a >"})


def test_eventual_plans_no_delta(pipeline: Pipeline) -> None:
    read = pin_read({"table": pipeline.uri, "consistency": "eventual", "columns": "id"})
    assert all(isinstance(task, BaseTask) for task in read.tasks())
    assert rows_of(read, ["id"]).num_rows == lance.dataset(pipeline.uri).count_rows()


def test_an_empty_table_has_no_tasks(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, EVERY_TYPE)
    read = pin_read({"table": pipeline.uri})
    reader = read.reader(read.schema())
    assert reader.partitions() == []
    assert list(reader.read(ds.InputPartition(None))) == []
    pipeline.close()


def test_a_state_that_is_gone_asks_for_a_new_dataframe(pipeline: Pipeline) -> None:
    read = pin_read({"table": pipeline.uri})
    for segment in (Path(pipeline.uri) / "_lancewal" / "wal").rglob("*"):
        if segment.is_file():
            segment.unlink()
    with pytest.raises(PlanStale, match="Make the DataFrame again"):
        rows_of(read, ["id"])


def test_columns_and_a_user_schema_must_agree(pipeline: Pipeline) -> None:
    read = pin_read({"table": pipeline.uri, "columns": "id,a"})
    with pytest.raises(InvalidInput, match="give one of them"):
        read.reader(user_schema(StructField("id", LongType())))
    with pytest.raises(InvalidInput, match=r"columns \[.* unknown; .*the table has"):
        pin_read({"table": pipeline.uri, "columns": "id,nope"})


def test_writes_are_refused_by_name(pipeline: Pipeline) -> None:
    found = DefaultSource({"table": pipeline.uri})
    with pytest.raises(InvalidInput, match=r"Spark only reads this format: .*`lancewal table load`"):
        found.writer(found.schema(), overwrite=False)


def test_what_travels_holds_neither_rows_nor_credentials(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANCEWAL_STORAGE__OPTIONS", '{"aws_secret_access_key": "hush-hush"}')
    pipeline.upsert("r1", 1, s="a text of a row")
    pipeline.ingest()
    read = pin_read({"table": pipeline.uri})
    reader = read.reader(read.schema())
    assert isinstance(reader, PlainReader)
    assert type(reader).pushFilters is ds.DataSourceReader.pushFilters
    sent = pickle.dumps((read, reader, reader.partitions()))
    assert b"hush-hush" not in sent
    assert b"a text of a row" not in sent
    assert all(isinstance(partition, TaskPartition) for partition in reader.partitions())


def test_looking_for_data_sources_does_not_load_lance() -> None:
    code = "import sys, pyspark_lancewal; assert not {'lance', 'pyarrow'} & set(sys.modules), 'loaded'"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


PLAN_IN_PROCESS = """
import json, sys
import lancewal_reader.spark.source as spark, pyarrow as pa
from lancewal_demo.stack.resident_memory import resident_bytes
spark.pin_read({"table": sys.argv[1], "consistency": "eventual"})  # everything imported and opened once
before = resident_bytes("VmHWM")
read = spark.pin_read({"table": sys.argv[1]})
after = resident_bytes("VmHWM")
print(json.dumps({"grown": after - before, "arrow": pa.default_memory_pool().max_memory(),
                  "rows": sum(spark.records_of(s) for d in read.pinned_plan.plan.deltas for s in d.sources)}))
"""


def test_the_driver_never_holds_the_delta(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, pa.schema([*KEY, ("blob", pa.binary())]), seed=2, seal_rows=10**6)
    rows, size, step = 1_000, 64_000, 10
    for i in range(rows):
        pipeline.upsert(f"r{i % 7}", i, blob=pipeline.rng.randbytes(size))
        if i % step == step - 1:
            pipeline.ingest()
    segments = [p.stat().st_size for p in (Path(pipeline.uri) / "_lancewal" / "wal").rglob("*") if p.is_file()]
    assert sum(segments) > rows * size
    assert max(segments) < rows * size / 50  # some are read at a time: all of these together are little of the delta
    done = subprocess.run(
        [sys.executable, "-c", PLAN_IN_PROCESS, pipeline.uri], check=True, capture_output=True, text=True, cwd=ROOT
    )
    measured = json.loads(done.stdout)
    assert measured["rows"] == rows
    assert measured["grown"] < rows * size / 2, measured
    assert measured["arrow"] < rows * size / 20, measured
    pipeline.close()


@pytest.mark.parametrize("condition", [None, "a > 2", "ok", "id < 0"])
def test_tasks_that_count_give_as_many_as_there_are_rows(pipeline: Pipeline, condition: str | None) -> None:
    asked = {"table": pipeline.uri, COUNT: "true", **({} if condition is None else {"filter": condition})}
    read = pin_read(asked)
    reader = read.reader(read.schema())
    found: list[Any] = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert all(batch.num_rows == 1 for batch in found)
    assert (
        sum(batch["rows"][0].as_py() for batch in found) == open_table(pipeline.uri).to_arrow(filter=condition).num_rows
    )
    assert (len(found) == 1) == (condition is None)


def test_a_whole_count_scans_nothing_that_the_key_index_covers(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = pin_read({"table": pipeline.uri}).pinned_plan
    expected = len(pipeline.oracle)

    def scan(*_: object, **__: object) -> None:
        raise AssertionError("scanned")

    monkeypatch.setattr(LancePinnedTable, "scan", scan)
    assert count_task(pinned, CountTask(), None) == expected


def test_only_a_worker_of_spark_that_ends_with_our_error_hides_where_it_came_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SPARK_HIDE_TRACEBACK", raising=False)

    def raised(error: Exception, program: str) -> bool:
        monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec(program, None))
        with pytest.raises(type(error)), plain_errors():
            raise error
        return os.environ.pop("SPARK_HIDE_TRACEBACK", None) is not None

    assert not raised(InvalidInput("ours"), "pytest.__main__")
    assert not raised(KeyError("a bug"), "pyspark.daemon")
    assert raised(InvalidInput("ours"), "pyspark.daemon")
    assert raised(InvalidInput("ours"), "pyspark.sql.worker.create_data_source")
