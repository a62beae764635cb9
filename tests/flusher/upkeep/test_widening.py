"""A column gets a wider type while rows come in, are merged, deleted, compacted and read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import time
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lancewal_core.process.clock import SystemClock
from lancewal_core.rows.column_types import parse_type
from lancewal_core.rows.schema import Op
from lancewal_core.settings.load import Settings
from lancewal_core.table.columns import steps
from lancewal_core.table.columns.changes import Added, Adopted, Dropped, Renamed
from lancewal_core.table.columns.changes import Widened as WidenedTo
from lancewal_core.table.columns.next_contract import Surroundings, changed
from lancewal_core.table.columns.steps import change_columns
from lancewal_core.table.columns.versions import foreign_columns, grown, highest_field_id, version_trees
from lancewal_core.table.contract import newest_contract, put_next
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.protocol import ColumnsCommit, CommitLost, CommitOutcome, Committed, columns_mark
from lancewal_flusher.commit.send import Refused
from lancewal_flusher.context import FlusherContext, by_newest_contract, with_newer_contract
from lancewal_flusher.service.round import RoundState, run_round
from lancewal_flusher.service.service import run_once
from lancewal_flusher.upkeep.compaction import FileSizes, compact_next
from lancewal_flusher.upkeep.compaction_plan import CompactionLimits
from lancewal_flusher.upkeep.widening import WideningBegun, WideningDone, WideningHeld, WideningState, widen_next
from lancewal_reader.table import open_table
from tests.support.flusher_tables import COMBINE, OPEN_ROWS, FlusherTable, Operation, ScriptedTable, delete, patch

LARGE = 2**40
COLUMNS = pa.schema(
    [
        pa.field("region", pa.string(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        pa.field("a", pa.int32()),
        pa.field("s", pa.string()),
        pa.field("v", pa.list_(pa.float32(), 2)),
        pa.field("at", pa.list_(pa.struct([("n", pa.int16()), ("t", pa.string())]))),
    ]
)
WIDER = {
    "a": "int64",
    "v": "fixed_size_list<float64>[2]",
    "at": "list<struct<n: int64, t: string>>",
}


class Killed(BaseException):
    """The process ends here."""


def put(id: int, a: int | None = None) -> Operation:
    values = {"a": a, "s": f"s{id}", "v": [id / 2, 0.5], "at": [{"n": id, "t": "x"}]}
    return Operation(Op.UPSERT, id, values if a is not None else dict.fromkeys(values))


@pytest.fixture(params=["2.0", "2.2"])
def table(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[FlusherTable]:
    made = FlusherTable(tmp_path, columns=COLUMNS, file_format=request.param)
    made.generation(0, [put(i, i) for i in range(10)])
    made.generation(1, [put(i, -i) for i in range(7)])
    made.round()
    made.generation(0, [delete(3), put(4, 44)])
    made.round()
    yield made
    made.close()


def round_of(context: FlusherContext, limits: Any = OPEN_ROWS) -> None:
    by_newest_contract(context, lambda c: run_round(c, limits, RoundState(), 0.0)).raise_held()


def widen(context: FlusherContext, state: WideningState | None = None, turn_s: float = 60.0) -> Any:
    context = with_newer_contract(context) or context  # as a service looks for it before each turn
    return by_newest_contract(context, lambda c: widen_next(c, state or WideningState(), turn_s))


def done(table: FlusherTable, name: str, foreign: tuple[str, ...] = ()) -> None:
    """The wide type is that of the table, and the contract's.  Nothing else has changed, beside ``foreign`` members."""
    table.take_up()
    column = next(c for c in table.contract.columns if c.name == name)
    pinned = table.context().table.newest()
    assert (column.type, column.widening) == (WIDER[name], None)
    if not foreign:
        assert pinned.schema.field(name).type == table.contract.rows.columns.field(name).type
        assert pinned.field_ids[name] == column.field_ids
    assert column.first_ids is not None
    assert columns_mark(pinned) == table.contract.columns_change
    assert foreign_columns(pinned, table.contract) == foreign


