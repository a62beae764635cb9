"""Columns change between the steps of others."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast

from lancewal_core.errors import ContractMismatch, InvalidInput
from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.rows.schema import Op
from lancewal_core.table.protocol import CommitLost, CommitOutcome, StoredTable, TableCommit
from lancewal_flusher.context import FlusherContext
from tests.simulation import column_changes
from tests.simulation.checker import require
from tests.simulation.column_changes import Change
from tests.simulation.columns import TYPES
from tests.simulation.oracle import Record
from tests.simulation.script import Crashed, crash
from tests.simulation.stage import Member, Stage
from tests.twins.sim_clock import EPOCH_MS


class ColumnStage(Stage):
    """A stage whose columns change.  ``records`` are those of partition 0."""

    def __init__(self, partitions: int = 1) -> None:
        super().__init__(partitions=partitions, columns_change=True)
        self.members = 0

    def change(self, name: str = "command", **change: object) -> None:
        """Somebody runs the command."""
        column_changes.change_columns(self.process(name), Change(**change))  # type: ignore[arg-type] # its fields

    def dies(self, place: Callable[[], object], **change: object) -> None:
        """Somebody runs the command, and it dies where ``place`` has set a cue."""
        place()
        with suppress(Crashed):
            self.change("dead", **change)
            raise AssertionError("the command was to die")

    def started(self) -> Member:
        """A member that knows the newest contract, and has the partition."""
        for name in sorted(self.group.members):
            self.group.expel(name)
        self.members += 1
        return self.member(f"m{self.members}", 0)

    def records(self, member: Member, op: Op = Op.UPSERT, k: int = 0, **values: object) -> None:
        """A record is durable."""
        says = {Op.PATCH: b"patch", Op.DELETE: b"delete"}.get(op)
        headers: list[tuple[str, bytes | None]] | None = None if says is None else [("lancewal.op", says)]
        value, key = json.dumps({"k": k, **values}).encode(), encode_region_key(k)
        now_ms = EPOCH_MS + int(self.scheduler.now * 1000) + 1  # after the contracts that are stored
        self.topic.append(0, lambda offset: Record(offset, now_ms, key, value, headers, op, k, values))
        self.step(member, 2)

    def merge(self) -> FlusherContext:
        """A flusher that has just started makes a round."""
        flusher = self.flusher(f"flusher {len(self.scripts)}")
        self.round(flusher)
        return flusher

    def foreign_column(self, name: str, type_: str) -> None:
        """Another program adds a column of nulls, as Lance does it."""
        self.checker.table.add_column(name, type_)

    def check_rows_and_columns(self) -> None:
        """All is as it must be, also after a command more."""
        for last in (False, True):
            self.merge()
            self.check()
            self.check_table()
            self.columns_fit()
            if not last:
                self.change("last", add=(next(n for n in TYPES if n not in self.dataset.schema.names),))

    def columns_fit(self) -> None:
        """The newest version has every field of the contract."""
        fields = {i for ids in self.dataset.newest.columns.ids.values() for i in ids}
        lacking = [c.name for c in self.contract.columns if not fields.issuperset(c.field_ids)]
        require(not lacking, "the table lacks columns of the contract:", lacking)


def column_is_dropped_and_added_while_its_flush_waits() -> None:
    """Values of ``c`` wait in a flush, when ``c`` is dropped, and another ``c`` is added."""
    stage = ColumnStage()
    stage.change(add=("c",))
    a = stage.started()
    stage.records(a, c="old")
    stage.seal(a)
    stage.change(drop=("c",))
    stage.change(add=("c",))
    stage.check_rows_and_columns()


def _dropped_id_came_back() -> ColumnStage:
    """Values of a dropped column wait for a merge, and another program's column has got its id."""
    stage = ColumnStage()
    stage.change(add=("c",))
    a = stage.started()
    stage.records(a, c="old")
    stage.seal(a)
    stage.change(drop=("c",))
    stage.foreign_column("theirs", "string")
    require(stage.dataset.newest.columns.ids["theirs"] == (3,), "it has another id:", stage.dataset.newest.columns.ids)
    return stage


def another_program_takes_a_dropped_id() -> None:
    """The same, but the new column is another program's."""
    _dropped_id_came_back().check_rows_and_columns()


