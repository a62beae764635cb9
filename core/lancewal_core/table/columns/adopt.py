"""Finds changes that other programs have made to the table's columns, and makes one change of the contract of them
(``Adoption``).

To *adopt* such a change is to take it over into the contract.

Guarantees
 1. The newest version of the table fits the contract that this change gives.  Otherwise ``ContractMismatch`` names what
    would stay different, and nothing is changed.
 2. A field that another program has added keeps its id, which no contract version has named.  An id that one has
    named is refused.  Lance gives a new field the id of a dropped one again, and unmerged values of the old field
    would show in the new one.
 3. Fields are identified by ids.  So a field that was renamed keeps its values.  Its new name may be that of a field
    that was dropped or renamed in the same call.
 4. ``InvalidInput`` names each change that cannot be adopted, and what to do instead.
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
    """A field that differs between the table version and the contract: added, dropped, renamed or of another type."""

    outer: Path
    """Names, in the version, of the structs around the field; empty for a column."""
    ours: Tree | None
    """The field in the contract.  None: another program has added the field."""
    now: Tree | None
    """The field in the version.  None: another program has dropped the field."""
    column: Tree | None
    """The contract's column that the field is or lies in.  None: another program has added the column."""
    beside: Sequence[Tree]
    """All fields of the same struct in the version, or all columns of the version."""
    replaced: bool = False
    """Whether another field replaces the contract's: a field of another program with its name, or a field of another
    type with its id."""

    @property
    def path(self) -> Path:
        """Path of the field by its name in the version; by its name in the contract if the version lacks the field."""
        tree = self.now or self.ours
        assert tree is not None, "one of them has the field"
        return (*self.outer, tree.name)

    @property
    def paths(self) -> tuple[Path, ...]:
        """Paths by which a person may name the field: by its name in the version, and by that in the contract."""
        return tuple((*self.outer, tree.name) for tree in (self.now, self.ours) if tree is not None)


@dataclass(frozen=True, slots=True)
class _After:
    """Facts about the contract before and after the chosen changes are adopted."""

    ids: frozenset[int]
    """Lance's ids of all fields of the contract, and of all fields that are to be added.  Dropped fields are among
    them."""
    first: Mapping[int, int]
    """Lance's id of a field of the contract to its first id (``Column.ids``)."""
    earlier: Sequence[Contract]
    """The contract, and a version for each earlier state of its columns.  Empty unless a field was added, or a member
    of a struct dropped."""

    @staticmethod
    def of(store: ObjectStore, contract: Contract, chosen: Sequence[_Difference]) -> _After:
        pairs = [pair for c in contract.columns for pair in zip(c.lance_ids, c.ids * 2, strict=True)]
        added = {tree.id for one in chosen if one.ours is None and one.now is not None for tree in one.now.all()}
        matters = any(one.ours is None or (one.now is None and one.outer) for one in chosen)
        earlier = (contract, *former_columns(store, contract)) if matters else ()
        return _After(frozenset({id_ for id_, _ in pairs} | added), dict(pairs), earlier)

    @property
    def used(self) -> frozenset[int]:
        """All field ids that the contract versions in ``earlier`` name."""
        return frozenset(id_ for known in self.earlier for c in known.columns for id_ in (*c.ids, *c.lance_ids))