@pytest.mark.in_turns("name", "limits", each=2)
@pytest.mark.parametrize("name", WIDER)
@pytest.mark.parametrize("limits", [OPEN_ROWS, COMBINE], ids=["adopt", "combine"])
def test_rows_of_before_wait_while_a_column_is_widened(table: FlusherTable, name: str, limits: Any) -> None:
    """Files of before are not adopted afterwards: the table knows their ids no longer."""
    table.generation(0, [put(20, 20), patch(5, **{name: put(50, 1).values[name]}), patch(6, s="x"), delete(7)])
    table.ask_to_widen(name, WIDER[name])
    table.generation(1, [patch(0, **{name: None}), put(30, 30)])
    table.generation(1, [put(31, 31)], flush=False)
    result = widen(table.context())
    assert isinstance(result, WideningDone)
    assert (result.columns, result.fragments) == ((name,), len(table.context().table.newest().fragments()))
    table.flush(1)
    done(table, name)
    values = {"a": LARGE, "v": [1e300, 0.1], "at": [{"n": LARGE, "t": "y"}]}
    table.generation(0, [patch(1, **{name: values[name]}), Operation(Op.UPSERT, 40, {name: values[name]})])
    round_of(table.context(), limits)
    table.check()
    assert {*table.states(0), *table.states(1)} == {"MERGED"}
    assert widen(table.context()) is None


LATER = {
    "t": ("time32[s]", "time64[us]", time(23, 59, 59), time(0, 0, 0, 1)),
    "x": ("string", "large_string", "a\0", "y"),
    "b": ("fixed_size_binary[2]", "binary", b"\0b", b"abc"),
    "d": ("list<binary>", "list<large_binary>", [b"", None], [b"x" * 9]),
}
"""Types of columns, wider ones, and a value of either."""


@pytest.mark.parametrize("name", LATER)
def test_later_types(tmp_path: Path, name: str) -> None:
    """A record of before and one of after, merged and not."""
    fields = [pa.field(of, parse_type(type_)) for of, (type_, *_) in LATER.items()]
    table = FlusherTable(tmp_path, columns=pa.schema([*list(COLUMNS)[:2], *fields]))
    before, after = ({of: values[at] for of, values in LATER.items()} for at in (2, 3))
    table.generation(0, [Operation(Op.UPSERT, id, before) for id in range(6)])
    table.round()
    table.generation(0, [patch(1, **{name: None}), Operation(Op.UPSERT, 20, before)])
    _, wide, _, value = LATER[name]
    table.ask_to_widen(name, wide)
    assert isinstance(widen(table.context()), WideningDone)
    table.take_up()
    assert next(c.type for c in table.contract.columns if c.name == name) == wide
    table.generation(0, [patch(2, **{name: value}), Operation(Op.UPSERT, 21, {**before, name: after[name]})])
    round_of(table.context())
    table.check()
    table.close()


def test_rounds_between_the_turns(table: FlusherTable) -> None:
    """Each turn writes files of a few fragments; those that a merge has touched, or a compaction has written, are right."""
    for n in range(2, 12):
        table.generation(0, [put(10 * n + i, i) for i in range(10)])
        table.round()
    table.ask_to_widen("a", "int64")
    context, state = table.context(), WideningState()
    assert isinstance(widen(context, state, 0.0), WideningBegun)
    table.generation(0, [delete(30), put(31, 5), patch(41, a=7), put(500, 5)])
    table.round()
    assert isinstance(widen(context, state, 0.0), WideningBegun)
    compact_next(table.context(), CompactionLimits(fragments_min=2), FileSizes(), with_sentinel=True)
    turns = 0
    while not isinstance(widen(context, state, 0.0), WideningDone):
        turns += 1
    assert turns < 4
    done(table, "a")
    table.check()


