"""Open a table by its address for reading, or by the settings of a service, which adds checks.

``Address`` gives the store and the Lance table at an address without checking them.  ``open_at`` opens a lancewal
table for reading, ``open_by`` one to work on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from lancewal_core.errors import ContractMismatch, TableMissing
from lancewal_core.process.clock import Clock
from lancewal_core.process.tasks import Tasks, together
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.settings.load import Settings
from lancewal_core.store.address import whole_address
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.store.obstore import TableStore, open_store
from lancewal_core.table.checks import check_identity, check_place, check_settings
from lancewal_core.table.columns.restored import check_fit
from lancewal_core.table.contract import Contract, check_in_use, newer_contract, newest_contract, read_contract
from lancewal_core.table.lance.base_paths import BasePaths
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.proof.store_proof import StoreWay


@dataclass(frozen=True, slots=True)
class Folder:
    """One table folder: its store, its Lance table, and the way in which this process reaches it.  The content is not
    checked.
    """

    store: ObjectStore
    table: LanceTable
    way: StoreWay


@dataclass(frozen=True, slots=True)
class Address:
    """Address of a table, and the options to reach it."""

    uri: str
    """Address of the table.  An address in Azure without a storage account gets the account of ``options`` or the
    environment."""
    options: Mapping[str, str] | None = field(default=None, repr=False)  # may hold a store's secret
    """Lance's storage options, by name; None: no options."""
    base_paths: BasePaths = "refuse"

    def __post_init__(self) -> None:
        object.__setattr__(self, "uri", whole_address(self.uri, self.options))

    @staticmethod
    def of(settings: Settings, uri: str | None = None) -> Address:
        """Return the address ``uri``, by default ``table.uri``, with the storage options of the settings.

        Raises ``InvalidSettings`` if neither is set.
        """
        if not uri:
            settings.need("table.uri")
        return Address(uri or settings.table.uri, settings.storage.options, settings.table.base_paths)

    @property
    def name(self) -> str:
        """The last part of the address, which names the table in metrics and logs until its contract is known."""
        return self.uri.rstrip("/").rpartition("/")[2]

    def name_of(self, contract: Contract) -> str:
        """Return the name of the table in metrics and logs: that in its contract, else the last part of the address."""
        return contract.name or self.name

    def way(self) -> StoreWay:
        """Return how this process reaches the store: address, options and environment."""
        return StoreWay.of(self.uri, self.options, os.environ)

    def store(self) -> TableStore:
        """Return the table's store.  Raises ``TableMissing`` if the folder is not there."""
        return open_store(self.uri, self.options)

    def table(self) -> LanceTable:
        return LanceTable(self.uri, self.options, self.base_paths)

    def folder(self) -> Folder:
        return Folder(self.store(), self.table(), self.way())

    def contract(self) -> Contract:
        """Return the newest contract.  Raises ``NotALancewalTable`` if there is none."""
        return read_contract(self.store(), self.uri)


def open_at(address: Address, tasks: Tasks, clock: Clock) -> OpenedTable:
    """Open a table for reading.  The folder may be a copy.  The newest version is not compared with the contract yet.

    Raises ``TableMissing`` if there is no Lance table, or ``NotALancewalTable`` if there is no contract.  Raises
    ``TableDropped`` if the table was dropped, even if its objects are deleted, because the contract stays.
    """
    store, table = address.store(), address.table()
    try:
        _, contract = together(tasks, table.newest, lambda: read_contract(store, address.uri, tasks))
    except TableMissing:
        left = newest_contract(store, tasks)
        if left is not None:
            check_in_use(left, address.uri)
        raise
    return OpenedTable.over(store, table, contract, tasks, clock)


def open_by(
    settings: Settings, tasks: Tasks, clock: Clock, store: ObjectStore | None = None, *, any_columns: bool = False
) -> OpenedTable:
    """Open a table for writing.  Raises an error that names the difference unless contract, place, settings and the
    table's newest version agree.

    ``store`` is the table's store if it is open already.  ``any_columns``: columns may differ from the contract,
    because the caller does not use them.
    """
    address = Address.of(settings)
    store = store or address.store()
    contract = read_contract(store, address.uri, tasks)
    table = address.table()
    while True:
        check_place(address.uri, contract)
        check_settings(settings, contract, store)
        try:
            if any_columns:
                check_identity(table.newest(), contract)
            else:
                check_fit(store, table.newest(), contract)
            return OpenedTable.over(store, table, contract, tasks, clock)
        except ContractMismatch:
            newer = newer_contract(store, contract)  # its columns may have changed in between
            if newer is None:
                raise
            contract = newer
