"""The name of a table in its contract, which ``lancewal catalog register`` writes."""

from __future__ import annotations

from lancewal_core.errors import NotALancewalTable
from lancewal_core.open import Address
from lancewal_core.process.clock import SystemClock
from lancewal_core.store.versioned import Declined, Version, swap
from lancewal_core.table.checks import check_place
from lancewal_core.table.contract import Contract, contract_family, decode_contract, encode_contract, read_contract


def give_name(address: Address, name: str) -> Contract:
    """Make the table's contract name it so, and return the contract, whose other terms stay as they are.

    ``TableElsewhere`` if the contract is that of a table at another place; ``NotALancewalTable`` if there is none."""
    store = address.store()
    contract = read_contract(store, address.uri)
    family = contract_family(contract.making)

    def decide(found: Version | None) -> Contract | None:
        newest = contract if found is None else decode_contract(found.data, family.key(found.version))
        check_place(address.uri, newest)
        if newest.name == name:
            return None
        return newest.model_copy(update={"format": 2, "version": newest.version + 1, "name": name})

    if contract.name == name:
        check_place(address.uri, contract)
        return contract
    outcome = swap(store, family, SystemClock(), decide, encode_contract)
    if not isinstance(outcome, Declined):
        return outcome.value
    if outcome.found is None:
        raise NotALancewalTable(f"{address.uri} has no lancewal contract any more")
    return decode_contract(outcome.found.data, family.key(outcome.found.version))
