"""Drop a table or undo the drop, and change the table's catalog entry: ``lancewal table drop`` and ``undrop``.

The contract is changed before the catalog entry, and decides whether the table is dropped (``define.drop``).  If a
command dies between the two, run it again.

A catalog behind REST keeps no entry of a dropped table.  So ``undrop`` adds an entry if the name is free.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from lancewal_core.catalog.catalog import StoredCatalog, change_table
from lancewal_core.catalog.entry import TableEntry, TableState, entry_of
from lancewal_core.errors import CatalogRefused, LancewalError, NotALancewalTable
from lancewal_core.names.ids import Region
from lancewal_core.open import Address
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.failpoints import point
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.settings.load import Settings
from lancewal_core.store.address import place_of, same_place
from lancewal_core.table.checks import check_place
from lancewal_core.table.contract import Contract, newest_contract
from lancewal_tables.define.drop import begin_deletion, delete_objects, drop, undrop


@dataclass(frozen=True, slots=True)
class DroppedTable:
    """Result of ``drop_table``."""

    contract: Contract
    not_ended: Mapping[Region, LancewalError]
    """Partitions whose logs could not be ended, each with the error.  Their ingest process ends once it reads the
    contract of the drop."""
    entry_error: CatalogRefused | None
    """Why the table's catalog entry could not be changed; None if there was no such error."""


@dataclass(frozen=True, slots=True)
class UndroppedTable:
    """Result of ``undrop_table``."""

    contract: Contract
    since_ms: int | None
    """When the table was dropped, in milliseconds since 1970; None if it was in use before the call."""
    name_is_at: str | None
    """Address of another table that has the name in the catalog now; None if no other table has it."""


def contract_of(settings: Settings) -> Contract:
    """Return the newest contract of the table at ``table.uri``, in use or dropped.

    Raises ``NotALancewalTable`` if there is none.  Raises ``TableElsewhere`` if the folder is a copy.
    """
    address = Address.of(settings)
    contract = newest_contract(address.store())
    if contract is None:
        raise NotALancewalTable(
            f"{address.uri} has no lancewal contract: nothing was changed. Correct the address (table.uri, --table)"
        )
    check_place(address.uri, contract)
    return contract


def drop_table(settings: Settings, catalog: StoredCatalog | None, contract: Contract) -> DroppedTable:
    """Drop the table of this contract: end its logs, then change its catalog entry.  Nothing is deleted."""
    address, clock = Address.of(settings), SystemClock()
    with closing(ThreadTasks()) as tasks:
        opened = OpenedTable.over(address.store(), address.table(), contract, tasks, clock)
        contract, failed = drop(opened, lambda: uuid.uuid4().hex)
    try:
        _put_state(settings, catalog, contract, "dropped")
    except CatalogRefused as error:  # the contract counts
        return DroppedTable(contract, failed, error)
    return DroppedTable(contract, failed, None)


def undrop_table(settings: Settings, catalog: StoredCatalog | None) -> UndroppedTable:
    """Undo the drop of the table at ``table.uri``.  Raises ``TableDropped`` if its objects are already being deleted."""
    known = contract_of(settings)
    contract = undrop(Address.of(settings).store(), SystemClock(), known)
    entry = _put_state(settings, catalog, contract, "active")
    elsewhere = entry is not None and not same_place(entry.uri, place_of(settings.table.uri))
    since_ms = None if known.drop is None else known.drop.since_ms
    return UndroppedTable(contract, since_ms, entry.uri if entry is not None and elsewhere else None)


def delete_table(settings: Settings, contract: Contract) -> tuple[Contract, int]:
    """Delete the objects of a dropped table.  Return its last contract, which is kept, and the number of deleted
    objects.
    """
    store = Address.of(settings).store()
    with closing(ThreadTasks()) as tasks:
        last = begin_deletion(store, SystemClock(), contract)
        return last, delete_objects(store, tasks, last)


def _put_state(
    settings: Settings, catalog: StoredCatalog | None, contract: Contract, state: TableState
) -> TableEntry | None:
    """Write ``state`` into the table's catalog entry, and return the entry of the table's name.  If there is no entry,
    one is added for an active table only.  If the name belongs to another table, its entry does not change."""
    if catalog is None or contract.name is None:
        return None
    name, here = contract.name, place_of(settings.table.uri)

    def decide(found: TableEntry | None) -> TableEntry | None:
        if found is None:
            return entry_of(contract, name, here) if state == "active" else None
        if found.state == state or found.table_uuid not in (None, contract.table_uuid):
            return found
        if not same_place(found.uri, here):
            return found
        changes = {"state": state, "changed_ms": SystemClock().now_ms(), "write_id": uuid.uuid4().hex}
        return found.model_copy(update=changes)

    with point("catalog.swap", table=name):
        return change_table(catalog, name, decide)