def merge(table: FlusherTable) -> None:
    table.generation(0, [put(600, 6)])
    table.round()


BESIDE: dict[str, Callable[[FlusherTable], object]] = {
    "merge": merge,
    "append": lambda table: table.dataset.insert(table.dataset.to_table().slice(0, 0)),
    "delete": lambda table: table.user_delete(0, 5),
    "column": lambda table: table.dataset.add_columns(pa.field("e", pa.float32())),
}


@pytest.mark.parametrize("act", BESIDE)
def test_what_lands_between_the_files_and_the_commit(table: FlusherTable, act: str) -> None:
    class Raced(LanceTable):
        raced = False

        def change_columns(self, commit: ColumnsCommit) -> CommitOutcome:
            if not self.raced:
                self.raced = True
                BESIDE[act](table)
            return super().change_columns(commit)

    table.ask_to_widen("a", "int64")
    context, state = table.context(Raced(table.uri)), WideningState()
    assert isinstance(widen(context, state), Refused)
    turns = 0
    while not isinstance(widen(context, state), WideningDone):
        turns += 1
    assert turns < 3
    table.take_up()
    if act == "column":
        for row in table.model.values():
            row["e"] = None
    table.check()


@pytest.mark.parametrize("when", ["before the commit", "behind the commit", "reply lost", "behind the contract"])
def test_a_process_dies(table: FlusherTable, when: str) -> None:
    """The next round, or the next turn, goes on where it died."""

    class Dying(LanceTable):
        def change_columns(self, commit: ColumnsCommit) -> CommitOutcome:
            if when == "before the commit" or (when == "behind the contract" and commit.fragments is None):
                raise Killed
            outcome = super().change_columns(commit)
            if when == "behind the commit":
                raise Killed
            return CommitLost("timed out") if when == "reply lost" else outcome

    table.generation(0, [put(20, 20), patch(5, a=7)])
    table.ask_to_widen("a", "int64")
    if when == "reply lost":
        assert isinstance(widen(table.context(Dying(table.uri))), Refused)
    else:
        with pytest.raises(Killed):
            widen(table.context(Dying(table.uri)))
    round_of(table.context())
    table.check()
    table.take_up()
    turns = 0
    while widen(table.context()) is not None:
        table.take_up()
        turns += 1
        assert turns < 5
    assert table.contract.rows.columns.field("a").type == pa.int64()
    table.generation(0, [put(1, LARGE), patch(5, a=LARGE)])
    round_of(table.context())
    table.check()


def test_a_sleeping_flusher_does_not_merge_by_the_narrow_type(table: FlusherTable) -> None:
    table.generation(0, [put(20, 20), patch(5, a=7)])
    table.ask_to_widen("a", "int64")
    scripted = ScriptedTable(table.uri)
    scripted.before.append(lambda: widen(table.context()))
    round_of(table.context(scripted))
    done(table, "a")
    table.check()
    assert table.states(0)[-1] == "MERGED"


def test_an_index_over_the_column(table: FlusherTable) -> None:
    table.dataset.create_scalar_index("a", "BTREE")
    table.ask_to_widen("a", "int64")
    held = widen(table.context())
    assert isinstance(held, WideningHeld)
    assert "index a_idx is over one of the columns ['a']" in held.reason
    merge(table)
    table.dataset.drop_index("a_idx")
    assert isinstance(widen(table.context()), WideningDone)
    done(table, "a")
    table.dataset.create_scalar_index("a", "BTREE")
    table.generation(0, [put(1, LARGE), patch(2, a=LARGE)])
    round_of(table.context())
    found: Any = lance.dataset(table.uri).to_table(filter=f"a = {LARGE}")
    assert sorted(found["id"].to_pylist()) == [1, 2]
    table.check()


