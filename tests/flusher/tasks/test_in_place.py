"""Patches in place of tables that Lance cannot, or must not, write columns of: merges go on with new rows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from lancewal_core.errors import RewriteFailed
from lancewal_core.rows.schema import Op
from lancewal_core.store.obstore import open_store
from lancewal_core.table.lance.pinned import LancePinnedTable
from lancewal_core.table.lance.table import LanceTable
from lancewal_flusher.merge.explain import explain
from lancewal_flusher.tasks import in_place
from tests.flusher.tasks.test_strategies import LIMITS, columns_where_possible
from tests.support.flusher_tables import FlusherTable, Operation, patch, upserts


@pytest.fixture(autouse=True)
def _forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_place, "least", columns_where_possible)


def test_fragments_of_a_shallow_clone_are_not_patched_in_place(tmp_path: Path) -> None:
    """Their data files lie in another table's folder, where neither their footers nor they themselves are looked for."""
    table = FlusherTable(tmp_path)
    table.generation(0, upserts(range(20)))
    table.round(LIMITS)
    clone = table.uri + "-clone"
    table.dataset.shallow_clone(clone, table.dataset.version)
    table.generation(0, [patch(id, a=7) for id in range(5)])
    source, table.uri = table.uri, clone
    shutil.copytree(f"{source}/_lancewal", f"{clone}/_lancewal")
    shutil.copytree(f"{source}/data", f"{clone}/data", dirs_exist_ok=True)
    for fragment in table.dataset.get_fragments():
        for file in fragment.metadata.files:
            (Path(clone) / "data" / file.path).unlink()
    table.store = open_store(clone)
    (merge,) = table.round(LIMITS, table.context(LanceTable(clone, base_paths="allow"))).merges
    assert (merge.rows_in_place, merge.rows_written) == (0, 5)
    table.check()
    table.close()


@pytest.mark.parametrize(
    ("type_", "before", "after"),
    [
        (pa.list_(pa.field("item", pa.string(), nullable=False)), ["x"], ["y", "z"]),
        (pa.struct([pa.field("x", pa.int64(), nullable=False)]), {"x": 1}, {"x": 2}),
    ],
    ids=["list", "struct"],
)
def test_columns_that_lance_would_not_join_are_patched_in_place_too(
    tmp_path: Path, type_: pa.DataType, before: object, after: object
) -> None:
    """Somebody has declared what lists and structs hold as not nullable, which an append does not mind."""
    table = FlusherTable(tmp_path, more=[pa.field("w", type_)])
    nothing = {"a": None, "s": None, "tags": None}
    table.generation(0, [Operation(Op.UPSERT, id, {**nothing, "w": before}) for id in range(20)])
    table.round(LIMITS)
    table.generation(0, [Operation(Op.PATCH, id, {"w": after}) for id in range(5)])
    explain(table.context(), LIMITS, None)
    (merge,) = table.round(LIMITS).merges
    assert (merge.rows_in_place, merge.rows_written) == (5, 0)
    table.check()
    table.generation(0, [Operation(Op.PATCH, id, {"a": 5}) for id in range(3, 10)])
    (merge,) = table.round(LIMITS).merges
    assert merge.rows_in_place > 0
    table.check()
    table.close()


def test_columns_that_cannot_be_written_become_new_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A merge does not wait for a rarer way of writing."""

    def fails(*_: object) -> str:
        raise RewriteFailed("columns could not be rewritten")

    table = FlusherTable(tmp_path)
    table.generation(0, upserts(range(20)))
    table.round(LIMITS)
    table.generation(0, [patch(id, a=7) for id in range(5)])
    monkeypatch.setattr(LancePinnedTable, "write_columns", fails)
    (merge,) = table.round(LIMITS).merges
    assert (merge.rows_in_place, merge.rows_written) == (0, 5)
    table.check()
    table.close()
