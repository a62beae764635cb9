"""Names of columns: what a table may have, beside what plain Lance writes and reads back."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancewal_core.errors import InvalidSchema
from lancewal_core.rows.schema import SYSTEM_FIELDS, Op, RowSchema, alike_but_for_case, check_row_schema
from lancewal_reader.table import open_table
from tests.ingest.decode.json.cases import Ways, records
from tests.support.flusher_tables import KeyedTable, Operation

OF_OTHER_TOOLS = [
    "_id",
    "_airbyte_raw_id",
    "_airbyte_extracted_at",
    "_dlt_id",
    "__op",
    "_",
    "_ID",
    "__deleted",
    "_fivetran_id",
]
RESERVED = [
    *("_offset", "_timestamp", "_op", "_present", "_region", "_first", "_next", "_merged", "_place", "_partition"),
    *("_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version", "_rows"),
    *("_distance", "_score", "_relevance_score"),
    *("_change_type", "_commit_version", "_commit_timestamp", "_sequence"),
]
NOT_READ_BACK = ["", "*", "a.b", "a`b", "a\0b"]


def schema_with(name: str) -> RowSchema:
    return RowSchema(pa.schema([pa.field("k", pa.string()), pa.field(name, pa.int64())]), ("k",), ("k",))


@pytest.mark.parametrize("name", OF_OTHER_TOOLS)
def test_names_of_other_tools_are_columns(name: str, tmp_path: Path) -> None:
    rows = schema_with(name)
    check_row_schema(rows)
    value = b'{"k": "a", "%s": 7}' % name.encode()
    decoded = Ways(rows=rows).both(records([value]))
    rows_of_table = pa.Table.from_batches([decoded.rows]).select(rows.columns.names)
    written = lance.write_dataset(rows_of_table, tmp_path / "t")  # plain Lance is the oracle
    assert written.to_table(columns=[name], filter=f"`{name}` = 7").to_pylist() == [{name: 7}]


def test_merges_and_reads_take_such_names(tmp_path: Path) -> None:
    columns = pa.schema([pa.field("_id", pa.string(), nullable=False), ("__op", pa.int64()), ("_dlt_id", pa.string())])
    table = KeyedTable(tmp_path, columns=columns, primary_key=("_id",))
    table.generation(0, [Operation(Op.UPSERT, (k,), {"__op": n, "_dlt_id": k * 2}) for n, k in enumerate("abc")])
    table.round()
    table.generation(0, [Operation(Op.PATCH, ("b",), {"__op": 9}), Operation(Op.DELETE, ("c",))])
    merged = {"_id": "a", "__op": 0, "_dlt_id": "aa"}
    patched = {"_id": "b", "__op": 9, "_dlt_id": "bb"}
    strong = open_table(table.uri)
    assert sorted(strong.to_arrow().to_pylist(), key=lambda row: str(row["_id"])) == [merged, patched]
    assert strong.to_arrow(filter="__op = 9").to_pylist() == [patched]
    table.round()
    plain = lance.dataset(table.uri)
    assert sorted(plain.to_table().to_pylist(), key=lambda row: str(row["_id"])) == [merged, patched]
    assert plain.to_table(filter="_dlt_id = 'bb'").to_pylist() == [patched]
    table.close()


@pytest.mark.parametrize("name", [form for name in RESERVED for form in (name, name.upper(), name.title())])
def test_reserved_names_are_refused_in_any_case(name: str) -> None:
    with pytest.raises(InvalidSchema, match="reserved") as raised:
        check_row_schema(schema_with(name))
    assert repr(name) in str(raised.value)


@pytest.mark.parametrize("name", NOT_READ_BACK)
def test_names_that_lance_does_not_read_back_are_refused(name: str) -> None:
    with pytest.raises(InvalidSchema, match="read it back") as raised:
        check_row_schema(schema_with(name))
    assert repr(name) in str(raised.value)


def test_every_system_column_is_in_the_list_of_this_test() -> None:
    assert {field.name for field in SYSTEM_FIELDS} <= set(RESERVED)


MEMBERS = pa.struct([("x", pa.int64()), ("X", pa.int64())])


@pytest.mark.parametrize(
    ("columns", "alike"),
    [
        ([("a", pa.int64()), ("b", MEMBERS.field(0).type), ("e\u0301", pa.int64()), ("\u00e9", pa.int64())], ""),
        ([("a", pa.int64()), ("x", pa.struct([("a", pa.int64())])), ("y", pa.struct([("A", pa.int64())]))], ""),
        ([("a", pa.int64()), ("A", pa.int64())], "'a' and 'A'"),
        ([("id", pa.int64()), ("Id", pa.int64()), ("ID", pa.int64())], "'id' and 'Id', 'id' and 'ID'"),
        ([("st", MEMBERS)], "'st.x' and 'st.X'"),
        ([("l", pa.list_(pa.list_(MEMBERS))), ("L", pa.int64())], "'l.x' and 'l.X', 'l' and 'L'"),
        ([("st", pa.struct([("in", MEMBERS)]))], "'st.in.x' and 'st.in.X'"),
    ],
)
def test_names_that_differ_in_case_alone_are_named(columns: list[tuple[str, pa.DataType]], alike: str) -> None:
    assert alike_but_for_case(pa.schema(columns)) == alike
