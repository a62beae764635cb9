"""Changes that other programs have made to the table's columns, as one change of the contract (``Adoption``).

Guarantees
 1. The newest version of the table fits the contract that this change gives.  Otherwise ``ContractMismatch`` names what
    stays different, and nothing is changed.
 2. A field that another program has added keeps its id.  No version of the contract has named this id.  Lance gives the id
    of a dropped field again, and values of that field that wait for a merge would show in the new one.
 3. Fields are told apart by ids.  So a field that was renamed keeps its values.  Its new name may be that of a field that
    was dropped or renamed in the same call.
 4. ``InvalidInput`` names each thing that cannot be adopted, and the way around it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa

from lancewal_core.errors import ContractMismatch, InvalidInput, InvalidSchema
from lancewal_core.rows.carry import Tree, fields_within, trees
from lancewal_core.rows.column_types import format_type, has_struct, parse_type
from lancewal_core.rows.schema import is_reserved
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.checks import blob_columns, misfits
from lancewal_core.table.columns.changes import Adopted, Adoption, Path, TakenField, option
from lancewal_core.table.columns.versions import (
    Mark,
    contract_trees,
    held_together,
    lost_in_files,
    lost_structs,
    version_trees,
)
from lancewal_core.table.contract import Contract, former_columns
from lancewal_core.table.protocol import PinnedTable


@dataclass(frozen=True, slots=True)
class _Difference:
    """A field that the version has otherwise than the contract."""

    outer: Path
    """Names in the version of the structs that hold the field."""
    ours: Tree | None
    """The contract's field; None: another program has added one."""
    now: Tree | None
    """The version's field; None: it is gone."""
    column: Tree | None
    """The contract's column in which the field lies, or that it is; None: another program has added the column."""
    beside: Sequence[Tree]
    """The version's fields of the same struct, or its columns."""
    replaced: bool = False
    """Whether another field has taken its place: one that the contract does not know has its name, or one of another type
    its id."""

    @property
    def path(self) -> Path:
        """The name of the field in the version.  If it is gone there, that in the contract."""
        tree = self.now or self.ours
        assert tree is not None, "one of them has the field"
        return (*self.outer, tree.name)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The names by which a person may ask for it."""
        return tuple((*self.outer, tree.name) for tree in (self.now, self.ours) if tree is not None)


@dataclass(frozen=True, slots=True)
class _After:
    """Fields that the contract will have, and fields that it had."""

    ids: frozenset[int]
    """Lance's ids of all fields that the contract will have."""
    first: Mapping[int, int]
    """Ids that the contract's fields had at first (``Column.ids``), by Lance's ids."""
    earlier: Sequence[Contract]
    """The contract, and each earlier state of its columns, if this matters for what was chosen."""

    @staticmethod
    def of(store: ObjectStore, contract: Contract, chosen: Sequence[_Difference]) -> _After:
        pairs = [pair for c in contract.columns for pair in zip(c.lance_ids, c.ids * 2, strict=True)]
        added = {tree.id for one in chosen if one.ours is None and one.now is not None for tree in one.now.all()}
        matters = any(one.ours is None or (one.now is None and one.outer) for one in chosen)
        earlier = (contract, *former_columns(store, contract)) if matters else ()
        return _After(frozenset({id_ for id_, _ in pairs} | added), dict(pairs), earlier)

    @property
    def used(self) -> frozenset[int]:
        """All ids that a version of the contract has named."""
        return frozenset(id_ for known in self.earlier for c in known.columns for id_ in (*c.ids, *c.lance_ids))


def adoption_of(
    store: ObjectStore, pinned: PinnedTable, contract: Contract, asked: Collection[Adopted]
) -> Adoption | None:
    """Return the change that takes these changes of other programs into the contract; None if the contract has them
    already.

    Each earlier state of the contract's columns costs a request if a field was added, or a member dropped.  Errors:
    guarantees 1, 4.
    """
    if not asked:
        return None
    found = list(_done(pinned, contract))
    chosen = _chosen(found, contract, {change.path for change in asked})
    if not chosen:
        return None
    after = _After.of(store, contract, chosen)
    _check(pinned, [(one, list(_problems(pinned, contract, one, after))) for one in chosen])
    _check_left(pinned, [one for one in found if one not in chosen])
    _check_number(contract, chosen)
    return Adoption(
        {after.first[one.ours.id]: one.now.name for one in chosen if one.ours is not None and one.now is not None},
        frozenset([after.first[one.ours.id] for one in chosen if one.ours is not None and one.now is None]),
        tuple([TakenField(one.path, one.now) for one in chosen if one.ours is None and one.now is not None]),
    )


