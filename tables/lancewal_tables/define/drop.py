"""``lancewal table drop`` and ``table undrop``: take a table out of use, bring it back, or delete its objects.

Guarantees
 1. After ``drop`` has ended a partition, nothing becomes durable in it before ``undrop``.  Each process that reads the
    contract of the drop ends with ``TableDropped``.
 2. ``drop`` deletes nothing.  So ``undrop`` loses nothing that was durable, and ingest takes later records from Kafka.
 3. ``undrop`` and ``begin_deletion`` swap the same version of the contract: one of them wins.  No object is deleted before
    the contract says so, and after that no ``undrop`` succeeds.
 4. Versions of the contract are never deleted.  So every process that opens the place finds that the table was dropped.

Steps of ``drop``.  A command that was interrupted is run again.
 1. Put the next version of the contract, with its field ``drop`` set.
 2. End each OPEN generation (``end_region``).

The contract comes first.  A claimer looks for a newer contract after its claim, before it appends.  So either step 2 finds
the claim and ends its log, or the claimer finds the contract.  With the fences first, an owner that met its fence would
claim the region again in between, and nothing would end its new log.

Steps of the deletion.  A command that was interrupted is run again.
 1. Put the next version of the contract, with ``drop.deleting`` set.
 2. Delete Lance's manifests, then all other objects in Lance's folders and in lancewal's folder, except for contracts.
    Objects of other programs, and a catalog in the folder, stay.  Before each part look whether the table is still
    there: manifests have the same names in each table, and a person may have removed the folder and made another table.
    One case remains: if the command is frozen between this check and the delete, it can delete manifests of the other
    table.

A process that has not yet read the dropped contract may still write objects into the folder.  Nobody reads them.  Run
the command again to delete them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lancewal_core.errors import (
    ContractMismatch,
    InvalidInput,
    LancewalError,
    TableDropped,
    or_error,
)
from lancewal_core.names import paths
from lancewal_core.names.ids import OwnerId, Region
from lancewal_core.process.clock import Clock
from lancewal_core.process.failpoints import point
from lancewal_core.process.tasks import Tasks
from lancewal_core.region.end_region import end_region
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.state import GenerationState
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.contract import (
    Contract,
    TableDrop,
    change_contract,
    check_in_use,
    newest_contract,
)
from lancewal_core.table.presence import check_present

_DROP = OwnerId("drop")
_AT_ONCE = 100
"""Number of objects that one task deletes, one after the other."""


def drop(opened: OpenedTable, new_id: Callable[[], str]) -> tuple[Contract, dict[Region, LancewalError]]:
    """Drop the table (steps 1 and 2).  Return the contract, and the error of each partition that could not be ended.

    A table that was dropped before stays so, and step 2 is repeated.  Raises ``TableDropped`` if the deletion of the
    table's objects has begun, or if another table was made at the place.  Raises ``ContractMismatch`` if the contract
    of ``opened`` says that the table was dropped, and the table was undropped since.
    """
    contract = _put_drop(opened)
    return contract, _end_open(opened, new_id, contract)


def _put_drop(opened: OpenedTable) -> Contract:
    """Put a contract that says that the table was dropped, unless the newest one says so (step 1)."""
    now_ms = opened.clock.now_ms()

    def dropped(newest: Contract) -> Contract | None:
        if opened.contract.drop is not None:
            _check_same_drop(newest, opened.contract)
        if newest.drop is None:
            return _next(newest, TableDrop(since_ms=now_ms))
        if newest.drop.deleting:
            check_in_use(newest, newest.place or "this place")
        return None

    return _swapped(opened.store, opened.clock, opened.contract, dropped)


def _end_open(opened: OpenedTable, new_id: Callable[[], str], contract: Contract) -> dict[Region, LancewalError]:
    """End each OPEN generation, and return the errors of partitions (step 2)."""
    failed: dict[Region, LancewalError] = {}
    for region, state in opened.states.read_each(contract.regions).items():
        if isinstance(state, LancewalError):
            failed[region] = state
        elif state is not None and state.newest is not None and state.newest.state is GenerationState.OPEN:
            ended = or_error(lambda region=region: end_region(opened, new_id, _DROP, region))  # type: ignore[misc]
            if ended is not None:
                failed[region] = ended
    return failed


def undrop(store: ObjectStore, clock: Clock, contract: Contract) -> Contract:
    """Put a version of the contract in which the table is in use again, and return it.  A table in use stays as it is.

    Raises ``TableDropped`` if the deletion of its objects has begun.
    """

    def in_use(newest: Contract) -> Contract | None:
        if newest.drop is None:
            return None
        if newest.drop.deleting:
            check_in_use(newest, newest.place or "this place")
        return _next(newest, None)

    return _swapped(store, clock, contract, in_use)


def deletable_ms(contract: Contract) -> int:
    """Return the time from which on objects of the dropped table are deleted, in milliseconds since 1970."""
    assert contract.drop is not None, "the table was dropped"
    return contract.drop.since_ms + 1000 * contract.grace_s


def begin_deletion(store: ObjectStore, clock: Clock, contract: Contract) -> Contract:
    """Write a contract version that makes the drop final, and return it (step 1 of the deletion).

    ``contract``: the version that the user's decision is based on.  Raises ``ContractMismatch`` if the table was
    undropped since.
    """

    def deleting(newest: Contract) -> Contract | None:
        drop = _check_same_drop(newest, contract)
        return None if drop.deleting else _next(newest, drop.model_copy(update={"deleting": True}))

    return _swapped(store, clock, contract, deleting)


def delete_objects(store: ObjectStore, tasks: Tasks, contract: Contract) -> int:
    """Delete the objects of a dropped table (step 2 of the deletion), and return their number.

    Raises ``TableMissing`` or ``TableReplaced`` if the folder was removed meanwhile, or holds another table.
    """
    if contract.drop is None or not contract.drop.deleting:
        raise InvalidInput(
            "the contract does not say that the table was dropped for good: nothing was deleted. "
            "Run `lancewal table drop` first"
        )
    number = 0
    others = [folder for folder in paths.LANCE_FOLDERS if folder != paths.VERSIONS]
    for folder in (paths.VERSIONS, *others, paths.ROOT):
        keys = [info.key for info in store.list(folder) if not _stays(info.key)]

        def delete(part: Sequence[str], folder: str = folder) -> None:
            with point("drop.delete", folder=folder):
                check_present(store, contract)
                store.delete(part)

        tasks.map(delete, [keys[at : at + _AT_ONCE] for at in range(0, len(keys), _AT_ONCE)])
        number += len(keys)
    return number


def _check_same_drop(newest: Contract, known: Contract) -> TableDrop:
    """Return the field ``drop`` of the newest contract.  Raises ``ContractMismatch`` unless ``known`` has the same
    drop."""
    drop = newest.drop
    if drop is None or known.drop is None or drop.since_ms != known.drop.since_ms:
        raise ContractMismatch("the table was undropped meanwhile: nothing was deleted", version=newest.version)
    return drop


def _stays(key: str) -> bool:
    return paths.parse_contract_version(key) is not None or key.startswith(paths.CATALOG)


def _next(newest: Contract, drop: TableDrop | None) -> Contract:
    return newest.model_copy(update={"format": 2, "version": newest.version + 1, "drop": drop})


def _swapped(
    store: ObjectStore, clock: Clock, known: Contract, decide: Callable[[Contract], Contract | None]
) -> Contract:
    """Replace the newest contract by the one that ``decide`` returns for it, by compare-and-swap, and return the new
    one.  If ``decide`` returns None, nothing is written, and the newest contract is returned.

    Raises ``TableDropped`` if another table was made at the place meanwhile.
    """
    with point("drop.contract"):
        newest = change_contract(store, clock, known, decide)
    first = newest_contract(store)
    if first is None or first.making != known.making:
        raise TableDropped(f"another table was made at {known.place} meanwhile, and stays as it is")
    return newest
