"""Reads and receipts from within a change of columns: the table has fields that its mark does not name yet, or has no more."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lancewal_core.store.object_store import ObjectStore, PutOutcome
from lancewal_core.table.columns.changes import Added, Change, Dropped, Widened
from lancewal_core.table.columns.steps import change_columns
from lancewal_core.table.contract import read_contract
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.protocol import ColumnsCommit, CommitOutcome
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.upkeep.widening import WideningState, widen_next
from lancewal_reader.table import open_table
from tests.audit.verify.test_columns_changed import verify
from tests.support.pipeline import KEY, Pipeline, by_key

LARGE = 600
"""More than the first type holds."""


class Killed(BaseException):
    """The process ends here."""


class DiesBeforeItsMark(LanceTable):
    def change_columns(self, commit: ColumnsCommit) -> CommitOutcome:
        if commit.fragments is None:
            raise Killed
        return super().change_columns(commit)


class DiesBeforeItShrinks(LanceTable):
    """The table of a command: its first commit lets the table grow."""

    grown = False

    def change_columns(self, commit: ColumnsCommit) -> CommitOutcome:
        if self.grown:
            raise Killed
        self.grown = True
        return super().change_columns(commit)


class DiesBeforeItsContract:
    def __init__(self, store: ObjectStore) -> None:
        self.get = store.get
        self.get_range = store.get_range
        self.list = store.list
        self.delete = store.delete

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        raise Killed


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path, pa.schema([*KEY, ("a", pa.int8()), ("s", pa.string())]), partitions=1)
    yield made
    made.close()


def alter(pipeline: Pipeline, change: Change) -> None:
    change_columns(pipeline.store, pipeline.table, pipeline.clock, lambda: uuid.uuid4().hex, [change])


def dies_before_it_shrinks(pipeline: Pipeline, change: Change) -> None:
    """The command dies behind its contract, and ingest takes that up."""
    table = DiesBeforeItShrinks(pipeline.uri)
    with suppress(Killed):
        change_columns(pipeline.store, table, pipeline.clock, lambda: uuid.uuid4().hex, [change])
        raise AssertionError("it was to die")
    take_up(pipeline)
    pipeline.replace_worker()


def take_up(pipeline: Pipeline) -> None:
    pipeline.contract = read_contract(pipeline.store, pipeline.uri)
    pipeline.columns = pipeline.contract.rows.table


def dying(pipeline: Pipeline, where: str) -> FlusherContext:
    context = pipeline.flusher()
    if where == "contract":
        return replace(context, store=DiesBeforeItsContract(context.store))
    return replace(context, table=DiesBeforeItsMark(pipeline.uri))


@pytest.mark.parametrize("then", [Widened(("a",), pa.int32()), Dropped(("a",))], ids=["widened again", "dropped"])
@pytest.mark.parametrize("where", ["contract", "mark"])
def test_a_receipt_shows_the_column_as_it_was(
    pipeline: Pipeline, where: str, then: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(5):
        pipeline.upsert("r", i, a=i, s="x")
    pipeline.merge_all()
    alter(pipeline, Widened(("a",), pa.int16()))
    take_up(pipeline)
    with suppress(Killed):
        widen_next(dying(pipeline, where), WideningState(), 60.0)
        raise AssertionError("it was to die")
    take_up(pipeline)
    pipeline.patch("r", 1, a=LARGE if where == "mark" else 100)
    pipeline.ingest()
    opened, rows = open_table(pipeline.uri), {key: dict(row) for key, row in pipeline.oracle.items()}
    receipt = opened.receipt()
    assert by_key(opened.to_arrow(at=receipt)) == rows
    for change in (then, Added(("b",), pa.string())):
        for _ in range(4):
            widen_next(pipeline.flusher(), WideningState(), 60.0)
            take_up(pipeline)
        alter(pipeline, change)
        take_up(pipeline)
    pipeline.replace_worker()
    assert by_key(open_table(pipeline.uri).to_arrow(at=receipt)) == rows
    assert by_key(opened.to_arrow(at=receipt)) == rows
    assert verify(pipeline, monkeypatch, "wal", str(receipt)).counts == {}


def test_a_widened_column_that_is_being_dropped_is_no_other_programs(pipeline: Pipeline) -> None:
    """The table keeps the column for a while.  Its id is not its first one."""
    for i in range(5):
        pipeline.upsert("r", i, a=i, s="x")
    pipeline.merge_all()
    alter(pipeline, Widened(("a",), pa.int16()))
    take_up(pipeline)
    widen_next(pipeline.flusher(), WideningState(), 60.0)
    take_up(pipeline)
    assert pipeline.contract.rows.columns.field("a").type == pa.int16()
    LanceTable(pipeline.uri).newest().dataset.add_columns(pa.schema([("theirs", pa.int8())]))
    dies_before_it_shrinks(pipeline, Dropped(("a",)))
    for merged in (False, True):
        pipeline.upsert("r", 1 + merged, s="newer")
        pipeline.ingest()
        rows = open_table(pipeline.uri).to_arrow()
        assert rows.schema.names == [*pipeline.contract.fields_of, "theirs"]
        shown = [{name: row.get(name) for name in rows.schema.names} for row in pipeline.oracle.values()]
        assert sorted(rows.to_pylist(), key=str) == sorted(shown, key=str)
        if not merged:
            pipeline.merge_all()


@pytest.mark.parametrize("wider", [False, True])
def test_a_receipt_shows_values_of_a_field_that_was_added_a_moment_before(
    pipeline: Pipeline, wider: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are merged before the mark names the field.  It is dropped later, so that the newest contract does not know it."""
    pipeline.upsert("r", 0, a=1, s="x")
    pipeline.merge_all()
    dies_before_it_shrinks(pipeline, Added(("b",), pa.int16()))
    pipeline.upsert("r", 1, b=7, s="y")
    pipeline.merge_all()
    pipeline.patch("r", 0, b=9)
    pipeline.ingest()
    opened = open_table(pipeline.uri)
    receipt, rows = opened.receipt(), by_key(opened.to_arrow())
    assert {row["id"]: row["b"] for row in rows.values()} == {0: 9, 1: 7}
    if wider:
        alter(pipeline, Widened(("b",), pa.int32()))
        take_up(pipeline)
        widen_next(pipeline.flusher(), WideningState(), 60.0)
    alter(pipeline, Dropped(("b",)))
    take_up(pipeline)
    pipeline.replace_worker()
    for one in (open_table(pipeline.uri), opened):
        assert by_key(one.to_arrow(at=receipt)) == rows
        assert by_key(one.to_arrow(["region", "id", "b"], at=receipt)).keys() == rows.keys()
        assert one.count_rows("b = 7", at=receipt) == 1
    assert verify(pipeline, monkeypatch, "wal", str(receipt)).counts == {}
