"""Changes of columns on a real table: killed at each step, beside other commands and programs, with lost replies."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lancewal_core.errors import CommitUnknown, ContractChanged, ContractMismatch, InvalidInput
from lancewal_core.process.clock import SystemClock
from lancewal_core.store.object_store import ObjectStore, PutOutcome
from lancewal_core.table.columns import steps as module
from lancewal_core.table.columns import versions
from lancewal_core.table.columns.changes import Added, Change, Dropped, Forgotten, Renamed, Widened
from lancewal_core.table.columns.steps import change_columns
from lancewal_core.table.columns.versions import foreign_columns
from lancewal_core.table.contract import Contract, read_contract
from lancewal_core.table.lance.pinned import LancePinnedTable
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.protocol import ColumnsCommit, CommitLost, CommitOutcome, Conflicted, TableCommit, columns_mark
from tests.support.flusher_tables import FlusherTable, upserts

NESTED = pa.field("address", pa.struct([("street", pa.string()), ("zip", pa.int32())]))
CHANGES: list[Change] = [
    Renamed(("s",), "text"),
    Renamed(("address", "zip"), "code"),
    Added(("note",), pa.string(), '"none"'),
    Added(("address", "city"), pa.string()),
    Dropped(("tags",)),
    Dropped(("address", "street")),
]
AFTER = {
    "region": "string", "id": "int64", "a": "int64", "text": "string", "address": "struct<code: int32, city: string>",
    "note": "string",
}  # fmt: skip


class Killed(Exception):
    pass


class Steps:
    """Numbers what the command stores, in order, and acts before or after one of them."""

    def __init__(self) -> None:
        self.before: dict[int, Callable[[], object]] = {}
        self.after: dict[int, Callable[[], object]] = {}
        self.done: list[str] = []

    def at(self, what: str, act: Callable[[], Any]) -> Any:
        number = len(self.done)
        self.done.append(what)
        self.before.get(number, lambda: None)()
        result = act()
        self.after.get(number, lambda: None)()
        return result


class SteppedTable(LanceTable):
    def __init__(self, uri: str, steps: Steps) -> None:
        super().__init__(uri)
        self.steps = steps
        self.lost: set[int] = set()
        """Commits, by their number, whose reply is lost; negative: the request of the commit of that number from 1 on."""
        self.commits = itertools.count(1)

    def change_columns(self, commit: ColumnsCommit) -> CommitOutcome:
        number = next(self.commits)
        if -number in self.lost:
            return CommitLost("the request was lost")
        outcome: CommitOutcome = self.steps.at("commit", lambda: super(SteppedTable, self).change_columns(commit))
        return CommitLost("the reply was lost") if number in self.lost else outcome


class SteppedStore:
    def __init__(self, store: ObjectStore, steps: Steps) -> None:
        self._store = store
        self.steps = steps
        self.get = store.get
        self.get_range = store.get_range
        self.list = store.list
        self.delete = store.delete

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        outcome: PutOutcome = self.steps.at("put", lambda: self._store.put_if_absent(key, data))
        return outcome


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    made = FlusherTable(tmp_path, more=[NESTED])
    yield made
    made.close()


def change(
    table: FlusherTable, changes: Sequence[Change], steps: Steps | None = None, lost: Sequence[int] = ()
) -> Contract:
    steps = steps or Steps()
    over = SteppedTable(table.uri, steps)
    over.lost = set(lost)
    return change_columns(SteppedStore(table.store, steps), over, SystemClock(), table.new_id, changes)


def shown(table: FlusherTable) -> dict[str, str]:
    """What plain Lance shows; the contract has the same columns, and the version its mark."""
    from lancewal_core.rows.column_types import format_type

    pinned = LanceTable(table.uri).newest()
    contract = read_contract(table.store, table.uri)
    found = {field.name: format_type(field.type) for field in pinned.schema}
    assert found == {column.name: column.type for column in contract.columns}
    assert dict(pinned.field_ids) == {column.name: column.field_ids for column in contract.columns}
    assert columns_mark(pinned) == contract.columns_change
    return found


def test_columns_change(table: FlusherTable) -> None:
    data = sorted(Path(table.uri, "data").glob("*"))
    steps = Steps()
    contract = change(table, CHANGES, steps)
    assert sorted(Path(table.uri, "data").glob("*")) == data
    assert shown(table) == AFTER
    assert steps.done == ["commit", "put", "commit"]
    assert (contract.version, contract.format, contract.columns_version) == (2, 2, 2)
    assert contract.columns[-1].default == '"none"'
    versions = len(table.dataset.versions())
    assert change(table, CHANGES) == contract
    assert len(table.dataset.versions()) == versions


def test_rows_of_another_program_keep_their_structs(table: FlusherTable) -> None:
    """Its file has one member of the struct.  Without that, Lance would show null."""
    one = pa.schema(
        [f.with_type(pa.struct([("street", pa.string())])) if f.name == "address" else f for f in table.dataset.schema]
    )
    row = {"region": "r0", "id": 99, "address": {"street": "x"}}
    lance.write_dataset(pa.Table.from_pylist([row], schema=one), table.uri, mode="append")
    change(table, [Added(("address", "city"), pa.string()), Widened(("address", "zip"), pa.int64())])
    with pytest.raises(
        InvalidInput, match="without any other member of the struct, and would lose which structs are null"
    ):
        change(table, [Dropped(("address", "street"))])
    change(table, [Dropped(("address", "city"))])
    change(table, [Dropped(("address", "zip"))])
    found = table.dataset.to_table(filter="id = 99")["address"].to_pylist()
    assert found == [{"street": "x"}]


def test_nothing_is_stored_where_it_only_looks(table: FlusherTable) -> None:
    steps = Steps()
    found = change_columns(
        SteppedStore(table.store, steps),
        SteppedTable(table.uri, steps),
        SystemClock(),
        table.new_id,
        CHANGES,
        look_only=True,
    )
    assert {column.name: column.type for column in found.columns} == AFTER
    assert steps.done == []
    assert read_contract(table.store, table.uri) == table.contract


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", range(3))
@pytest.mark.parametrize("then", ["the same", "another"])
def test_a_command_that_dies_is_gone_on_with(table: FlusherTable, step: int, after: bool, then: str) -> None:
    def die() -> None:
        raise Killed

    steps = Steps()
    (steps.after if after else steps.before)[step] = die
    with pytest.raises(Killed):
        change(table, CHANGES, steps)
    stored = (step, after) >= (1, True)  # whether the contract is
    if then == "the same":
        contract = change(table, CHANGES)
        assert shown(table) == AFTER
        assert contract.version == 2
    else:
        contract = change(table, [Added(("other",), pa.int8())])
        expected = AFTER if stored else {
            "region": "string", "id": "int64", "a": "int64", "s": "string", "tags": "list<string>",
            "address": "struct<street: string, zip: int32>",
        }  # fmt: skip
        assert {c.name: c.type for c in contract.columns} == {**expected, "other": "int8"}
        assert shown(table) == {**expected, "other": "int8"}


@pytest.mark.parametrize("step", range(3))
@pytest.mark.parametrize("after", [False, True])
def test_two_commands_make_two_changes(table: FlusherTable, step: int, after: bool) -> None:
    other: list[Change] = [Added(("other",), pa.int8()), Renamed(("a",), "b")]
    steps = Steps()
    (steps.after if after else steps.before)[step] = lambda: change(table, other)
    contract = change(table, CHANGES, steps)
    renamed = {("b" if name == "a" else name): type_ for name, type_ in AFTER.items()} | {"other": "int8"}
    assert shown(table) == {name: renamed[name] for name in (c.name for c in read_contract(table.store, "").columns)}
    assert set(renamed) == set(shown(table))
    assert contract.version in (2, 3)
    assert read_contract(table.store, "").version == 3


@pytest.mark.parametrize("number", [1, 2, -1, -2])
def test_after_a_lost_reply_the_same_command_goes_on(table: FlusherTable, number: int) -> None:
    with pytest.raises(CommitUnknown, match="Make the same call again to complete the change"):
        change(table, CHANGES, lost=[number])
    change(table, CHANGES)
    assert shown(table) == AFTER
    assert read_contract(table.store, "").version == 2


def test_ids_never_come_back(table: FlusherTable) -> None:
    used: set[int] = set(table.contract.field_ids)
    for step in range(4):
        contract = change(table, [Added(("n",), pa.list_(pa.int8()))])
        ids = contract.columns[-1].field_ids
        assert used.isdisjoint(ids), step
        used |= set(ids)
        change(table, [Dropped(("n",))])
    assert [d.name for d in read_contract(table.store, "").dropped if not d.forgotten] == ["n"]


def test_ids_of_data_files_are_not_used(table: FlusherTable) -> None:
    table.dataset.add_columns(pa.schema([("theirs", pa.int64())]))
    theirs = LanceTable(table.uri).newest().field_ids["theirs"]
    table.dataset.insert(pa.Table.from_pylist([{"region": "r0", "id": 1, "theirs": 5}], table.dataset.schema))
    table.dataset.drop_columns(["theirs"])
    contract = change(table, [Added(("n",), pa.int64())])
    assert contract.columns[-1].field_ids[0] > theirs[0]
    assert table.dataset.to_table(columns=["n"]).to_pylist() == [{"n": None}]


def test_columns_of_other_programs_stay_behind_and_their_changes_stop_it(table: FlusherTable) -> None:
    table.dataset.add_columns(pa.schema([("theirs", pa.float32())]))
    change(table, CHANGES)
    assert LanceTable(table.uri).newest().schema.names == [*AFTER, "theirs"]
    with pytest.raises(InvalidInput, match="the table has 'theirs' of type float32, which is not the contract's"):
        change(table, [Added(("theirs",), pa.float32())])
    table.dataset.alter_columns({"path": "text", "name": "words"})
    with pytest.raises(ContractMismatch, match="words"):
        change(table, [Added(("n",), pa.int8())])
    table.dataset.drop_columns(["words"])
    with pytest.raises(ContractMismatch, match="text"):
        change(table, [Added(("n",), pa.int8())])


def test_a_request_to_widen_and_a_forgotten_name_change_the_contract_alone(table: FlusherTable) -> None:
    contract = change(table, CHANGES)
    version = LanceTable(table.uri).newest().version
    steps = Steps()
    wider = change(table, [Widened(("address", "code"), pa.int64()), Forgotten(("s",))], steps)
    assert steps.done == ["put"]
    assert LanceTable(table.uri).newest().version == version
    assert (wider.rows, wider.version) == (contract.rows, contract.version + 1)
    (found,) = [column.widening for column in wider.columns if column.widening]
    assert found.type == "struct<code: int64, city: string>"
    assert len(set(found.field_ids) - set(contract.field_ids)) == 1


def test_it_gives_up_where_others_always_come_first(table: FlusherTable, monkeypatch: pytest.MonkeyPatch) -> None:
    for one in (module, versions):
        monkeypatch.setattr(one, "TRIES", 3)

    class Busy(SteppedTable):
        def change_columns(self, commit: ColumnsCommit) -> CommitOutcome:
            self.steps.done.append("commit")
            return Conflicted("a Project came between")

    steps = Steps()
    with pytest.raises(ContractChanged, match="3 times"):
        change_columns(SteppedStore(table.store, steps), Busy(table.uri, steps), SystemClock(), table.new_id, CHANGES)
    assert steps.done == ["commit"] * 3


def die() -> None:
    raise Killed


def test_a_column_of_another_program_that_got_a_dropped_id_stays(table: FlusherTable) -> None:
    change(table, [Added(("n",), pa.int64())])
    change(table, [Dropped(("n",))])
    table.dataset.add_columns(pa.schema([("theirs", pa.int64())]))
    ids = LanceTable(table.uri).newest().field_ids
    assert ids["theirs"] == (read_contract(table.store, "").highest_field_id,)
    change(table, [Renamed(("a",), "b"), Dropped(("tags",))])
    assert LanceTable(table.uri).newest().schema.names == ["region", "id", "b", "s", "address", "theirs"]
    contract = change(table, [Added(("n",), pa.int64())])
    assert contract.columns[-1].field_ids[0] > ids["theirs"][0]


@pytest.mark.parametrize("path", ["address", "address.zip"])
def test_a_column_of_another_program_that_got_the_id_of_a_drop_that_died_stays(table: FlusherTable, path: str) -> None:
    """The drop ended before its last step, and a person dropped the column by pylance.  Lance gives its id again then."""
    for generation in range(2):
        table.generation(0, upserts(range(generation, generation + 3)))
        table.round()
    steps = Steps()
    steps.after[1] = die
    with pytest.raises(Killed):
        change(table, [Dropped(tuple(path.split(".")))], steps)
    dropped = LanceTable(table.uri).newest().field_ids["address"][2 * (path == "address.zip")]
    table.dataset.drop_columns([path])
    table.dataset.optimize.compact_files()
    table.dataset.add_columns({"theirs": "nullif(cast(id as int), -1)"})
    assert LanceTable(table.uri).newest().field_ids["theirs"] == (dropped,)
    values = table.dataset.to_table(["theirs"])
    change(table, [Added(("note",), pa.string())])
    assert LanceTable(table.uri).newest().field_ids["theirs"] == (dropped,)
    assert table.dataset.to_table(["theirs"]) == values
    assert columns_mark(LanceTable(table.uri).newest()) == read_contract(table.store, table.uri).columns_change


@pytest.mark.parametrize("way_out", ["the change again", "another name"])
@pytest.mark.parametrize("member", [False, True])
def test_a_name_that_a_dead_rename_freed_is_another_programs(table: FlusherTable, way_out: str, member: bool) -> None:
    steps = Steps()
    steps.before[1] = die
    old, renamed = (("address", "zip"), "code") if member else (("a",), "b: c")
    with pytest.raises(Killed):
        change(table, [Renamed(old, renamed)], steps)
    theirs = pa.field("address", pa.struct([("zip", pa.float64())])) if member else pa.field("a", pa.float64())
    table.dataset.add_columns(pa.schema([theirs]))
    pasted = "address.zip=code" if member else "'a=\"b: c\"'"
    said = f"--rename-column {pasted}`.*alter_columns"
    with pytest.raises(ContractMismatch, match=said):
        change(table, [Added(("note",), pa.string())])
    if way_out == "the change again":
        change(table, [Renamed(old, renamed)])
        mine = (*old[:-1], renamed)
    else:
        table.dataset.alter_columns({"path": ".".join(old), "name": "theirs"})
        mine = old
    change(table, [Added(("note",), pa.string())])
    pinned, contract = LanceTable(table.uri).newest(), read_contract(table.store, table.uri)
    assert columns_mark(pinned) == contract.columns_change
    (column,) = [column for column in contract.columns if column.name == mine[0]]
    assert pinned.field_ids[mine[0]][: len(column.field_ids)] == column.field_ids
    if member:
        assert contract.rows.table.field("address").type.field(1).name == mine[1]


def test_a_merge_from_before_a_drop_is_refused_once_another_column_has_the_id(table: FlusherTable) -> None:
    """Lance's own ``add_columns`` is a ``Merge``, which no commit passes that was planned before."""
    table.generation(0, upserts(range(5)))
    change(table, [Added(("n",), pa.int64()), Added(("m",), pa.int64())])
    before = LanceTable(table.uri).newest()
    row = pa.Table.from_pylist([{"region": "r0", "id": 1, "n": 7}], pa.schema(before.schema))
    written = LanceTable(table.uri).write_rows(row, before.field_ids)
    late = TableCommit(before.version, written, (), (), {}, strict=False)
    change(table, [Dropped(("n",))])
    change(table, [Dropped(("m",))])
    table.dataset.add_columns(pa.schema([("theirs", pa.int64())]))
    assert LanceTable(table.uri).newest().field_ids["theirs"] == before.field_ids["n"]
    assert isinstance(LanceTable(table.uri).commit(late), Conflicted)
    table.dataset.insert(pa.Table.from_pylist([{"region": "r0", "id": 1, "theirs": 5}], table.dataset.schema))
    assert table.dataset.to_table(columns=["theirs"]).to_pylist() == [{"theirs": 5}]