def check_adopted(pinned: PinnedTable, contract: Contract, before: Contract) -> None:
    """Raise ``ContractMismatch`` unless the version fits the contract that adopts what it has (guarantee 1).

    ``before``: the contract in force."""
    left = misfits(pinned, contract, named=_names_count(pinned, before))
    if left:
        raise _stays_different(pinned, sorted(left))


def _stays_different(pinned: PinnedTable, left: Sequence[str]) -> ContractMismatch:
    return ContractMismatch(
        f"version {pinned.version} of the Lance table would still not have the contract's columns: "
        f"{'; '.join(left)}. Adopt this in the same call, or change it back. Nothing was changed",
        version=pinned.version,
    )


def _names_count(pinned: PinnedTable, contract: Contract) -> bool:
    """Return whether a name in the version that differs from the contract's means that another program renamed the
    column."""
    return Mark.of(pinned).made == contract.columns_change


def _done(pinned: PinnedTable, contract: Contract) -> Iterator[_Difference]:
    """Yield all that the version has otherwise than the contract, outer fields first."""
    have = version_trees(pinned)
    ours = contract_trees(contract, {tree.id for tree in chain.from_iterable(tree.all() for tree in have)})
    yield from _differences(((), None), ours, have, set(Mark.of(pinned).added), _names_count(pinned, contract))


def _differences(
    place: tuple[Path, Tree | None],
    ours: Sequence[Tree],
    have: Sequence[Tree],
    unfinished: Collection[int],
    named: bool,
) -> Iterator[_Difference]:
    """``place``: path of the struct in the version, and the contract's column in which it lies.  ``unfinished``: ids that a
    change of our own has added, which has not stored its contract."""
    outer, column = place
    left = {tree.id: tree for tree in have}
    known = {tree.id for tree in ours}
    for tree in ours:
        now, own = left.pop(tree.id, None), column or tree
        if now is None:
            replaced = any(other.name == tree.name and other.id not in known for other in have)
            yield _Difference(outer, tree, None, own, have, replaced)
            continue
        path, one = (*outer, now.name), _Difference(outer, tree, now, own, have)
        renamed = named and now.name != tree.name
        while pa.types.is_list(tree.type) and pa.types.is_list(now.type) and tree.within[0].id == now.within[0].id:
            tree, now = tree.within[0], now.within[0]
        within = pa.types.is_struct(tree.type) and pa.types.is_struct(now.type)
        if renamed or (not within and tree.type != now.type):
            yield replace(one, replaced=not within and tree.type != now.type)
        if within:
            yield from _differences((path, own), tree.within, now.within, unfinished, named)
    for tree in left.values():
        if tree.id not in unfinished:
            yield _Difference(outer, None, tree, column, have)


def _chosen(found: Sequence[_Difference], contract: Contract, paths: Collection[Path]) -> Sequence[_Difference]:
    """Return what was asked for.  Raises ``InvalidInput`` for a name with which other programs have done nothing."""
    if () in paths:
        return found
    known = {path for one in found for path in one.paths} | set(_settled(contract))
    for path in sorted(paths):
        if path not in known:
            raise InvalidInput(
                f"adopting {'.'.join(path)!r}: other programs have neither added, renamed nor dropped it. Nothing was changed"
            )
    return [one for one in found if any(path in paths for path in one.paths)]


def _settled(contract: Contract) -> Iterator[Path]:
    """Yield names of what was adopted before: the same call was made, and its answer was lost."""
    paths: dict[int, Path] = {}
    structs: dict[int | None, Path] = {None: ()}

    def note(outer: Path, fields: Sequence[Tree]) -> None:
        for tree in fields:
            path = paths[tree.id] = (*outer, tree.name)
            while pa.types.is_list(tree.type):
                (tree,) = tree.within
            structs[tree.id] = path
            note(path, tree.within)

    note((), trees(contract.rows))
    yield from paths.values()
    yield from ((*structs[field.within], field.name) for field in contract.dropped if field.within in structs)
    yield from ((*paths[former.id][:-1], former.name) for former in contract.former_names if former.id in paths)


def _check(pinned: PinnedTable, chosen: Sequence[tuple[_Difference, Sequence[str]]]) -> None:
    """Raise ``InvalidInput`` with all that cannot be adopted: those with problems (guarantee 4)."""
    refused = [(one, problems) for one, problems in chosen if problems]
    if not refused:
        return
    told = dict[str, list[str]]()
    for one, problems in refused:
        told.setdefault(". And ".join(problems), []).append(repr(".".join(one.path)))
    others = " ".join(f"--adopt-column {shlex.quote(option(one.path))}" for one, problems in chosen if not problems)
    fit = all(one.ours is None and not _not_nullable(pinned, one.path) for one, _ in refused)
    alone = f". To adopt the others alone: `lancewal table alter {others}`" if others and fit else ""
    texts = "; ".join(f"adopting {' and '.join(names)}: {text}" for text, names in told.items())
    raise InvalidInput(f"{texts}. Nothing was changed{alone}")


