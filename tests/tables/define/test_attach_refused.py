"""Tables that attach must refuse, since no row could ever be added."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lancewal_core.errors import InvalidSchema
from lancewal_core.settings.load import Settings
from lancewal_core.table.lance.table import LanceTable
from lancewal_tables.define.attach import existing_rows
from tests.layering.source import ROOT

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


@pytest.mark.parametrize("written", [True, False], ids=["rows", "no row yet"])
def test_rows_in_lance_s_own_memwal(tmp_path: Path, written: bool) -> None:
    """Nobody but Lance reads them.  By the page they become rows of the table, which is taken then."""
    uri = str(tmp_path / "orders")
    key = pa.field("order_id", pa.int64(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"})
    schema = pa.schema([key, pa.field("v", pa.string())])
    dataset: Any = lance.write_dataset(pa.table({"order_id": [1, 2], "v": ["a", "b"]}, schema=schema), uri)
    dataset.initialize_mem_wal(unsharded=True)
    shards = [str(uuid.uuid4()) for _ in range(2 if written else 0)]
    for number, shard in enumerate(shards):
        with lance.dataset(uri).mem_wal_writer(shard) as writer:
            writer.put(pa.table({"order_id": [2, 3][: 1 + number], "v": ["B", "c"][: 1 + number]}, schema=schema))
    settings = Settings.model_validate({"table": {"uri": uri, "primary_key": ["order_id"], "region_key": ["order_id"]}})
    with pytest.raises(InvalidSchema, match=r"MemWAL.*drop_index"):
        existing_rows(LanceTable(uri).newest(), settings)
    page = (ROOT / "docs/how-to/attach-a-table.md").read_text()
    (code,) = re.findall(r"```python\n(.*?lsm_scanner.*?)```", page, re.DOTALL)
    exec(code.replace("/data/orders", uri), {"shards": shards})
    assert existing_rows(LanceTable(uri).newest(), settings).primary_key == ("order_id",)
    found = {row["order_id"]: row["v"] for row in lance.dataset(uri).to_table().to_pylist()}
    assert found == ({1: "a", 2: "B", 3: "c"} if written else {1: "a", 2: "b"})