def test_a_command_that_has_pinned_an_older_version_than_the_contract_looks_again(table: FlusherTable) -> None:
    others: list[Change] = [Added(("other",), pa.int8())]

    class Overtaken(SteppedTable):
        """Another command runs between this one's look at the table and its look at the contract."""

        def newest(self) -> LancePinnedTable:
            pinned = super().newest()
            if others:
                change(table, [others.pop()])
            return pinned

    steps = Steps()
    over, store = Overtaken(table.uri, steps), SteppedStore(table.store, steps)
    change_columns(store, over, SystemClock(), table.new_id, CHANGES)
    assert shown(table) == {
        **{name: type_ for name, type_ in AFTER.items() if name != "note"},
        "other": "int8",
        "note": "string",
    }


@pytest.mark.parametrize(
    ("path", "row", "stays"),
    [
        ("note", {"note": "theirs"}, True),
        ("note", {"note": None}, False),
        ("address.city", {"address": {"street": "s", "zip": 1, "city": "theirs"}}, True),
        ("address.city", {"address": {"street": "s", "zip": 1, "city": None}}, False),
        ("address.city", {"address": None}, False),
    ],
)
def test_a_field_that_was_left_and_that_has_a_value_stays(
    table: FlusherTable, path: str, row: dict[str, Any], stays: bool
) -> None:
    """A merge that completes rows writes nulls into such a field; only another program writes values."""
    left = tuple(path.split("."))
    steps = Steps()
    steps.after[0] = die
    with pytest.raises(Killed):
        change(table, [Added(left, pa.string())], steps)
    table.dataset.insert(pa.Table.from_pylist([{"region": "r0", "id": 1, **row}], table.dataset.schema))
    change(table, [Renamed(("a",), "b")])
    schema = LanceTable(table.uri).newest().schema
    members = [f"address.{member.name}" for member in schema.field("address").type]
    assert (path in [*schema.names, *members]) == stays
    if stays:
        with pytest.raises(InvalidInput, match=f"the table has '{path}'"):
            change(table, [Added(left, pa.string())])
    else:
        change(table, [Added(left, pa.string())])
        shown(table)


