"""Changing the columns of a restored table version, which are those of an earlier contract, to those of the newest
contract.

``versions`` explains *grow*, *bring* and *mark*.  A change grows the table before it stores its contract, and only a
restore brings back an older mark.  So a version was restored if its mark names neither the change that made the
newest contract's columns nor a later one.

Guarantees
 1. A restored version is brought to the newest contract if it fits the contract that its mark names.  If other
    programs have changed its columns, it stays as it is.
 2. No value is lost.  A field that was widened since is rewritten with the wider type.  Fields that were added since
    are null in all rows, and fields that were dropped since are removed.
 3. If the process dies, the next call completes its work.
 4. ``RepairRefused`` is raised in two cases.  A column of another program has the id or name of a field that was added
    since.  Or an index is over a column that must be rewritten.
 5. A version that was not restored is brought to the newest contract too, if the last step of a change of columns is
    missing.

Steps of ``bring_back``
 1. If fields must be rewritten, write their files for all fragments, and commit them as one ``Merge``.  The mark stays.
 2. Commit the ``Project`` that brings the version to the newest contract, with that contract's mark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from lancewal_core.errors import ContractMismatch, RepairRefused
from lancewal_core.process.failpoints import point
from lancewal_core.process.tasks import Tasks
from lancewal_core.rows.carry import Tree, with_leaves
from lancewal_core.rows.column_types import format_type
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.checks import check_columns, check_identity, in_version, misfits
from lancewal_core.table.columns.versions import (
    TRIES,
    Mark,
    brought,
    committed,
    contract_trees,
    ids_in_use,
    ids_of,
    overtaken,
    version_trees,
    widened,
    write_widened,
)
from lancewal_core.table.contract import (
    Contract,
    Widening,
    columns_made,
    columns_version,
    former_columns,
    read_contract,
)
from lancewal_core.table.protocol import ColumnsCommit, PinnedTable, StoredTable, columns_mark


@dataclass(frozen=True, slots=True)
class Brought:
    """Result of ``bring_back``: how the columns of a table version were changed."""

    before: int
    """Contract version whose columns the table had."""
    after: int
    """Newest contract version, whose columns the table has now."""
    wider: tuple[str, ...]
    """Names of the columns whose values were rewritten with a wider type."""


def earlier_contract(store: ObjectStore, pinned: PinnedTable, contract: Contract) -> Contract | None:
    """Return the earlier contract whose columns a restored table version has.

    Return None if the version was not restored, if it fits ``contract``, or if it does not fit the earlier contract
    either."""
    mark = Mark.of(pinned)
    if _knows(mark, contract) or not misfits(pinned, contract, named=False):
        return None
    return next((c for c in _named(store, mark, contract) if _fits(pinned, _asking(pinned, c, contract))), None)


def check_fit(store: ObjectStore, pinned: PinnedTable, contract: Contract) -> None:
    """Raise ``TableReplaced`` if ``pinned`` is of another table than ``contract``.  Raise ``ContractMismatch`` if its
    columns do not fit the contract.

    If the version was restored and has the columns of an earlier contract, the error names the command that changes
    them."""
    check_identity(pinned, contract)
    try:
        check_columns(pinned, contract)
    except ContractMismatch as error:
        before = earlier_contract(store, pinned, contract)
        if before is None:
            raise
        raise ContractMismatch(
            f"version {pinned.version} of the Lance table was restored, and does not have the contract's columns: "
            f"{'; '.join(sorted(misfits(pinned, contract, named=False)))}. It has those of version {before.version} of the "
            f"contract. `lancewal repair restored` brings them to version {contract.version}",
            version=pinned.version,
        ) from error


def bring_back(store: ObjectStore, table: StoredTable, tasks: Tasks, *, look_only: bool = False) -> Brought | None:
    """Change the columns of the newest version to those of the newest contract.

    Return what was done; None if there was nothing to do, or nothing that can be done (guarantee 1).  ``look_only``
    makes the same checks and stores nothing.  Raise ``RepairRefused`` (guarantee 4), ``CommitUnknown`` if the outcome
    of a commit is unknown, and ``ContractChanged`` if other processes interrupt the steps ``TRIES`` times.
    """
    done: Brought | None = None
    for _ in range(TRIES):
        pinned = table.newest()
        contract = read_contract(store, "the table")
        check_identity(pinned, contract)
        mark, before = Mark.of(pinned), earlier_contract(store, pinned, contract)
        if before is None and misfits(pinned, contract, named=False):
            return done
        wider = {} if before is None else _wider(pinned, before, contract)
        if before is not None:
            _check(pinned, before, contract, wider)
        own = frozenset(id_ for c in _named(store, mark, contract) for id_ in ids_of(pinned, c))
        found = brought(pinned, contract, own)
        if found is None:
            return done
        first = done.before if done else columns_version(mark.made) if before is None else before.version
        done = Brought(first, contract.version, tuple(sorted({*(done.wider if done else ()), *wider})))
        if look_only:
            return done
        # Steps 1 and 2
        commit = _merge(pinned, tasks, wider) if wider else found
        if committed(store, contract, table, commit, point("columns.bring")) and not wider:
            return done
    raise overtaken()


def _knows(mark: Mark, contract: Contract) -> bool:
    """Return whether the mark names the change that made the contract's columns, or a later one."""
    made = columns_version(mark.made) >= contract.columns_version
    return made or mark.growing == contract.columns_change or mark.is_ahead(contract)


