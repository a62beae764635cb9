"""The name of a table in its contract, which ``lancewal catalog register`` writes."""

from __future__ import annotations

from lancewal_core.open import Address
from lancewal_core.process.clock import SystemClock
from lancewal_core.table.checks import check_place
from lancewal_core.table.contract import Contract, change_contract, read_contract


def give_name(address: Address, name: str) -> Contract:
    """Make the table's contract name it so, and return the contract, whose other terms stay as they are.

    Raises ``TableElsewhere`` if the contract is that of a table at another place.  Raises ``NotALancewalTable`` if
    there is none.
    """
    store = address.store()
    contract = read_contract(store, address.uri)

    def decide(newest: Contract) -> Contract | None:
        check_place(address.uri, newest)
        if newest.name == name:
            return None
        return newest.model_copy(update={"format": 2, "version": newest.version + 1, "name": name})

    return change_contract(store, SystemClock(), contract, decide)
