"""Columns that a user has changed: a read follows them by their ids.  It ends by name where values would be missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from lancewal_core.errors import ContractMismatch, InvalidInput
from lancewal_core.rows.schema import Op
from lancewal_reader.spark.source import pin_read
from lancewal_reader.table import open_table
from tests.support.flusher_tables import FlusherTable, KeyedTable, Operation, patch, upsert, upserts
from tests.support.foreign_blobs import BLOBS, add_blobs

COLUMNS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("a", pa.int64()), ("b", pa.int64())])


@pytest.fixture
def made(tmp_path: Path) -> Iterator[KeyedTable]:
    """Merged rows, and one of them patched since."""
    table = KeyedTable(tmp_path, 1, columns=COLUMNS, primary_key=("k",))
    table.generation(0, [Operation(Op.UPSERT, (k,), {"a": k, "b": -k}) for k in range(5)])
    table.round()
    table.generation(0, [Operation(Op.PATCH, (3,), {"a": 33})])
    yield table
    table.close()


def renamed(table: KeyedTable, *names: tuple[str, str]) -> None:
    for before, after in names:
        table.dataset.alter_columns({"path": before, "name": after})


def made_anew(table: KeyedTable) -> None:
    table.dataset.drop_columns(["b"])
    table.dataset.add_columns({"b": "a * 1000"})


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (made_anew, ["b"]),
        (lambda table: renamed(table, ("k", "key")), ["k"]),
    ],
    ids=["dropped and made anew", "key renamed"],
)
def test_a_read_of_them_ends_by_name(made: KeyedTable, change: Callable[[KeyedTable], None], wrong: list[str]) -> None:
    kept, before = open_table(made.uri), open_table(made.uri).receipt()
    rows = kept.get([3, 4])
    change(made)
    for table in (kept, open_table(made.uri)):
        reads: list[Callable[[], object]] = [
            table.scan,
            table.to_arrow,
            partial(table.get, [3]),
            partial(table.count_rows, "k > 1"),
            partial(table.scan, consistency="eventual"),
        ]
        for read in reads:
            with pytest.raises(ContractMismatch, match=f"does not have the contract's columns .*{wrong[-1]}"):
                read()
        assert table.get([3, 4], at=before).to_arrow().to_pylist() == [made.model[3,], made.model[4,]]
    assert rows.to_arrow().to_pylist() == [made.model[3,], made.model[4,]]
    with pytest.raises(ContractMismatch):
        pin_read({"table": made.uri})


@pytest.mark.parametrize(
    ("names", "now"),
    [([("a", "c"), ("b", "a"), ("c", "b")], {"a": "b", "b": "a"}), ([("b", "c")], {"b": "c"})],
    ids=["two names swapped", "renamed"],
)
def test_renamed_columns_are_read(made: KeyedTable, names: list[tuple[str, str]], now: dict[str, str]) -> None:
    renamed(made, *names)
    expected = [{now.get(name, name): value for name, value in row.items()} for row in made.model.values()]
    table = open_table(made.uri)
    assert sorted(table.to_arrow().to_pylist(), key=lambda row: row["k"]) == expected
    assert table.get([3]).to_arrow().to_pylist() == [expected[3]]
    assert table.count_rows(f"{now['b']} < -1") == 3


def test_a_renamed_member_is_read(tmp_path: Path) -> None:
    """The names of members are those of the version, too, merged or not."""
    struct = pa.struct([("p", pa.int64()), ("q", pa.int64())])
    columns = pa.schema([pa.field("k", pa.int64(), nullable=False), ("s", struct), ("l", pa.list_(struct))])
    with closing(KeyedTable(tmp_path, 1, columns=columns, primary_key=("k",))) as table:
        rows = [{"s": {"p": k, "q": -k}, "l": [{"p": k, "q": -k}]} for k in range(2)]
        for k, row in enumerate(rows):
            table.generation(0, [Operation(Op.UPSERT, (k,), row)])
            if not k:
                table.round()
        renamed(table, ("s.p", "theirs"), ("l.item.q", "theirs"))
        expected = [{"k": k, "s": {"theirs": k, "q": -k}, "l": [{"p": k, "theirs": -k}]} for k in range(2)]
        found = open_table(table.uri).to_arrow()
        assert sorted(found.to_pylist(), key=lambda row: row["k"]) == expected


def test_other_columns_are_read(made: KeyedTable) -> None:
    renamed(made, ("b", "c"))
    made.dataset.add_columns({"more": "k + 1"})
    table = open_table(made.uri)
    assert table.count_rows() == 5
    assert table.get([3], ["a"]).to_arrow().to_pylist() == [{"a": 33}]
    assert sorted(table.to_arrow(["a"])["a"].to_pylist()) == [0, 1, 2, 4, 33]
    assert pin_read({"table": made.uri, "columns": "k,a"}).receipt == table.receipt()


@pytest.mark.parametrize("form", BLOBS)
def test_a_result_lacks_blobs_of_other_programs(tmp_path: Path, form: str) -> None:
    table = FlusherTable(tmp_path, file_format=BLOBS[form])
    table.generation(0, upserts(range(8)))
    table.round()
    add_blobs(table.dataset, form)
    table.generation(0, [upsert(2, a=9), patch(3, a=9)])
    opened = open_table(table.uri)
    found = {row["id"]: row for row in opened.to_arrow().to_pylist()}
    assert found == {id: row for (_, id), row in table.model.items()}
    assert opened.get([("r0", 3)]).to_arrow().to_pylist() == [table.model["r0", 3]]
    assert opened.count_rows("a = 9") == 2
    reads: list[Callable[[], object]] = [
        lambda: opened.scan(columns=["id", "blob"]),
        lambda: pin_read({"table": table.uri, "columns": "id,blob"}),
    ]
    for read in reads:
        with pytest.raises(InvalidInput, match=r"'blob' is a blob column that another program added.*take_blobs"):
            read()
    table.close()