def _problems(pinned: PinnedTable, contract: Contract, one: _Difference, after: _After) -> Iterator[str]:
    """Yield why this cannot be adopted, and the way around it."""
    name, column = ".".join(one.path), "" if one.column is None else one.column.name
    what = "a column of the primary key" if column in contract.primary_key else "the column by which rows expire"
    fixed = column in contract.primary_key or column == contract.ttl_column
    if one.now is None:
        assert one.ours is not None, "one of them has the field"
        if fixed:
            yield f"it is {what}. Restore the version before that change"
        elif lost := _lost_structs(pinned, contract, one, after):
            yield lost
        elif one.replaced:
            yield (
                "it was given another type, or was dropped and added again. Values that wait for a merge would be lost. "
                f"Restore the version before that change. Or rename the new one, {_renamed(pinned, one.path)}, and adopt "
                f"again: {name!r} is then dropped"
            )
        return
    if one.ours is not None and one.replaced:
        drop = f"Or drop the new one, {_dropping(pinned, one.path)}, and adopt again: {one.ours.name!r} is then dropped"
        yield (
            f"{one.ours.name!r} was dropped, and Lance has given its id to a field of type {one.now.type}. Restore the "
            f"version before that change{'' if fixed else '. ' + drop}"
        )
        return
    if one.ours is not None and fixed and not one.outer:
        back = [(name, one.ours.name)]
        back += [(tree.name, name) for tree in one.beside if tree.name == one.ours.name]
        yield f"it is {what}, {one.ours.name!r}. Rename it back: {_renaming(*back)}"
        return
    if not one.outer and (called := _column_called(contract, one)):
        yield f"records use the name {one.now.name!r} for column {called!r}. Rename it: {_renamed(pinned, one.path)}"
    alike = [tree.name for tree in one.beside if tree.id in after.ids and tree is not one.now]
    alike = [other for other in alike if other.lower() == one.now.name.lower()]
    if alike:
        yield (
            f"the name {one.now.name!r} is taken, by {alike[0]!r}; names differ in more than upper and lower case. Rename one "
            f"of them: {_renamed(pinned, one.path)}"
        )
    if is_reserved(one.now.name):
        yield (
            f"the name {one.now.name!r} is reserved for what lancewal, Lance and Spark add to rows. Rename it: "
            f"{_renamed(pinned, one.path)}"
        )
    if one.ours is None:
        yield from _odd_fields(pinned, one, after)


def _column_called(contract: Contract, one: _Difference) -> str | None:
    """Return the column for which records use the name that a column gets; None if there is none."""
    assert one.now is not None, "it has a name"
    there = {tree.id for tree in one.beside} - {one.now.id}
    columns = {c.lance_ids[0]: c for c in contract.columns}
    if one.now.id in columns and columns[one.now.id].field is not None:
        return None
    others = (c for c in contract.columns if c.field == one.now.name and not there.isdisjoint(c.lance_ids))
    return next((column.name for column in others), None)


def _lost_structs(pinned: PinnedTable, contract: Contract, one: _Difference, after: _After) -> str:
    """Return what is wrong with the drop of a member, if files that hold the struct would hold none of its members."""
    if one.ours is None or not one.outer:
        return ""
    gone, first = after.first[one.ours.id], after.first
    structs = [tree for column in trees(contract.rows) for tree in column.all()]
    struct = next(tree for tree in structs if any(member.id == gone for member in tree.within))
    left = {first.get(tree.id, tree.id) for tree in one.beside if tree.id in after.ids}
    members = {inner.id for member in struct.within for inner in member.all()}
    had = {id_ for id_, own in first.items() if own in members}
    kept = {m.id for tree in one.beside if tree.id in after.ids for m in tree.all()}
    lost = lost_structs(after.earlier, struct.id, left) or lost_in_files(held_together(pinned), had, kept)
    way = f"Restore the version before that change. Or drop the whole struct, {_dropping(pinned, one.outer)}, and adopt again"
    return f"{lost}. {way}" if lost else ""


