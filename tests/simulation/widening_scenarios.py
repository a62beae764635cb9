"""Columns get wider types, defaults and other members, and other programs change them, between the steps of others."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pyarrow as pa

from lancewal_core.errors import ContractMismatch, InvalidInput, TableRestored
from lancewal_core.names.ids import TableVersion
from lancewal_core.rows.schema import Op
from lancewal_core.table.columns.restored import bring_back
from lancewal_core.table.protocol import ColumnsCommit, Committed
from lancewal_core.table.watermarks import InForce
from lancewal_flusher.commit.send import Refused
from lancewal_flusher.context import FlusherContext, by_newest_contract, with_newer_contract
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_flusher.upkeep.widening import WideningDone, WideningResult, WideningState, widen_next
from lancewal_tables.load.deletes import DeletesSince
from lancewal_tables.load.part import load_part
from lancewal_tables.load.whole import _act_on, _begin
from tests.simulation.checker import require
from tests.simulation.column_scenarios import ColumnStage
from tests.simulation.script import Crashed, crash, stops
from tests.simulation.stage import Member

LARGE = 1 << 40
IN_PLACE = MergeLimits(in_place_rows=1)


class WideningStage(ColumnStage):
    """A stage with column ``g`` of 32 bits, and a row."""

    def __init__(self) -> None:
        super().__init__()
        self.change(add=("g",))
        self.first = self.started()
        self.records(self.first, a="x", g=1)
        self.seal(self.first)
        self.merge()

    def widens(self, context: FlusherContext, state: WideningState | None = None) -> WideningResult:
        """A turn of a flusher, as the service makes it."""
        context = with_newer_contract(context) or context
        return by_newest_contract(context, partial(widen_next, state=state or WideningState(), turn_s=60.0))

    def rounds(self, context: FlusherContext, limits: MergeLimits | None = None) -> None:
        """A round of a flusher that may have an older contract."""
        by_newest_contract(context, partial(self.round, limits=limits))

    def patches(self, member: Member, k: int = 0, **values: object) -> None:
        """A patch is durable and flushed."""
        self.records(member, Op.PATCH, k=k, **values)
        self.seal(member)

    def rows_of_table(self) -> list[dict[str, object]]:
        """Rows of the newest version, by the names that it has."""
        newest = self.checker.table.newest()
        return [row for batch in newest.scan(newest.schema.names) for row in batch.to_pylist()]

    def is_wide(self) -> None:
        """The table and its contract have the wider type, and a value of it is taken."""
        column = next(c for c in self.contract.columns if c.name == "g")
        require((column.type, column.widening) == ("int64", None), "the contract has", column)
        require(
            self.dataset.newest.columns.ids["g"] == column.field_ids, "the table has", self.dataset.newest.columns.ids
        )
        self.records(self.started(), Op.PATCH, k=50, g=LARGE)
        require(not self.checker.rejected, "a value was rejected:", self.checker.rejected)
        self.check_rows_and_columns()


def merge_between_the_files_of_a_widening_and_its_commit() -> None:
    """F has written the files, when G merges a patch of the same column in place.  F goes on."""
    stage = WideningStage()
    f, g, state = stage.flusher("f"), stage.flusher("g"), WideningState()
    stage.change(widen=("g",))

    def merged() -> None:
        stage.patches(stage.first, g=7)
        stage.rounds(g, IN_PLACE)

    stage.faults_of("f").before("commit", "table", merged)
    require(isinstance(stage.widens(f, state), Refused), "it has landed above a merge")
    require(isinstance(stage.widens(f, state), WideningDone), "it has not landed")
    stage.is_wide()


def rows_are_deleted_between_the_files_of_a_widening_and_its_commit() -> None:
    """The same, but the merge hides a row of a file and adds none."""
    stage = WideningStage()
    f, g, state = stage.flusher("f"), stage.flusher("g"), WideningState()
    for k in (1, 2):
        stage.records(stage.first, k=k, g=2)
    stage.seal(stage.first)
    stage.rounds(g)
    stage.change(widen=("g",))

    def deleted() -> None:
        stage.records(stage.first, Op.DELETE, k=1)
        stage.seal(stage.first)
        stage.rounds(g)

    stage.faults_of("f").before("commit", "table", deleted)
    require(isinstance(stage.widens(f, state), Refused), "it has landed above a merge")
    require(isinstance(stage.widens(f, state), WideningDone), "it has not landed")
    stage.is_wide()


def sleeping_flusher_wakes_after_a_widening() -> None:
    """G is about to send a merge of narrow values, when F widens the column."""
    stage = WideningStage()
    f, g = stage.flusher("f"), stage.flusher("g")
    stage.change(widen=("g",))
    stage.patches(stage.first, g=7)
    stage.records(stage.first, k=1, g=8)
    stage.faults_of("g").before("commit", "table", lambda: stage.widens(f))
    stage.rounds(g)
    stage.is_wide()


def flusher_dies_before_the_contract_of_a_widening() -> None:
    """F dies when the wider column has landed in the table.  G, which has slept since before, merges."""
    stage = WideningStage()
    f, g = stage.flusher("f"), stage.flusher("g")
    stage.change(widen=("g",))
    stage.patches(stage.first, g=7)
    stage.faults_of("f").before("put", "/contract/", crash)
    with suppress(Crashed):
        stage.widens(f)
    require(str(stage.dataset.schema.field("g").type) == "int64", "it has not landed")
    stage.check()
    stage.rounds(g)
    stage.is_wide()


def read_between_a_widening_and_a_shrink() -> None:
    """A command has stored the contract that drops ``b``, and died.  A record is taken by it.  F widens ``g``, and dies when
    the table has the wider type, and the contract has the narrow one."""
    stage = WideningStage()
    stage.change(widen=("g",))
    f = stage.flusher("f")
    stage.dies(lambda: stage.faults_of("dead").before("commit", "table", crash, 2), drop=("b",))
    stage.records(stage.started(), k=1, g=8)
    stage.faults_of("f").before("put", "/contract/", crash)
    with suppress(Crashed):
        stage.widens(f)
    require(str(stage.dataset.schema.field("g").type) == "int64", "it has not landed")
    stage.check()
    stage.rounds(stage.flusher("another"))
    stage.is_wide()


def command_runs_before_the_contract_of_a_widening() -> None:
    """F dies there.  A command renames the column, and adds another one."""
    stage = WideningStage()
    f = stage.flusher("f")
    stage.change(widen=("g",))
    stage.faults_of("f").before("put", "/contract/", crash)
    with suppress(Crashed):
        stage.widens(f)
    stage.change(rename={"g": "d"}, add=("c",))
    stage.patches(stage.first, d=7, c="c")
    stage.check()
    stage.widens(stage.flusher("another"))
    stage.patches(stage.started(), k=1, d=LARGE)
    stage.check_rows_and_columns()


def deaths_at_each_step_of_a_widening() -> None:
    """Before the files, the commit, the contract, and the mark; each time records come, and another flusher goes on."""
    for n, (act, what, passing) in enumerate(
        [("write wider columns", "table", 1), ("commit", "table", 1), ("put", "/contract/", 1), ("commit", "table", 2)]
    ):
        stage = WideningStage()
        f = stage.flusher("dead")
        stage.change(widen=("g",))
        stage.faults_of("dead").before(act, what, crash, passing)
        with suppress(Crashed):
            stage.widens(f)
            raise AssertionError(f"it was to die: {n}")
        stage.patches(stage.first, g=7)
        stage.rounds(stage.flusher("heir"))
        stage.widens(stage.flusher("another"))
        stage.is_wide()


def two_flushers_widen_at_once() -> None:
    """F is about to commit, when G does."""
    stage = WideningStage()
    f, g, state = stage.flusher("f"), stage.flusher("g"), WideningState()
    stage.change(widen=("g",))
    stage.faults_of("f").before("commit", "table", lambda: stage.widens(g))
    require(isinstance(stage.widens(f, state), Refused), "both have landed")
    stage.widens(f, state)
    stage.is_wide()


def another_program_takes_the_id_of_a_widening() -> None:
    """A column is added by others after the request, before the flusher begins."""
    stage = WideningStage()
    stage.change(widen=("g",))
    stage.foreign_column("theirs", "int64")
    f, state = stage.flusher("f"), WideningState()
    while not isinstance(stage.widens(f, state), WideningDone):
        pass
    stage.is_wide()


def column_is_dropped_while_it_is_to_be_widened() -> None:
    """F is about to commit the wider column, when a command drops it."""
    stage = WideningStage()
    f, state = stage.flusher("f"), WideningState()
    stage.change(widen=("g",))
    stage.faults_of("f").before("commit", "table", lambda: stage.change(drop=("g",)))
    require(isinstance(stage.widens(f, state), Refused), "it has landed")
    require(stage.widens(f, state) is None, "there is something left to widen")
    stage.check_rows_and_columns()


def widening_lands_while_its_column_is_dropped() -> None:
    """A command has stored the contract that drops the column, when F, which knows only the one before, widens it."""
    stage = WideningStage()
    stage.change(widen=("g",))
    f, landed = stage.flusher("f"), []
    stage.faults_of("command").before(
        "commit", "table", lambda: landed.append(widen_next(f, WideningState(), turn_s=60.0)), 2
    )
    stage.change(drop=("g",))
    require(isinstance(landed[0], WideningDone), "it has not landed:", landed)
    require("g" not in stage.dataset.schema.names, "the column stays:", stage.dataset.schema)
    stage.change(add=("g",))
    stage.check_rows_and_columns()


def flusher_stores_a_contract_before_the_one_of_a_growth() -> None:
    """A command has grown the table.  A merge of patches writes nulls into the new column, and a widening is done."""
    stage = WideningStage()
    stage.change(widen=("g",))
    f = stage.flusher("f")

    def overtaken() -> None:
        stage.patches(stage.first, g=7)
        stage.rounds(f)
        while not isinstance(stage.widens(f), WideningDone):
            pass

    stage.faults_of("command").before("put", "/contract/", overtaken)
    stage.change(add=("d",))
    require([c.name for c in stage.contract.columns] == ["k", "a", "b", "g", "d"], "columns:", stage.contract.columns)
    stage.is_wide()


def member_meets_a_value_of_the_wider_type() -> None:
    """A knows the contract of before, when the column is wide and a record has a value that it was too narrow for."""
    stage = WideningStage()
    stage.change(widen=("g",))
    stage.widens(stage.flusher("f"))
    stage.records(stage.first, k=1, g=LARGE)
    stage.seal(stage.first)
    stage.is_wide()


def member_sleeps_through_two_changes_and_claims_what_is_wide() -> None:
    """The column is widened, and another gets a default, while the sleeper sleeps.  Its records are decided by the newest
    contract that its region's state names."""
    stage = WideningStage()
    sleeper = stage.member("sleeper")
    stage.change(widen=("g",))
    stage.widens(stage.flusher("f"))
    stage.change(default=("c",))
    a = stage.started()
    stage.records(a, g=LARGE)
    stage.take_over(a, sleeper, 0)
    stage.step(sleeper, 4)
    stage.records(sleeper, k=1, g=2)
    stage.records(sleeper, Op.PATCH, k=2, g=3)
    stage.seal(sleeper)
    stage.is_wide()


