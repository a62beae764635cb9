"""``lancewal table moved``: a table whose folder was moved or copied goes on at its new place, as a table of its own.

Guarantees
 1. The table gets a new identity.  It shares none with its original, even if that is still in use, nor with another copy.
    Each table has its own consumer group, and accepts no receipt of another.
 2. All content of the folder stays: rows, unmerged ones included, positions, history.  The folder must have been copied
    while neither ingest nor flusher worked on it.  Otherwise the parts of the copy may not fit together, which is not
    checked.

Steps
 1. Put the next version of the contract, with a new uuid and this place, by compare-and-swap.  From here on, services and
    readers refuse the table until step 2 is done.
 2. Set ``lancewal.table_uuid`` in the Lance table's config to the new uuid.

After a crash between the steps, the same command continues: the config still names the uuid of the former contract.
"""

from __future__ import annotations

from uuid import uuid4

from lancewal_core.errors import InvalidSettings
from lancewal_core.open import Address
from lancewal_core.process.clock import SystemClock
from lancewal_core.settings.load import Settings
from lancewal_core.store.address import place_of, same_place
from lancewal_core.table.checks import check_columns, check_settings
from lancewal_core.table.columns.restored import check_fit
from lancewal_core.table.contract import Contract, put_next, read_contract, read_contract_version
from lancewal_core.table.watermarks import TABLE_UUID
from lancewal_tables.define.register import identify


def move_table(settings: Settings, former: str) -> Contract:
    """Register the table at ``table.uri`` that was moved or copied from ``former``, and return its new contract.

    Raises ``InvalidSettings`` if its contract names another place than ``former``, or names ``table.uri``.  Raises
    ``TableReplaced`` and ``ContractMismatch`` if the Lance table is not the contract's.
    """
    address = Address.of(settings)
    uri, store, table = address.uri, address.store(), address.table()
    pinned = table.newest()
    old = read_contract(store, uri)
    check_settings(settings, old, store)
    here = place_of(uri)
    at_home = old.place is not None and same_place(old.place, here)
    if at_home and old.version > 1:
        before = read_contract_version(store, old, old.version - 1)
        if before.table_uuid != old.table_uuid and pinned.config.get(TABLE_UUID) == before.table_uuid:
            check_columns(pinned, old)
            identify(table, old)
            return old
    if old.place is None or at_home:
        raise InvalidSettings(f"the contract of the table at {here} names no other place: nothing was changed")
    if not same_place(old.place, place_of(former)):
        raise InvalidSettings(
            f"the contract of the table at {here} is that of the table at {old.place}, not of one at {former}: nothing was "
            "changed"
        )
    check_fit(store, pinned, old)
    # Step 1.  Its ingest begins in a group of its own: the default one has the uuid in its name.
    changes = {
        "version": old.version + 1,
        "table_uuid": str(uuid4()),
        "place": here,
        "group_id": None,
        "former_group_id": None,
    }
    new = put_next(store, SystemClock(), old, old.model_copy(update=changes))
    # Step 2
    identify(table, new)
    return new
