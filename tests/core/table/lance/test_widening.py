"""Wider columns of a Lance table, in each file format: plain, in lists and structs, and vectors."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lancewal_core.errors import RewriteFailed
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.protocol import ColumnsCommit, Committed

KEY = pa.field("k", pa.int64(), nullable=False)
COLUMNS: dict[str, tuple[pa.DataType, pa.DataType, list[Any]]] = {
    "int": (pa.int8(), pa.int32(), [-128, 127, None]),
    "unsigned": (pa.uint32(), pa.int64(), [2**32 - 1, 0, None]),
    "float": (pa.float32(), pa.float64(), [0.5, None, float("inf")]),
    "decimal": (pa.decimal128(4, 1), pa.decimal128(12, 4), [Decimal("-999.9"), None, Decimal("0.1")]),
    "time": (pa.timestamp("s"), pa.timestamp("us"), [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59), None]),
    "vector": (pa.list_(pa.float32(), 2), pa.list_(pa.float64(), 2), [[0.5, 1.5], None, [2.0, -1.0]]),
    "list": (pa.list_(pa.int16()), pa.list_(pa.int64()), [[1, None], None, []]),
    "struct": (
        pa.struct([("a", pa.float32()), ("b", pa.string()), ("c", pa.list_(pa.struct([("d", pa.int8())])))]),
        pa.struct([("a", pa.float32()), ("b", pa.string()), ("c", pa.list_(pa.struct([("d", pa.int64())])))]),
        [
            {"a": 0.5, "b": "x", "c": [{"d": 1}, {"d": None}]},
            {"a": None, "b": None, "c": None},
            {"a": 1.0, "b": "", "c": []},
        ],
    ),
}


NESTED = ("vector", "list", "struct")


def wider_ids(old: pa.DataType, new: pa.DataType, ids: list[int], start: int) -> tuple[int, ...]:
    """The id of each field whose own type changes is new."""
    found: list[int] = []

    def walk(before: pa.DataType, after: pa.DataType) -> None:
        at = len(found)
        nested = pa.types.is_struct(before) or pa.types.is_list(before)
        found.append(ids[at] if nested or before == after else start + at)
        if pa.types.is_struct(before):
            for one, other in zip(before, after, strict=True):
                walk(one.type, other.type)
        elif pa.types.is_list(before):
            walk(before.value_type, after.value_type)

    walk(old, new)
    return tuple(found)


@pytest.mark.parametrize(
    ("name", "file_format"),
    [(name, form) for name in COLUMNS for form in ("2.0", "2.1", "2.2") if form == "2.2" or name in NESTED],
)
def test_all_values_are_the_same(tmp_path: Path, name: str, file_format: Any) -> None:
    """Rows that are deleted, and rows of fragments that are adopted with files of the new ids.  Queries by an index over
    another column stay right, also by one over the column itself, built later."""
    old, new, values = COLUMNS[name]
    uri = str(tmp_path / "t")
    rows = pa.table({"k": range(3), "x": values}, schema=pa.schema([KEY, ("x", old)]))
    lance.write_dataset(rows, uri, data_storage_version=file_format)
    lance.write_dataset(pa.table({"k": [3, 4, 5], "x": values}, schema=rows.schema), uri, mode="append")
    dataset: Any = lance.dataset(uri)
    dataset.create_scalar_index("k", "BTREE")
    dataset.delete("k = 4")
    table = LanceTable(uri)
    pinned = table.newest()
    ids = {"k": pinned.field_ids["k"], "x": wider_ids(old, new, list(pinned.field_ids["x"]), 50)}
    wide = pa.schema([("x", new)])
    fragments = tuple(pinned.write_widened(f.fragment_id, wide, ids) for f in pinned.fragments())
    commit = ColumnsCommit(pinned.version, pa.schema([KEY, ("x", new)]), ids, {}, fragments=fragments)
    assert isinstance(table.change_columns(commit), Committed)
    expected = [{"k": k, "x": values[k % 3]} for k in (0, 1, 2, 3, 5)]
    found: Any = lance.dataset(uri)
    assert found.schema.field("x").type == new
    assert found.to_table().to_pylist() == expected
    assert table.newest().field_ids == ids
    assert [index.covered for index in table.newest().indexes()] == [frozenset({0, 1})]
    assert found.to_table(filter="k in (1, 5)").to_pylist() == [row for row in expected if row["k"] in (1, 5)]
    more = pa.table({"k": [9], "x": values[:1]}, schema=pa.schema([KEY, ("x", new)]))
    lance.write_dataset(more, uri, mode="append")
    found = lance.dataset(uri)
    assert found.to_table().to_pylist() == [*expected, {"k": 9, "x": values[0]}]
    assert found.to_table(filter="k = 9").num_rows == 1
    if name in ("int", "unsigned", "time"):
        found.create_scalar_index("x", "BTREE")
        text = f"timestamp '{values[0]}'" if name == "time" else str(values[0])
        assert lance.dataset(uri).to_table(filter=f"x = {text}").num_rows == 3
    found.optimize.compact_files()
    assert lance.dataset(uri).to_table().num_rows == 6


@pytest.mark.parametrize("file_format", ["2.1", "2.2"])
def test_structs_that_are_null_and_files_without_a_member(tmp_path: Path, file_format: Any) -> None:
    uri = str(tmp_path / "t")
    old, new = (pa.struct([("a", type_), ("b", pa.string())]) for type_ in (pa.int16(), pa.int64()))
    schema = pa.schema([KEY, ("s", old), ("l", pa.list_(old))])
    rows: list[Any] = [
        {"k": 0, "s": {"a": 1, "b": "x"}, "l": [{"a": 1, "b": None}, {"a": None, "b": None}, None]},
        {"k": 1, "s": None, "l": None},
        {"k": 2, "s": {"a": None, "b": None}, "l": []},
    ]
    lance.write_dataset(pa.Table.from_pylist(rows, schema), uri, data_storage_version=file_format)
    if file_format == "2.2":  # earlier formats refuse it
        for member in ("a", "b"):
            part = pa.struct([old.field(member)])
            less = pa.schema([KEY, ("s", part), ("l", pa.list_(part))])
            more = [{**row, "k": row["k"] + 3 * (1 + (member == "b"))} for row in rows]
            lance.write_dataset(pa.Table.from_pylist(more, less), uri, mode="append")
    expected = lance.dataset(uri).to_table().to_pylist()
    table = LanceTable(uri)
    pinned = table.newest()
    ids = {"k": pinned.field_ids["k"], "s": (1, 20, 3), "l": (4, 5, 21, 7)}
    wide = pa.schema([("s", new), ("l", pa.list_(new))])
    fragments = tuple(pinned.write_widened(f.fragment_id, wide, ids) for f in pinned.fragments())
    commit = ColumnsCommit(pinned.version, pa.schema([KEY, *wide]), ids, {}, fragments=fragments)
    assert isinstance(table.change_columns(commit), Committed)
    found: Any = lance.dataset(uri)
    assert found.schema.field("s").type == new
    assert found.to_table().to_pylist() == expected


def test_what_does_not_widen_is_refused(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"k": [1], "x": pa.array([2**62], pa.timestamp("s"))}), uri)
    pinned = LanceTable(uri).newest()
    for type_ in (pa.timestamp("us"), pa.string()):
        with pytest.raises(RewriteFailed, match=r"\bx\b"):
            pinned.write_widened(0, pa.schema([("x", type_)]), {"x": (9,)})
