"""Keys in conflict whose rows were set aside under three contracts: they are shown, kept, and settled for each side."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lancewal_core.cli.stored_object import inspect_object
from lancewal_core.keys.conflicts import read_conflicts
from lancewal_core.names import paths
from lancewal_core.rows.schema import Op
from lancewal_core.table.conflicts_ref import ConflictsRef
from lancewal_flusher.merge.settle import settle
from lancewal_flusher.upkeep.widening import WideningDone, WideningState, widen_next
from lancewal_reader.table import open_table
from lancewal_reader.unmerged.left_out import left_out_of
from lancewal_tables.status.conflict_list import keys_in_conflict
from tests.support.flusher_tables import FlusherTable, Operation, patch

LARGE = 2**40
KEYS = range(1, 7)


def put(id: int, **values: Any) -> Operation:
    return Operation(Op.UPSERT, id, values)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    """Keys of partition 0.  Partition 1 sends them too, by three contracts, each merged, so all of its rows wait."""
    made = FlusherTable(tmp_path, more=[pa.field("n", pa.int32())], keyed_by_bytes=True)
    made.generation(0, [put(id, a=id, s=f"s{id}", tags=["t"], n=id) for id in KEYS], of=0)
    made.round()
    aside(made, [put(1, a=-1, s="first", n=11), patch(2, s="first"), put(3, a=-3, tags=["x"])])
    made.change_columns({"a": "c"}, b="string")
    aside(made, [patch(1, b="second"), patch(2, c=-2, n=22), put(4, c=-4, s="second", b="second")])
    made.change_columns({"s": None})
    made.change_columns(s="int64")
    made.ask_to_widen("n", "int64")
    assert isinstance(widen_next(made.context(), WideningState(), 60.0), WideningDone)
    made.take_up()
    aside(made, [patch(1, n=LARGE, s=5), put(5, c=-5, n=LARGE, s=55), patch(3, b="third"), patch(6, s=6)])
    yield made
    made.close()


def aside(table: FlusherTable, operations: list[Operation]) -> None:
    """Records of the other partition, which a merge sets aside."""
    model = {key: dict(row) for key, row in table.model.items()}
    table.generation(1, operations, of=0)
    table.model = model
    table.round()


WAITING: dict[int, dict[str, Any]] = {
    1: {"c": -1, "tags": None, "n": LARGE, "b": "second", "s": 5},
    2: {"c": -2, "tags": ["t"], "n": 22, "b": None, "s": None},
    3: {"c": -3, "tags": ["x"], "n": None, "b": "third", "s": None},
    4: {"c": -4, "tags": None, "n": None, "b": "second", "s": None},
    5: {"c": -5, "tags": None, "n": LARGE, "b": None, "s": 55},
    6: {"c": 6, "tags": ["t"], "n": 6, "b": None, "s": 6},
}
"""By key, what the other partition's records make of its row, by hand."""


def keys(table: FlusherTable, *ids: int) -> pa.Table:
    return pa.Table.from_pylist([{"region": "r0", "id": id} for id in ids], table.contract.rows.key)


def decide(table: FlusherTable, partition: int, *ids: int) -> None:
    settle(table.context(), table.regions[partition], lambda _: keys(table, *ids))
    if partition == 1:
        for id in ids:
            table.model["r0", id] = {"region": "r0", "id": id, **WAITING[id]}


def in_force(table: FlusherTable) -> ConflictsRef | None:
    return table.context().watermarks.newest()[1].conflicts


def check(table: FlusherTable, waiting: int) -> None:
    table.check()
    read = open_table(table.uri).to_arrow()
    assert sorted(read.to_pylist(), key=lambda row: row["id"]) == [table.model[key] for key in sorted(table.model)]
    said = left_out_of(read.schema)
    assert (said.waiting if said else 0) == waiting


def test_they_are_settled_one_way_or_the_other(table: FlusherTable) -> None:
    check(table, 6)
    decide(table, 1, 1, 2)
    check(table, 4)
    decide(table, 0, 3)
    check(table, 3)
    decide(table, 1, 4, 5, 6)
    check(table, 0)
    table.generation(1, [patch(1, c=7)], of=0)
    table.generation(0, [patch(3, n=-LARGE)], of=0)
    table.round()
    check(table, 0)


def test_they_wait_through_one_more_change(table: FlusherTable) -> None:
    """An act on other keys writes the object again, in the columns of its day."""
    table.change_columns({"b": None, "c": "a"}, d="string")
    for row in WAITING.values():
        assert row.keys() == {"c", "tags", "n", "b", "s"}
    decide(table, 0, 6)
    check(table, 5)
    settle(table.context(), table.regions[1], lambda _: keys(table, 1))
    table.model["r0", 1] = {"region": "r0", "id": 1, "a": -1, "tags": None, "n": LARGE, "s": 5, "d": None}
    check(table, 4)


def test_they_are_listed_and_their_objects_shown(table: FlusherTable) -> None:
    listed = keys_in_conflict(read_conflicts(table.store, in_force(table), table.contract), 10)
    assert len(listed) == 6
    objects = [info.key for info in table.store.list(paths.ROOT) if paths.parse_conflicts_object(info.key)]
    assert len(objects) >= 3
    shown = [inspect_object(table.store, key).content for key in objects]
    assert {content["keys_that_wait"] for content in shown} >= {3, 4, 6}
