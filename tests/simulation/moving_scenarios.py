"""Interleavings around a moving cut of two tables of one topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lancewal_core.catalog.cut import Cut
from lancewal_core.errors import CatalogUnavailable
from lancewal_core.names.ids import Position
from lancewal_core.table.contract import Contract
from lancewal_reader.point.receipt import Receipt
from tests.simulation.checker import require
from tests.simulation.cut_scenarios import TwoTables
from tests.simulation.publishing import EVERY_S, NAME, Publishing
from tests.simulation.script import Crashed, crash, stops

Ends = Callable[[Sequence[Contract]], dict[str, dict[int, Position]]]


class Live:
    """Two tables with a record in partition 0 of each, and publishers of the cut of both."""

    def __init__(self) -> None:
        self.two = TwoTables()
        self.catalog = self.two.first.catalog
        self.a, self.b = self.publisher("a"), self.publisher("b")

    def publisher(self, name: str, ends: Ends | None = None, *, leave_out: bool = False) -> Publishing:
        return Publishing(self.two.processes(name), ends, leave_out)

    def later(self) -> None:
        """An interval passes."""
        for stage in self.two.stages:
            stage.scheduler.now += EVERY_S

    def published(self) -> dict[str, dict[int, int]]:
        """Positions of each table in the cut."""
        cut = self.cut()
        positions = {name: Receipt.parse(of.receipt).positions for name, of in cut.tables.items()}
        return {name: {region.partition: int(n) for region, n in at.items()} for name, at in positions.items()}

    def cut(self) -> Cut:
        cut = self.catalog.cut(NAME)
        assert cut is not None
        return cut

    def both_at(self, *positions: int) -> None:
        """The cut has both tables at these positions, and each has its rows."""
        wanted = dict(enumerate(positions))
        require(self.published() == {"orders": wanted, "items": wanted}, "published is", self.published())
        self.publisher("audience").read()
        for stage in self.two.stages:
            stage.check()


def publisher_sleeps_before_its_swap() -> None:
    """A has receipts, and sleeps before its swap.  B publishes newer ones.  A writes nothing, and its next turn finds B's."""
    live = Live()
    require(live.a.turn().published, "nothing is published")
    live.b.turn()
    live.later()
    live.two.append(0)

    def meanwhile() -> None:
        live.two.append(1)
        require(live.b.turn().published, "B published nothing")

    live.catalog.before.append(meanwhile)
    turn = live.a.turn()
    require(not turn.published, "A published, though B did meanwhile")
    live.both_at(2, 1)
    turn = live.a.turn()
    require(turn.current and not turn.published and turn.again_s > 0, "A does not take B's for its own:", turn)
    live.both_at(2, 1)


def broker_shows_an_end_late() -> None:
    """A broker shows the ends as they were before the last publication.  The cut stays."""
    live = Live()
    before = live.a._cutting.ends([world.contract for world in live.two.stages])
    live.two.append(0)
    require(live.a.turn().published, "nothing is published")
    live.both_at(2, 0)
    late = live.publisher("late", lambda _: before)
    late.turn()
    live.later()
    late.turn()
    live.both_at(2, 0)


def table_is_late() -> None:
    """The second table does not take a record.  The cut stays, and the turn names the table.  Once it has the record, both
    change."""
    live = Live()
    live.a.turn()
    live.later()
    live.two.first.send(1)
    live.two.first.step(live.two.owners[0], 2)
    turn = live.a.turn()
    live.both_at(1, 0)
    require(list(turn.held) == ["items"] and "partition 1 at 0 of 1" in turn.held["items"], "held by", turn.held)
    live.two.first.send(1)
    live.two.first.step(live.two.owners[0], 2)
    live.two.second.step(live.two.owners[1], 2)
    require(live.a.turn().published, "nothing is published")
    live.both_at(1, 1)  # as was asked when it began to lag


def late_table_is_left_out_where_it_is_wanted() -> None:
    """The person who set up the cut lets tables that lag be left out.  It comes back, and goes on."""
    live = Live()
    out = live.publisher("out", leave_out=True)
    out.turn()
    live.later()
    live.two.first.send(1)
    live.two.first.step(live.two.owners[0], 2)
    turn = out.turn()
    require(turn.published and not turn.held and list(turn.left_out) == ["items"], "left out:", turn)
    require(live.published() == {"orders": {0: 1, 1: 1}}, "published is", live.published())
    require(list(live.cut().left_out) == ["items"], "left out are", live.cut().left_out)
    live.later()
    require(not out.turn().published, "published again without a change")
    live.two.second.step(live.two.owners[1], 2)
    live.later()
    require(out.turn().published, "not taken back")
    live.both_at(1, 1)
    require(not live.cut().left_out, "still left out:", live.cut().left_out)


def publisher_dies_before_its_swap() -> None:
    """A dies right before its swap.  The cut is the one before; B publishes the next."""
    live = Live()
    live.a.turn()
    live.two.append(0)
    live.later()
    live.catalog.before.append(crash)
    with stops(Crashed):
        live.a.turn()
    live.both_at(1, 0)
    require(live.b.turn().published, "nothing is published")
    live.both_at(2, 0)


def answer_to_a_swap_is_lost() -> None:
    """The catalog has done A's swap, and the answer is lost.  The next turn finds its own cut, and publishes nothing."""
    live = Live()
    swap = live.catalog.swap_cut

    def lost(name: str, instead_of: Cut | None, new: Cut | None) -> bool:
        swap(name, instead_of, new)
        raise CatalogUnavailable("no answer")

    live.catalog.swap_cut = lost  # type: ignore[method-assign] # a fault
    with stops(CatalogUnavailable):
        live.a.turn()
    live.catalog.swap_cut = swap  # type: ignore[method-assign] # mended
    number = live.cut().number
    live.a.turn()
    live.later()
    require(not live.a.turn().published, "published twice")
    require(live.cut().number == number, "another number:", live.cut().number)
    live.both_at(1, 0)


def catalog_loses_the_last_cut() -> None:
    """A database loses its last change: the cut before is back.  The publisher remembers, and publishes a newer one."""
    live = Live()
    live.a.turn()
    first = live.cut()
    live.two.append(0)
    live.later()
    live.a.turn()
    lost = live.cut()
    live.catalog._cuts[NAME] = first
    live.later()
    require(live.a.turn().published, "nothing is published")
    require(live.cut().number > lost.number, "the number is", live.cut().number)
    live.both_at(2, 0)


SCENARIOS: dict[Callable[[], None], tuple[str, str]] = {
    publisher_sleeps_before_its_swap: ("a moving cut that goes back", "goes back at number"),
    broker_shows_an_end_late: ("an end that is late counts", "goes back at number"),
    table_is_late: ("who lags is left out unasked", "published is"),
}

ACCIDENTS: list[Callable[[], None]] = [
    late_table_is_left_out_where_it_is_wanted,
    publisher_dies_before_its_swap,
    answer_to_a_swap_is_lost,
    catalog_loses_the_last_cut,
]
