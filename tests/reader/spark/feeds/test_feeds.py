"""Changes and streams as PySpark calls the source, without a Spark session: pickled where PySpark pickles."""

from __future__ import annotations

import datetime
import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType

from lancewal_core.errors import ContractChanged, InvalidInput, SubscriptionMissing, VersionGone
from lancewal_core.names.ids import Position
from lancewal_reader.point.receipt import Receipt
from lancewal_reader.spark.feeds import pinned
from lancewal_reader.spark.feeds.pinned import TASKS_MAX
from lancewal_reader.spark.feeds.stream import ChangeStream, Offset
from lancewal_reader.spark.types import spark_schema
from lancewal_reader.table import open_table
from pyspark_lancewal import DefaultSource
from tests.reader.plan.test_points_across_breaks import BREAKS, Life
from tests.support.pipeline import SMALL, Key, Pipeline, Row
from tests.support.regions import region


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path, SMALL, partitions=3, seed=4)
    for _ in range(3):
        made.produce(80)
        made.merge_all()
    made.produce(60)
    made.ingest()
    yield made
    made.close()


def sent(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def source(pipeline: Pipeline, **options: str) -> DefaultSource:
    return sent(DefaultSource({"table": pipeline.uri, **options}))  # type: ignore[no-any-return] # any object


def read(made: DefaultSource, schema: StructType | None = None) -> pa.Table:
    reader = sent(made.reader(schema or made.schema()))
    batches = [batch for one in reader.partitions() for batch in reader.read(sent(one))]
    return pa.Table.from_batches(batches)


def rows_of(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def held(pipeline: Pipeline) -> dict[Key, Row]:
    return {key: dict(row) for key, row in pipeline.oracle.items()}


def merge(pipeline: Pipeline) -> None:
    pipeline.ingest()
    pipeline.hand_over()
    pipeline.merge()


def compact(pipeline: Pipeline) -> None:
    dataset: Any = lance.dataset(pipeline.uri)
    dataset.optimize.compact_files(target_rows_per_fragment=10_000)


@dataclass
class Query:
    """A query of Spark with its checkpoint: offsets, and the rows that its batches have left in a dict."""

    pipeline: Pipeline
    options: dict[str, str]
    limit: ReadLimit = field(default_factory=ReadAllAvailable)
    offsets: list[dict[str, Any]] = field(default_factory=list)
    rows: dict[Key, Row] = field(default_factory=dict)
    batches: list[pa.Table] = field(default_factory=list)
    reader: Any = None

    def restart(self) -> None:
        if self.reader is not None:
            self.reader.stop()
        made = source(self.pipeline, **self.options)
        self.reader = made.streamReader(made.schema())

    def start(self) -> dict[str, Any]:
        found: dict[str, Any] = self.offsets[-1] if self.offsets else self.reader.initialOffset()
        return found

    def batch(self) -> bool:
        """Run one batch; whether there was one."""
        start = self.start()
        end = json.loads(json.dumps(self.reader.latestOffset(start, self.limit)))
        if end == start:
            return False
        found = self.read(start, end)
        self.batches.append(found)
        for row in sorted(found.to_pylist(), key=lambda row: row["_sequence"]):
            self.apply(row)
        self.offsets.append(end)
        self.reader.commit(end)
        return True

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> pa.Table:
        made = source(self.pipeline, **self.options)
        executor = sent(made.streamReader(made.schema()))  # PySpark makes another one for the tasks
        parts = self.reader.partitions(start, end)
        found = [batch for one in parts for batch in executor.read(sent(one))]
        return pa.Table.from_batches(found, executor._target)

    def apply(self, row: Row) -> None:
        key = (row["region"], row["id"])
        cells = {name: value for name, value in row.items() if not name.startswith("_")}
        match row["_change_type"]:
            case "insert":
                assert key not in self.rows
                self.rows[key] = cells
            case "update_postimage":
                self.rows[key] = cells
            case "delete":
                assert self.rows.pop(key) == cells
            case "update_preimage":
                assert self.rows[key] == cells


# -- batches -----------------------------------------------------------------------------------------------------


def test_changes_are_those_of_python_whatever_tasks_read_them(pipeline: Pipeline) -> None:
    table = open_table(pipeline.uri)
    first = str(table.receipt())
    pipeline.produce(80)
    merge(pipeline)
    pipeline.produce(30)
    pipeline.ingest()
    last = str(table.receipt())
    version = lance.dataset(pipeline.uri).version
    asked: list[tuple[dict[str, str], tuple[Any, ...]]] = [
        ({"start": first, "end": last}, (first, last)),
        ({"start": "earliest", "filter": "a > 0"}, ("earliest", "now", "net", None, "a > 0")),
        ({"start": first, "columns": "id,region", "changes": "net"}, (first, "now", "net", ["id", "region"])),
        ({"startingVersion": "4"}, ("version:3", "now", "commits")),
        (
            {"startingVersion": "4", "endingVersion": str(version - 1)},
            ("version:3", f"version:{version - 1}", "commits"),
        ),
        ({"startingVersion": "4", "deduplicationMode": "netChanges"}, ("version:3", "now", "net")),
        ({"start": first, "changes": "all"}, (first, "now", "all")),
        ({"start": "earliest", "changes": "all"}, ("earliest", "now", "all")),
        ({"start": "earliest", "changes": "commits"}, ("earliest", "now", "commits")),
    ]
    for options, arguments in asked:
        made = source(pipeline, **options)
        expected = table.changes(*arguments)
        found = read(made)
        assert found.num_rows > 0
        assert rows_of(found) == rows_of(expected.to_arrow())
        shown = [(field.name, field.dataType, field.nullable) for field in made.schema()]
        assert shown == [(field.name, field.dataType, field.nullable) for field in spark_schema(expected.schema)]
        assert Receipt.from_json(made.schema().fields[0].metadata["lancewal.receipt"]) == expected.receipt


def test_a_feed_stays_as_it_was_made(pipeline: Pipeline) -> None:
    table = open_table(pipeline.uri)
    for options in ({"start": str(table.receipt())}, {"start": "earliest"}, {"startingVersion": "4"}):
        pipeline.produce(20)
        pipeline.ingest()
        made = source(pipeline, **options)
        before = rows_of(read(made))
        pipeline.produce(60)
        merge(pipeline)
        compact(pipeline)
        assert rows_of(read(made)) == before


def test_each_step_of_commits_is_a_task(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    made = source(pipeline, startingVersion="3")
    whole = rows_of(read(made))
    assert len(made.reader(made.schema()).partitions()) == 3
    monkeypatch.setattr("lancewal_reader.spark.feeds.pinned.TASKS_MAX", 2)
    made = source(pipeline, startingVersion="3")
    assert len(made.reader(made.schema()).partitions()) == 2 < TASKS_MAX
    assert rows_of(read(made)) == whole


def test_times_are_those_of_commits(pipeline: Pipeline) -> None:
    dataset: Any = lance.dataset(pipeline.uri)
    times = {one["version"]: one["timestamp"].astimezone(datetime.UTC) for one in dataset.versions()}
    at = times[4].isoformat()

    def versions(**options: str) -> set[int]:
        return set(read(source(pipeline, **options))["_commit_version"].to_pylist())

    newest = dataset.version
    floor = (times[4].replace(microsecond=times[4].microsecond // 1000 * 1000)).isoformat()
    assert versions(startingTimestamp=floor) == set(range(4, newest + 1))
    assert versions(startingTimestamp=at, startingBoundInclusive="false") == set(range(5, newest + 1))
    assert versions(startingVersion="3", endingTimestamp=at) == {3, 4}
    assert versions(startingVersion="3", endingTimestamp=floor, endingBoundInclusive="false") == {3}
    with pytest.raises(InvalidInput, match=r"option endingTimestamp: .* is in the future"):
        source(pipeline, startingVersion="3", endingTimestamp="2999-01-01T00:00:00Z")


def test_a_schema_of_the_users_own_chooses_columns(pipeline: Pipeline) -> None:
    schema = StructType(
        [
            StructField("_change_type", StringType()),
            StructField("region", StringType()),
            StructField("id", LongType()),
            StructField("_commit_timestamp", TimestampType()),
        ]
    )
    start = str(open_table(pipeline.uri).receipt())
    pipeline.produce(60)
    pipeline.ingest()
    found = read(source(pipeline, start=start), schema)
    expected = open_table(pipeline.uri).changes(start, columns=["region", "id"]).to_arrow().select(found.schema.names)
    assert rows_of(found) == rows_of(expected)
    with pytest.raises(InvalidInput, match="column 'id' has type bigint in Spark"):
        read(source(pipeline, start=start), StructType([StructField("id", IntegerType())]))


def test_an_error_of_the_start_is_raised_when_rows_are_asked_for(pipeline: Pipeline) -> None:
    made = source(pipeline, start="version:99")  # a stream may have passed it long ago
    with pytest.raises(InvalidInput, match="there is no table version 99 yet"):
        made.reader(made.schema())
    with pytest.raises(InvalidInput, match="there is no table version 99 yet"):
        source(pipeline, start="version:99", end="now")
    with pytest.raises(InvalidInput, match=r"\['no'\] unknown"):
        source(pipeline, start="now", columns="no")


def test_options_of_a_batch_are_none_of_a_stream(pipeline: Pipeline) -> None:
    made = source(pipeline, start="now", max_rows_per_trigger="5")
    with pytest.raises(InvalidInput, match="option max_rows_per_trigger is for streams only"):
        made.reader(made.schema())
    made = source(pipeline, start="earliest", end="now")
    with pytest.raises(InvalidInput, match="option end is for batches only"):
        made.streamReader(made.schema())
    made = source(pipeline, startingVersion="4")
    with pytest.raises(InvalidInput, match="a stream takes changes=net or changes=all"):
        made.streamReader(made.schema())
    made = source(pipeline)
    with pytest.raises(InvalidInput, match="a stream reads changes"):
        made.streamReader(made.schema())


# -- streams -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows_max", "mode"), [(11, "net"), (50, "all"), (None, "net")])
def test_a_stream_from_the_empty_table_keeps_a_dict_equal(pipeline: Pipeline, rows_max: int | None, mode: str) -> None:
    limit = ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)
    query = Query(pipeline, {"start": "earliest", "changes": mode}, limit)
    query.restart()
    assert query.batch()
    for number in range(3):
        pipeline.produce(50)
        if number:
            merge(pipeline)
            compact(pipeline)
        pipeline.ingest()
        query.batch()
        query.restart()
    while query.batch():
        if len(query.offsets) % 5 == 0:
            query.restart()
    assert query.rows == pipeline.oracle
    assert not query.batch()


@pytest.mark.parametrize("start", ["earliest", "receipt", "positions", "now"])
def test_a_batch_that_is_read_again_has_the_same_rows(pipeline: Pipeline, start: str) -> None:
    """Also the first one: Spark asks a new reader for the first offset again."""
    table = open_table(pipeline.uri)
    receipt = table.receipt()
    positions = {place.partition: at for place, at in receipt.positions.items()}
    points = {
        "receipt": str(receipt),
        "positions": "positions:" + ",".join(f"{partition}={at}" for partition, at in positions.items()),
    }
    query = Query(pipeline, {"start": points.get(start, start)}, ReadMaxRows(30))
    query.rows = {} if start == "earliest" else held(pipeline)
    query.restart()
    if start == "now":
        query.batch()
    for _ in range(2):
        pipeline.produce(50)
        pipeline.ingest()
        query.batch()
        compact(pipeline)  # positions name a newer version from now on
    merge(pipeline)
    while query.batch():
        pass
    assert query.rows == pipeline.oracle
    compact(pipeline)
    pipeline.produce(40)
    pipeline.ingest()
    query.restart()
    offsets = [query.reader.initialOffset(), *query.offsets]
    for begin, end, rows in zip(offsets, query.offsets, query.batches, strict=False):
        assert rows_of(query.read(begin, end)) == rows_of(rows)
        assert list(query.reader.partitions(end, end)) == []
    assert sum(rows.num_rows for rows in query.batches) > 0


def test_a_bounded_batch_has_no_more_records_than_allowed(pipeline: Pipeline) -> None:
    query = Query(pipeline, {"start": str(open_table(pipeline.uri).receipt())}, ReadMaxRows(25))
    query.rows = held(pipeline)
    query.restart()
    pipeline.produce(100)
    pipeline.ingest()
    lags = []
    while query.batch():
        lags.append(query.reader.reportLatestOffset()["records_behind"])
    assert lags[0] >= 75
    assert lags[-1] == 0
    assert all(before - after <= 25 for before, after in zip([100, *lags], lags, strict=False))
    assert query.reader.reportLatestOffset()["seconds_behind"] == 0
    assert query.reader.reportLatestOffset()["receipt"] == query.offsets[-1]["receipt"]


def test_available_now_ends_at_the_state_of_its_begin(pipeline: Pipeline) -> None:
    query = Query(pipeline, {"start": "earliest"}, ReadMaxRows(40))
    query.restart()
    query.reader.prepareForTriggerAvailableNow()
    then = held(pipeline)
    while query.batch():
        pipeline.produce(10)
        pipeline.ingest()
    assert query.rows == then != pipeline.oracle
    query.restart()
    query.reader.prepareForTriggerAvailableNow()
    while query.batch():
        pass
    assert query.rows == pipeline.oracle


def test_a_default_batch_is_bounded_by_the_option(pipeline: Pipeline) -> None:
    made = source(pipeline, start="now", maxRowsPerTrigger="12")
    assert made.streamReader(made.schema()).getDefaultReadLimit() == ReadMaxRows(12)


def test_a_stream_goes_on_without_admission_control(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """As before PySpark 4.2: ``latestOffset`` has no parameters."""
    monkeypatch.setattr(pinned, "_LIMITS", False)
    receipt = str(open_table(pipeline.uri).receipt())
    version = f"version:{Receipt.parse(receipt).version}"
    merged = {(row["region"], row["id"]): row for row in open_table(pipeline.uri).to_arrow(at=version).to_pylist()}
    for start, rows in (("earliest", {}), (version, merged), (receipt, held(pipeline))):
        query = Query(pipeline, {"start": start})
        query.restart()
        assert type(query.reader) is ChangeStream
        query.rows = {key: dict(row) for key, row in rows.items()}
        for _ in range(3):
            begin, end = query.start(), json.loads(json.dumps(query.reader.latestOffset()))
            again = json.loads(json.dumps(query.reader.latestOffset()))
            assert again == end
            for row in query.read(begin, end).to_pylist():
                query.apply(row)
            assert query.rows == pipeline.oracle
            query.offsets.append(end)
            pipeline.produce(30)
            pipeline.ingest()
            if len(query.offsets) == 2:
                query.restart()
        begin, end = query.start(), json.loads(json.dumps(query.reader.latestOffset()))
        for row in query.read(begin, end).to_pylist():
            query.apply(row)
        assert query.rows == pipeline.oracle


def test_a_changed_column_ends_the_stream_and_a_restart_goes_on(pipeline: Pipeline) -> None:
    query = Query(pipeline, {"start": "earliest"}, ReadMaxRows(60))
    query.restart()
    while query.batch():
        pass
    pipeline.produce(20)
    pipeline.ingest()
    planned = json.loads(json.dumps(query.reader.latestOffset(query.start(), query.limit)))  # logged, and not run
    begin = query.start()
    query.offsets.append(planned)
    pipeline.change_columns({"s": "text"}, {"more": "int64"})
    pipeline.produce(20)
    merge(pipeline)
    says = "'s' is called 'text' now, .* became .*Restart the query to go on with the new columns"
    with pytest.raises(ContractChanged, match=says):
        query.batch()
    query.restart()
    query.rows = {
        key: {**{name: row[name] for name in ("region", "id", "a")}, "text": row["s"], "more": None}
        for key, row in query.rows.items()
    }
    for row in query.read(begin, planned).to_pylist():
        query.apply(row)
    while query.batch():
        pass
    assert query.rows == pipeline.oracle


@pytest.mark.parametrize("named", [{"columns": "region,id,s"}, {"columns": "region,id", "filter": "s > 'a'"}])
@pytest.mark.parametrize("added", [{}, {"s": "string"}], ids=["renamed", "another of the name"])
def test_a_named_column_that_is_renamed_ends_the_stream_with_the_new_name(
    pipeline: Pipeline, named: dict[str, str], added: dict[str, str]
) -> None:
    query = Query(pipeline, {"start": "now", **named})
    query.restart()
    query.batch()
    pipeline.change_columns({"s": "text"}, added)
    pipeline.produce(20)
    merge(pipeline)
    says = "since the stream began: column 's' is called 'text' now. Restart the query to go on with the new columns"
    with pytest.raises(ContractChanged, match=says):
        query.batch()


def test_a_stream_of_named_columns_goes_on_when_others_change(pipeline: Pipeline) -> None:
    query = Query(pipeline, {"start": "earliest", "columns": "region,id,a"})
    query.restart()
    query.batch()
    pipeline.change_columns({"s": None}, {"more": "int64"})
    pipeline.produce(20)
    merge(pipeline)
    while query.batch():
        pass
    assert query.rows == {
        key: {name: row[name] for name in ("region", "id", "a")} for key, row in pipeline.oracle.items()
    }


@pytest.mark.parametrize("break_", ["partitions added", "topic made anew"])
def test_a_stream_goes_on_with_other_partitions(tmp_path: Path, break_: str) -> None:
    life = Life(tmp_path)
    life.go_on(1)
    query = Query(life.pipeline, {"start": "earliest"}, ReadMaxRows(40))
    query.restart()
    while query.batch():
        pass
    life.go_on(1)
    BREAKS[break_](life)
    life.go_on(1)
    while query.batch():
        pass
    assert query.rows == life.pipeline.oracle
    life.pipeline.close()


def test_a_first_snapshot_whose_version_is_gone_is_not_gone_on_with(pipeline: Pipeline) -> None:
    query = Query(pipeline, {"start": "earliest"}, ReadMaxRows(30))
    query.restart()
    query.batch()
    merge(pipeline)
    dataset: Any = lance.dataset(pipeline.uri)
    dataset.cleanup_old_versions(older_than=datetime.timedelta(0))
    query.restart()
    with pytest.raises(VersionGone, match="Begin with a new checkpoint"):
        query.batch()


def test_a_batch_has_the_same_rows_though_another_version_stands_in(pipeline: Pipeline) -> None:
    pipeline.hand_over()
    query = Query(pipeline, {"start": str(open_table(pipeline.uri).receipt())}, rows=held(pipeline))
    query.restart()
    pipeline.produce(20)
    pipeline.ingest()
    query.batch()
    pipeline.merge()  # what was handed over: no record of the batch
    lance.dataset(pipeline.uri).cleanup_old_versions(older_than=datetime.timedelta(0))
    query.restart()
    again = query.read({"initial": True}, query.offsets[0])
    stable = [name for name in again.schema.names if name not in ("_commit_version", "_commit_timestamp")]
    assert rows_of(again.select(stable)) == rows_of(query.batches[0].select(stable))
    assert set(again["_commit_version"].to_pylist()) == {lance.dataset(pipeline.uri).version}
    query.batch()
    assert query.rows == pipeline.oracle


def test_offsets_are_small_and_tell_what_they_are() -> None:
    positions = {region(partition): Position(10**12 + partition) for partition in range(512)}
    receipt = Receipt("t" * 32, 10**6, positions, "s3://bucket/some/folder/trips")  # type: ignore[arg-type] # ids
    offset = Offset(receipt, (12, 7), receipt)
    assert len(json.dumps(offset.json())) < 16 << 10
    assert Offset.of(json.loads(json.dumps(offset.json()))) == offset
    assert Offset.of({"initial": True}) is None
    for wrong in ({}, {"receipt": "lw1.no"}, {"receipt": str(receipt), "part": "x", "row": 1}, {"receipt": 7}):
        with pytest.raises(InvalidInput):
            Offset.of(wrong)


def test_a_stream_commits_to_its_subscription(pipeline: Pipeline) -> None:
    subscriptions = open_table(pipeline.uri).subscriptions()
    subscriptions.create("query")
    query = Query(pipeline, {"subscription": "query"}, rows=held(pipeline))
    for _ in range(2):
        query.restart()
        pipeline.produce(20)
        merge(pipeline)
        while query.batch():
            assert subscriptions.get("query").receipt == query.offsets[-1]["receipt"]
        assert query.rows == pipeline.oracle
        query.offsets.clear()  # without its checkpoint the query goes on from the subscription
    pipeline.produce(20)
    merge(pipeline)
    receipt = subscriptions.get("query").receipt
    batch = read(source(pipeline, subscription="query"))
    assert rows_of(batch) == rows_of(read(source(pipeline, start=receipt)))
    assert subscriptions.get("query").receipt == receipt  # a batch commits nothing
    with pytest.raises(InvalidInput, match="start and subscription each say where changes start"):
        source(pipeline, start="now", subscription="query")
    with pytest.raises(SubscriptionMissing):
        read(source(pipeline, subscription="other"))


def test_a_stream_commits_nothing_to_a_subscription_that_was_created_anew(pipeline: Pipeline) -> None:
    subscriptions = open_table(pipeline.uri).subscriptions()
    former = subscriptions.create("query")
    query = Query(pipeline, {"subscription": "query"}, rows=held(pipeline))
    query.restart()
    for _ in range(2):
        pipeline.produce(20)
        merge(pipeline)
        if former.receipt == subscriptions.get("query").receipt:
            assert query.batch()
    subscriptions.drop("query")
    subscriptions.create("query", former.receipt)
    with pytest.raises(SubscriptionMissing, match="another one has its name since"):
        query.batch()
    assert subscriptions.get("query").receipt == former.receipt