def another_program_s_column_stays() -> None:
    """Another program's column has a dropped id, when the next command brings the table to the contract."""
    stage = ColumnStage()
    stage.change(add=("c",))
    stage.change(drop=("c",))
    stage.foreign_column("theirs", "string")
    for name in ("d", "e"):
        stage.change(add=(name,))
        require("theirs" in stage.dataset.schema.names, "another program's column is gone")
    stage.check_rows_and_columns()


def dropped_id_that_came_back_is_not_adopted() -> None:
    """The same, and somebody wants to adopt that column.  It would show the values that wait."""
    stage = _dropped_id_came_back()
    with suppress(InvalidInput):
        stage.change(adopt=("theirs",))
    stage.check_rows_and_columns()


ADOPTED = ("before its contract", "before it shrinks", "at once")


def _adopted(stage: ColumnStage, place: str) -> None:
    """A command adopts all, behind one that has died at the place."""
    script = stage.faults_of("dead")
    if place == "before its contract":
        stage.dies(lambda: script.before("put", "/contract/", crash), adopt=("*",))
    elif place == "before it shrinks":
        stage.dies(
            lambda: script.before("put", "/contract/", lambda: script.before("commit", "table", crash)), adopt=("*",)
        )
    stage.change(adopt=("*",))


def what_another_program_did_is_adopted() -> None:
    """Values of the old contract wait in a flush, when another program adds, renames and drops columns.  Merges stop until a
    command adopts all this; another one has died in each of its steps before."""
    for place in ADOPTED:
        stage = ColumnStage()
        stage.change(add=("c", "d"))
        a = stage.started()
        stage.records(a, a="x", b=1, c="c", d=1)
        stage.seal(a)
        stage.merge()
        stage.records(a, Op.PATCH, k=0, c="later", d=2)
        stage.seal(a)
        stage.foreign_column("theirs", "string")
        stage.checker.table.rename_column("c", "e")
        stage.checker.table.drop_column("d")
        with suppress(ContractMismatch):
            stage.merge()
            raise AssertionError("merges were to stop")
        _adopted(stage, place)
        names = [column.name for column in stage.contract.columns]
        require(names == ["k", "a", "b", "e", "theirs"], "the contract has", names)
        b = stage.started()
        stage.records(b, Op.PATCH, k=0, theirs="ours now", e="newest")
        stage.records(b, k=1, theirs="y", c="by its old name")
        stage.seal(b)
        stage.check_rows_and_columns()


def another_program_gives_names_to_other_columns() -> None:
    """Values of the old contract wait in a flush, when another program swaps the names of ``b`` and ``d``, drops ``c``, and
    gives its name to ``e``.  A command adopts all this; another one has died in each of its steps before."""
    for place in ADOPTED:
        stage = ColumnStage()
        stage.change(add=("c", "d", "e"))
        a = stage.started()
        stage.records(a, b=1, c="c", d=2, e="e")
        stage.seal(a)
        stage.merge()
        stage.records(a, Op.PATCH, b=10, e="later")
        stage.records(a, k=1, b=3, d=4)
        stage.seal(a)
        table = stage.checker.table
        for path, name in (("b", "x"), ("d", "b"), ("x", "d")):
            table.rename_column(path, name)
        table.drop_column("c")
        table.rename_column("e", "c")
        _adopted(stage, place)
        names = [column.name for column in stage.contract.columns]
        require(names == ["k", "a", "d", "b", "c"], "the contract has", names)
        former = [former.name for former in stage.contract.former_names]
        require(former == ["e"], "former names are", former)
        b = stage.started()
        stage.records(b, Op.PATCH, k=0, b=20)
        stage.records(b, k=2, d=5, b=6, e="by its old name")
        stage.seal(b)
        stage.check_rows_and_columns()


def command_dies_before_its_contract() -> None:
    """A command that adds and drops dies between the table and the contract; rows are merged; another one runs."""
    stage = ColumnStage()
    a = stage.started()
    stage.records(a, a="x", b=1)
    script = stage.faults_of("dead")
    stage.dies(lambda: script.before("put", "/contract/", crash), add=("c",), drop=("b",))
    stage.columns_fit()
    stage.records(a, a="y", b=2, k=1)
    stage.seal(a)
    stage.check_rows_and_columns()