def _named(store: ObjectStore, mark: Mark, contract: Contract) -> Iterator[Contract]:
    """Yield the contracts whose fields a table version with this mark may have, newest first.

    The first is the contract of the unfinished change in the mark, if it was stored.  The second is the contract of the
    finished change.  Each is the newest contract version with its columns, since that one also has the ids of widenings
    that were asked for later."""
    made = columns_made(store, contract, mark.made)
    for found in chain([contract], former_columns(store, contract)):
        if found.columns_version <= made.columns_version:
            break
        if found.columns_change == mark.growing:
            yield found
    yield made


def _fits(pinned: PinnedTable, contract: Contract) -> bool:
    named = columns_mark(pinned) == contract.columns_change
    return not misfits(pinned, contract, named=named)


def _asking(pinned: PinnedTable, before: Contract, contract: Contract) -> Contract:
    """Return the earlier contract ``before``, with a widening for each field that is wider in ``contract``, the
    newest."""
    columns, here = [], _as_there(pinned, before)
    for column, tree in zip(here.columns, contract_trees(here), strict=True):
        wide = _become(here, contract)(tree)
        ids = tuple([inner.id for inner in wide.all()])
        widening = Widening(type=format_type(wide.type), field_ids=ids, since_ms=0) if ids != column.field_ids else None
        columns.append(column.model_copy(update={"widening": widening}))
    return here.model_copy(update={"columns": tuple(columns)})


def _as_there(pinned: PinnedTable, before: Contract) -> Contract:
    """Return the contract ``before`` with each column as the table version has it.  Widenings that have landed there
    are done."""
    return before.model_copy(update={"columns": tuple([in_version(pinned, column) for column in before.columns])})


def _become(before: Contract, contract: Contract) -> Callable[[Tree], Tree]:
    """Return a function from a column of the contract ``before`` to this column with the ids and types of
    ``contract``."""
    first = dict(pair for c in before.columns for pair in zip(c.field_ids, c.ids, strict=True))
    now = dict[int, Tree]()
    for column, tree in zip(contract.columns, contract_trees(contract), strict=True):
        now.update(zip(column.ids, tree.all(), strict=True))

    def become(leaf: Tree) -> Tree:
        newer = now.get(first.get(leaf.id, -1), leaf)
        return replace(leaf, id=newer.id, type=newer.type)

    return lambda tree: with_leaves(tree, become)


def _wider(pinned: PinnedTable, before: Contract, contract: Contract) -> dict[str, Tree]:
    """Return the columns of the version that must be rewritten: their names, and the columns with their wider types."""
    become = _become(_as_there(pinned, before), contract)
    found = {tree.name: (tree, become(tree)) for tree in version_trees(pinned)}
    return {name: after for name, (tree, after) in found.items() if after != tree}


def _check(pinned: PinnedTable, before: Contract, contract: Contract, wider: Mapping[str, Tree]) -> None:
    """Raise ``RepairRefused`` in the cases of guarantee 4."""
    asking = _asking(pinned, before, contract)
    known = {id_ for c in asking.columns for id_ in c.lance_ids} | set(Mark.of(pinned).added)
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
            f"the restored version {pinned.version} has index {over[0]!r} over a column whose values must be rewritten. Drop "
            f"the index (`lance.dataset(URI).drop_index({over[0]!r})`), and run this command again",
            version=pinned.version,
        )


def _merge(pinned: PinnedTable, tasks: Tasks, wider: Mapping[str, Tree]) -> ColumnsCommit:
    """Write the columns ``wider`` of all fragments, and return the commit of these files (step 1)."""
    wide = list(wider.values())
    numbers = [fragment.fragment_id for fragment in pinned.fragments()]
    fragments = tasks.map(lambda number: write_widened(pinned, number, wide), numbers)
    return widened(pinned, wide, fragments, {})
