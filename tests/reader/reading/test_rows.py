"""``Rows`` and the forms that a table gives: the same rows at each use, and some batches at a time."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import lance
import numpy as np
import polars
import pyarrow as pa
import pytest

import lancewal
from lancewal_core.errors import InvalidInput, VersionGone
from lancewal_flusher.garbage import find as garbage
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_reader.plan.strong import PlanContext, ReadPlan, plan_strong
from lancewal_reader.point.at import At
from lancewal_reader.point.receipt import Receipt, receipt_of
from lancewal_reader.reading import reads as reads_module
from lancewal_reader.reading import scan as scan_module
from lancewal_reader.reading.reads import Planned, Reads
from lancewal_reader.reading.rows import Rows
from lancewal_reader.reading.scan import scan_plan
from lancewal_reader.table import open_table
from tests.support.pipeline import EVERY_TYPE, KEY, Key, Pipeline, Row, by_key

CLEANED_UP = 6
"""The step in which versions are cleaned up."""


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path, seed=3, seal_rows=25, batch=15, grace_s=0)
    yield made
    made.close()


def clean_up(pipeline: Pipeline) -> None:
    """A user removes all versions but the newest."""
    lance.dataset(pipeline.uri).cleanup_old_versions(older_than=timedelta(0), delete_unverified=False)


@pytest.mark.in_turns("seed", each=2)
@pytest.mark.parametrize("seed", range(2))
def test_rows_that_are_used_again_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Each against the dict of its moment, through merges, compaction, clean-up of versions and collected garbage."""
    monkeypatch.setattr(garbage, "HISTORY_PAGE_AT", 3)
    monkeypatch.setattr(garbage, "HISTORY_PAGE_REST", 1)
    pipeline = Pipeline(tmp_path, EVERY_TYPE, seed=seed, seal_rows=20, batch=20, grace_s=0)
    rng, table = pipeline.rng, open_table(pipeline.uri)
    planned: list[tuple[Rows, dict[Key, Row]]] = []
    merged: dict[Key, Row] = {}
    used = 0
    for step in range(8):
        pipeline.produce(rng.randrange(60))
        pipeline.ingest()
        planned += [(table.scan(), dict(pipeline.oracle)), (table.scan(consistency="eventual"), dict(merged))]
        if step % 2:
            assert by_key(planned[-2][0].to_arrow()) == pipeline.oracle
        match step % 4:
            case 0:
                pipeline.merge_all(MergeLimits(adopt_rows=rng.choice([1, 1000])))
                merged = dict(pipeline.oracle)
            case 1:
                pipeline.crash()
            case 2:
                lance.dataset(pipeline.uri).optimize.compact_files()
            case _:
                pipeline.merge()  # what was sealed
                merged = by_key(table.to_arrow(consistency="eventual"))
        if step == CLEANED_UP:
            pipeline.merge()
            merged = by_key(table.to_arrow(consistency="eventual"))
            clean_up(pipeline)
        pipeline.collect()
        for rows, expected in rng.sample(planned, min(4, len(planned))):
            receipt = rows.receipt
            try:
                assert by_key(rows.to_arrow()) == by_key(rows.to_arrow()) == expected
                used += 1
            except VersionGone:
                assert step >= CLEANED_UP
            assert rows.receipt == receipt == receipt_of(rows.schema)
    assert used >= 20
    pipeline.close()


