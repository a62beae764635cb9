"""Interleavings around cuts of two tables of one topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lancewal_core.errors import CatalogUnavailable, CutMissing, InvalidInput, StoreUnavailable, TokenTimeout
from lancewal_core.names.ids import Position
from lancewal_core.table.contract import Contract
from lancewal_core.table.protocol import Branch
from lancewal_core.table.snapshots import marked_left_over, snapshots
from lancewal_tables.cuts import make
from lancewal_tables.cuts.left_over import drop_if_left_over, drop_left_over, snapshots_of_cuts
from tests.simulation.checker import require
from tests.simulation.cutting import Cutting
from tests.simulation.memory_kafka import MemoryTopic
from tests.simulation.script import Crashed, crash, stops
from tests.simulation.stage import Member, Stage
from tests.simulation.world import Process, World

_NAME = "june"
_BY = "maker"


class _Beside(Stage):
    """Another table of the same topic, in the same catalog."""

    def __init__(self, other: Stage) -> None:
        self._other = other
        super().__init__(making="making-2")
        self.catalog = other.catalog

    def new_topic(self) -> MemoryTopic:
        return self._other.topic


class TwoTables:
    """Two tables of one topic, with a row in each log, and somebody who makes cuts of them."""

    def __init__(self) -> None:
        self.first = Stage()
        self.catalog = self.first.catalog
        self.second = _Beside(self.first)
        self.owners: list[Member] = []
        for stage in self.stages:
            self.owners.append(stage.member("a", 0, 1))
        self.append(0)
        self.maker = self.somebody(_BY)

    @property
    def stages(self) -> tuple[Stage, Stage]:
        return self.first, self.second

    def processes(self, name: str) -> dict[str, tuple[World, Process]]:
        """The process of this name at each table."""
        worlds = {"orders": self.first, "items": self.second}
        return {table: (world, world.process(name)) for table, world in worlds.items()}

    def somebody(self, name: str) -> Cutting:
        return Cutting(self.processes(name))

    def append(self, partition: int) -> None:
        """A record that becomes durable in both tables."""
        self.first.send(partition)
        for stage, owner in zip(self.stages, self.owners, strict=True):
            stage.step(owner, 2)

    def check(self) -> None:
        """Whatever cut is named, is whole."""
        for name in self.catalog.cuts():
            self.somebody("audience").read(name)
        for stage in self.stages:
            stage.check()

    def stopped_before_its_record(self) -> Callable[[], None]:
        """A maker has made its snapshots, and the record is yet to come.  Return what it does then (steps 5 and 6)."""
        cut = self.maker.make(_NAME)
        require(self.catalog.swap_cut(_NAME, cut, None), "the record was not taken out")
        members = self.maker.members
        made = [
            (member, found)
            for member in members
            for found in snapshots(member.context.table)
            if found.name == cut.tables[member.name].snapshot
        ]

        def goes_on() -> None:
            require(self.catalog.swap_cut(_NAME, None, cut), "the record was not written")
            make.check_snapshots(self.catalog, cut, made, members[0].context.tasks)

        return goes_on

    def left_over(self) -> list[str]:
        return [one.branch.name for stage in self.stages for one in snapshots_of_cuts(stage.checker.table, "memory")]


def maker_dies_between_two_snapshots() -> None:
    """A cut is made, and its maker dies before the second snapshot.  There is no cut, and a next making of its name leaves
    nothing over."""
    two = TwoTables()
    two.second.scripts[_BY].before("create branch", "table", crash)
    with stops(Crashed):
        two.maker.make(_NAME)
    two.check()
    require(two.catalog.cut(_NAME) is None, "there is a cut")
    require(len(two.left_over()) == 1, "left over are", two.left_over())
    two.append(1)
    cut = two.somebody("heir").make(_NAME)
    two.check()
    names = {of.snapshot for of in cut.tables.values()}
    require(set(two.left_over()) == names, "left over are", two.left_over(), "and there should be", names)


def records_come_while_positions_are_asked() -> None:
    """Right after the ends were told, a record becomes durable in both tables.  It is in none of them."""
    two = TwoTables()

    def ends(contracts: Sequence[Contract]) -> dict[str, dict[int, Position]]:
        found = two.maker.ends(contracts)
        two.append(0)
        return found

    two.maker.make(_NAME, ends)
    two.check()


def snapshots_are_taken_for_left_over() -> None:
    """Right before the record is written, somebody drops what makings of that name have left over.  No cut lacks a
    snapshot afterwards."""
    two = TwoTables()
    two.catalog.before.append(lambda: drop_left_over(two.catalog, two.first.checker.table, _NAME))
    with stops(CutMissing, says="of table orders meanwhile"):
        two.maker.make(_NAME)
    two.check()
    require(two.catalog.cut(_NAME) is None, "there is a cut")
    require(not two.left_over(), "left over are", two.left_over())
    two.maker.make(_NAME)
    two.check()


def cut_is_recorded_before_left_over_ones_are_dropped() -> None:
    """Somebody has seen the snapshots of a maker that has no record yet.  The maker then writes it, and finds all snapshots.
    The cut stays whole."""
    two = TwoTables()
    goes_on = two.stopped_before_its_record()
    table = two.somebody("c").members[0].context.table
    two.first.scripts["c"].before("note branch", "table", goes_on)
    drop_left_over(two.catalog, table, _NAME)
    two.check()
    require(two.catalog.cut(_NAME) is not None, "there is no cut")


def cut_is_recorded_while_a_left_over_one_is_dropped() -> None:
    """The maker writes its record when somebody has looked for the last time, and is about to drop a snapshot.  It takes
    the record back."""
    two = TwoTables()
    goes_on = two.stopped_before_its_record()
    table = two.somebody("c").members[0].context.table

    def meanwhile() -> None:
        with stops(CutMissing, says="of table orders meanwhile"):
            goes_on()

    two.first.scripts["c"].before("drop branch", "table", meanwhile)
    drop_left_over(two.catalog, table, _NAME)
    two.check()
    require(two.catalog.cut(_NAME) is None, "there is a cut")
    require(not two.left_over(), "left over are", two.left_over())


def unfinished_snapshot_is_taken_for_left_over() -> None:
    """Somebody sees a snapshot that is not finished, and sleeps before it marks it.  Its maker finishes it, writes the record
    and finds all snapshots.  A late mark would make the snapshot unfinished again: so nobody marks one."""
    two = TwoTables()
    table = two.somebody("c").members[0].context.table
    asleep: list[Branch] = []

    def looks() -> None:
        (found,) = snapshots_of_cuts(table, two.catalog.where)
        two.first.scripts["c"].before("note branch", "table", crash)
        try:
            drop_if_left_over(two.catalog, table, found)
        except Crashed:
            asleep.append(found.branch)

    two.first.scripts[_BY].before("note branch", "table", looks, passing=2)  # the first one says that it is begun
    two.maker.make(_NAME)
    for branch in asleep:
        two.first.checker.table.note_branch(branch.name, marked_left_over(branch.notes))
    two.check()


def heirs_cut_is_dropped_while_it_drops_left_over_ones() -> None:
    """B makes the cut, and has seen what A left over.  Somebody drops B's cut, and A, which still runs, writes its record.
    A's cut stays whole."""
    two = TwoTables()
    goes_on = two.stopped_before_its_record()
    heir = two.somebody("heir")

    def meanwhile() -> None:
        two.somebody("c").drop(_NAME)
        goes_on()

    two.first.scripts["heir"].before("note branch", "table", meanwhile, passing=3)  # after the two of its own snapshot
    heir.make(_NAME)
    two.check()
    require(two.catalog.cut(_NAME) is not None, "there is no cut")