def command_dies_before_it_shrinks() -> None:
    """A command that adds, renames and drops dies right behind the contract; rows are merged; another one runs."""
    stage = ColumnStage()
    stage.change(add=("d", "e"))
    a = stage.started()
    stage.records(a, a="x", b=1, d=1, e="e")
    stage.seal(a)
    script = stage.faults_of("dead")
    stage.dies(
        lambda: script.before("put", "/contract/", lambda: script.before("commit", "table", crash)),
        add=("f",), rename={"e": "c"}, drop=("d",),
    )  # fmt: skip
    stage.columns_fit()
    b = stage.started()
    stage.records(b, Op.PATCH, c="c", f=1)
    stage.seal(b)
    stage.check_rows_and_columns()


def command_sleeps_while_another_runs() -> None:
    """A is about to shrink.  Before it does, B renames and drops; then A goes on, and dies if it changes more."""
    stage = ColumnStage()
    script = stage.faults_of("a")

    def another_runs() -> None:
        stage.change("b", rename={"c": "e"}, drop=("b",))
        script.before("newest", "table", crash)

    script.before("put", "/contract/", lambda: script.before("newest", "table", another_runs))
    with suppress(Crashed):
        stage.change("a", add=("c",))
    script.clear()
    names = stage.dataset.schema.names
    require(names == ["k", "a", "e"], "the table's columns are", names)
    stage.check_rows_and_columns()


def command_finds_what_another_is_about_to_add() -> None:
    """A has grown the table.  Before its contract, B brings the table to the one before, and dies; then A dies, too."""
    stage = ColumnStage()
    script, other = stage.faults_of("dead"), stage.faults_of("b")

    def another_begins() -> None:
        other.before("commit", "table", crash, passing=2)
        with suppress(Crashed):
            stage.change("b", add=("e",))
        script.before("commit", "table", crash)

    stage.dies(lambda: script.before("put", "/contract/", another_begins), add=("c",))
    stage.columns_fit()
    stage.check_rows_and_columns()


def two_commands_grow_at_once() -> None:
    """A has grown the table, when B does; both add columns."""
    stage = ColumnStage()
    stage.faults_of("a").before("put", "/contract/", lambda: stage.change("b", add=("e",)))
    stage.change("a", add=("c",))
    a = stage.started()
    stage.records(a, a="x", c="c", e="e")
    stage.seal(a)
    stage.check_rows_and_columns()


@dataclass
class _Sleeping:
    """The table of a flusher that falls asleep when it is about to send a commit."""

    table: StoredTable
    sent: list[TableCommit] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.table, name)

    def commit(self, commit: TableCommit) -> CommitOutcome:
        self.sent.append(commit)
        return CommitLost("asleep")


def merge_lands_after_its_fields_were_given_up() -> None:
    """A command has added ``c``, and died.  Another contract comes, so that nobody stores the command's any more.  A merge was
    planned meanwhile, whose file has ``c``.  It lands when another command has looked at the table, and adds ``d``."""
    stage = ColumnStage()
    a = stage.started()
    stage.records(a, a="x")
    stage.seal(a)
    stage.merge()
    stage.records(a, Op.PATCH, b=1)
    stage.seal(a)
    stage.dies(lambda: stage.faults_of("dead").before("put", "/contract/", crash), add=("c",))
    stage.alter(history_window_s=5)
    flusher = stage.flusher("f")
    asleep = _Sleeping(flusher.table)
    stage.round(replace(flusher, table=cast("StoredTable", asleep)))

    def wakes() -> None:
        if asleep.sent and "c" not in stage.dataset.schema.names:
            stage.dataset.land(asleep.sent[0])
            asleep.sent.clear()

    for passing in (1, 2):
        stage.faults_of("command").before("commit", "table", wakes, passing)
    stage.change(add=("d",))
    wakes()
    require(not asleep.sent, "the merge is to land")
    stage.check()
    stage.records(stage.started(), Op.PATCH, d=1)
    stage.check_rows_and_columns()


def rename_and_add_the_same_name() -> None:
    """Rows under three contracts wait in one generation, in which one name means two fields."""
    stage = ColumnStage()
    a = stage.started()
    stage.records(a, b=1)
    stage.change(rename={"b": "d"})
    b = stage.started()
    stage.records(b, Op.PATCH, d=2)
    stage.change(add=("b",))
    c = stage.started()
    stage.records(c, Op.PATCH, b=3, k=1)
    stage.seal(c)
    stage.check_rows_and_columns()


