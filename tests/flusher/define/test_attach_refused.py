"""Tables that attach must refuse, since no row could ever be added."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancewal_core.errors import InvalidSchema
from lancewal_core.settings.load import Settings
from lancewal_core.table.lance.table import LanceTable
from lancewal_flusher.define.attach import existing_rows

TEXTS = pa.list_(pa.field("element", pa.string()))


@pytest.mark.parametrize(
    "type_", [TEXTS, pa.struct([("x", TEXTS)]), pa.list_(TEXTS)], ids=["list", "in-struct", "in-list"]
)
def test_lists_whose_items_have_another_name(tmp_path: Path, type_: pa.DataType) -> None:
    """As Parquet names them; Arrow takes the types for the same, Lance refuses to append one to the other."""
    uri = str(tmp_path / "table")
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("w", type_)])
    lance.write_dataset(schema.empty_table(), uri, schema=schema)
    table = {"uri": uri, "primary_key": ["id"], "region_key": ["id"]}
    with pytest.raises(InvalidSchema, match=r"column 'w'.*items of a list"):
        existing_rows(LanceTable(uri).newest(), Settings.model_validate({"table": table}))
    plain = str(tmp_path / "plain")
    schema = pa.schema([schema.field("id"), pa.field("w", pa.list_(pa.string()))])
    lance.write_dataset(schema.empty_table(), plain, schema=schema)
    assert existing_rows(LanceTable(plain).newest(), Settings.model_validate({"table": table})).primary_key == ("id",)
