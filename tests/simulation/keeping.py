"""Named snapshots of a world: made, read and dropped while everything else goes on, their rows compared with the oracle."""

from __future__ import annotations

from dataclasses import dataclass

from lancewal_core.errors import (
    ContractMismatch,
    InvalidInput,
    MergedPositionUnknown,
    ObjectMissing,
    OutsideHistoryWindow,
    SnapshotMissing,
    TableRestored,
    VersionGone,
)
from lancewal_flusher.garbage.snapshots import drop_snapshot
from lancewal_reader.point.receipt import Receipt
from lancewal_tables.snapshots.make import make_snapshot
from tests.simulation import oracle
from tests.simulation.checker import require
from tests.simulation.reading import SimTable
from tests.simulation.services import flusher_context
from tests.simulation.world import MAX_SKEW_MS, PASSING, Process, World
from tests.twins.sim_clock import EPOCH_MS

_NO_MORE = (VersionGone, OutsideHistoryWindow, MergedPositionUnknown, TableRestored, ObjectMissing)
"""What a read at a point may end with, and so a snapshot of it."""


@dataclass(slots=True)
class Kept:
    """A snapshot that somebody has made."""

    receipt: Receipt
    rows: dict[int, oracle.Values]
    until_ms: int | None
    dropped: bool = False
    """Or about to be."""

    def may_be_gone(self, now_ms: int) -> bool:
        return self.dropped or (self.until_ms is not None and self.until_ms <= now_ms + MAX_SKEW_MS)


class Keeping:
    """What one process does about snapshots."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self._context = flusher_context(world, process)
        self.table = SimTable(world, process)
        self._made = 0

    def make(
        self, at: tuple[Receipt, dict[int, oracle.Values]] | None, for_ms: int | None, name: str = ""
    ) -> str | None:
        """Its name; None where it could not be made.  Raises ``Violation``, and what passes."""
        world = self._world
        self._made += 1
        name = name or f"{self._process.name}-{self._made}"
        known = dict(world.acknowledged)
        try:
            made = make_snapshot(self._context, self.table.reads, name, None if at is None else at[0], for_ms)
        except InvalidInput as error:
            require(world.columns is not None and "was widened to" in str(error), f"{self._process.name}:", error)
            world.note("snapshot: a column was widened meanwhile")
            return None
        except _NO_MORE as error:
            lost = world.losses.named_by(error)
            require(lost or not isinstance(error, ObjectMissing), f"{self._process.name}: nothing is lost, but", error)
            world.note(f"snapshot: {type(error).__name__}")
            return None
        receipt = Receipt.parse(made.snapshot.receipt)
        cut = {region: int(position) for region, position in receipt.positions.items()}
        if at is None:
            short = {p: n for p, n in known.items() if cut.get(world.contract.regions[p], 0) < n}
            require(not short, f"I1 snapshot {name}: acknowledged before it began", short)
        kept = world.snapshots[name] = Kept(receipt, {}, made.snapshot.until_ms)
        where = f"snapshot {name} version {receipt.version}"
        branch = world.checker.table.branch(name)
        if not kept.may_be_gone(self._process.clock.now_ms()):
            shown = branch.newest()
            batches = list(shown.scan(shown.schema.names))
            kept.rows = world.check_rows(batches, cut, receipt.version, where)
            require(at is None or kept.rows == at[1], f"{where}: other rows than the read at its receipt:", kept.rows)
        else:
            kept.dropped = True
        world.note("snapshot made" if at is None else "snapshot made of the past")
        return name

    def read(self, name: str) -> None:
        """Its rows, which are those that it was made with; or it may be gone."""
        world, kept = self._world, self._world.snapshots[name]
        try:
            planned = self.table.scan(at=f"snapshot:{name}")
            found, _ = world.by_hand.split(planned.to_reader(), kept.receipt.version)
        except (SnapshotMissing, VersionGone) as error:
            now_ms = EPOCH_MS + int(world.scheduler.now * 1000)
            require(kept.may_be_gone(now_ms), f"snapshot {name} is gone, though nobody dropped it:", error)
            world.note("snapshot read: it is gone")
            return
        require(str(planned.receipt) == str(kept.receipt), f"snapshot {name}: another receipt", planned.receipt)
        require(found == kept.rows or kept.dropped, f"snapshot {name}: rows", found, "instead of", kept.rows)
        world.note("snapshot read")

    def drop(self, name: str) -> None:
        self._world.snapshots[name].dropped = True
        try:
            drop_snapshot(self._process.table, name)
        except (SnapshotMissing, InvalidInput):
            return
        self._world.note("snapshot dropped")


def keeper(world: World, process: Process) -> None:
    """Makes snapshots of now, and of what others have read; reads and drops them."""
    keeping, rng = Keeping(world, process), process.rng
    while True:
        names = sorted(world.snapshots)
        try:
            if rng.random() < 0.4 or not names:
                past = world.reads and rng.random() < 0.3
                at = rng.choice(world.reads) if past else None
                keeping.make(at, rng.choice([None, None, 1_000, 6_000]))
            elif rng.random() < 0.8:
                keeping.read(rng.choice(names))
            else:
                keeping.drop(rng.choice(names))
        except PASSING as error:
            world.note(f"snapshot: {type(error).__name__}")
            world.log(f"{process.name}: {error}")
        except ContractMismatch as error:
            world.note("snapshot: ContractMismatch")
            world.check_misfits(error)
        world.scheduler.sleep(rng.choice([0.05, 0.4]))


def check_kept(world: World) -> None:
    """In the end each of them reads as it was made, also for who opens the branch with plain Lance."""
    keeping = Keeping(world, world.process("audience"))
    for name, kept in sorted(world.snapshots.items()):
        keeping.read(name)
        if not kept.dropped and kept.until_ms is None:
            shown = world.checker.table.branch(name).newest()
            batches = list(shown.scan(shown.schema.names))
            found, _ = world.by_hand.split(batches, kept.receipt.version)
            require(found == kept.rows, f"branch {name}: rows", found, "instead of", kept.rows)