def member_sleeps_through_two_changes_and_claims() -> None:
    """A knows the first contract.  B has taken up two changes when it dies, and A opens its partition."""
    stage = ColumnStage()
    sleeper = stage.member("sleeper")
    stage.change(add=("c",))
    stage.change(rename={"b": "d"}, drop=("c",))
    a = stage.started()
    stage.records(a, a="x", d=1)
    stage.take_over(a, sleeper, 0)
    stage.step(sleeper, 4)
    stage.records(sleeper, Op.PATCH, d=2)
    stage.step(sleeper, 4)
    stage.seal(sleeper)
    stage.check_rows_and_columns()


def record_names_a_column_that_its_member_does_not_know() -> None:
    """A and a reader know the first contract.  A record has a column of the second one, another a column of none."""
    stage = ColumnStage()
    a, reader = stage.started(), stage.reader("reader")
    stage.records(a, a="x", b=1)
    reader.read("strong")
    stage.change(add=("c",))
    stage.records(a, Op.PATCH, c="c")
    require(a.worker.terms.contract.version == 2, "A works by version", a.worker.terms.contract.version)
    reader.read("strong")
    stage.records(a, k=1, unknown=1)
    require(stage.checker.rejected == {0: {2}}, "dead letters are", stage.checker.rejected)
    stage.seal(a)
    stage.check_rows_and_columns()


def entry_is_newer_than_the_contract_of_a_reader() -> None:
    """A reader has asked for the newest contract.  Before it reads the log, columns change, and a member takes them up."""
    stage = ColumnStage()
    a, reader = stage.started(), stage.reader("reader")
    stage.records(a, a="x", b=1)

    def changed() -> None:
        stage.change(add=("c",))
        stage.records(a, c="c")

    stage.faults_of("reader").before("get", "/wal/", changed)
    reader.read("strong")
    (row,) = stage.reads[-1][1].values()
    require(row == {"a": None, "b": None, "c": "c"}, "it has read", row)
    stage.seal(a)
    stage.check_rows_and_columns()


def merge_between_each_two_steps() -> None:
    """Before each commit of a command, and before its contract, records become durable and are merged."""
    stage = ColumnStage()
    stage.change(add=("c", "d"))
    script = stage.faults_of("command 2")
    k = iter(range(100))

    def names() -> set[str]:
        return {column.name for column in stage.contract.columns}

    def merged() -> None:
        member = stage.started()
        stage.records(member, k=next(k), a="a", c="c")
        stage.records(member, Op.PATCH, k=0, **{name: next(k) for name in ("b", "d", "f") if name in names()})
        stage.seal(member)
        stage.merge()
        stage.columns_fit()

    for act, what in (("commit", "table"), ("put", "/contract/")):
        script.before(act, what, merged)
    script.before("commit", "table", merged, passing=2)
    stage.change("command 2", add=("e",), rename={"b": "f"}, drop=("d",))
    require(not script.cues, "left:", script.cues)
    merged()
    stage.check_rows_and_columns()


SCENARIOS: dict[Callable[[], None], tuple[str, str]] = {
    column_is_dropped_and_added_while_its_flush_waits: ("field ids come back", "holds"),
    another_program_takes_a_dropped_id: ("adopted files name dropped fields", "of others': 'old'"),
    command_dies_before_its_contract: ("columns are dropped before the contract", "the table lacks columns"),
    command_dies_before_it_shrinks: ("the contract names columns before the table has them", "the table lacks columns"),
    command_sleeps_while_another_runs: ("the contract is read before the table", "the table's columns are"),
    command_finds_what_another_is_about_to_add: ("what a command has added goes", "column 'c' is missing"),
    member_sleeps_through_two_changes_and_claims: ("a region is claimed by an older contract", "went back"),
    merge_lands_after_its_fields_were_given_up: ("ids of fields given up are free", "a file has field 3 as string"),
    rename_and_add_the_same_name: ("rows are carried by names", "holds"),
    another_program_gives_names_to_other_columns: ("rows are carried by names", "holds"),
    another_program_s_column_stays: ("ids alone say what was dropped", "another program's column is gone"),
    dropped_id_that_came_back_is_not_adopted: ("ids that come back are adopted", r"'3@4', 'old'"),
}

ACCIDENTS: list[Callable[[], None]] = [
    two_commands_grow_at_once,
    merge_between_each_two_steps,
    what_another_program_did_is_adopted,
    record_names_a_column_that_its_member_does_not_know,
    entry_is_newer_than_the_contract_of_a_reader,
]
