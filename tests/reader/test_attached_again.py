"""A table that was attached again, whose versions name contracts that are gone: it is read, and its columns change."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import lance
import pyarrow as pa
import pytest

from lancewal_core.names import paths
from lancewal_core.process.clock import SystemClock
from lancewal_core.rows.column_types import format_type
from lancewal_core.store.object_store import put_once
from lancewal_core.table.columns.changes import Added, Change, Dropped
from lancewal_core.table.columns.steps import change_columns
from lancewal_core.table.contract import Column, Contract, encode_contract, read_contract
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.protocol import ColumnsCommit, Committed, columns_mark
from lancewal_core.table.watermarks import NOTHING_MERGED, TABLE_UUID, Watermarks
from lancewal_reader.point.at import At
from lancewal_reader.table import open_table
from tests.support.flusher_tables import FlusherTable, upserts


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    made = FlusherTable(tmp_path)
    made.generation(0, upserts(range(5)))
    made.round()
    yield made
    made.close()


def change(table: FlusherTable, *changes: Change) -> Contract:
    return change_columns(table.store, LanceTable(table.uri), SystemClock(), table.new_id, list(changes))


def attached_again(table: FlusherTable, mark: str | None = None) -> None:
    """Delete all contracts, and store a first one of the columns that the table has; its versions keep the mark."""
    lance_table = LanceTable(table.uri)
    pinned = lance_table.newest()
    if mark is not None:
        commit = ColumnsCommit(pinned.version, pinned.schema, pinned.field_ids, {}, mark)
        assert isinstance(lance_table.change_columns(commit), Committed)
    columns = [Column(name=f.name, type=format_type(f.type), field_ids=pinned.field_ids[f.name]) for f in pinned.schema]
    first = {"version": 1, "format": 1, "columns_change": None, "highest_field_id": None, "table_uuid": str(uuid4())}
    old = read_contract(table.store, table.uri).model_dump()
    new = Contract.model_validate({**old, **first, "columns": tuple(columns)})
    shutil.rmtree(Path(table.uri) / "_lancewal")
    put_once(table.store, paths.contract_version(1, None), encode_contract(new))
    Watermarks(table.store, lance_table, None).record(NOTHING_MERGED, lance_table.newest().version, "checkpoint")
    table.dataset.update_config({TABLE_UUID: new.table_uuid})
    table.contract = new


def ids(table: FlusherTable) -> list[int]:
    return sorted(open_table(table.uri).to_arrow().column("id").to_pylist())


@pytest.mark.parametrize("times", [1, 3])
def test_a_mark_of_a_former_life_fails_no_read(table: FlusherTable, times: int) -> None:
    for n in range(times):
        change(table, Added((f"c{n}",), pa.string()))
    attached_again(table)
    assert columns_mark(LanceTable(table.uri).newest()) is not None
    names = table.dataset.schema.names
    assert open_table(table.uri).to_arrow().schema.names == names
    before = table.dataset.version
    # The first change of this life makes version 2, which such a mark may name too.
    change(table, Dropped(("tags",)), Added(("more",), pa.string()))
    now = [*(name for name in names if name != "tags"), "more"]
    assert (table.dataset.schema.names, open_table(table.uri).to_arrow().schema.names) == (now, now)
    assert open_table(table.uri).to_arrow(at=At.version(before)).schema.names == names
    assert ids(table) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("mark", ["2-a..3-b 4", "7-a..8-b", "..2-b", "9-a"])
def test_a_column_is_dropped_behind_an_unfinished_mark_of_a_former_life(table: FlusherTable, mark: str) -> None:
    attached_again(table, mark)
    assert ids(table) == [0, 1, 2, 3, 4]
    change(table, Dropped(("tags",)))
    assert "tags" not in lance.dataset(table.uri).schema.names
    change(table, Added(("tags",), pa.int64()))
    assert open_table(table.uri).to_arrow().column("tags").to_pylist() == [None] * 5
    assert columns_mark(LanceTable(table.uri).newest()) == read_contract(table.store, table.uri).columns_change
