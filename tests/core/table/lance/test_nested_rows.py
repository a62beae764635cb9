"""Columns of structs and lists, two deep: Lance takes rows in whatever form Arrow holds them, and gives the same rows back."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileSession

from lancewal_core.errors import LancewalError, ObjectCorrupt, RewriteFailed, StoreUnavailable, WriteFailed
from lancewal_core.names.ids import TableVersion
from lancewal_core.table.lance import row_files
from lancewal_core.table.lance import table as lance_table
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.protocol import CommitLost, Committed, RewriteBounds, TableCommit
from lancewal_reader.reading.filter import filter_rows

LEAVES: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "bool": (pa.bool_(), lambda i: i % 2 == 0),
    "int64": (pa.int64(), lambda i: i),
    "uint8": (pa.uint8(), lambda i: i % 256),
    "float32": (pa.float32(), lambda i: i / 2),
    "string": (pa.string(), lambda i: f"text {i}"),
    "binary": (pa.binary(), lambda i: bytes([i % 256])),
    "date32": (pa.date32(), lambda i: date(2020, 1, 1) + timedelta(i)),
    "decimal": (pa.decimal128(9, 2), lambda i: Decimal(i) / 4),
    "timestamp": (pa.timestamp("us", "UTC"), lambda i: datetime(2020, 1, 1, tzinfo=UTC) + timedelta(seconds=i)),
    "vector": (pa.list_(pa.float32(), 2), lambda i: [float(i), 0.5]),
    "bits": (pa.list_(pa.uint8(), 2), lambda i: [i % 256, 1]),
}
NESTED = ["", *map("".join, itertools.chain(itertools.product("sl", repeat=1), itertools.product("sl", repeat=2)))]
"""``s`` is a struct of the rest and a boolean, ``l`` a list of the rest."""
ROWS = 120


def type_of(nested: str, leaf: pa.DataType) -> pa.DataType:
    if not nested:
        return leaf
    inner = type_of(nested[1:], leaf)
    return pa.struct([("a", inner), ("seen", pa.bool_())]) if nested[0] == "s" else pa.list_(inner)


def value_of(nested: str, leaf: Callable[[int], Any], i: int) -> Any:
    """With nulls at each depth, and empty lists."""
    if i % 7 == 3:
        return None
    if not nested:
        return leaf(i)
    if nested[0] == "s":
        return {"a": value_of(nested[1:], leaf, i + 1), "seen": None if i % 5 == 0 else i % 2 == 0}
    return [value_of(nested[1:], leaf, i + j) for j in range(i % 3)]


def all_columns(count: int = ROWS) -> pa.Table:
    found = {"k": pa.array(range(count))}
    for nested, (name, (leaf, values)) in itertools.product(NESTED, LEAVES.items()):
        made = [value_of(nested, values, i) for i in range(count)]
        found[f"{nested or 'plain'}_{name}"] = pa.array(made, type_of(nested, leaf))
    return pa.table(found)


def one_chunk_beside_two(rows: pa.Table) -> pa.Table:
    """Arrow cuts the one where the other is cut."""
    keys = pa.chunked_array([rows["k"].chunk(0).slice(0, 50), rows["k"].chunk(0).slice(50)])
    return rows.set_column(0, "k", keys)


def members_cut(rows: pa.Table) -> pa.Table:
    """A struct that begins at row 0, of members that do not."""
    cut = []
    for column in rows.slice(20).combine_chunks().columns:
        array = column.chunk(0)
        if pa.types.is_struct(array.type):
            members = [array.field(i) for i in range(array.type.num_fields)]
            array = pa.StructArray.from_arrays(members, fields=list(array.type), mask=array.is_null())
        cut.append(array)
    return pa.table(cut, names=rows.column_names)


FORMS: dict[str, Callable[[pa.Table], pa.Table]] = {
    "whole": lambda rows: rows,
    "slice": lambda rows: rows.slice(13, 70),
    "first rows": lambda rows: rows.slice(0, 60),
    "one row": lambda rows: rows.slice(17, 1),
    "no row": lambda rows: rows.slice(17, 0),
    "chunks": lambda rows: pa.concat_tables([rows.slice(3, 20), rows.slice(0, 0), rows.slice(31, 9)]),
    "one chunk beside two": one_chunk_beside_two,
    "members cut": members_cut,
    "taken": lambda rows: rows.take(pa.array([5, 90, 7, 33])),
}


@pytest.fixture(scope="module")
def nested_rows() -> pa.Table:
    return all_columns()


def made(folder: Path, schema: pa.Schema, version: Literal["2.0", "2.1", "2.2"] = "2.1") -> LanceTable:
    uri = str(folder / "table")
    lance.write_dataset(schema.empty_table(), uri, data_storage_version=version)
    return LanceTable(uri)


def appended(table: LanceTable, rows: pa.Table) -> TableVersion:
    base = table.newest()
    outcome = table.commit(TableCommit(base.version, table.write_rows(rows), (), (), {}, strict=True))
    assert isinstance(outcome, Committed), outcome
    return outcome.version


@pytest.mark.parametrize(("form", "version"), [*((form, "2.1") for form in FORMS), ("slice", "2.2")])
def test_rows_come_back_as_they_were_given(
    tmp_path: Path, nested_rows: pa.Table, form: str, version: Literal["2.1", "2.2"]
) -> None:
    table, rows = made(tmp_path, nested_rows.schema, version), FORMS[form](nested_rows)
    appended(table, rows)
    assert lance.dataset(table.uri).to_table().to_pylist() == rows.to_pylist()


def test_halves_of_rows(tmp_path: Path, nested_rows: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large rows are cut in two for two writers."""
    monkeypatch.setattr(row_files, "BYTES_IN_HALVES", range(1, 1 << 30))
    table = made(tmp_path, nested_rows.schema)
    appended(table, nested_rows)
    dataset = lance.dataset(table.uri)
    assert len(dataset.get_fragments()) == 2
    assert dataset.to_table().to_pylist() == nested_rows.to_pylist()