def test_a_dry_run_behind_a_command_that_died_refuses_what_a_run_would(table: FlusherTable) -> None:
    steps = Steps()
    steps.after[1] = die
    with pytest.raises(Killed):
        change(table, [Dropped(("tags",))], steps)
    again, over = [Added(("tags",), pa.int64())], LanceTable(table.uri)
    planned = change_columns(table.store, over, SystemClock(), table.new_id, again, look_only=True)
    made = change(table, again)
    assert [(c.name, c.type) for c in made.columns] == [(c.name, c.type) for c in planned.columns]


ADDR = Renamed(("address",), "addr")


@pytest.mark.parametrize(
    ("theirs", "changes", "refused"),
    [
        ("city", [ADDR, Added(("addr", "city"), pa.string())], r"the table has 'address\.city'"),
        ("City", [ADDR, Added(("addr", "city"), pa.string())], r"the table has 'address\.City'"),
        ("City", [ADDR, Renamed(("addr", "zip"), "city")], r"the table has 'address\.City'"),
        ("", [Renamed(("address", "zip"), "code"), ADDR, Added(("addr", "zip"), pa.int8())], "drops or renames 'zip'"),
        ("", [Dropped(("address", "zip")), ADDR, Added(("addr", "zip"), pa.int8())], "drops or renames 'zip'"),
    ],
)
def test_a_run_and_a_dry_run_know_the_members_of_a_struct_that_is_renamed(
    table: FlusherTable, theirs: str, changes: list[Change], refused: str
) -> None:
    if theirs:
        table.dataset.add_columns(pa.schema([pa.field("address", pa.struct([(theirs, pa.string())]))]))
    before, over = LanceTable(table.uri).newest().version, LanceTable(table.uri)
    for look_only in (True, False):
        with pytest.raises(InvalidInput, match=refused):
            change_columns(table.store, over, SystemClock(), table.new_id, changes, look_only=look_only)
    assert over.newest().version == before
    assert read_contract(table.store, table.uri) == table.contract