def _odd_fields(pinned: PinnedTable, one: _Difference, after: _After) -> Iterator[str]:
    """Yield what is wrong with a field that another program has added."""
    assert one.now is not None, "it was added"
    if one.path[0] in blob_columns(pinned):
        yield (
            "it is a blob column, which no contract can hold. Keep blobs in a table of their own, by key, and drop it: "
            f"{_dropping(pinned, one.path[:1])}"
        )
        return
    if pinned.file_format == "2.0" and has_struct(one.now.type):
        yield (
            "the table's files have format 2.0, which cannot hold a null struct. Add a column for each member, copy the "
            f"values, and drop it: {_dropping(pinned, one.path)}"
        )
        return
    for inner in _not_nullable(pinned, one.path):
        yield (
            f"{inner!r} is not nullable, so that no row without it could be written. Declare it nullable: "
            f'`dataset.alter_columns({{"path": "{inner}", "nullable": True}})`'
        )
    try:
        text = format_type(one.now.type)
        parse_type(text)
    except InvalidSchema as error:
        yield f"it has type {one.now.type}, which a contract cannot hold ({error}). {_copy(pinned, one.path, 'TYPE')}"
        return
    if any(tree.id in after.used for tree in one.now.all()):
        yield (
            "Lance has given it the id of a field that the contract had before. Values of that field may wait for a merge, "
            f"and would show in it. {_copy(pinned, one.path, text)}"
        )


def _not_nullable(pinned: PinnedTable, path: Path) -> list[str]:
    """Return the paths, as Lance writes them, of the field and those in it that are not nullable."""

    def within(path: str, field: pa.Field) -> Iterator[str]:
        if not field.nullable:
            yield path
        if pa.types.is_map(field.type):  # whose keys never are
            yield from within(f"{path}.entries.{field.type.item_field.name}", field.type.item_field)
            return
        for inner in fields_within(field.type):
            yield from within(f"{path}.{inner.name}", inner)

    return list(within(_in_lance(pinned, path), _field(pinned, path)[-1]))


def _field(pinned: PinnedTable, path: Path) -> list[pa.Field]:
    """Return the fields on the way to a field, items of lists too, and the field."""
    found = [pinned.schema.field(path[0])]
    for part in path[1:]:
        while pa.types.is_list(found[-1].type):
            found.append(found[-1].type.value_field)
        found.append(found[-1].type.field(part))
    return found


def _in_lance(pinned: PinnedTable, path: Path) -> str:
    """Return the path as Lance writes it: with the items of lists."""
    return ".".join(field.name for field in _field(pinned, path))


def _renaming(*names: tuple[str, str]) -> str:
    """Return the call that gives each path its new name, all at once."""
    return f"`dataset.alter_columns({', '.join(json.dumps({'path': path, 'name': name}) for path, name in names)})`"


def _renamed(pinned: PinnedTable, path: Path) -> str:
    """Return the call that gives the field a name that it may have."""
    return _renaming((_in_lance(pinned, path), f"{path[-1].strip('_')}_2"))


def _dropping(pinned: PinnedTable, path: Path) -> str:
    return f"`dataset.drop_columns([{_in_lance(pinned, path)!r}])`"


def _copy(pinned: PinnedTable, path: Path, type_: str) -> str:
    """Return how a field of lancewal's own gets the values of another program's field."""
    if any(pa.types.is_list(field.type) for field in _field(pinned, path)[:-1]):
        own, copy = (*path[:-1], f"{path[-1]}_2"), "write the lists again, by records"
    else:
        own = (f"{'_'.join(path)}_2",)
        copy = f"`dataset.update({{{own[0]!r}: {'.'.join(path)!r}}})`"
    return (
        f"Add a {'column' if len(path) == 1 else 'field'} of lancewal's own, copy the values, and drop the other one: "
        f"`lancewal table alter --add-column {shlex.quote(f'{option(own)}: {type_}')}`, {copy}, {_dropping(pinned, path)}"
    )


def _check_left(pinned: PinnedTable, left: Sequence[_Difference]) -> None:
    """Raise ``ContractMismatch`` if another program has renamed or dropped a field that was not asked for (guarantee 1)."""
    told = []
    for one in left:
        if one.ours is not None:
            path = ".".join((*one.outer, one.ours.name))
            now = "is missing" if one.now is None else f"is missing, and has become {one.now.name!r}"
            told.append(f"column {path!r} {'has another type' if one.replaced else now}")
    if told:
        raise _stays_different(pinned, told)


def _check_number(contract: Contract, chosen: Sequence[_Difference]) -> None:
    columns = [one for one in chosen if not one.outer]
    added = sum(one.ours is None for one in columns)
    number = len(contract.columns) + added - sum(one.now is None for one in columns)
    if added and number > contract.columns_max:
        raise InvalidInput(
            f"adopting {added} columns would make {number}, more than table.columns_max ({contract.columns_max}). Name "
            "those that matter, or drop columns first. Nothing was changed"
        )
