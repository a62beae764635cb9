"""``lancewal table create``: create an empty Lance table with a contract.

First, everything that a person can get wrong is checked: settings, columns, keys, the topic, and objects at the address.
An error found here changes nothing.  With ``look_only`` nothing else is done.  Then:

 1. Lance creates the empty table, with keys that are not nullable: one commit, version 1.
    A crash after this step leaves an empty table of this schema without a contract.  The same command continues with it.
 2. to 4. are the steps of ``register``: contract, checkpoint, identity.

If two processes create the same table at once, one contract remains; the other process gets ``TableExists``.

Rounds of requests to the store (docs/reference/requests.md), as counted: 48 ("`lancewal table create`").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import uuid4

import lance

from lancewal_core.errors import TableExists, TableMissing
from lancewal_core.open import Address
from lancewal_core.rows.schema import RowSchema
from lancewal_core.rows.ttl import check_ttl
from lancewal_core.settings.declared import declared_columns, declared_keys, declared_ttl
from lancewal_core.settings.load import Settings
from lancewal_core.table.contract import Contract
from lancewal_core.table.lance.pinned import LancePinnedTable
from lancewal_core.table.proof.store_proof import check_way
from lancewal_tables.define.register import begun_contract, first_contract, go_on, register, store_error
from lancewal_tables.define.topic import check_asked, fitting_topic, no_warning

if TYPE_CHECKING:
    from lancewal_kafka.topic import TopicInspector


def create_table(
    settings: Settings,
    inspector: TopicInspector | None = None,
    warn: Callable[[str], object] = no_warning,
    *,
    look_only: bool = False,
    name: str | None = None,
) -> Contract:
    """Create the table that the settings describe, and return its contract.

    ``look_only``: only check, and return the contract that would be put.  ``warn`` is called with each warning.
    ``name``: the name of the table in the catalog, for its contract.
    Errors: ``InvalidSettings``, ``InvalidSchema``, ``TopicMissing``, ``TopicUnsuitable``, ``TableExists``,
    ``StoreNotWritable``, ``StoreRefused``; after ``KafkaUnavailable`` and ``StoreUnavailable``, try again.
    """
    check_asked(settings, "table.uri", "table.columns")
    rows = declared_rows(settings)
    check_ttl(declared_ttl(settings.table), rows, settings.table.patches)
    address = Address.of(settings)
    there, begun = _what_is_there(address, rows)
    if there is not None and begun is not None:
        return go_on(address.folder(), there, begun, settings, look_only=look_only)
    topic = fitting_topic(settings, rows, inspector)
    if look_only:
        for text in topic.warnings:
            warn(text)
        return first_contract(address.uri, there, rows, settings.table, topic, name)
    # Step 1
    if there is None:
        check_way(address.way(), uuid4().hex)
        # Without a retry: of two at once, the one that comes second would overwrite the other's table with its own.
        operation = lance.LanceOperation.Overwrite(rows.table, [])
        try:
            lance.LanceDataset.commit(address.uri, operation, storage_options=settings.storage.options, max_retries=0)
        except OSError as error:
            if _what_is_there(address, rows)[0] is None:
                raise store_error(error, f"creating a Lance table at {address.uri}") from error
    for text in topic.warnings:  # not earlier: if creation fails, only its error is shown
        warn(text)
    # Steps 2 to 4
    folder = address.folder()
    pinned = folder.table.newest()
    contract = first_contract(address.uri, pinned, rows, settings.table, topic, name)
    return register(folder, pinned, contract)


def declared_rows(settings: Settings) -> RowSchema:
    """Return the columns and keys that the settings declare.  Raises ``InvalidSchema`` if they cannot form a table."""
    return declared_keys(declared_columns(settings.table), settings.table)


def _what_is_there(address: Address, rows: RowSchema) -> tuple[LancePinnedTable | None, Contract | None]:
    """Return the empty Lance table of an interrupted run, and its contract if that run had put one.

    Both are None if there is no table.  Raises ``TableExists`` if there is any other table.
    """
    try:
        folder = address.folder()
        begun = begun_contract(folder)
        pinned = folder.table.newest()
    except TableMissing:
        return None, None
    if pinned.fragments() or not pinned.schema.equals(rows.table):
        raise TableExists(
            f"there is already a Lance table at {address.uri}, "
            + ("with rows" if pinned.fragments() else "with other columns")
            + ", and it is not a lancewal table: `lancewal table attach` makes it one"
        )
    return pinned, begun
