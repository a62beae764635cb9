"""Newer versions of the contract that a running ingest process takes up, or makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice

from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.contract import BESIDE_ROWS, COLUMN_TERMS, Contract, changed_terms, newer_contract
from lancewal_core.table.group import check_group

TAKEN_UP = BESIDE_ROWS | COLUMN_TERMS
"""Terms that a running process takes up.  Rows of two versions that differ in these alone go together."""

NewFields = Mapping[str, str]
"""Type text of each optional field of records for which the table has no column, by its name."""
AddColumns = Callable[[Contract, NewFields], None]
"""Function that adds nullable columns to a table and to its contract, which is the newest version.

If another process changes the contract meanwhile, it does nothing: the caller looks for a newer version afterwards."""


def contract_to_take_up(store: ObjectStore, contract: Contract, group: str = "") -> Contract | None:
    """Return the newest version after ``contract``; None if there is none, or if it differs in further terms.

    The errors of ``check_group`` are raised for ``group``, unless that is empty."""
    newest = newer_contract(store, contract)
    if newest is None:
        return None
    if group:
        check_group(newest, group)
    return newest if changed_terms(contract, newest) <= TAKEN_UP else None


def fields_to_add(contract: Contract, fields: NewFields) -> NewFields:
    """Return the new fields that become columns: those for which ``columns_max`` leaves room, in the order of their names.

    None of them unless the contract says so (``on_unknown_column``)."""
    room = contract.columns_max - len(contract.columns) if contract.on_unknown_column == "add" else 0
    return dict(islice(sorted(fields.items()), max(room, 0)))
