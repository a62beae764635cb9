"""A reader of a world: what it reads, compared with the oracle, and read again by its receipt later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

from lancewal_core.errors import (
    ContractMismatch,
    MergedPositionUnknown,
    ObjectMissing,
    OutsideHistoryWindow,
    TableRestored,
    VersionGone,
)
from lancewal_core.names.ids import Region
from lancewal_core.wal.segment_cache import SegmentCache
from lancewal_reader.point.read_options import Consistency, Read
from lancewal_reader.point.receipt import Receipt, receipt_of
from lancewal_reader.reading.reads import Reads
from lancewal_reader.table import Table
from lancewal_reader.unmerged.flushed import FlushCache
from lancewal_reader.unmerged.load import DeltaContext, folding_of
from lancewal_reader.unmerged.loaded import LoadedCache
from tests.simulation import oracle
from tests.simulation.checker import require
from tests.simulation.world import PASSING, Process, World

Seen = tuple[Receipt, dict[int, oracle.Values]]
"""A read: its receipt, and its rows by key."""


class SimTable(Table):
    """The reader's table on a world's twins."""

    def __init__(self, world: World, process: Process) -> None:
        cache = SegmentCache(1 << 20) if process.rng.random() < 0.5 else None
        opened = process.opened(world.contract)
        folding = folding_of(world.contract)
        context = DeltaContext(*opened.parts, cache, FlushCache(1 << 20), LoadedCache(), folding)
        self.reads = Reads("s3://memory", "memory", context)
        super().__init__(self.reads)


class Reading:
    """What one reader process reads, each result compared with the oracle (I1, I2, I5)."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self.table = SimTable(world, process)
        self._last: dict[Region, int] = {}

    def read(self, consistency: Consistency) -> None:
        """One scan.  Raises what the reader raises, and ``Violation``."""
        world = self._world
        known = dict(world.acknowledged)
        restored = world.restored
        result = self.table.to_batches(consistency=consistency)
        receipt = receipt_of(result.schema)
        cut = {region: int(position) for region, position in receipt.positions.items()}
        world.note(f"{consistency} read")
        where = f"{self._process.name} version {receipt.version} cut {_short(cut)}"
        if consistency == "eventual" and world.restored is not None and not cut:
            world.note("read of a restored table")  # the version alone, of which nothing is claimed
            return
        require(restored is None, f"{where}: read though the table was restored by version", restored)
        rows = world.check_rows(result, cut, receipt.version, where)
        world.reads.append((receipt, rows))
        if consistency == "strong":
            self._check_strong(cut, known, where)

    def strong(self, known: Mapping[int, int] | None = None, **read: Unpack[Read]) -> dict[int, int]:
        """One more strong read; its cut, by partition.  ``known``: what it must have, if not all that is acknowledged."""
        world = self._world
        known = dict(world.acknowledged) if known is None else known
        result = self.table.to_batches(**read)
        receipt = receipt_of(result.schema)
        cut = {region: int(position) for region, position in receipt.positions.items()}
        where = f"{self._process.name} {read} version {receipt.version} cut {_short(cut)}"
        world.reads.append((receipt, world.check_rows(result, cut, receipt.version, where)))
        self._check_strong(cut, known, where)
        return _short(cut)

    def _check_strong(self, cut: dict[Region, int], known: Mapping[int, int], where: str) -> None:
        world = self._world
        short = {p: n for p, n in known.items() if cut.get(world.contract.regions[p], 0) < n}
        require(not short, f"I1 {where}: acknowledged before it began", short)
        back = {r.partition: n for r, n in self._last.items() if cut.get(r, 0) < n}
        require(not back, f"I5 {where}: the same reader saw", back)
        self._last = cut

    def read_again(self, receipt: Receipt, rows: dict[int, oracle.Values]) -> None:
        """The rows of some reader's earlier read, or the named error."""
        world = self._world
        try:
            planned = self.table.scan(at=str(receipt))
            used = planned.receipt
            found, _ = world.by_hand.split(planned.to_reader(), used.version)
            once_more, _ = world.by_hand.split(planned.to_reader(), used.version)
        except (
            *PASSING, VersionGone, OutsideHistoryWindow, MergedPositionUnknown, TableRestored, ObjectMissing,
            ContractMismatch,
        ) as error:  # fmt: skip
            lost = world.losses.named_by(error)
            require(lost or not isinstance(error, ObjectMissing), f"{self._process.name}: nothing is lost, but", error)
            require(world.restored is not None or not isinstance(error, TableRestored), "nobody restored, but", error)
            if isinstance(error, ContractMismatch):
                world.check_misfits(error)
            if isinstance(error, VersionGone):
                world.check_gone(receipt.version, f"{self._process.name} reads again")
            world.note(f"read again: {type(error).__name__}")
            world.log(f"{self._process.name} could not read again: {error}")
            return
        world.note("read again" if used.version == receipt.version else "read again by another version")
        where = f"{self._process.name} version {used.version} for {receipt.to_json()}"
        require(used.positions == receipt.positions, f"{where}: another cut", used.positions)
        require(found == rows, f"I2 {where}: rows", found, "instead of", rows)
        require(once_more == rows, f"I2 {where}: rows of a second use", once_more, "instead of", rows)


def _short(cut: dict[Region, int]) -> dict[int, int]:
    return {region.partition: position for region, position in cut.items()}
