"""A version of the table with the columns of an earlier contract, as a user's restore leaves it: brought to the newest one.

Guarantees
 1. Only a version whose mark names an earlier contract, and that fits that contract, is brought.  A version whose columns
    other programs have changed stays as it is.
 2. No value is lost.  A field that has become wider since is written again with the wider type.  Fields that were added since
    are null in all rows, and those that were dropped since go.
 3. Whoever dies leaves a version that the next process brings.
 4. Refused by name: a column of another program that has got the id or the name of a newer field, and an index over a column
    that must be written again.

Steps of ``bring_back``
 1. If values must be written again: write their files for all fragments, and commit them as one ``Merge``.  The mark stays.
 2. Commit the ``Project`` that brings the version to the newest contract, with its mark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pyarrow as pa

from lancewal_core.errors import CommitUnknown, ContractChanged, ContractMismatch, RepairRefused
from lancewal_core.process.tasks import Tasks
from lancewal_core.rows.carry import Tree
from lancewal_core.rows.column_types import format_type
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.checks import check_table
from lancewal_core.table.columns.versions import (
    Mark,
    brought,
    contract_trees,
    holding,
    ids_in_use,
    version_trees,
)
from lancewal_core.table.contract import Contract, Widening, columns_version, read_contract_version
from lancewal_core.table.protocol import ColumnsCommit, CommitLost, Committed, PinnedTable, Table, columns_mark

_TRIES = 5


def earlier_contract(store: ObjectStore, pinned: PinnedTable, contract: Contract) -> Contract | None:
    """Return the earlier contract whose columns the version has; None if it fits ``contract``, or fits none."""
    made = columns_version(Mark.of(pinned).made)
    if made >= contract.columns_version or _fits(pinned, contract):
        return None
    before = read_contract_version(store, contract, made)
    return before if _fits(pinned, _asking(before, contract)) else None


def check_columns(store: ObjectStore, pinned: PinnedTable, contract: Contract) -> None:
    """Raise what ``check_table`` raises, with the way out for a version with the columns of an earlier contract."""
    try:
        check_table(pinned, contract)
    except ContractMismatch as error:
        before = earlier_contract(store, pinned, contract)
        if before is None:
            raise
        raise ContractMismatch(
            f"version {pinned.version} of the Lance table has the columns of version {before.version} of the contract, as a "
            f"restore leaves it. `lancewal repair restored` brings them to version {contract.version}",
            version=pinned.version,
        ) from error


def bring_back(
    store: ObjectStore, table: Table, tasks: Tasks, contract: Contract, *, look_only: bool = False
) -> tuple[int, list[str]] | None:
    """Bring the newest version to ``contract``, which is the newest one.

    Return the version of the earlier contract, and the names of the columns that are written again; None if there is
    nothing to do.  ``look_only`` makes the same checks and stores nothing.  ``RepairRefused``: guarantee 4.
    ``CommitUnknown``: the store did not say whether the commit landed; the same command goes on from there."""
    again = set[str]()
    for _ in range(_TRIES):
        pinned = table.newest()
        before = earlier_contract(store, pinned, contract)
        if before is None:
            return None
        wider = _wider(pinned, before, contract)
        _check(pinned, before, contract, wider)
        again |= wider.keys()
        if look_only:
            return before.version, sorted(again)
        # Steps 1 and 2
        commit = _merge(pinned, tasks, wider) if wider else brought(pinned, contract, before)
        match None if commit is None else table.change_columns(commit):
            case Committed() if not wider:
                return before.version, sorted(again)
            case CommitLost(message):
                raise CommitUnknown(
                    f"the store did not say whether the table's columns were brought back: {message}. Run the command again"
                )
    raise ContractChanged(f"others changed the table {_TRIES} times meanwhile. Run the command again")


def _fits(pinned: PinnedTable, contract: Contract) -> bool:
    try:
        check_table(pinned, contract)
    except ContractMismatch:
        return False
    return True


def _asking(before: Contract, contract: Contract) -> Contract:
    """Return the earlier contract, which asks for the types that its fields have in the newest one."""
    columns = []
    for column, tree in zip(before.columns, contract_trees(before), strict=True):
        wide = _become(before, contract)(tree)
        ids = tuple([inner.id for inner in wide.all()])
        widening = Widening(type=format_type(wide.type), field_ids=ids, since_ms=0) if ids != column.field_ids else None
        columns.append(column.model_copy(update={"widening": widening}))
    return before.model_copy(update={"columns": tuple(columns)})


def _become(before: Contract, contract: Contract) -> Callable[[Tree], Tree]:
    """Return a function from a field of the earlier contract to that field with the id and type of now."""
    first = {id_: own for c in before.columns for id_, own in zip(c.field_ids, c.ids, strict=True)}
    now = dict[int, Tree]()
    for column, tree in zip(contract.columns, contract_trees(contract), strict=True):
        now.update(zip(column.ids, tree.all(), strict=True))

    def become(tree: Tree) -> Tree:
        if tree.within:
            within = tuple([become(member) for member in tree.within])
            return tree if within == tree.within else holding(tree, within)
        newer = now.get(first.get(tree.id, -1), tree)
        return replace(tree, id=newer.id, type=newer.type)

    return become


def _wider(pinned: PinnedTable, before: Contract, contract: Contract) -> dict[str, Tree]:
    """Return the columns of the version that must be written again, as they become."""
    become = _become(before, contract)
    found = {tree.name: (tree, become(tree)) for tree in version_trees(pinned)}
    return {name: after for name, (tree, after) in found.items() if after != tree}


def _check(pinned: PinnedTable, before: Contract, contract: Contract, wider: Mapping[str, Tree]) -> None:
    """Raise ``RepairRefused`` for what guarantee 4 says."""
    known = {
        id_ for c in _asking(before, contract).columns for own in (c.field_ids, c.widened.field_ids) for id_ in own
    }
    newer = set(contract.field_ids) - known
    others = [name for name, ids in pinned.field_ids.items() if ids[0] not in known]
    if not newer.isdisjoint(ids_in_use(pinned)) or not set(others).isdisjoint(contract.fields_of):
        raise RepairRefused(
            f"another program has added columns to version {pinned.version}, which was restored: {others}. Some have ids or "
            "names of columns that the contract has got since. Restore the same version once more, run this command, and "
            "only then add columns",
            version=pinned.version,
        )
    over = sorted(index.name for index in pinned.indexes() if not index.columns.isdisjoint(wider))
    if over:
        raise RepairRefused(
            f"the restored version {pinned.version} has index {over[0]} over a column whose values must be written again. "
            f"Drop the index (`lance.dataset(URI).drop_index({over[0]!r})`), and run this command again",
            version=pinned.version,
        )


def _merge(pinned: PinnedTable, tasks: Tasks, wider: Mapping[str, Tree]) -> ColumnsCommit:
    """Write the columns of all fragments, and return the commit of these files (step 1)."""
    wide = pa.schema([pinned.schema.field(name).with_type(tree.type) for name, tree in wider.items()])
    ids = {name: tuple([inner.id for inner in tree.all()]) for name, tree in wider.items()}
    numbers = [fragment.fragment_id for fragment in pinned.fragments()]
    fragments = tasks.map(lambda number: pinned.write_widened(number, wide, ids), numbers)
    schema = pa.schema([wide.field(f.name) if f.name in wide.names else f for f in pinned.schema])
    found, mark = {**pinned.field_ids, **ids}, columns_mark(pinned)
    return ColumnsCommit(pinned.version, schema, found, {}, mark, tuple(fragments))