def defaults_fill_upserts_alone() -> None:
    """Rows of before keep nulls, a patch without the column leaves it alone, and null is null."""
    stage = WideningStage()
    stage.change(default=("c", "d"))
    a = stage.started()
    stage.records(a, k=1)
    stage.records(a, k=2, c=None, d=5)
    stage.records(a, Op.PATCH, k=3, a="patched")
    stage.records(a, Op.PATCH, a="patched")
    stage.seal(a)
    stage.change(rename={"c": "e"})
    stage.records(a, k=4, c="former")
    stage.records(a, k=5)
    stage.seal(a)
    stage.check_rows_and_columns()


def member_is_dropped_and_added_while_its_flush_waits() -> None:
    """Values of ``s.q`` wait in a flush and in the log, when ``s.q`` is dropped, and another is added."""
    stage = ColumnStage()
    stage.change(add=("s", "l"))
    a = stage.started()
    stage.records(a, s={"p": 1, "q": "old"}, l=[{"p": 1, "q": "old"}, None, {}])
    stage.seal(a)
    stage.records(a, k=1, s={"q": "old"}, l=[{"q": "old"}])
    stage.change(drop=("s.q", "l.q"))
    stage.change(add=("s.q", "l.q"), rename={"l.p": "r"})
    stage.records(a, Op.PATCH, k=2, s={"p": 2, "q": "new"}, l=[{"p": 2, "q": "new"}])
    stage.seal(a)
    stage.check_rows_and_columns()