def test_fragments_written_anew(tmp_path: Path, nested_rows: pa.Table) -> None:
    table = made(tmp_path, nested_rows.schema)
    appended(table, nested_rows)
    lance.dataset(table.uri).delete("k % 3 = 1")
    written = table.rewrite(table.newest().version, [0], RewriteBounds(17, 1 << 20, 1 << 14, 1 << 20, copy=False))
    batches = table.read_unadopted(written, nested_rows.column_names)
    assert pa.Table.from_batches(batches).to_pylist() == [r for r in nested_rows.to_pylist() if r["k"] % 3 != 1]


def test_columns_written_in_place(tmp_path: Path, nested_rows: pa.Table) -> None:
    """New values of rows in the middle, given as a slice."""
    table = made(tmp_path, nested_rows.schema)
    appended(table, nested_rows)
    pinned, names = table.newest(), [name for name in nested_rows.column_names if name != "k"]
    at = np.arange(40, 90)
    fragment = pinned.dataset.get_fragment(0).metadata
    written = pinned.write_columns(0, at, nested_rows.select(names).slice(10, 50), json_of(fragment))
    commit = TableCommit(pinned.version, (), (written,), (), {}, strict=False, columns_written=tuple(names))
    assert isinstance(table.commit(commit), Committed)
    old = nested_rows.to_pylist()
    expected = [{**old[i - 30], "k": i} if 40 <= i < 90 else old[i] for i in range(ROWS)]
    assert lance.dataset(table.uri).to_table().to_pylist() == expected


@pytest.mark.parametrize("form", ["slice", "one chunk beside two", "members cut"])
def test_a_filter_over_unmerged_rows(nested_rows: pa.Table, form: str) -> None:
    rows = FORMS[form](nested_rows)
    found = filter_rows(rows, "k % 2 = 0", nested_rows.column_names)
    assert found.to_pylist() == [row for row in rows.to_pylist() if row["k"] % 2 == 0]


def json_of(fragment: Any) -> str:
    return json.dumps(fragment.to_json())


# -- what Lance gives up --------------------------------------------------------------------------------------------


class PanicException(BaseException):
    """As pyo3 raises it: no ``Exception``, and not to be imported."""


def panics(*args: Any, **options: Any) -> Any:
    raise PanicException("called `Result::unwrap()` on an `Err` value: JoinError::Panic(Id(20), ...)")


SIMPLE = pa.table({"k": pa.array([1, 2, 3])})


def write_rows(table: LanceTable) -> object:
    return table.write_rows(SIMPLE)


def rewrite(table: LanceTable) -> object:
    return table.rewrite(table.newest().version, [0], RewriteBounds(17, 1 << 20, 1 << 14, 1 << 20, copy=False))


def write_columns(table: LanceTable) -> object:
    pinned = table.newest()
    fragment = json_of(pinned.dataset.get_fragment(0).metadata)
    return pinned.write_columns(0, np.array([0]), pa.table({"k": pa.array([9])}), fragment)


def make_branch(table: LanceTable) -> object:
    return table.create_branch("b", table.newest().version)


@pytest.mark.parametrize(
    ("act", "where", "name", "error"),
    [
        (write_rows, row_files, "write_fragments", WriteFailed),
        (rewrite, lance_table, "rewrite_fragments", RewriteFailed),
        (write_columns, LanceFileSession, "open_writer", RewriteFailed),
        (make_branch, lance.LanceDataset, "create_branch", WriteFailed),
    ],
)
def test_a_panic_while_writing_is_an_error_and_no_damage(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[LanceTable], object],
    where: Any,
    name: str,
    error: type[LancewalError],
) -> None:
    table = made(tmp_path, SIMPLE.schema)
    appended(table, SIMPLE)
    monkeypatch.setattr(where, name, panics)
    with pytest.raises(error, match="panic") as raised:
        act(table)
    assert "corrupt" not in str(raised.value)
    assert "repair" not in str(raised.value)
    monkeypatch.undo()
    act(table)


def test_a_panic_of_a_commit_leaves_its_fate_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path, SIMPLE.schema)
    commit = TableCommit(table.newest().version, table.write_rows(SIMPLE), (), (), {}, strict=True)
    monkeypatch.setattr(lance.LanceDataset, "commit", panics)
    outcome = table.commit(commit)
    assert isinstance(outcome, CommitLost)
    assert "JoinError" in outcome.cause


def test_rows_that_lance_does_not_take_are_no_fault_of_the_store(tmp_path: Path) -> None:
    """A format that has no null structs: another try, or another store, changes nothing."""
    rows = pa.table({"s": pa.array([None, {"a": 1}], pa.struct([("a", pa.int64())]))})
    table = made(tmp_path, rows.schema, "2.0")
    with pytest.raises(WriteFailed, match="does not encode struct validity") as raised:
        table.write_rows(rows)
    assert not isinstance(raised.value, StoreUnavailable | ObjectCorrupt)
