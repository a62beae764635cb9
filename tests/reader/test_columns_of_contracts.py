"""Reads of rows of three contracts, all unmerged at once, and of columns that other programs have added."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lancewal_core.errors import InvalidInput
from lancewal_core.rows.schema import Op
from lancewal_reader.point.at import At
from lancewal_reader.table import Table, open_table
from tests.support.flusher_tables import FlusherTable, Operation, delete, patch, upserts

Rows = list[dict[str, Any]]
NAMES = [["region", "id", "a", "s", "tags"]]
"""Columns of each contract, by hand."""
NAMES += [[*NAMES[0], "b"], ["region", "id", "c", "b", "tags", "d"]]


def put(id: int, **values: Any) -> Operation:
    return Operation(Op.UPSERT, id, values)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    made = FlusherTable(tmp_path)
    yield made
    made.close()


def by_key(rows: pa.Table | Rows) -> Rows:
    found = rows.to_pylist() if isinstance(rows, pa.Table) else rows
    return sorted(found, key=lambda row: (row["region"], row["id"]))


def model(table: FlusherTable) -> Rows:
    return by_key([dict(row) for row in table.model.values()])


def three_contracts(table: FlusherTable, merged: int = 0, flush: bool = True) -> list[Rows]:
    """Write rows of three contracts, of which the first ``merged`` are merged.  Return the model after each."""
    kept = []
    for step in (_first, _second, _third):
        step(table, flush)
        kept.append(model(table))
        if len(kept) == merged:
            table.round()
    return kept


def _first(table: FlusherTable, flush: bool) -> None:
    table.generation(0, [*upserts(range(8)), patch(20, a=1)])
    table.generation(1, [*upserts(range(4), a=3), patch(50, s="first")], flush=flush)


def _second(table: FlusherTable, flush: bool) -> None:
    table.change_columns(b="float64")
    table.generation(0, [put(7, a=-7, b=0.5), patch(0, b=0.25), delete(1), patch(20, tags=["x"])])
    table.generation(1, [put(1, b=1.5), patch(2, s="second", b=2.5), patch(50, b=9.5)], flush=flush)


def _third(table: FlusherTable, flush: bool) -> None:
    table.change_columns({"a": "c", "s": None, "tags": None}, tags="list<int64>", d="string")
    table.generation(0, [put(7, c=70, tags=[7]), patch(6, d="six"), patch(0, c=1)], flush=flush)
    table.generation(1, [patch(2, tags=[]), put(3, d="three"), patch(50, c=5)], flush=flush)


def check_reads(opened: Table, expected: Rows, **read: Any) -> None:
    """Compare scan, count, keys, filters and choices of columns with the rows of the model."""
    rows = opened.to_arrow(**read)
    assert rows.num_rows == len(expected) == opened.count_rows(**read)
    assert by_key(rows) == expected
    for name in {*expected[0]} - {"region", "id"}:
        assert by_key(opened.to_arrow(["id", name, "region"], **read)) == [
            {of: row[of] for of in ("id", name, "region")} for row in expected
        ]
        passing = [row for row in expected if row[name] is not None]
        assert by_key(opened.to_arrow(filter=f"{name} is not null", **read)) == passing
        assert opened.count_rows(f"{name} is not null", **read) == len(passing)
    keys = [{"region": row["region"], "id": row["id"]} for row in expected]
    assert opened.get(keys, **read).to_arrow().to_pylist() == expected


@pytest.mark.in_turns("merged", "flush", each=2)
@pytest.mark.parametrize("flush", [True, False], ids=["flushed", "in the log"])
@pytest.mark.parametrize("merged", range(4))
def test_rows_of_three_contracts(table: FlusherTable, merged: int, flush: bool) -> None:
    kept = open_table(table.uri)
    expected = three_contracts(table, merged if flush else 0, flush)[-1]
    for opened in (kept, open_table(table.uri), kept):
        assert opened.to_arrow().schema.names == table.contract.rows.table.names
        check_reads(opened, expected)


def test_a_table_stays_open_while_its_columns_change(table: FlusherTable) -> None:
    """What earlier reads have kept is never shown under other columns."""
    opened = open_table(table.uri)
    for step, names in zip((_first, _second, _third), NAMES, strict=True):
        step(table, True)
        assert set(opened.to_arrow().schema.names) == set(names)
        check_reads(opened, model(table))
    table.change_columns({"c": "d", "d": "c"})
    check_reads(opened, model(table))


@pytest.mark.parametrize("merged", range(4))
def test_a_receipt_shows_the_columns_of_then(table: FlusherTable, merged: int) -> None:
    opened, receipts = open_table(table.uri), []
    for at, step in enumerate((_first, _second, _third), 1):
        step(table, True)
        receipts.append((opened.receipt(), model(table)))
        if at == merged:
            table.round()
    while {*table.states(0), *table.states(1)} != {"MERGED"}:
        table.round()
    for other in (opened, open_table(table.uri)):
        for receipt, expected in receipts:
            check_reads(other, expected, at=receipt)
        with pytest.raises(InvalidInput, match="unknown"):
            other.to_arrow(["d"], at=receipts[1][0])
        check_reads(other, receipts[-1][1])


def test_a_version_shows_its_columns(table: FlusherTable) -> None:
    kept = []
    for step in (_first, _second, _third):
        step(table, True)
        while {*table.states(0), *table.states(1)} != {"MERGED"}:
            table.round()
        kept.append((table.dataset.version, model(table)))
    opened = open_table(table.uri)
    for version, expected in kept:
        check_reads(opened, expected, at=At.version(version))
        assert by_key(lance.dataset(table.uri, version=version).to_table()) == expected


def test_positions_between_two_contracts(table: FlusherTable) -> None:
    """A point may be at the end in one partition, and before all changes in the other."""
    for step in (_first, _second):
        step(table, True)
        table.round()
    ends = [int(table.index(p).generations[-1].first) for p in (0, 1)]
    before = {row["id"]: row for row in model(table) if row["region"] == "r1"}
    _third(table, True)
    expected = [row for row in model(table) if row["region"] == "r0"]
    for row in before.values():
        expected.append({"region": "r1", "id": row["id"], "c": row["a"], "b": row["b"], "tags": None, "d": None})
    while {*table.states(0), *table.states(1)} != {"MERGED"}:
        table.round()
    at = At.positions({0: int(table.index(0).generations[-1].first), 1: ends[1]})
    check_reads(open_table(table.uri), by_key(expected), at=at)


def foreign(table: FlusherTable, name: str, type_: pa.DataType) -> None:
    """Add a column with nulls, as other Lance programs do."""
    table.dataset.add_columns(pa.field(name, type_))


def test_a_column_of_another_program_is_shown(table: FlusherTable) -> None:
    table.generation(0, upserts(range(4)))
    table.round()
    table.dataset.add_columns({"more": "concat('m', cast(id as string))"})
    table.generation(0, [patch(1, a=10), put(2, a=20), put(9, a=90), delete(3)])
    more = {0: "m0", 1: "m1"}
    opened = open_table(table.uri)
    check_reads(opened, [{**row, "more": more.get(row["id"])} for row in model(table)])
    assert opened.to_arrow().schema.field("more").type == pa.string()
    assert opened.schema.names == [*table.contract.rows.table.names, "more"]


@pytest.mark.parametrize(
    "type_",
    [
        pa.list_(pa.float16(), 2),
        pa.large_string(),
        pa.large_list(pa.struct([("x", pa.large_binary())])),
        pa.list_(pa.struct([("x", pa.int8()), ("y", pa.list_(pa.large_string()))])),
        pa.dictionary(pa.int32(), pa.string()),
        pa.time64("us"),
    ],
    ids=str,
)
def test_a_column_of_another_program_may_have_any_type(table: FlusherTable, type_: pa.DataType) -> None:
    table.generation(0, upserts(range(4)))
    table.round()
    foreign(table, "more", type_)
    table.generation(0, [patch(1, a=10), put(2, a=20), put(9, a=90), delete(3)])
    rows = [{**row, "more": None} for row in model(table)]
    opened = open_table(table.uri)
    assert by_key(opened.to_arrow()) == rows
    assert by_key(opened.to_arrow(filter="a > 0")) == [row for row in rows if (row["a"] or 0) > 0]
    assert opened.get([("r0", 1)]).to_arrow().to_pylist() == [row for row in rows if row["id"] == 1]


def test_a_column_of_another_program_that_takes_a_dropped_id_shows_no_old_value(table: FlusherTable) -> None:
    table.change_columns(b="string")
    table.generation(0, [put(1, b="dropped"), patch(2, b="dropped")])
    dropped = table.contract.fields_of["b"]
    table.change_columns({"b": None})
    foreign(table, "other", pa.string())
    assert table.context().table.newest().field_ids["other"] == dropped
    expected = [{**row, "other": None} for row in model(table)]
    check_reads(open_table(table.uri), expected)


def test_members_of_structs_change(tmp_path: Path) -> None:
    table = FlusherTable(tmp_path, more=[pa.field("at", pa.struct([("x", pa.int64()), ("y", pa.string())]))])
    table.generation(0, [put(1, at={"x": 1, "y": "one"}), put(2)])
    table.change_columns(more="struct<x: int64, y: string>")
    table.generation(0, [patch(2, more={"x": 2, "y": None})])
    table.change_columns({"at": "more", "more": "at"})
    table.generation(0, [patch(1, at={"x": 3, "y": "three"})])
    assert by_key(open_table(table.uri).to_arrow()) == model(table)
    table.close()
