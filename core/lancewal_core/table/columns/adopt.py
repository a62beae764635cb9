"""Changes of a contract that adopt what other programs have done to the table's columns.

Guarantees
 1. The newest version of the table fits the contract that these changes give.  Otherwise ``ContractMismatch`` names what
    stays different, and nothing is changed.
 2. A field that another program has added keeps its id.  No version of the contract has named this id.  Lance gives the id
    of a dropped field again, and values of that field that wait for a merge would show in the new one.
 3. A field that another program has renamed or dropped is renamed or dropped in the contract as by ``Renamed`` and
    ``Dropped``.
 4. ``InvalidInput`` names each thing that cannot be adopted, and the way around it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from lancewal_core.errors import ContractMismatch, InvalidInput, InvalidSchema
from lancewal_core.rows.carry import Tree
from lancewal_core.rows.column_types import format_type, parse_type
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.checks import blob_columns, misfits
from lancewal_core.table.columns.changes import Adopted, Change, Dropped, Path, Renamed, Taken
from lancewal_core.table.columns.versions import Mark, contract_trees, version_trees
from lancewal_core.table.contract import Contract, former_columns
from lancewal_core.table.protocol import PinnedTable

_LONGER = "Add a column of lancewal's own, copy the values, and drop the other one"


@dataclass(frozen=True, slots=True)
class _Again:
    """A field of the contract that another program has given another type, or dropped and added again."""

    path: Path


def adoptions(
    store: ObjectStore, pinned: PinnedTable, contract: Contract, asked: Collection[Adopted]
) -> Sequence[Change]:
    """Return the changes of the contract that adopt what was asked for; none if the contract has it already.

    Each earlier state of the contract's columns costs a request if there is a field to take.  Errors: guarantees 1, 4."""
    if not asked:
        return ()
    found = list(_done(pinned, contract))
    paths = {change.path for change in asked}
    if () not in paths:
        known = {path for change in found for path in _names(change)} | set(_settled(contract))
        for path in paths - known:
            raise InvalidInput(
                f"adopting {'.'.join(path)!r}: other programs have neither added, renamed nor dropped it. Nothing was changed"
            )
        found = [change for change in found if not paths.isdisjoint(_names(change))]
    for change in found:
        try:
            _check(pinned, contract, change)
        except InvalidInput as error:
            raise InvalidInput(f"adopting {'.'.join(_names(change)[0])!r}: {error}. Nothing was changed") from error
    taken = [change for change in found if isinstance(change, Taken)]
    if taken:
        _check_ids(store, contract, taken)
        _check_number(contract, taken)
    order: list[type] = [Renamed, Dropped, Taken]
    return [change for kind in order for change in found if isinstance(change, kind) and not isinstance(change, _Again)]


def check_adopted(pinned: PinnedTable, contract: Contract, before: Contract) -> None:
    """Raise ``ContractMismatch`` unless the version fits the contract that adopts what it has (guarantee 1).

    ``before``: the contract in force."""
    left = misfits(pinned, contract, named=_names_count(pinned, before))
    if left:
        raise ContractMismatch(
            f"version {pinned.version} of the Lance table would still not have the contract's columns: "
            f"{'; '.join(sorted(left))}. Adopt this in the same call, or change it back. Nothing was changed",
            version=pinned.version,
        )


def _names_count(pinned: PinnedTable, contract: Contract) -> bool:
    """Return whether names of the version that are not the contract's tell of a rename."""
    return Mark.of(pinned).made == contract.columns_change


def _done(pinned: PinnedTable, contract: Contract) -> Iterator[Change | _Again]:
    """Yield all that the version has otherwise than the contract, outer fields first."""
    have = version_trees(pinned)
    ours = contract_trees(contract, {tree.id for tree in chain.from_iterable(tree.all() for tree in have)})
    yield from _differences((), ours, have, set(Mark.of(pinned).added), _names_count(pinned, contract))


def _differences(
    outer: Path, ours: Sequence[Tree], have: Sequence[Tree], unfinished: Collection[int], named: bool
) -> Iterator[Change | _Again]:
    """``unfinished``: ids that a change of our own has added, which has not stored its contract."""
    left = {tree.id: tree for tree in have}
    known = {tree.id for tree in ours}
    for tree in ours:
        now = left.pop(tree.id, None)
        path = (*outer, tree.name)
        if now is None:
            again = any(other.name == tree.name and other.id not in known for other in have)
            yield _Again(path) if again else Dropped(path)
            continue
        if named and now.name != tree.name:
            yield Renamed(path, now.name)
            path = (*outer, now.name)
        while pa.types.is_list(tree.type) and pa.types.is_list(now.type) and tree.within[0].id == now.within[0].id:
            tree, now = tree.within[0], now.within[0]
        if pa.types.is_struct(tree.type) and pa.types.is_struct(now.type):
            yield from _differences(path, tree.within, now.within, unfinished, named)
    for tree in left.values():
        if tree.id not in unfinished:
            yield Taken((*outer, tree.name), tree)