def test_columns_that_were_added_since_it_was_asked_for(table: FlusherTable) -> None:
    """They have higher ids than the wider column was to get, which Lance refuses then: it gets another one."""
    table.ask_to_widen("a", "int64")
    table.ask_to_widen("v", WIDER["v"])
    table.change_columns(b="string")
    context, state, turns = table.context(), WideningState(), 0
    while not isinstance(widen(context, state), WideningDone):
        turns += 1
        assert turns < 3
    done(table, "a")
    done(table, "v")
    assert all(ids[0] > table.contract.fields_of["b"][0] for ids in (table.contract.fields_of[n] for n in ("a", "v")))
    table.generation(0, [Operation(Op.UPSERT, 1, {"a": LARGE, "b": "b"})])
    round_of(table.context())
    table.check()


@pytest.mark.in_turns("type_", "then", each=2)
@pytest.mark.parametrize("type_", [pa.float32(), pa.large_string(), pa.list_(pa.float16())], ids=str)
@pytest.mark.parametrize("then", ["adopt", "drop"])
def test_a_member_of_another_program(table: FlusherTable, then: str, type_: pa.DataType) -> None:
    """The wider column keeps it, and it can be adopted or dropped afterwards."""
    lance_table = LanceTable(table.uri)
    pinned = lance_table.newest()
    if pinned.file_format == "2.0":
        pytest.skip("members do not come and go")
    table.ask_to_widen("at", WIDER["at"])
    members = pa.struct([("n", pa.int16()), ("t", pa.string()), ("e", type_)])
    fields = [f.with_type(pa.list_(members)) if f.name == "at" else f for f in pinned.schema]
    ids = {**pinned.field_ids, "at": (*pinned.field_ids["at"], *range(90, 91 + type_.num_fields))}
    assert isinstance(
        lance_table.change_columns(ColumnsCommit(pinned.version, pa.schema(fields), ids, {}, columns_mark(pinned))),
        Committed,
    )
    value = {"float": 0.5, "large_string": "e", "list<item: halffloat>": [0.5]}[str(type_)]
    theirs = {"region": "theirs", "id": 1, "at": [{"n": 1, "t": "x", "e": value}]}
    table.dataset.insert(pa.Table.from_pylist([theirs], table.dataset.schema))
    table.generation(0, [put(1, 1)])
    round_of(table.context())
    while not isinstance(widen(table.context()), WideningDone):
        pass
    done(table, "at", foreign=("at.e",))
    found: Any = lance.dataset(table.uri).to_table(filter="region = 'theirs'", columns=["at"])
    assert found.to_pylist() == [{"at": theirs["at"]}]
    if then == "drop":
        table.dataset.drop_columns(["at.item.e"])
    elif type_ == pa.float32():
        change_columns(table.store, lance_table, SystemClock(), table.new_id, [Adopted(("at", "e"))])
        table.take_up()
        (column,) = [column for column in table.contract.columns if column.name == "at"]
        assert column.type == "list<struct<n: int64, t: string, e: float32>>"
        table.generation(0, [patch(2, at=[{"n": LARGE, "t": "y", "e": 0.5}])])
        round_of(table.context())
        rows = {row["id"]: row["at"] for row in table.rows() if row["region"] == "r0"}
        assert rows[1] == [{"n": 1, "t": "x", "e": None}]
        assert rows[2] == [{"n": LARGE, "t": "y", "e": 0.5}]
    table.generation(0, [delete(1)])
    round_of(table.context())


def test_a_reader_meets_other_ids_than_were_asked_for(table: FlusherTable) -> None:
    """It knows the contract that first asked.  The flusher dies between its commit and the contract with the wider type."""

    class Dying(LanceTable):
        def change_columns(self, commit: ColumnsCommit) -> CommitOutcome:
            super().change_columns(commit)
            raise Killed

    table.ask_to_widen("a", "int64")
    table.change_columns(b="string")
    kept = open_table(table.uri)
    kept.to_arrow()
    widen(table.context())
    table.take_up()
    with pytest.raises(Killed):
        widen(table.context(Dying(table.uri)))
    for consistency in ("eventual", "strong"):  # the strong one alone asks for the newest contract
        found = kept.to_arrow(consistency=consistency)
        assert found.schema.field("a").type == pa.int64()
        assert {(r["region"], r["id"]): r["a"] for r in found.to_pylist()} == {
            k: r["a"] for k, r in table.model.items()
        }


