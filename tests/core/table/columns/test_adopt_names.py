"""Other programs give the name of a field to another one.  It is adopted by ids, and every value stays in its field."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lancewal_core.errors import ContractMismatch, InvalidInput
from lancewal_core.rows.schema import Op
from lancewal_core.settings.declared import ColumnSource
from lancewal_core.table.columns.changes import Added, Adopted, Dropped, Renamed, Widened
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_flusher.upkeep.widening import WideningDone, WideningState, widen_next
from lancewal_ingest.decode.naming import naming_of
from lancewal_reader.table import open_table
from tests.core.table.columns.test_steps import change, shown
from tests.support.flusher_tables import COMBINE, OPEN_ROWS, FlusherTable, Operation, Row, patch

ALL = [Adopted(())]
COLUMNS = pa.schema(
    [
        pa.field("region", pa.string(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        pa.field("a", pa.int64()),
        pa.field("b", pa.int64()),
        pa.field("s", pa.string()),
        pa.field("p", pa.struct([("x", pa.int32()), ("y", pa.int32())])),
        pa.field("l", pa.list_(pa.struct([("x", pa.int32()), ("t", pa.string())]))),
    ]
)
A, P, PX = 2, 5, 6
"""Ids of fields."""


@dataclass(frozen=True)
class Act:
    """What other programs do, and what becomes of it, by hand."""

    does: Callable[[Any], object]
    row: Callable[[Row], Row]
    """The row under the names of then."""
    former: Mapping[str, int]
    """Names that records may still use, and the fields that they mean."""
    passed: Sequence[str] = ()


def renames(*names: tuple[str, str]) -> Callable[[Any], object]:
    return lambda dataset: dataset.alter_columns(*({"path": path, "name": name} for path, name in names))


def by(**names: str) -> Callable[[Row], Row]:
    """The row with other names, all at once."""
    return lambda row: {names.get(name, name): value for name, value in row.items()}


def drops_and_renames(dataset: Any) -> None:
    dataset.drop_columns(["b"])
    dataset.alter_columns({"path": "a", "name": "b"})


def renames_and_adds(dataset: Any) -> None:
    dataset.alter_columns({"path": "a", "name": "z"})
    dataset.add_columns(pa.schema([("a", pa.string())]))


def swaps_members(row: Row) -> Row:
    p = row["p"]
    return {**row, "p": p and {"y": p["x"], "x": p["y"]}}


def moves_members(row: Row) -> Row:
    """``p`` is ``q``, with ``y`` dropped and ``x`` in its place; ``t`` of the list is ``x``, and ``x`` is ``t``."""
    p, items = row["p"], row["l"]
    items = items and [{"t": item["x"], "x": item["t"]} for item in items]
    return {**{k: v for k, v in row.items() if k != "p"}, "q": p and {"y": p["x"]}, "l": items}


def moving_members(dataset: Any) -> None:
    dataset.alter_columns({"path": "p", "name": "q"})
    dataset.drop_columns(["q.y"])
    dataset.alter_columns({"path": "q.x", "name": "y"})
    dataset.alter_columns({"path": "l.item.x", "name": "t"}, {"path": "l.item.t", "name": "x"})


ACTS = {
    "swap": Act(renames(("a", "b"), ("b", "a")), by(a="b", b="a"), {}),
    "swap of types": Act(renames(("a", "s"), ("s", "a")), by(a="s", s="a"), {}),
    "chain": Act(renames(("b", "c"), ("a", "b")), by(a="b", b="c"), {"a": A}),
    "circle": Act(renames(("a", "b"), ("b", "s"), ("s", "a")), by(a="b", b="s", s="a"), {}),
    "dropped, and another one takes its name": Act(
        drops_and_renames, lambda row: by(a="b")({k: v for k, v in row.items() if k != "b"}), {"a": A}
    ),
    "renamed, and a new one has its name": Act(renames_and_adds, lambda row: {**by(a="z")(row), "a": None}, {}),
    "swap of members": Act(renames(("p.x", "y"), ("p.y", "x")), swaps_members, {}),
    "members move": Act(moving_members, moves_members, {"p": P, "x": PX}),
}


@pytest.fixture
def table(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[FlusherTable]:
    made = FlusherTable(tmp_path, columns=COLUMNS, file_format=getattr(request, "param", "2.2"))
    made.generation(0, [put(id) for id in range(6)])
    made.generation(1, [put(id) for id in range(6)])
    made.round()
    yield made
    made.close()


def put(id: int) -> Operation:
    within = {"p": {"x": id, "y": -id}, "l": [{"x": id, "t": f"t{id}"}]}
    return Operation(Op.UPSERT, id, {"a": id, "b": 100 + id, "s": f"s{id}", **within})


@pytest.mark.parametrize(
    ("table", "name", "limits"),
    [
        *(("2.2", name, limits) for name in ACTS for limits in (OPEN_ROWS, COMBINE)),
        *(("2.0", name, OPEN_ROWS) for name in ("swap", "swap of members", "members move")),
    ],
    indirect=["table"],
)
def test_names_that_move(table: FlusherTable, name: str, limits: MergeLimits) -> None:
    """Rows wait for a merge under the contract from before, and others come under the one that adopts it."""
    act = ACTS[name]
    table.generation(0, [put(1), patch(2, a=7), patch(3, b=8, s="patched")])
    table.generation(1, [patch(0, p={"x": 5, "y": 6}), put(9)])
    data = sorted(Path(table.uri, "data").glob("*"))
    act.does(table.dataset)
    with pytest.raises(ContractMismatch, match=r"--adopt-column '\*'"):
        table.round(limits)
    contract = change(table, ALL)
    assert sorted(Path(table.uri, "data").glob("*")) == data
    assert change(table, ALL) == contract
    assert {f.name: f.id for f in contract.former_names} == act.former
    assert [d.name for d in contract.dropped if not d.forgotten] == list(act.passed)
    table.model = {key: act.row(row) for key, row in table.model.items()}
    table.take_up()
    assert set(shown(table)) == {name for row in table.model.values() for name in row}
    now = open_table(table.uri).to_arrow().to_pylist()
    assert {(row["region"], row["id"]): row for row in now} == table.model
    table.generation(0, [patch(1, s=None), Operation(Op.UPSERT, 20, act.row(dict(put(20).values)))])
    table.generation(1, [patch(3, **act.row(dict(put(4).values)))])
    while "FLUSHED" in (*table.states(0), *table.states(1)):
        table.round(limits)
    table.check()
    names = naming_of(contract).names
    by_id = {column.name: column.ids[0] for column in contract.columns}
    former = {} if names is None else {name: by_id[present] for name, present in names.former.items()}
    assert former == {name: id_ for name, id_ in act.former.items() if id_ in by_id.values()}


@pytest.mark.parametrize("asked", [("a",), ("b",), ("a", "b")])
def test_each_name_of_a_swap_stands_for_both(table: FlusherTable, asked: Sequence[str]) -> None:
    renames(("a", "b"), ("b", "a"))(table.dataset)
    contract = change(table, [Adopted((name,)) for name in asked])
    assert {c.name: c.ids[0] for c in contract.columns if c.name in ("a", "b")} == {"b": A, "a": A + 1}


def test_a_part_of_a_chain_is_refused_with_the_rest_named(table: FlusherTable) -> None:
    renames(("b", "c"), ("a", "b"))(table.dataset)
    with pytest.raises(ContractMismatch, match=r"'b' is missing, and has become 'c'. Adopt this in the same call"):
        change(table, [Adopted(("a",))])
    change(table, [Adopted(("a",)), Adopted(("c",))])
    assert set(shown(table)) == {"region", "id", "b", "c", "s", "p", "l"}


def test_former_and_dropped_names_that_another_program_gives_again(table: FlusherTable) -> None:
    """``a`` was the name of ``n``, and ``s`` that of a dropped column."""
    change(table, [Renamed(("a",), "n"), Dropped(("s",))])
    renames(("b", "a"), ("l", "s"))(table.dataset)
    contract = change(table, ALL)
    assert {(f.id, f.name) for f in contract.former_names} == {(A + 1, "b"), (8, "l")}
    assert [d.name for d in contract.dropped if not d.forgotten] == []


def test_a_change_of_our_own_may_use_a_name_that_another_program_gave_up(table: FlusherTable) -> None:
    """The table has lost the name already, so it need not shrink before it grows."""
    drops_and_renames(table.dataset)
    contract = change(table, [*ALL, Renamed(("s",), "a"), Added(("n",), pa.int8())])
    assert {c.name: c.ids[0] for c in contract.columns if c.name in ("a", "b")} == {"b": A, "a": A + 2}


def test_an_index_is_over_the_column_that_has_a_dropped_name(table: FlusherTable) -> None:
    table.dataset.create_scalar_index("a", "BTREE")
    drops_and_renames(table.dataset)
    contract = change(table, ALL)
    assert [c.name for c in contract.columns] == ["region", "id", "b", "s", "p", "l"]
    with pytest.raises(InvalidInput, match=r"the column is indexed \(a_idx\)"):
        change(table, [Dropped(("b",))])


def test_a_swap_beside_an_open_widening(table: FlusherTable) -> None:
    change(table, [Added(("n",), pa.int32())])
    table.take_up()
    table.generation(0, [patch(1, n=5)])
    change(table, [Widened(("n",), pa.int64())])
    renames(("n", "b"), ("b", "n"))(table.dataset)
    change(table, ALL)
    table.take_up()
    assert isinstance(widen_next(table.context(), WideningState(), 60.0), WideningDone)
    table.take_up()
    table.generation(0, [patch(2, b=2**40)])
    table.round()
    values = {row["id"]: (row["b"], row["n"]) for row in table.rows() if row["region"] == "r0"}
    assert values == {0: (None, 100), 1: (5, 101), 2: (2**40, 102), 3: (None, 103), 4: (None, 104), 5: (None, 105)}


def test_columns_that_records_call_by_another_name(table: FlusherTable) -> None:
    """``c`` is called ``n`` in records, whatever name it has in the table."""
    change(table, [Added(("c",), pa.int64(), source=ColumnSource(None, "n"))])
    renames(("c", "b"), ("b", "c"))(table.dataset)
    contract = change(table, ALL)
    assert {(f.id, f.name) for f in contract.former_names} == {(A + 1, "b")}
    names = naming_of(contract).names
    assert names is not None
    assert (names.former, names.present.keys() & {"b", "c", "n"}) == ({"b": "c"}, {"c", "n"})
    renames(("s", "n"))(table.dataset)
    with pytest.raises(InvalidInput, match=r"records use the name 'n' for column 'b'. Rename it: .*\"name\": \"n_2\""):
        change(table, ALL)
    renames(("n", "n_2"))(table.dataset)
    change(table, ALL)
    renames(("b", "n"))(table.dataset)
    assert next(c for c in change(table, ALL).columns if c.name == "n").field == "n"
