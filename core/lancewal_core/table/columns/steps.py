"""Change the columns of a table while all services work: ``lancewal table alter --add-column`` and its like, and ingest.

The steps are those of docs/protocol.md, "Columns that change".

Guarantees
 1. Each field of the newest contract is in the newest version of the table, whenever the process dies and whatever others
    do.  The table grows before the contract is stored, and only fields that a stored contract has dropped go.
 2. A process that dies leaves a table that all services work on.  The next change goes on where it died.  The same change
    made again changes nothing twice.
 3. Two processes at once make two changes, one after the other.
 4. No data is written.
 5. ``look_only`` makes the same checks and stores nothing.
 6. What other programs have done is adopted in the same steps (``adopt``).
 7. Each commit looks right before whether the table is still at its place (``check_present``).

Steps (docs/protocol.md)
 1. Bring the table to the newest contract, if no other change has grown it for the next one.
 2. Grow: add and rename in the table.
 3. Put the next version of the contract.
 4. Shrink: bring the table to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from lancewal_core.errors import ContractMismatch
from lancewal_core.process.clock import Clock
from lancewal_core.process.failpoints import point
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.columns.adopt import adoption_of, check_adopted
from lancewal_core.table.columns.changes import Adopted, Change, ContractChange, Dropped
from lancewal_core.table.columns.next_contract import Surroundings, changed
from lancewal_core.table.columns.restored import check_fit, earlier_contract
from lancewal_core.table.columns.versions import (
    TRIES,
    Mark,
    brought,
    committed,
    grown,
    held_together,
    highest_field_id,
    ids_of,
    overtaken,
    version_trees,
)
from lancewal_core.table.contract import (
    Contract,
    columns_made,
    former_columns,
    put_next,
    read_contract,
)
from lancewal_core.table.protocol import ColumnsCommit, PinnedTable, StoredTable

Following = Callable[[Contract, Surroundings, str], Contract]
"""Function from the newest contract to the next version, or to that very contract if nothing is to be changed.

The text is the id of the change (``changed``)."""


def change_columns(
    store: ObjectStore,
    table: StoredTable,
    clock: Clock,
    new_id: Callable[[], str],
    changes: Sequence[Change],
    *,
    look_only: bool = False,
) -> Contract:
    """Make all changes, as one version of the contract, and return it.

    Raises ``InvalidInput`` if a change is refused.  Other errors: see ``take_steps``.
    """
    asked = [change for change in changes if isinstance(change, Adopted)]
    others = [change for change in changes if not isinstance(change, Adopted)]

    def following(contract: Contract, facts: Surroundings, change_id: str) -> Contract:
        made: list[ContractChange] = [*others]
        if asked and facts.pinned is not None:
            adoption = adoption_of(store, facts.pinned, contract, asked)
            adopted = [] if adoption is None else [adoption]
            check_adopted(facts.pinned, changed(contract, adopted, facts, change_id), contract)
            made = [*adopted, *made]
        if any(isinstance(change, Dropped) and len(change.path) > 1 for change in others):
            held = () if facts.pinned is None else held_together(facts.pinned)
            facts = replace(facts, earlier=tuple(former_columns(store, contract)), held=held)
        return changed(contract, made, facts, change_id)

    if look_only:
        pinned, contract, commit = _look(store, table, adopts=bool(asked))
        facts = _surroundings(pinned, contract, clock)
        if commit is not None:  # what step 1 would leave
            left = set(Mark.parsed(commit.mark).added) - set(contract.field_ids)
            facts = replace(facts, table=version_trees(commit), left_over=left)
        return following(contract, facts, new_id())
    return take_steps(store, table, clock, new_id, following, adopts=bool(asked))


def take_steps(
    store: ObjectStore,
    table: StoredTable,
    clock: Clock,
    new_id: Callable[[], str],
    following: Following,
    *,
    adopts: bool = False,
) -> Contract:
    """Do steps 1 to 4, and return the contract.  ``adopts``: ``following`` adopts what other programs have done.

    Raises ``ContractMismatch`` if other programs have changed columns of the contract.  ``CommitUnknown``,
    ``ContractChanged``: see ``committed``, ``overtaken``.
    """
    for _ in range(TRIES):
        pinned, contract, commit = _look(store, table, adopts=adopts)
        # Step 1
        if commit is not None:
            committed(store, contract, table, commit, point("columns.bring"))
            continue
        new = following(contract, _surroundings(pinned, contract, clock), new_id())
        if new is contract:
            return new
        # Step 2
        grows = new.columns_change != contract.columns_change
        if grows and not committed(store, contract, table, grown(pinned, new), point("columns.grow")):
            continue
        # Step 3
        try:
            with point("contract.put"):
                put_next(store, clock, contract, new)
        except ContractMismatch:
            continue
        # Step 4
        for _ in range(TRIES):
            _, newest, last = _look(store, table)
            if last is None or committed(store, newest, table, last, point("columns.bring")):
                return new
    raise overtaken()


def _look(
    store: ObjectStore, table: StoredTable, *, adopts: bool = False
) -> tuple[PinnedTable, Contract, ColumnsCommit | None]:
    """Return the newest version, the newest contract, and the commit that brings the version to the contract, if one
    is needed.

    ``adopts``: a version that does not fit is to be adopted.  It is brought to no contract before: that would undo what
    others have done.

    A contract that is read after the version knows all that was dropped before it.  It may have fields that
    only a later version has.  So a version that does not fit counts only if it is still the newest."""
    while True:
        pinned = table.newest()
        contract = read_contract(store, "the table")
        try:
            check_fit(store, pinned, contract)
        except ContractMismatch:
            if table.newest().version == pinned.version:
                if adopts and earlier_contract(store, pinned, contract) is None:
                    return pinned, contract, None
                raise
        else:
            break
    # The last version with those columns: it knows the ids of a widening that was asked for since.
    before = columns_made(store, contract, Mark.of(pinned).made)
    return pinned, contract, brought(pinned, contract, ids_of(pinned, before))


def _surroundings(pinned: PinnedTable, contract: Contract, clock: Clock) -> Surroundings:
    indexed: dict[str, list[str]] = {}
    for index in pinned.indexes():
        for column in index.columns:
            indexed.setdefault(column, []).append(index.name)
    return Surroundings(
        highest_field_id(pinned, contract),
        indexed,
        version_trees(pinned),
        left_over=set(Mark.of(pinned).added) - set(contract.field_ids),
        file_format=pinned.file_format,
        pinned=pinned,
        now_ms=clock.now_ms(),
    )