@pytest.mark.parametrize("by_address", [False, True])
def test_a_stream_goes_on_when_what_was_unmerged_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_address: bool
) -> None:
    """Merged and collected, with other states read meanwhile.  ``by_address``: what it hides was found by another read."""
    monkeypatch.setattr(scan_module, "_LOOKED_UP_ONE_OF", 0.001 if by_address else 1_000_000)
    pipeline = Pipeline(tmp_path, seed=4, seal_rows=25, batch=15, grace_s=0, history_window_s=0)
    pipeline.produce(60)
    pipeline.merge_all()
    pipeline.produce(40)
    pipeline.ingest()
    table, expected = open_table(pipeline.uri, cache_bytes_max=0), dict(pipeline.oracle)
    if by_address:
        for _ in range(2):
            table.to_arrow(["s"])
    rows = table.scan()
    stream = rows.to_reader()
    batches = [stream.read_next_batch()]
    for _ in range(2):
        pipeline.produce(40)
        pipeline.merge_all()
        pipeline.collect()
        pipeline.collect()
        pipeline.produce(5)
        pipeline.ingest()
        assert by_key(table.to_arrow()) == pipeline.oracle
    named = {source.key for delta in rows._planned.plan.deltas for source in delta.sources}
    assert named
    assert all(pipeline.store.get(key) is None for key in named)
    assert by_key(pa.Table.from_batches([*batches, *stream])) == expected
    pipeline.close()


def test_a_version_that_went_is_replaced_at_the_receipt(pipeline: Pipeline) -> None:
    """Never by a newer one; and where nothing stands in, that is said."""
    pipeline.produce(60)
    pipeline.merge_all(MergeLimits(adopt_rows=1))
    pipeline.produce(40)
    pipeline.ingest()
    expected = dict(pipeline.oracle)
    rows = open_table(pipeline.uri).scan()
    receipt = rows.receipt
    lance.dataset(pipeline.uri).update_config({"mine": "1"})  # a version with the same rows
    clean_up(pipeline)
    pipeline.produce(40)
    pipeline.ingest()
    assert by_key(rows.to_arrow()) == by_key(rows.to_arrow()) == expected != pipeline.oracle
    assert rows.receipt == receipt
    pipeline.merge_all()
    clean_up(pipeline)
    with pytest.raises(VersionGone, match=f"table version {receipt.version} of the receipt is gone"):
        rows.to_arrow()


def test_a_text_is_the_receipt(pipeline: Pipeline) -> None:
    pipeline.produce(60)
    pipeline.merge_all()
    merged, version = dict(pipeline.oracle), pipeline.table.newest().version
    pipeline.produce(60)
    pipeline.ingest()
    table = open_table(pipeline.uri)
    receipt, expected = table.receipt(), dict(pipeline.oracle)
    assert receipt == table.scan().receipt == receipt_of(table.to_arrow().schema)
    pipeline.produce(60)
    pipeline.merge_all()
    for point in (receipt, str(receipt), receipt.to_json(), receipt.to_json().encode()):
        assert (
            by_key(table.to_arrow(at=point)) == by_key(open_table(pipeline.uri).scan(at=point).to_arrow()) == expected
        )
        assert table.receipt(at=point).positions == receipt.positions
    for at in (At.version(version), f"version:{version}"):
        rows = table.scan(at=at)
        assert by_key(rows.to_arrow()) == merged
        assert by_key(table.to_arrow(at=rows.receipt)) == merged
        assert sum(rows.receipt.positions.values()) == 60
    with pytest.raises(InvalidInput, match="there is no table version 999 yet, the newest is"):
        table.scan(at=At.version(999))
    with pytest.raises(InvalidInput, match="table version 1 is from before the table was lancewal's"):
        table.scan(at="version:1")


def test_a_restored_version_claims_no_positions(pipeline: Pipeline) -> None:
    pipeline.produce(60)
    pipeline.merge_all()
    merged = dict(pipeline.oracle)
    lance.dataset(pipeline.uri, version=pipeline.table.newest().version).restore()  # type: ignore[no-untyped-call] # Lance's
    rows = open_table(pipeline.uri).scan(at=At.version(pipeline.table.newest().version))
    assert (rows.receipt.positions, by_key(rows.to_arrow())) == ({}, merged)