def _names(change: Change | _Again) -> tuple[Path, ...]:
    """Return the paths by which a change is asked for."""
    if isinstance(change, Renamed):
        return (*change.path[:-1], change.name), change.path
    return (change.path,)


def _settled(contract: Contract) -> Iterator[Path]:
    """Yield names of what was adopted before: the same call was made, and its answer was lost."""

    def paths(outer: Path, trees: Sequence[Tree]) -> Iterator[Path]:
        for tree in trees:
            path = outer if outer and pa.types.is_list(tree.type) else (*outer, tree.name)
            yield (*outer, tree.name)
            yield from paths(path, tree.within)

    yield from paths((), contract_trees(contract))
    yield from ((dropped.name,) for dropped in contract.dropped)


def _check(pinned: PinnedTable, contract: Contract, change: Change | _Again) -> None:
    """Raise ``InvalidInput`` for what cannot be adopted."""
    path = change.path
    column, last = path[0], ".".join(path)
    if isinstance(change, Taken):
        _check_field(pinned, change)
        return
    fixed = column in contract.primary_key or column == contract.ttl_column
    what = "a column of the primary key" if column in contract.primary_key else "the column by which rows expire"
    if isinstance(change, Renamed):
        now = ".".join((*path[:-1], change.name))
        if fixed:
            raise InvalidInput(
                f"it is {what}, {last!r}. Rename it back: "
                f'`dataset.alter_columns({{"path": "{now}", "name": "{path[-1]}"}})`'
            )
    elif fixed:
        raise InvalidInput(f"it is {what}. Restore the version before that change")
    elif isinstance(change, _Again):
        raise InvalidInput(
            "it was given another type, or was dropped and added again. Values that wait for a merge would be lost. Restore "
            f"the version before that change. Or rename the new column, and adopt again: {last!r} is then dropped"
        )


def _check_field(pinned: PinnedTable, change: Taken) -> None:
    tree, name = change.tree, ".".join(change.path)
    if change.path[0] in blob_columns(pinned):
        raise InvalidInput(
            "it is a blob column, which no contract can hold. Keep blobs in a table of their own, by key"
        )
    field = pinned.schema.field(change.path[0])
    for place, part in enumerate(change.path):
        if place:
            type_ = field.type
            while pa.types.is_list(type_):
                type_ = type_.value_type
            field = type_.field(part)
    inner = _not_nullable(field)
    if inner is not None:
        path = ".".join((*change.path, *inner))
        raise InvalidInput(
            f"{path!r} is not nullable, so that no row without it could be written. Declare it nullable: "
            f'`dataset.alter_columns({{"path": "{path}", "nullable": True}})`'
        )
    try:
        parse_type(format_type(tree.type))
    except InvalidSchema as error:
        raise InvalidInput(
            f"it has type {tree.type}, which a contract cannot hold ({error}). {_LONGER}: "
            f"`lancewal table alter --add-column`, then `dataset.drop_columns([{name!r}])`"
        ) from error


def _not_nullable(field: pa.Field) -> Path | None:
    """Return the path, below the field, of the first field that is not nullable; None if all are."""
    if not field.nullable:
        return ()
    type_ = field.type
    if pa.types.is_struct(type_):
        for member in type_:
            found = _not_nullable(member)
            if found is not None:
                return (member.name, *found)
    return _not_nullable(type_.value_field) if pa.types.is_list(type_) else None


def _check_ids(store: ObjectStore, contract: Contract, taken: Sequence[Taken]) -> None:
    """Guarantee 2."""
    used = {i for known in (contract, *former_columns(store, contract)) for i in _ids_of(known)}
    for change in taken:
        if any(tree.id in used for tree in change.tree.all()):
            raise InvalidInput(
                f"adopting {'.'.join(change.path)!r}: Lance has given it the id of a field that the contract had before. "
                f"Values of that field may wait for a merge, and would show in it. {_LONGER}. Nothing was changed"
            )


def _ids_of(contract: Contract) -> Iterator[int]:
    for column in contract.columns:
        yield from (*column.ids, *column.lance_ids)


def _check_number(contract: Contract, taken: Sequence[Taken]) -> None:
    columns = len(contract.columns) + sum(len(change.path) == 1 for change in taken)
    if columns > contract.columns_max:
        raise InvalidInput(
            f"adopting {len(taken)} columns would make {columns}, more than table.columns_max ({contract.columns_max}). Name "
            "those that matter, or drop columns first. Nothing was changed"
        )