def last_member_of_older_rows_is_to_be_dropped() -> None:
    """Rows have ``s`` without ``r``.  Then the other members go one by one, as far as the command does it."""
    stage = ColumnStage()
    stage.change(add=("s",))
    a = stage.started()
    stage.records(a, s={"p": 1, "q": "x"})
    stage.seal(a)
    stage.merge()
    stage.change(add=("s.r",))
    stage.change(drop=("s.p",))
    with suppress(InvalidInput):
        stage.change(drop=("s.q",))
    stage.check_rows_and_columns()


def names_are_forgotten() -> None:
    """A former and a dropped name are bad once they are forgotten, also to a member that has not heard of it."""
    stage = WideningStage()
    stage.change(rename={"g": "d"})
    stage.change(drop=("b",))
    a = stage.started()
    stage.records(a, k=1, g=1, b=2)
    stage.change(forget=("g", "b"))
    stage.records(a, k=2, g=1)
    stage.records(a, k=3, b=2)
    require(stage.checker.rejected == {0: {2, 3}}, "dead letters are", stage.checker.rejected)
    stage.seal(a)
    stage.check_rows_and_columns()


def another_program_renames_a_column() -> None:
    """Merges stop by name, ingest goes on.  The name is changed back, and all is merged."""
    stage = WideningStage()
    stage.change(add=("s",))
    for path, name in (("g", "theirs"), ("s.q", "theirs")):
        outer = path.rpartition(".")[0]
        stage.checker.table.rename_column(path, name)
        stage.patches(stage.first, g=7, s={"q": "x"})
        for act in (stage.merge, lambda: stage.change(add=("c",))):
            with stops(ContractMismatch, f"column '{path}' is missing, and has become 'theirs'"):
                act()
        stage.checker.table.rename_column(f"{outer}.{name}" if outer else name, path.rpartition(".")[2])
        stage.merge()
    stage.check_rows_and_columns()