def record_is_not_taken_back() -> None:
    """Somebody has dropped a snapshot before the record, and the catalog does not answer when the maker takes it back.  The
    error says that the cut is there, and incomplete."""
    two = TwoTables()

    def unavailable() -> None:
        raise CatalogUnavailable("it does not answer")

    two.catalog.before += [unavailable, lambda: drop_left_over(two.catalog, two.first.checker.table, _NAME)]
    with stops(CatalogUnavailable, says="and it is incomplete: another process dropped the snapshot june-"):
        two.maker.make(_NAME)
    require(two.catalog.cut(_NAME) is not None, "there is no cut")
    two.somebody("c").drop(_NAME)
    require(not two.left_over(), "left over are", two.left_over())


def snapshots_are_not_found_for_lack_of_an_answer() -> None:
    """The store does not answer when the maker looks for its snapshots.  The error says that the cut is there."""
    two = TwoTables()
    two.catalog.before.append(lambda: two.second.scripts[_BY].down.append(("branches", "table")))
    with stops(StoreUnavailable, says="cut june is in the catalog. Nobody knows whether the snapshot june-"):
        two.maker.make(_NAME)
    two.check()
    require(two.catalog.cut(_NAME) is not None, "there is no cut")


def who_drops_a_cut_dies() -> None:
    """A cut is dropped, and the process dies before the second snapshot.  There is no cut."""
    two = TwoTables()
    two.maker.make(_NAME)
    two.second.scripts[_BY].before("drop branch", "table", crash)
    with stops(Crashed):
        two.maker.drop(_NAME)
    two.check()
    require(two.catalog.cut(_NAME) is None, "there is a cut")


