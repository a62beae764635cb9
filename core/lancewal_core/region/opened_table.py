"""An open table: everything with an effect that the protocols of every part use."""

from __future__ import annotations

from dataclasses import dataclass

from lancewal_core.names.ids import Region
from lancewal_core.process.clock import Clock
from lancewal_core.process.tasks import Tasks
from lancewal_core.region.state import RegionState
from lancewal_core.region.states import RegionIndexes, Sound
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.contract import Contract
from lancewal_core.table.protocol import Table
from lancewal_core.table.watermarks import Watermarks

Parts = tuple[ObjectStore, Table, RegionIndexes, Watermarks, Tasks, Clock, Contract]


@dataclass(frozen=True, slots=True)
class OpenedTable:
    """Made by ``lancewal_core.open``, or by a test on twins.  A context extends it by what its part needs besides."""

    store: ObjectStore
    table: Table
    indexes: RegionIndexes
    watermarks: Watermarks
    tasks: Tasks
    clock: Clock
    contract: Contract

    @staticmethod
    def over(store: ObjectStore, table: Table, contract: Contract, tasks: Tasks, clock: Clock) -> OpenedTable:
        """With indexes and watermarks that remember nothing yet."""
        indexes = RegionIndexes(store, clock, contract.regions_per_page, tasks, making=contract.making)
        return OpenedTable(store, table, indexes, Watermarks(store, table, contract.making), tasks, clock, contract)

    @property
    def parts(self) -> Parts:
        """What a context that extends it begins with."""
        return self.store, self.table, self.indexes, self.watermarks, self.tasks, self.clock, self.contract

    def read_indexes(self) -> dict[Region, RegionState]:
        """The newest index of every region that has one; regions are enumerated from the contract."""
        return self.indexes.read(self.contract.regions)

    def read_sound_indexes(self) -> Sound:
        """The same, of all but the damaged ones: for work that does one region without another."""
        return self.indexes.read_sound(self.contract.regions)
