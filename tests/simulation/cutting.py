"""Kept cuts of worlds: made, read and dropped while everything else goes on, their rows compared with the oracle.

A cut that the catalog names is whole: until somebody drops it, each of its tables is read at it, and has the rows of the
records below its positions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lancewal_core.catalog.cut import Cut
from lancewal_core.errors import (
    CutMissing,
    InvalidInput,
    MergedPositionUnknown,
    ObjectMissing,
    OutsideHistoryWindow,
    SnapshotMissing,
    TableRestored,
    TokenTimeout,
    VersionGone,
)
from lancewal_core.names.ids import Position
from lancewal_core.table.contract import Contract
from lancewal_flusher.cuts.positions import CutMember, PositionSource
from lancewal_reader.point.receipt import Receipt
from lancewal_tables.cuts import drop
from lancewal_tables.cuts.left_over import drop_if_left_over, snapshots_of_cuts
from lancewal_tables.cuts.make import CutWanted, make_cut
from tests.simulation.checked_catalog import CheckedCatalog
from tests.simulation.checker import require
from tests.simulation.reading import SimTable
from tests.simulation.services import flusher_context
from tests.simulation.world import PASSING, Process, World

WAIT_S = 2.0
_NOT_MADE = (
    TokenTimeout, SnapshotMissing, CutMissing, VersionGone, OutsideHistoryWindow, MergedPositionUnknown, TableRestored,
    ObjectMissing,
)  # fmt: skip


class Cutting:
    """What one process does about cuts of the tables of some worlds, which share a topic and a catalog.

    ``processes`` has the process in the world of each table."""

    def __init__(self, processes: Mapping[str, tuple[World, Process]]) -> None:
        self._worlds = {table: world for table, (world, _) in processes.items()}
        self.tables = {table: SimTable(world, process) for table, (world, process) in processes.items()}
        self.members = [
            CutMember(table, flusher_context(world, process), self.tables[table].reads)
            for table, (world, process) in processes.items()
        ]
        self._world, self._process = next(iter(processes.values()))
        self.catalog: CheckedCatalog = self._world.catalog

    def ends(self, contracts: Sequence[Contract]) -> dict[str, dict[int, Position]]:
        """What Kafka would answer now."""
        found = {p: Position(log.high) for p, log in enumerate(self._world.topic.partitions)}
        return {contract.topic: found for contract in contracts}

    def make(self, name: str, ask: Callable[[Sequence[Contract]], dict[str, dict[int, Position]]] | None = None) -> Cut:
        """Make a cut.  Raises what the command raises, and ``Violation``."""
        known = {table: dict(world.acknowledged) for table, world in self._worlds.items()}
        source = PositionSource(ask or self.ends)
        cut = make_cut(self.catalog, self.members, CutWanted(name, wait_s=WAIT_S), source, self._process.tasks)
        self.catalog.whole.add(cut.write_id)
        by_table = {
            table: {region.partition: n for region, n in Receipt.parse(of.receipt).positions.items()}
            for table, of in cut.tables.items()
        }
        for table, at in by_table.items():
            short = {p: n for p, n in known[table].items() if at.get(p, 0) < n}
            require(not short, f"I1 cut {name}: acknowledged before it began, of {table}", short)
        first = next(iter(by_table.values()))
        same = all(at == first for at in by_table.values())
        require(same, f"cut {name}: a record is in one table alone", by_table)
        self._world.note("cut made")
        return cut

    def read(self, name: str) -> None:
        """Its rows are those of the records below its positions; or it is dropped meanwhile."""
        cut = self.catalog.cut(name)
        if cut is None or cut.moving:
            return
        for table, of in cut.tables.items():
            world = self._worlds[table]
            receipt = Receipt.parse(of.receipt)
            positions = {region: int(at) for region, at in receipt.positions.items()}
            try:
                planned = self.tables[table].scan(at=f"snapshot:{of.snapshot}")
                require(str(planned.receipt) == of.receipt, f"cut {name}: another receipt of {table}")
                world.check_rows(planned.to_reader(), positions, receipt.version, f"cut {name} of {table}")
            except (SnapshotMissing, VersionGone) as error:
                there = self.catalog.cut(name)
                dropped = there is None or there.write_id != cut.write_id
                taken = of.snapshot in self.catalog.left_over and cut.write_id not in self.catalog.whole
                require(dropped or taken, f"cut {name} lacks its snapshot of {table}:", error)
                world.note("cut read: it is dropped" if dropped else "cut read: its maker has not looked, or is dead")
                return
        self._world.note("cut read")

    def drop(self, name: str) -> None:
        cut = self.catalog.cut(name)
        if cut is None:
            return
        drop.drop_cut(self.catalog, cut, {one.name: one.context.table for one in self.members}, self._process.tasks)
        self._world.note("cut dropped")

    def not_recorded(self) -> list[str]:
        """Names of cuts that are under way, or whose makers are dead, as snapshots of the first table tell."""
        recorded = {cut.write_id for cut in self.catalog.cuts().values()}
        found = snapshots_of_cuts(self.members[0].context.table, self.catalog.where)
        return sorted({one.note.cut for one in found if one.note.write_id not in recorded})

    def drop_left_over(self, name: str) -> None:
        """Drop what makings of a cut have left over, also that of one that is under way."""
        for member in self.members:
            table = member.context.table
            found = snapshots_of_cuts(table, self.catalog.where, name)
            # Before the first mark: a maker that dies before its last look leaves a cut without these, which is allowed.
            # They must be the very ones that are dropped.  Another listing could show more.
            self.catalog.left_over |= {one.branch.name for one in found}
            gone = [one for one in found if drop_if_left_over(self.catalog, table, one)]
            if gone:
                self._world.note("left-over snapshots of a cut dropped")


def cutter(world: World, process: Process) -> None:
    """Makes cuts under two names of its own, reads and drops them; reads those of others, and drops what is left over."""
    cutting, rng = Cutting({"orders": (world, process)}), process.rng
    own = [f"{process.group}-{number}" for number in range(2)]
    while True:
        try:
            if rng.random() < 0.4:
                cutting.make(rng.choice(own))
            elif rng.random() < 0.6:
                cutting.read(rng.choice([*own, *world.catalog.cuts()]))
            elif rng.random() < 0.6:
                for name in cutting.not_recorded():
                    cutting.drop_left_over(name)
            else:
                cutting.drop(rng.choice(own))
        except InvalidInput as error:
            require("there is a cut" in str(error), f"{process.name}:", error)
        except _NOT_MADE as error:
            lost = world.losses.named_by(error)
            require(lost or not isinstance(error, ObjectMissing), f"{process.name}: nothing is lost, but", error)
            world.note(f"cut not made: {type(error).__name__}")
        except PASSING as error:
            world.note(f"cut: {type(error).__name__}")
            world.log(f"{process.name}: {error}")
        world.scheduler.sleep(rng.choice([0.05, 0.4]))


def check_cuts(world: World) -> None:
    """In the end each cut of the catalog is whole."""
    names = list(world.catalog.cuts())
    if names:
        cutting = Cutting({"orders": (world, world.process("audience"))})
        for name in names:
            cutting.read(name)
