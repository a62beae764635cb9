"""Moving cuts of worlds: published, read and compared with the oracle while everything else goes on.

A moving cut never goes back.  Each table has the rows of the records below its positions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from lancewal_core.catalog.entry import TableEntry
from lancewal_core.errors import OutsideHistoryWindow, VersionGone
from lancewal_core.names.ids import Position
from lancewal_core.settings.sections import MovingCutSettings
from lancewal_core.table.contract import Contract
from lancewal_flusher.cuts.moving import CutTurn, Moments, MovingCut
from lancewal_flusher.cuts.positions import CutMember, PositionSource
from lancewal_reader.point.receipt import Receipt
from tests.simulation.checked_catalog import CheckedCatalog
from tests.simulation.checker import require
from tests.simulation.cutting import Cutting
from tests.simulation.world import PASSING, Process, World
from tests.support.catalog_entries import entry

NAME = "live"
EVERY_S = 4.0


class Publishing:
    """One process that publishes the cut ``live`` of the tables of some worlds, which share a topic and a catalog."""

    def __init__(
        self,
        processes: Mapping[str, tuple[World, Process]],
        ends: Callable[[Sequence[Contract]], dict[str, dict[int, Position]]] | None = None,
        leave_out: bool = False,
    ) -> None:
        self._cutting = Cutting(processes)
        self._worlds = {table: world for table, (world, _) in processes.items()}
        world, process = next(iter(processes.values()))
        self.catalog: CheckedCatalog = world.catalog
        members = {member.name: member for member in self._cutting.members}
        for name, member in members.items():
            if self.catalog.table(name) is None:
                of = entry(name, member.reads.uri, table_uuid=member.contract.table_uuid, topic=member.contract.topic)
                self.catalog.swap_table(name, None, of)

        def open_table(found: TableEntry, stack: ExitStack) -> CutMember:
            return members[found.name]

        def pause(seconds: float) -> bool:
            process.clock.sleep(seconds)
            return False

        self.cut = MovingCut(
            self.catalog,
            MovingCutSettings(name=NAME, tables=("*",), every=EVERY_S, lagging="leave-out" if leave_out else "hold"),
            PositionSource(ends or self._cutting.ends),
            open_table,
            process.tasks,
            Moments(process.clock, process.new_id, pause),
        )

    def turn(self) -> CutTurn:
        turn = self.cut.turn()
        if turn.published:
            next(iter(self._worlds.values())).note("moving cut published")
        return turn

    def read(self) -> None:
        """Its rows are those of the records below its positions."""
        cut = self.catalog.cut(NAME)
        if cut is None:
            return
        for table, of in cut.tables.items():
            world, receipt = self._worlds[table], Receipt.parse(of.receipt)
            positions = {region: int(at) for region, at in receipt.positions.items()}
            try:
                planned = self._cutting.tables[table].scan(at=receipt)
                world.check_rows(planned.to_reader(), positions, receipt.version, f"moving cut {cut.number} of {table}")
            except (VersionGone, OutsideHistoryWindow) as error:
                world.note(f"moving cut not read: {type(error).__name__}")
                return
            world.note("moving cut read")


def publisher(world: World, process: Process) -> None:
    """Publishes the moving cut, and reads it."""
    publishing, rng = Publishing({"orders": (world, process)}), process.rng
    while True:
        try:
            turn = publishing.turn()
            require(not turn.published or not turn.held, f"{process.name}: published, and held by", turn.held)
            if rng.random() < 0.3:
                publishing.read()
        except PASSING as error:
            world.note(f"moving cut: {type(error).__name__}")
            world.log(f"{process.name}: {error}")
        world.scheduler.sleep(rng.choice([0.05, 1.0]))