def another_program_drops_a_column() -> None:
    """Merges and commands stop by name, and ingest goes on.  The version before is restored: then a person decides."""
    stage = WideningStage()
    before = stage.dataset.newest.number
    stage.checker.table.drop_column("g")
    stage.patches(stage.first, g=7)
    for act in (stage.merge, lambda: stage.change(add=("c",))):
        with stops(ContractMismatch, "column 'g' is missing"):
            act()
    stage.checker.table.restore(before)
    with stops(TableRestored):
        stage.merge()


def table_is_restored_to_older_columns() -> None:
    """Merges stop, for the restore or for the columns that are missing, and so do commands."""
    stage = WideningStage()
    before = stage.dataset.newest.number
    stage.change(add=("c",))
    stage.patches(stage.first, c="c")
    stage.merge()
    stage.checker.table.restore(before)
    stage.patches(stage.first, c="d")
    for act in (stage.merge, lambda: stage.change(add=("e",)), lambda: stage.change(adopt=("*",))):
        with stops(
            ContractMismatch, "column 'c' is missing. It has those of version 2 of the contract. `lancewal repair"
        ):
            act()


def restored_table_gets_the_newest_columns() -> None:
    """Rows wait for a merge, and columns have changed in each way, when a version from before is restored.  A person brings it
    to the newest contract, and has died before one of the commits."""
    for dies in (1, 2, None):
        stage = WideningStage()
        stage.change(add=("d",))
        stage.patches(stage.first, d=5, b=6)
        stage.patches(stage.first, k=7, g=3)
        stage.merge()
        before, merged = stage.dataset.newest.number, stage.process("audience").watermarks.newest()[1]
        stage.patches(stage.first, k=1, g=2)
        stage.change(add=("c",), drop=("b",), rename={"d": "f"})
        stage.change(widen=("g",))
        stage.widens(stage.flusher("f"))
        a = stage.started()
        stage.patches(a, c="c", g=LARGE)
        restored = stage.checker.table.restore(before)
        with stops(ContractMismatch, "was restored"):
            stage.merge()
        script, person = stage.faults_of("dead"), stage.process("dead")
        if dies is not None:
            script.before("commit", "table", crash, passing=dies)
            with suppress(Crashed):
                bring_back(person.store, person.table, person.tasks)
                raise AssertionError("the person was to die")
        person = stage.process("person")
        person.watermarks.decide(InForce(restored, None, merged.regions), "replay")
        bring_back(person.store, person.table, person.tasks)
        names = stage.dataset.schema.names
        require(names == ["k", "a", "g", "f", "c"], "the table's columns are", names)
        stage.is_wide()


def load_begins_before_a_change() -> None:
    """A part of a bulk load is about to be sent, when a column of it is dropped, and another program's gets its id.  Before
    the next part a column is widened."""
    stage = WideningStage()
    stage.change(add=("c",))
    context, rows = stage.flusher("load"), stage.contract.rows
    deletes = DeletesSince(context, "load", _begin(context, "load"))

    def dropped_and_taken() -> None:
        stage.change(drop=("c",))
        stage.foreign_column("theirs", "string")

    stage.faults_of("load").before("commit", "table", dropped_and_taken)
    for k in (100, 101):
        values = {"k": [k, 0], "a": ["loaded"] * 2, "b": [1, 2], "g": [3, 4], "c": ["old"] * 2}
        act = partial(_act_on, load_part, pa.table(values, rows.table), rows, deletes)
        loaded = by_newest_contract(context, act)
        require((loaded.inserted, loaded.present) == (1, 1), "the load says", loaded)
        (row,) = [row for row in stage.rows_of_table() if row["k"] == k]
        require(row == {"k": k, "a": "loaded", "b": 1, "g": 3, "theirs": None}, "the loaded row is", row)
        if k == 100:
            stage.change(widen=("g",))
            stage.widens(stage.flusher("f"))


