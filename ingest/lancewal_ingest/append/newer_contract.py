"""Newer versions of the contract that a running ingest process can follow.

To *take up* a version means to follow it from the next segment on, without a restart.
"""

from __future__ import annotations

from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.contract import (
    BESIDE_ROWS,
    COLUMN_TERMS,
    VALUE_TERMS,
    Contract,
    changed_terms,
    newer_contract,
)
from lancewal_ingest.kafka.consumer_group import check_group

TAKEN_UP = BESIDE_ROWS | COLUMN_TERMS | VALUE_TERMS
"""Terms of the contract whose changes a running process can follow.  One generation may have rows of two versions that
differ only in these terms."""


def contract_to_take_up(store: ObjectStore, contract: Contract, group: str = "") -> Contract | None:
    """Return the newest version after ``contract``.  None if there is none, or if terms changed that a running process
    cannot follow.

    If ``group`` is not empty, the errors of ``check_group`` are raised for it.
    """
    newest = newer_contract(store, contract)
    if newest is None:
        return None
    if group:
        check_group(newest, group)
    return newest if changed_terms(contract, newest) <= TAKEN_UP else None