@pytest.fixture
def counted(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A table of some batches, all of them merged; rows of each that was read."""
    monkeypatch.setattr(scan_module, "BATCH_ROWS", 512)
    pulled: list[int] = []

    def counting(*arguments: Any) -> Iterator[pa.RecordBatch]:
        for batch in scan_plan(*arguments):
            pulled.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(reads_module, "scan_plan", counting)
    for number in range(8):
        pipeline.append_by_hand([{"region": "r", "id": 100 * number + i, "a": i} for i in range(100)])
    return pulled


def test_batches_are_read_as_they_are_asked_for(pipeline: Pipeline, counted: list[int]) -> None:
    table = open_table(pipeline.uri)
    uses: list[Callable[[], Iterator[pa.RecordBatch]]] = [
        lambda: table.scan().to_batches(),
        lambda: table.scan().to_reader(),
        lambda: pa.RecordBatchReader.from_stream(table.scan()),
        lambda: table.to_batches(),
    ]
    for use in uses:
        counted.clear()
        batches = use()
        first = next(iter(batches))
        second = next(iter(batches))
        assert len(counted) == 2
        assert first.num_rows + second.num_rows == sum(counted)
        assert sum(batch.num_rows for batch in batches) == 800 - sum(counted[:2])
        assert len(counted) == 8


def test_a_limit_ends_the_reading(pipeline: Pipeline, counted: list[int]) -> None:
    table = open_table(pipeline.uri)
    assert table.head(150).num_rows == table.scan(limit=150).to_arrow().num_rows == 150
    assert len(counted) == 4
    assert table.head().num_rows == 10
    assert table.head(0, ["a"]).schema.names == ["a"]
    assert table.to_arrow(limit=10_000).num_rows == table.count_rows() == 800
    assert table.count_rows("a < 30") == 240
    whole: list[Any] = [np.int64(150), np.uint8(150)]
    assert [table.to_arrow(limit=limit).num_rows for limit in whole] == [150, 150]
    others: list[Any] = [-1, 1.5, True, "3", np.int64(-1), np.float64(3), np.True_, np.array([1, 2])]
    for wrong in others:
        with pytest.raises(InvalidInput, match=r"limit .* expected an integer from 0 on"):
            table.scan(limit=wrong)


def test_other_libraries_take_rows_and_tables(pipeline: Pipeline) -> None:
    pipeline.produce(60)
    pipeline.merge_all()
    pipeline.produce(60)
    pipeline.ingest()
    table = open_table(pipeline.uri)
    rows, expected = table.scan(), dict(pipeline.oracle)
    assert by_key(pa.table(table)) == by_key(pa.table(rows)) == expected
    assert pa.schema(rows).names == pa.schema(table).names == table.schema.names
    assert receipt_of(pa.schema(rows)) == rows.receipt
    assert table.to_pandas(["id"])["id"].tolist() == table.to_arrow(["id"])["id"].to_pylist()
    assert rows.to_pandas().shape == (len(expected), len(table.schema))
    for frame in (table.to_pandas(["id", "a"]), rows.to_pandas(), table.get([("r1", 1)]).to_pandas()):
        assert (str(frame["id"].dtype), str(frame["a"].dtype)) == ("int64", "Int64")
    for frame in (table.to_pandas(["a"], "a IS NOT NULL", dtypes="numpy"), table.scan(["a"]).to_pandas("numpy")):
        assert frame["a"].dtype.kind in "if"
    assert f"version {rows.receipt.version}" in repr(rows)
    assert repr(table) == f"<lancewal.Table at {pipeline.uri}>"


def test_polars_gets_the_values_of_every_type(tmp_path: Path) -> None:
    """In types of its own: it has no timestamps in seconds, and texts of another layout."""
    with closing(Pipeline(tmp_path, columns=EVERY_TYPE, seed=5)) as pipeline:
        pipeline.produce(40)
        pipeline.merge_all()
        pipeline.produce(40)
        pipeline.ingest()
        table = open_table(pipeline.uri)
        rows = table.scan()
        expected = rows.to_arrow()
        for frame in (rows.to_polars(), table.to_polars(), polars.DataFrame(rows), polars.DataFrame(table)):
            assert frame.columns == expected.column_names
            assert by_key(frame.to_arrow().cast(pa.schema(expected.schema, metadata=None))) == pipeline.oracle
        small = sorted(row["id"] for row in pipeline.oracle.values() if row["id"] < 3)
        assert sorted(table.to_polars(["id"], filter="id < 3")["id"]) == small
        assert len(small) > 1
        assert table.to_polars(["id"], limit=1).shape == (1, 1)


def test_polars_gets_vectors_of_batches_that_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It refuses a part of a column of vectors where one of the part is null."""
    monkeypatch.setattr(scan_module, "batch_rows", lambda schema: 7)
    columns = pa.schema([*KEY, ("vec", pa.list_(pa.float32(), 3))])
    with closing(Pipeline(tmp_path, columns, seed=8)) as pipeline:
        pipeline.produce(120)
        pipeline.ingest()
        table = open_table(pipeline.uri)
        rows = table.scan()
        batches = list(rows.to_batches())
        assert len(batches) > 3
        assert all(0 < batch["vec"].null_count < len(batch) for batch in batches[:2])
        for frame in (rows.to_polars(), polars.DataFrame(rows), polars.DataFrame(table)):
            assert by_key(frame.to_arrow().cast(table.schema)) == pipeline.oracle
        assert table.to_polars(limit=5).height == 5


def test_duckdb_reads_the_same_rows_at_each_query(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.produce(60)
    pipeline.merge_all()
    pipeline.produce(60)
    pipeline.ingest()
    opened: list[str] = []
    again = Reads.again

    def counting(reads: Reads, planned: Planned) -> tuple[Planned, Iterator[pa.RecordBatch]]:
        opened.append("again")
        return again(reads, planned)

    monkeypatch.setattr(Reads, "again", counting)
    table = open_table(pipeline.uri)
    expected = sorted((r["region"], r["id"], r["a"]) for r in pipeline.oracle.values())
    with duckdb.connect() as connection:
        theirs = table.to_duckdb(["region", "id", "a"], connection=connection)
        ours = table.scan(["region", "id", "a"]).to_duckdb()
        pipeline.produce(60)
        pipeline.merge_all()
        for relation in (theirs, ours, theirs):
            assert relation.order("region, id").fetchall() == expected
        assert opened == ["again"] * 3, "a query opens one stream"
        connection.register("rows", table.scan())
        assert connection.sql("SELECT count(*) FROM rows").fetchall() == [(len(pipeline.oracle),)]


def test_duckdb_is_not_given_names_that_it_mixes_up(tmp_path: Path) -> None:
    columns = pa.schema(
        [*KEY, ("a", pa.int64()), ("A", pa.int64()), ("st", pa.struct([("x", pa.int8()), ("X", pa.int8())]))]
    )
    pipeline = Pipeline(tmp_path, columns, partitions=1)
    pipeline.upsert("r", 1, a=1, A=100, st={"x": 1, "X": 2})
    pipeline.merge_all()
    pipeline.upsert("r", 2, a=2, A=200, st={"x": 3, "X": 4})
    pipeline.ingest()
    table = open_table(pipeline.uri)
    assert by_key(table.to_arrow()) == pipeline.oracle
    assert [table.count_rows(sql) for sql in ("a = 2", "A = 2", "A = 200", "st.x = 3", "st.X = 3")] == [1, 0, 1, 1, 0]
    with duckdb.connect() as connection:  # what DuckDB makes of such rows
        assert connection.from_arrow(table.to_arrow(["a", "A"])).aggregate('sum("A")').fetchall() == [(3,)]
    with pytest.raises(InvalidInput, match=r"DuckDB does not tell 'a' and 'A', 'st\.x' and 'st\.X' apart"):
        table.to_duckdb()
    assert table.to_duckdb(["id", "A"]).aggregate('sum("A")').fetchall() == [(300,)]
    renamed = table.to_arrow(["a", "A"]).rename_columns(["a", "b"])
    assert duckdb.from_arrow(renamed).aggregate("sum(a), sum(b)").fetchall() == [(3, 300)]
    pipeline.close()


@pytest.mark.parametrize("use", [pickle.dumps, copy.deepcopy])
def test_what_is_open_is_not_sent_to_another_process(pipeline: Pipeline, use: Callable[[object], object]) -> None:
    pipeline.produce(20)
    pipeline.ingest()
    table = open_table(pipeline.uri)
    rows = table.scan()
    for opened in (table, rows, {"dataset": [table]}):
        with pytest.raises(InvalidInput, match="Send the table's address, and open it there"):
            use(opened)
    sent = pickle.loads(pickle.dumps((table.uri, str(rows.receipt), rows.receipt)))
    assert by_key(open_table(sent[0]).to_arrow(at=sent[1])) == by_key(rows.to_arrow()) == pipeline.oracle
    assert sent[2] == rows.receipt


@pytest.mark.parametrize("name", ["polars", "duckdb", "pandas"])
def test_a_library_that_is_not_installed_is_named(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    rows = open_table(pipeline.uri).scan()
    with pytest.raises(InvalidInput, match=rf"to_{name}\(\) needs {name}, which is not installed: pip install {name}"):
        getattr(rows, f"to_{name}")()


def test_arguments_of_open_table_are_checked(pipeline: Pipeline) -> None:
    for wrong, text in {
        "conflicts": r"conflicts '\?' is unknown: use 'leave-out' or 'fail'",
        "base_paths": r"base_paths '\?' is unknown: use 'refuse' or 'allow'",
        "cache_bytes_max": r"cache_bytes_max '\?': expected a number of bytes",
    }.items():
        with pytest.raises(InvalidInput, match=text):
            open_table(pipeline.uri, **{wrong: "?"})  # type: ignore[arg-type] # what a user may write
    table = lancewal.open_table(pipeline.uri, cache_bytes_max=0)
    assert isinstance(table, lancewal.Table)
    assert isinstance(table.scan(), lancewal.Rows)
    assert isinstance(table.receipt(), Receipt)
    assert by_key(table.to_arrow()) == {}


def test_a_plan_is_used_again_while_it_is_young(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a request, whatever came since; never where another read has shown more, or its objects are gone."""
    pipeline.produce(40)
    pipeline.merge_all()
    pipeline.produce(20)
    pipeline.ingest()
    before, table = dict(pipeline.oracle), open_table(pipeline.uri)
    receipt = table.receipt()
    pipeline.produce(40)
    pipeline.ingest()
    after = dict(pipeline.oracle)
    assert before != after
    plans: list[ReadPlan] = []

    def planned(context: PlanContext) -> ReadPlan:
        plans.append(plan_strong(context))
        return plans[-1]

    monkeypatch.setattr(reads_module, "plan_strong", planned)
    assert by_key(table.to_arrow(max_staleness_s=3600)) == before
    assert table.receipt(max_staleness_s=3600) == receipt
    assert plans == []
    assert by_key(table.to_arrow(max_staleness_s=0)) == after
    assert by_key(table.to_arrow(max_staleness_s=3600)) == after
    assert len(plans) == 1
    pipeline.produce(40)
    pipeline.merge_all(MergeLimits(adopt_rows=1))
    clean_up(pipeline)
    pipeline.collect()
    assert by_key(open_table(pipeline.uri).to_arrow(max_staleness_s=3600)) == pipeline.oracle
    assert len(after) != len(pipeline.oracle)
    assert table.count_rows(max_staleness_s=3600) == len(after)  # its version is open, though a clean-up has taken it
    assert table.count_rows(max_staleness_s=0) == len(pipeline.oracle)
    with pytest.raises(InvalidInput, match="max_staleness_s=-1: expected a number of seconds from 0 on"):
        table.scan(max_staleness_s=-1)
    with pytest.raises(InvalidInput, match="max_staleness_s applies to strong reads"):
        table.scan(max_staleness_s=1, consistency="eventual")
    with pytest.raises(InvalidInput, match="at and max_staleness_s cannot be given together"):
        table.scan(max_staleness_s=1, at=receipt)
