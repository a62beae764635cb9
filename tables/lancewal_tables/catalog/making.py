"""Tables that are made by name: ``lancewal table create --name`` and ``lancewal table attach --name``.

The table is made first, with the name in its contract, and then registered.  If a command is killed in between, run it
again: it finds its finished table and adds the entry.  ``lancewal catalog check --mend`` adds the entry too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from lancewal_core.catalog.opened import set_catalog
from lancewal_core.catalog.table_name import table_name
from lancewal_core.errors import TableExists
from lancewal_core.open import Address
from lancewal_core.settings.load import Settings
from lancewal_core.store.address import place_of, same_place
from lancewal_core.table.checks import check_settings
from lancewal_core.table.contract import Contract
from lancewal_tables.catalog.registration import check_free, give_name, put_entry


class Make(Protocol):
    """Function that makes the table: ``create_table`` or ``attach_table``."""

    def __call__(
        self, settings: Settings, *, warn: Callable[[str], object], look_only: bool, name: str | None
    ) -> Contract: ...


def make_named(
    make: Make, settings: Settings, name: str, warn: Callable[[str], object], *, look_only: bool = False
) -> Contract:
    """Create or attach a table at ``table.uri``, add it to the catalog, and return its contract.

    ``look_only``: only check, and write nothing.  Raises ``TableExists`` if the name is taken, or if another table is
    at the address.  Raises the errors of ``make`` too.
    """
    table_name(name)
    catalog = set_catalog(settings)
    settings.need("table.uri")
    there = catalog.table(name)
    check_free(catalog, settings, there)
    try:
        contract = make(settings, warn=warn, look_only=look_only, name=name)
    except TableExists:
        unfinished = None if there is not None or look_only else _made_before(settings, name)
        if unfinished is None:
            raise
        contract = unfinished
    if look_only:
        return contract
    contract = give_name(Address.of(settings), name)  # a run under another name may have begun it
    put_entry(catalog, settings, name, contract)
    return contract


def _made_before(settings: Settings, name: str) -> Contract | None:
    """Return the contract of the table at ``table.uri`` if an earlier run of the command has made the table under
    ``name``; else None.

    Raises ``ContractMismatch`` if the settings are not those of that run.
    """
    address = Address.of(settings)
    contract = address.contract()
    if contract.name != name or contract.place is None or not same_place(contract.place, place_of(address.uri)):
        return None
    check_settings(settings, contract, address.store())
    return contract