@pytest.mark.parametrize("renames", [False, True])
def test_a_member_that_was_left_is_used_when_its_struct_is_renamed(table: FlusherTable, renames: bool) -> None:
    changes: list[Change] = [ADDR, Added(("addr", "city"), pa.string())]
    steps = Steps()
    steps.after[0] = die
    with pytest.raises(Killed):
        change(table, changes if renames else [Added(("address", "city"), pa.string())], steps)
    ids = itertools.chain.from_iterable(LanceTable(table.uri).newest().field_ids.values())
    (left,) = set(ids) - set(table.contract.field_ids)
    contract = change(table, changes)
    assert left in contract.field_ids
    assert shown(table)["addr"] == "struct<street: string, zip: int32, city: string>"


@pytest.mark.parametrize("member", [False, True])
@pytest.mark.parametrize("drop_first", [True, False])
def test_a_name_that_a_dead_rename_gave_is_not_given_while_its_field_is_dropped(
    table: FlusherTable, member: bool, drop_first: bool
) -> None:
    old = ("address", "zip") if member else ("a",)
    steps = Steps()
    steps.before[1] = die
    with pytest.raises(Killed):
        change(table, [Renamed(old, "new")], steps)
    drops, adds = Dropped(old), Added((*old[:-1], "new"), pa.int8())
    changes: list[Change] = [drops, adds] if drop_first else [adds, drops]
    over = LanceTable(table.uri)
    for look_only in (True, False):
        with pytest.raises(InvalidInput, match=r"the same call .*first, in a call of its own"):
            change_columns(table.store, over, SystemClock(), table.new_id, changes, look_only=look_only)
    change(table, [drops])
    change(table, [adds])
    assert shown(table)


