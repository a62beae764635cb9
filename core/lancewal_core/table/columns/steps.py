"""Changing the columns of a table while all services work.  Used by ingest and by commands such as
``lancewal table alter --add-column``.

docs/protocol.md explains the steps ("Columns that change").  ``versions`` explains *grow*, *bring* and *mark*.

Guarantees
 1. The newest version of the table has each field of the newest contract, whenever a process dies and whatever other
    processes do.  The table grows before the contract is stored, and only fields that a stored contract has dropped are
    removed.
 2. If the process dies, all services can work on the table, and the next change completes what is unfinished.  The same
    change made again changes nothing twice.
 3. If two processes change columns at the same time, one change follows the other.
 4. No data file is written.
 5. ``look_only`` makes the same checks and stores nothing.
 6. Changes by other programs are adopted in the same steps (``adopt``).
 7. Right before each commit, ``check_present`` checks that the table is still at its place.

Steps (docs/protocol.md)
 1. Bring the table to the newest contract, unless another change has grown it and may still store its contract.
 2. Grow the table: add and rename fields.
 3. Put the next version of the contract.
 4. Bring the table to this version: remove dropped fields.
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
"""Function that makes the next contract version.  It gets the newest contract, facts about the table, and the id of
the change (``change_id`` of ``next_contract.changed``).  It returns the newest contract itself if nothing is to be
changed."""


def change_columns(
    store: ObjectStore,
    table: StoredTable,
    clock: Clock,
    new_id: Callable[[], str],
    changes: Sequence[Change],
    *,
    look_only: bool = False,
) -> Contract:
    """Make all changes, as one new contract version, and return that version.  If all were made before, return the
    newest contract.

    Raise ``InvalidInput`` if a change is refused, and the errors of ``take_steps``.
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
    """Do steps 1 to 4, and return the contract version that ``following`` makes.

    ``new_id`` makes ids of changes, as hex digits.  ``adopts``: whether ``following`` adopts changes by other
    programs.  Raise ``ContractMismatch`` if other programs have changed columns of the contract otherwise.  Raise
    ``CommitUnknown`` if the outcome of a commit is unknown.  Raise ``ContractChanged`` if other processes interrupt
    the steps ``TRIES`` times.
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
    """Return the newest table version, the newest contract, and the commit that brings the version to the contract.
    The commit is None if none is needed.

    ``adopts``: if the version does not fit the contract, return None as commit, since the differences are to be
    adopted.  Bringing the version to the contract would undo them.  Otherwise raise ``ContractMismatch``.

    The contract is read after the version.  So it knows all fields that were dropped before the version was made, but
    it may have fields that only a later version has.  Thus a version that does not fit is an error only if it is
    still the newest."""
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