def adoption_of(
    store: ObjectStore, pinned: PinnedTable, contract: Contract, asked: Collection[Adopted]
) -> Adoption | None:
    """Return the change that adopts the changes ``asked``; None if the contract has them already.

    If a field was added, or a member of a struct dropped, each earlier state of the contract's columns costs a request.
    Raise ``ContractMismatch`` and ``InvalidInput`` as guarantees 1 and 4 say.
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
    """Raise ``ContractMismatch`` unless the version fits ``contract``, which adopts its changes (guarantee 1).

    ``before``: the newest stored contract."""
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
    """Return whether a field's other name in the version means that another program renamed it.

    If an unfinished change has given the version its fields, that change may have renamed the field."""
    return Mark.of(pinned).made == contract.columns_change


def _done(pinned: PinnedTable, contract: Contract) -> Iterator[_Difference]:
    """Yield all differences between the version's columns and the contract's, outer fields first."""
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
    """Yield the differences between the contract's fields ``ours`` and the version's fields ``have`` of one struct or
    table.

    ``place``: path of the struct in the version, and the contract's column in which it lies.  ``unfinished``: ids of
    fields that an unfinished change of lancewal has added.  ``named``: whether names count."""
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
    """Return the differences with the names ``paths``; all differences if the empty path is among them.

    Raise ``InvalidInput`` for a name of a field that other programs have not changed."""
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
    """Yield the paths of all fields that the contract has, and of their former and dropped names.

    A difference with such a name may have been adopted by the same call, whose reply was lost."""
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
    """Raise ``InvalidInput`` if a chosen difference has problems; the error names all of them (guarantee 4).

    ``chosen``: each difference with its problems, as ``_problems`` yields them."""
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
    """Yield the reasons why a difference cannot be adopted, each with what to do instead."""
    name, column = ".".join(one.path), "" if one.column is None else one.column.name
    what = "a column of the primary key" if column in contract.primary_key else "the column by which rows expire"
    fixed = column in contract.primary_key or column == contract.ttl_column
    if one.now is None:
        assert one.ours is not None, "one of them has the field"
        if fixed:
            yield f"it is {what}. Restore the version right before it was dropped"
        elif lost := _lost_structs(pinned, contract, one, after):
            yield lost
        elif one.replaced:
            yield (
                "it was given another type, or was dropped and added again. Values that wait for a merge would be lost. "
                f"Restore the version right before that change. Or rename the new one, {_renamed(pinned, one.path)}, and "
                f"adopt again: {name!r} is then dropped"
            )
        return
    if one.ours is not None and one.replaced:
        drop = f"Or drop the new one, {_dropping(pinned, one.path)}, and adopt again: {one.ours.name!r} is then dropped"
        yield (
            f"{one.ours.name!r} was dropped, and Lance has given its id to a field of type {one.now.type}. Restore the "
            f"version right before that change{'' if fixed else '. ' + drop}"
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
            f"the name {one.now.name!r} is taken, by {alike[0]!r}. Names must differ in more than upper and lower "
            f"case. Rename one of them: {_renamed(pinned, one.path)}"
        )
    if is_reserved(one.now.name):
        yield (
            f"the name {one.now.name!r} is reserved for what lancewal, Lance and Spark add to rows. Rename it: "
            f"{_renamed(pinned, one.path)}"
        )
    if one.ours is None:
        yield from _odd_fields(pinned, one, after)


def _column_called(contract: Contract, one: _Difference) -> str | None:
    """Return another column whose name in records (``Column.field``) is the name that this column has in the version.

    Return None if there is no such column."""
    assert one.now is not None, "it has a name"
    there = {tree.id for tree in one.beside} - {one.now.id}
    columns = {c.lance_ids[0]: c for c in contract.columns}
    if one.now.id in columns and columns[one.now.id].field is not None:
        return None
    others = (c for c in contract.columns if c.field == one.now.name and not there.isdisjoint(c.lance_ids))
    return next((column.name for column in others), None)


def _lost_structs(pinned: PinnedTable, contract: Contract, one: _Difference, after: _After) -> str:
    """Return the problem if a member of a struct was dropped and older rows would lose the struct's nulls.

    Return an empty text if there is no problem."""
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
    way = f"Restore the version right before that. Or drop the whole struct, {_dropping(pinned, one.outer)}, and adopt again"
    return f"{lost}. {way}" if lost else ""


def _odd_fields(pinned: PinnedTable, one: _Difference, after: _After) -> Iterator[str]:
    """Yield the problems of a field that another program has added."""
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
    """Return the paths, as Lance writes them, of those fields that are not nullable: the field at ``path``, or fields
    inside it."""

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
    """Return the fields on the path to a field, from the column to the field itself, including items of lists."""
    found = [pinned.schema.field(path[0])]
    for part in path[1:]:
        while pa.types.is_list(found[-1].type):
            found.append(found[-1].type.value_field)
        found.append(found[-1].type.field(part))
    return found


def _in_lance(pinned: PinnedTable, path: Path) -> str:
    """Return the path as Lance writes it, with the names of list items."""
    return ".".join(field.name for field in _field(pinned, path))


def _renaming(*names: tuple[str, str]) -> str:
    """Return the call of pylance, as text, that renames fields.  ``names``: each field's path, and its new name."""
    return f"`dataset.alter_columns({', '.join(json.dumps({'path': path, 'name': name}) for path, name in names)})`"


def _renamed(pinned: PinnedTable, path: Path) -> str:
    """Return the call of pylance, as text, that gives the field a name that lancewal allows."""
    return _renaming((_in_lance(pinned, path), f"{path[-1].strip('_')}_2"))


def _dropping(pinned: PinnedTable, path: Path) -> str:
    return f"`dataset.drop_columns([{_in_lance(pinned, path)!r}])`"


def _copy(pinned: PinnedTable, path: Path, type_: str) -> str:
    """Return advice: add a field by lancewal, copy the values of another program's field into it, and drop that one."""
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
    """Raise ``ContractMismatch`` if the differences that were not chosen include a field of the contract (guarantee
    1)."""
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