def test_a_merge_lands_behind_the_drop_of_the_widened_column(table: FlusherTable) -> None:
    """The column has files of its own, which Lance takes off the fragments with it.  A merge that was planned before puts them
    back, and undoes nothing by that."""
    table.ask_to_widen("a", "int64")
    assert isinstance(widen(table.context()), WideningDone)
    table.take_up()
    files = [file for fragment in LanceTable(table.uri).newest().fragments() for file in fragment.file_fields]
    assert table.contract.fields_of["a"] in files
    table.generation(0, [put(1, 7), delete(2)])
    scripted = ScriptedTable(table.uri)
    scripted.before = [lambda: table.change_columns({"a": None})]
    round_of(table.context(scripted))
    assert scripted.before == []
    table.check()
    table.generation(0, [Operation(Op.UPSERT, 1, {"s": "later"})])
    round_of(table.context())
    table.check()


def test_the_column_is_dropped_meanwhile(table: FlusherTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """The widening lands between the contract without the column and the table's.  The name is free afterwards."""
    table.ask_to_widen("a", "int64")
    context = table.context()
    landed: list[object] = []

    def put_and_widen(*of: Any) -> None:
        put_next(*of)
        if not landed:
            landed.append(widen_next(context, WideningState(), 60.0))

    monkeypatch.setattr(steps, "put_next", put_and_widen)
    means = table.store, context.table, context.clock, context.new_id
    steps.change_columns(*means, [Dropped(("a",))])
    assert isinstance(landed[0], WideningDone)
    assert "a" not in LanceTable(table.uri).newest().schema.names
    steps.change_columns(*means, [Added(("a",), pa.string())])
    table.take_up()
    for row in table.model.values():
        row["a"] = None
    table.generation(0, [Operation(Op.UPSERT, 1, {"a": "x"})])
    round_of(table.context())
    table.check()


PAIR = pa.schema(
    [
        pa.field("region", pa.string(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        pa.field("st", pa.struct([("x", pa.int32()), ("y", pa.int32())])),
    ]
)


@pytest.fixture
def pairs(tmp_path: Path) -> Iterator[FlusherTable]:
    """A table with a struct of two members of one type."""
    made = FlusherTable(tmp_path, columns=PAIR)
    made.generation(0, [Operation(Op.UPSERT, i, {"st": {"x": i, "y": -i}}) for i in range(4)])
    made.round()
    yield made
    made.close()


def alter(table: FlusherTable, change: Added | Dropped | Renamed | WidenedTo, *, dies: bool = False) -> None:
    """Run a command, which dies before its contract is stored if ``dies``."""
    newest = LanceTable(table.uri)
    if dies:
        contract = newest_contract(table.store)
        assert contract is not None
        pinned = newest.newest()
        facts = Surroundings(highest_field_id(pinned, contract), {}, version_trees(pinned))
        assert isinstance(newest.change_columns(grown(pinned, changed(contract, [change], facts, "dead"))), Committed)
    else:
        steps.change_columns(table.store, newest, table.context().clock, table.new_id, [change])
        table.take_up()


@pytest.mark.parametrize(
    "change",
    [Dropped(("st", "x")), Renamed(("st", "x"), "n"), Renamed(("st", "y"), "n")],
    ids=["drop x", "rename x", "rename y"],
)
@pytest.mark.parametrize("wide", ["x", "y"])
def test_members_keep_their_values_where_a_command_has_died(
    pairs: FlusherTable, change: Dropped | Renamed, wide: str
) -> None:
    """The command has given the struct's members another order, or other names, than they have in the contract."""
    alter(pairs, WidenedTo(("st", wide), pa.int64()))
    alter(pairs, change, dies=True)
    assert isinstance(widen(pairs.context()), WideningDone)
    alter(pairs, Added(("b",), pa.string()))
    found: Any = {row["id"]: row["st"] for row in lance.dataset(pairs.uri).to_table().to_pylist()}
    assert found == {i: {"x": i, "y": -i} for i in range(4)}


def test_a_second_member_is_asked_for_while_the_first_one_lands(pairs: FlusherTable) -> None:
    """The flusher commits what it knows of, and goes on with the other one."""

    class Asked(LanceTable):
        def change_columns(self, commit: ColumnsCommit) -> CommitOutcome:
            if commit.fragments is not None:
                alter(pairs, WidenedTo(("st", "y"), pa.int64()))
            return super().change_columns(commit)

    alter(pairs, WidenedTo(("st", "x"), pa.int64()))
    pairs.generation(0, [Operation(Op.UPSERT, 9, {"st": {"x": 9, "y": 9}})])
    assert isinstance(widen_next(pairs.context(Asked(pairs.uri)), WideningState(), 60.0), WideningDone)
    pairs.take_up()
    (column,) = [c for c in pairs.contract.columns if c.name == "st"]
    assert (column.type, column.widening is not None) == ("struct<x: int64, y: int32>", True)
    round_of(pairs.context())
    pairs.check()
    assert isinstance(widen(pairs.context()), WideningDone)
    pairs.take_up()
    (column,) = [c for c in pairs.contract.columns if c.name == "st"]
    assert (column.type, column.widening) == ("struct<x: int64, y: int64>", None)
    pairs.generation(0, [Operation(Op.UPSERT, 1, {"st": {"x": LARGE, "y": LARGE}})])
    round_of(pairs.context())
    pairs.check()


def test_behind_other_changes(table: FlusherTable) -> None:
    """The version with the wider column has the mark of the columns that it has, and then the new one."""
    table.change_columns({"s": None}, b="string")
    before = table.contract.columns_change
    table.ask_to_widen("a", "int64")
    result = widen(table.context())
    assert isinstance(result, WideningDone)
    assert columns_mark(LanceTable(table.uri).at(result.version)) == before
    done(table, "a")
    assert table.contract.columns_change != before
    table.generation(0, [Operation(Op.UPSERT, 1, {"a": LARGE, "b": "b"})])
    round_of(table.context())
    table.check()


def test_another_program_gets_the_new_id(table: FlusherTable) -> None:
    """Lance takes the next id for a column of its own: another one is asked for."""
    table.ask_to_widen("a", "int64")
    (wanted,) = next(c for c in table.contract.columns if c.name == "a").widened.field_ids
    table.dataset.add_columns(pa.field("e", pa.float32()))
    assert table.context().table.newest().field_ids["e"] == (wanted,)
    state, context, turns = WideningState(), table.context(), 0
    while not isinstance(widen(context, state), WideningDone):
        turns += 1
        assert turns < 3
    table.take_up()
    pinned = table.context().table.newest()
    assert (pinned.field_ids["e"], foreign_columns(pinned, table.contract)) == ((wanted,), ("e",))
    assert pinned.field_ids["a"] == next(c for c in table.contract.columns if c.name == "a").field_ids
    for row in table.model.values():
        row["e"] = None
    table.check()


def test_the_command_widens_behind_its_merges(table: FlusherTable) -> None:
    table.generation(0, [put(20, 20)])
    table.ask_to_widen("a", "int64")
    summary = run_once(Settings.model_validate({"table": {"uri": table.uri}}))
    assert (summary.merges, summary.finished) == (1, True)
    done(table, "a")
    table.check()
