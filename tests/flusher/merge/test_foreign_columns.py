"""Columns that other Lance programs have added keep their values through merges, however rows are written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lancewal_core.errors import ContractMismatch
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_flusher.upkeep.compaction import Compacted, FileSizes, compact_next
from lancewal_flusher.upkeep.compaction_plan import CompactionLimits
from tests.support.flusher_tables import COMBINE, OPEN_ROWS, FlusherTable, delete, patch, upsert, upserts
from tests.support.foreign_blobs import BLOBS, add_blobs, blobs

IN_PLACE = MergeLimits(adopt_rows=1, in_place_rows=1, deleted_share=0.01)
VALUES: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "vector": (pa.list_(pa.float32(), 2), lambda i: [i * 1.0, i / 2]),
    "text": (pa.large_string(), lambda i: f"t{i}"),
    "items": (pa.large_list(pa.int8()), lambda i: [i, None]),
    "struct": (pa.struct([("x", pa.int16()), ("y", pa.list_(pa.string()))]), lambda i: {"x": i, "y": [f"y{i}"]}),
}


def add(table: FlusherTable, name: str, type_: pa.DataType, value: Callable[[int], Any]) -> None:
    """Another program computes a column from the rows that are there, and leaves every fifth one null."""

    @lance.batch_udf(output_schema=pa.schema([pa.field(name, type_)]))
    def compute(batch: pa.RecordBatch) -> pa.RecordBatch:
        values = [None if i % 5 == 0 else value(i) for i in batch["id"].to_pylist()]
        return pa.record_batch([pa.array(values, type_)], [name])

    table.dataset.add_columns(compute, read_columns=["id"])
    for row in table.model.values():
        row[name] = None if row["id"] % 5 == 0 else value(row["id"])


def keep(table: FlusherTable, *names: str) -> None:
    """What upserts leave null in the model."""
    for row in table.model.values():
        for name in names:
            row.setdefault(name, None)


@pytest.mark.in_turns("name", "limits", each=2)
@pytest.mark.parametrize("limits", [OPEN_ROWS, COMBINE, IN_PLACE], ids=["adopt", "combine", "in place"])
@pytest.mark.parametrize("name", VALUES)
def test_patches_keep_values_and_upserts_leave_null(tmp_path: Path, name: str, limits: MergeLimits) -> None:
    table = FlusherTable(tmp_path)
    table.generation(0, upserts(range(40)))
    table.generation(1, upserts(range(7)))
    table.round()
    type_, value = VALUES[name]
    add(table, name, type_, value)
    table.generation(
        0, [*(patch(i, a=i, tags=["p"]) for i in range(30)), upsert(31, a=5), delete(32), patch(90, s="new")]
    )
    table.generation(1, [upsert(2), patch(3, s=None)])
    keep(table, name)
    table.round(limits)
    table.check()
    table.generation(0, [patch(i, s="again") for i in range(2, 33)])
    keep(table, name)
    table.round(limits)
    table.check()
    done = compact_next(table.context(), CompactionLimits(fragments_min=2), FileSizes(), with_sentinel=True)
    assert isinstance(done, Compacted)
    table.check()
    assert table.dataset.schema.field(name).type == type_
    table.close()


@pytest.mark.parametrize("limits", [OPEN_ROWS, COMBINE, IN_PLACE], ids=["adopt", "combine", "in place"])
def test_a_member_of_a_struct_keeps_its_values(tmp_path: Path, limits: MergeLimits) -> None:
    """A patch that sets the struct leaves the member null, as an upsert does."""
    at = pa.struct([("zip", pa.string()), ("tags", pa.list_(pa.struct([("t", pa.int8())])))])
    table = FlusherTable(tmp_path, more=[pa.field("at", at)], file_format="2.2")

    def address(id: int) -> dict[str, Any]:
        return {"zip": f"z{id}", "tags": [{"t": id}]}

    rows = upserts(range(20))
    table.generation(0, [replace(row, values={**row.values, "at": address(row.id)}) for row in rows])
    table.round()
    geo = pa.struct([pa.field("geo", pa.float32()), *at])
    table.dataset.add_columns(pa.schema([pa.field("at", pa.struct([pa.field("geo", pa.float32())]))]))
    where = pa.table({"region": ["r0"] * 5, "id": range(5)})
    added = where.append_column("at", pa.array([{**address(i), "geo": i / 4} for i in range(5)], geo))
    table.dataset.merge_insert(["region", "id"]).when_matched_update_all().execute(added)
    for (_, id), row in table.model.items():
        row["at"] = {**row["at"], "geo": id / 4 if id < 5 else None}
    table.generation(0, [patch(0, a=1), patch(1, at={"zip": "new", "tags": None}), upsert(2), patch(7, s="x")])
    for row in table.model.values():
        if row["at"] is not None:
            row["at"].setdefault("geo", None)
    table.round(limits)
    table.check()
    table.close()


@pytest.mark.parametrize("form", BLOBS)
def test_blobs_stop_merges_with_patches_by_name(tmp_path: Path, form: str) -> None:
    """Merges of upserts and deletes, and compaction, go on and keep the blobs of all other rows."""
    table = FlusherTable(tmp_path, file_format=BLOBS[form])
    table.generation(0, upserts(range(8)))
    table.round()
    add_blobs(table.dataset, form)
    table.generation(0, [upsert(2, a=9), delete(3), upsert(8)])
    table.round()
    done = compact_next(table.context(), CompactionLimits(fragments_min=2), FileSizes(), with_sentinel=True)
    assert isinstance(done, Compacted)
    assert dict(zip(table.dataset.to_table(columns=["id"])["id"].to_pylist(), blobs(table.dataset), strict=True)) == {
        **{id: b"x%d" % id for id in (0, 1, 4, 5, 6, 7)}, 2: None, 8: None
    }  # fmt: skip
    table.generation(0, [patch(id, a=1) for id in range(3)])
    for limits in (OPEN_ROWS, COMBINE, IN_PLACE):
        before = table.dataset.version
        with pytest.raises(ContractMismatch, match=r"blob columns of another program: \['blob'\].*drop_columns"):
            table.round(limits)
        assert table.dataset.version == before
    table.dataset.drop_columns(["blob"])
    table.round()
    table.check()
    table.close()
