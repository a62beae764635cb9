"""An open table: the store, the Lance table, the clock and everything else that code of each part needs to act on the
table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from lancewal_core.errors import ContractChanged
from lancewal_core.names.ids import Region
from lancewal_core.process.clock import Clock
from lancewal_core.process.tasks import Tasks
from lancewal_core.region.flushes.manifest import FlushedGeneration
from lancewal_core.region.state import RegionState
from lancewal_core.region.states import RegionStates, Sound
from lancewal_core.rows.fold import Folded
from lancewal_core.rows.projection import project_rows, rows_as, written_for
from lancewal_core.rows.schema import RowSchema
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.contract import Contract, WrittenContracts
from lancewal_core.table.protocol import StoredTable
from lancewal_core.table.watermarks import Watermarks
from lancewal_core.wal.entry import Entry

Parts = tuple[ObjectStore, StoredTable, RegionStates, Watermarks, Tasks, Clock, Contract, WrittenContracts]
Rows = TypeVar("Rows")


@dataclass(frozen=True, slots=True)
class OpenedTable:
    """An open table, made by ``lancewal_core.open``, or by a test over fakes.  The context of each part extends this
    class."""

    store: ObjectStore
    table: StoredTable
    states: RegionStates
    watermarks: Watermarks
    tasks: Tasks
    clock: Clock
    contract: Contract
    contracts: WrittenContracts

    @staticmethod
    def over(store: ObjectStore, table: StoredTable, contract: Contract, tasks: Tasks, clock: Clock) -> OpenedTable:
        """Return an open table with empty caches of region states and watermarks."""
        indexes = RegionStates(store, clock, contract.regions_per_page, contract.making, tasks)
        watermarks, contracts = Watermarks(store, table, contract.making), WrittenContracts(store)
        return OpenedTable(store, table, indexes, watermarks, tasks, clock, contract, contracts)

    @property
    def parts(self) -> Parts:
        """All fields of this class in their order, for making a context that extends it."""
        return (
            self.store,
            self.table,
            self.states,
            self.watermarks,
            self.tasks,
            self.clock,
            self.contract,
            self.contracts,
        )

    @property
    def rows(self) -> RowSchema:
        """Columns in which rows are returned, and the keys: those of the contract, or those that a reader shows."""
        return self.contract.rows

    def contract_of(self, version: int) -> Contract:
        """Return the contract with this version number.  Rows name the contract version under which they were
        written.

        Raises ``ContractChanged`` if it is newer than the contract known here, and has other columns.
        """
        found = self.contracts.of(self.contract, version)
        if version > self.contract.version and found.rows != self.contract.rows:
            raise ContractChanged(
                f"rows have the columns of version {version} of the table's contract. This process knows version "
                f"{self.contract.version}: open the table again to read the newest contract",
                version=version,
            )
        return found

    def columns_of(self, flushed: FlushedGeneration) -> RowSchema:
        """Return the columns that a flush was written with, which are needed to read it.  Pass the rows that were read
        to ``rows_of_flush``."""
        return self._written(flushed.contract_version)

    def _written(self, version: int) -> RowSchema:
        """Return the columns of a version of the contract.  No object is read if they are those of ``contract``."""
        same = self.contract.columns_version <= version < self.contract.version
        return self.contract.rows if same else self.contract_of(version).rows

    def rows_as_wanted(self, rows: Rows, version: int, where: Callable[[], str]) -> Rows:
        """Return rows written under this version of the contract, with the columns of ``rows`` (``rows_as``)."""
        return rows_as(rows, self._written(version), self.rows, where)

    def rows_of(self, entry: Entry) -> pa.RecordBatch:
        """Return the rows of an entry, with the columns of ``rows``."""
        return self.rows_as_wanted(entry.rows, entry.contract_version, lambda: entry_name(entry))

    def rows_of_flush(self, flushed: FlushedGeneration, content: Folded, projected: RowSchema | None = None) -> Folded:
        """Return the content of a flush, with the columns that ``self.rows`` has, or those of ``projected``.

        With ``projected``, which ``project`` has made of ``self.rows``, ``content.rows`` must have the columns that
        ``written_for`` returns."""
        whole, written = self.rows, self.columns_of(flushed)
        if projected is None:
            return rows_as(content, written, whole, lambda: flushed.key)
        rows = rows_as(content.rows, written_for(written, projected), projected, lambda: flushed.key)
        partials = rows_as(content.partials, written, whole, lambda: flushed.key)
        return Folded(rows, content.gone, project_rows(partials, whole, projected))

    def read_states(self) -> dict[Region, RegionState]:
        """Return the newest state of each region that has one.  The contract says which regions there are."""
        return self.states.read(self.contract.regions)

    def read_sound_states(self) -> Sound:
        """Read the newest state of each region, or its fault if it is damaged, for work that treats each region
        alone."""
        return self.states.read_sound(self.contract.regions)


def entry_name(entry: Entry) -> str:
    """Return the name of an entry in messages."""
    return f"the entry of partition {entry.region.name} at offset {entry.first}"