def two_make_a_cut_of_one_name() -> None:
    """Right before A writes its record, B makes the cut.  B's is whole, and A leaves nothing over."""
    two = TwoTables()
    b = two.somebody("b")
    two.catalog.before.append(lambda: b.make(_NAME))
    with stops(InvalidInput, says="there is a cut june already"):
        two.maker.make(_NAME)
    two.check()
    names = {of.snapshot for cut in two.catalog.cuts().values() for of in cut.tables.values()}
    require(set(two.left_over()) == names, "left over are", two.left_over())


def table_lags() -> None:
    """The second table does not take a record.  There is no cut, no snapshot, and the error names it."""
    two = TwoTables()
    two.first.send(1)
    two.first.step(two.owners[0], 2)
    with stops(TokenTimeout, says="items (it has not moved): partition 1 at 0 of 1", but_not="orders ("):
        two.maker.make(_NAME)
    require(not any(snapshots(stage.checker.table) for stage in two.stages), "there are snapshots")
    two.second.step(two.owners[1], 2)
    two.maker.make(_NAME)
    two.check()


SCENARIOS: dict[Callable[[], None], tuple[str, str]] = {
    maker_dies_between_two_snapshots: ("a cut is recorded first", "lacks its snapshot of items"),
    records_come_while_positions_are_asked: ("positions are asked for by table", "a record is in one table alone"),
    snapshots_are_taken_for_left_over: ("snapshots of a cut are not looked for again", "CutMissing was expected"),
    cut_is_recorded_before_left_over_ones_are_dropped: (
        "left-over ones stay left over once seen",
        "lacks its snapshot of orders",
    ),
    unfinished_snapshot_is_taken_for_left_over: (
        "unfinished snapshots are marked too",
        "lacks its snapshot of orders",
    ),
    heirs_cut_is_dropped_while_it_drops_left_over_ones: (
        "left-over ones stay left over once seen",
        "lacks its snapshot of orders",
    ),
    cut_is_recorded_while_a_left_over_one_is_dropped: ("left-over ones are not marked", "CutMissing was expected"),
    who_drops_a_cut_dies: ("snapshots of a cut are dropped before its record", "lacks its snapshot of"),
}

ACCIDENTS: list[Callable[[], None]] = [
    two_make_a_cut_of_one_name,
    table_lags,
    record_is_not_taken_back,
    snapshots_are_not_found_for_lack_of_an_answer,
]
