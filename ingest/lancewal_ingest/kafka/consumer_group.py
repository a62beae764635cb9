"""The consumer group that takes a table's records.  Two groups would claim each other's partitions for ever.

Guarantees
 1. A process uses its own group, ``kafka.group_id`` or ``lancewal-<table uuid>``.  It only compares the contract's
    group with its own.  So anybody who may write into the folder can stop a process, and cannot move it into another
    group.
 2. Of several groups that come to a table whose contract names none, one writes its name, by compare-and-swap of the
    contract.  A process of another group ends with ``OtherGroup`` before it claims a partition.
 3. ``table alter --group`` names another group, while processes of both groups may run.  A process of the former group
    claims no partition that was claimed under the new contract.  Once it reads the new contract, it stops taking
    records and waits: it has not failed.
"""

from __future__ import annotations

from lancewal_core.errors import ContractChanged, FormerGroup, OtherGroup
from lancewal_core.process.clock import Clock
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.contract import GROUP_TERMS, Contract, change_contract, changed_terms


def check_group(contract: Contract, group: str) -> None:
    """Raise ``FormerGroup`` or ``OtherGroup`` if the contract names another group."""
    named = contract.group_id
    if named is None or named == group:
        return
    here = f"the records of the table {contract.table_uuid} are taken by the consumer group {named!r}"
    if group == contract.former_group_id:
        raise FormerGroup(
            f"{here} now, and no longer by this process's, {group!r}. This process takes no record, and waits. Stop it, or "
            "set kafka.group_id to the new group and restart it",
            group=named,
        )
    raise OtherGroup(
        f"{here}, this process's is {group!r}: the two would fence each other. Correct kafka.group_id, or move the table: "
        f"`lancewal table alter --group {group}`",
        group=named,
    )


def take_group(store: ObjectStore, clock: Clock, contract: Contract, group: str) -> Contract:
    """Write ``group`` into the contract unless it is there already, and return the contract.  Raises the errors of
    ``check_group``.

    Raises ``ContractChanged`` if other terms have changed since ``contract`` was read.
    """
    if contract.group_id is None:

        def decide(newest: Contract) -> Contract | None:
            if newest.group_id is not None:
                return None
            return newest.model_copy(update={"version": newest.version + 1, "group_id": group})

        newest = change_contract(store, clock, contract, decide)
        changed = changed_terms(contract, newest) - GROUP_TERMS
        if changed:
            raise ContractChanged(
                f"the contract was altered while ingest started ({', '.join(sorted(changed))}). It is read again"
            )
        contract = newest
    check_group(contract, group)
    return contract