@pytest.mark.parametrize("path", [("note",), ("address", "city")])
def test_fields_of_an_unfinished_change_are_not_another_program_s(table: FlusherTable, path: tuple[str, ...]) -> None:
    steps = Steps()
    steps.after[0] = die
    with pytest.raises(Killed):
        change(table, [Added(path, pa.string())], steps)
    table.dataset.add_columns(pa.schema([("theirs", pa.int64())]))
    contract = read_contract(table.store, table.uri)
    assert foreign_columns(LanceTable(table.uri).newest(), contract) == ("theirs",)


def test_a_command_that_sleeps_undoes_no_newer_change(table: FlusherTable) -> None:
    steps = Steps()
    steps.after[1] = lambda: change(table, [Dropped(("note",)), Renamed(("text",), "words")])
    change(table, CHANGES, steps)
    assert [name for name in shown(table) if name not in AFTER] == ["words"]
    assert "note" not in shown(table)


def test_a_widening_that_has_landed_stays_when_other_columns_change(table: FlusherTable) -> None:
    """The flusher has committed the wider column, and died before the contract has it."""
    asked = change(table, [Widened(("address", "zip"), pa.int64())])
    pinned = LanceTable(table.uri).newest()
    wide = next(column for column in asked.columns if column.name == "address").widened
    ids = {**pinned.field_ids, "address": wide.field_ids}
    at = pinned.schema.get_field_index("address")
    schema = pinned.schema.set(at, pa.field("address", pa.struct([("street", pa.string()), ("zip", pa.int64())])))
    done = LanceTable(table.uri).change_columns(ColumnsCommit(pinned.version, schema, ids, {}, None, ()))
    assert not isinstance(done, Conflicted | CommitLost)
    change(table, [Added(("address", "city"), pa.string()), Renamed(("address", "zip"), "code"), Dropped(("tags",))])
    found = LanceTable(table.uri).newest()
    assert found.field_ids["address"] == (*wide.field_ids, asked.highest_field_id + 1)  # type: ignore[operator] # known
    assert found.schema.field("address").type == pa.struct(
        [("street", pa.string()), ("code", pa.int64()), ("city", pa.string())]
    )
    assert "tags" not in found.schema.names