def flusher_of_before_meets_a_dropped_id() -> None:
    """F knows ``c``.  It is dropped, and another program's column gets its id and has its type, before F merges values of
    ``c``: the version seems to fit."""
    stage = ColumnStage()
    stage.change(add=("c",))
    a, f = stage.started(), stage.flusher("f")
    stage.records(a, c="old")
    stage.seal(a)
    stage.change(drop=("c",))
    stage.foreign_column("theirs", "string")
    by_newest_contract(f, stage.round)
    stage.check_rows_and_columns()


def mark_of_a_former_life_stops_nothing() -> None:
    """The schema of an attached table names a change of a contract that is not there."""
    stage = ColumnStage()
    a, newest = stage.started(), stage.dataset.newest
    commit = ColumnsCommit(TableVersion(newest.number), newest.columns.schema, newest.columns.ids, {}, "9-ab")
    require(isinstance(stage.checker.table.change_columns(commit), Committed), "the mark has not landed")
    stage.records(a, a="x", b=1)
    stage.seal(a)
    stage.merge()
    require(stage.rows_of(stage.dataset.newest.number) == [{"k": 0, "a": "x", "b": 1}], "the row is not merged")


def merge_sleeps_while_its_column_is_dropped_and_its_id_taken() -> None:
    """The same, but the merge is about to be sent when the column is dropped.  Lance refuses it, as it does after each
    column that pylance adds."""
    stage = ColumnStage()
    stage.change(add=("c",))
    a, f = stage.started(), stage.flusher("f")
    stage.records(a, c="old")
    stage.seal(a)

    def dropped_and_taken() -> None:
        stage.change(drop=("c",))
        stage.foreign_column("theirs", "string")

    stage.faults_of("f").before("commit", "table", dropped_and_taken)
    by_newest_contract(f, stage.round)
    stage.check_rows_and_columns()


SCENARIOS: dict[Callable[[], None], tuple[str, str]] = {
    merge_between_the_files_of_a_widening_and_its_commit: ("files of a widening stay right", "rows .*'3@2': 1}"),
    rows_are_deleted_between_the_files_of_a_widening_and_its_commit: ("a widening brings deletes back", "rows"),
    flusher_dies_before_the_contract_of_a_widening: ("rows are written beside a widening", "the contract has"),
    read_between_a_widening_and_a_shrink: ("types of an unmerged contract are those of a read", "cannot become"),
    command_runs_before_the_contract_of_a_widening: ("a command minds no widening", "rows|holds|columns"),
    widening_lands_while_its_column_is_dropped: ("only the ids of the contract's fields go", "the column stays"),
    flusher_stores_a_contract_before_the_one_of_a_growth: ("fields that files have are others'", "InvalidInput|'d'"),
    member_meets_a_value_of_the_wider_type: ("a value is rejected by an old contract", "decided by an old contract"),
    defaults_fill_upserts_alone: ("defaults fill nothing", "holds"),
    member_is_dropped_and_added_while_its_flush_waits: ("members are carried by names", "holds"),
    last_member_of_older_rows_is_to_be_dropped: ("a struct may lose all members of its files", "rows"),
    another_program_renames_a_column: ("names of columns say nothing", "ContractMismatch was expected"),
    restored_table_gets_the_newest_columns: ("a restored column stays narrow", "rows|holds"),
    load_begins_before_a_change: ("a newer mark says nothing", "the loaded row is .*'theirs': 'old'"),
    flusher_of_before_meets_a_dropped_id: ("a newer mark says nothing", "of others': 'old'"),
}

ACCIDENTS: list[Callable[[], None]] = [
    sleeping_flusher_wakes_after_a_widening,
    deaths_at_each_step_of_a_widening,
    two_flushers_widen_at_once,
    another_program_takes_the_id_of_a_widening,
    column_is_dropped_while_it_is_to_be_widened,
    member_sleeps_through_two_changes_and_claims_what_is_wide,
    names_are_forgotten,
    another_program_drops_a_column,
    table_is_restored_to_older_columns,
    merge_sleeps_while_its_column_is_dropped_and_its_id_taken,
    mark_of_a_former_life_stops_nothing,
]
