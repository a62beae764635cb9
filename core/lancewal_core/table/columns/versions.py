"""Commits that change the columns of a table version to those of a contract.

Fields are identified by Lance's ids.  docs/protocol.md has the steps of a change ("Columns that change").  The *mark*
of a version is a text in its schema's metadata.  It names the change of columns that gave the version its fields
(``Mark``).  A change *grows* the table before it stores its contract, and *brings* the table to that contract
afterwards.

 1. ``grown`` gives a version the names and order of a contract that will be stored next, and adds fields that the
    version lacks.  All other fields stay.
 2. ``brought`` gives a version the names and order of the newest contract.  It removes fields, at any depth, that
    were dropped from the contract since the change in the version's mark.  It also removes fields that were added by
    a change which can no longer store its contract, unless another program has written values there.  If the id of
    such a field is above all ids that the contract has named, the field stays, and the mark names it.  A merge that
    was planned earlier may still commit a file with this id, so no other field may get the id.
 3. All other fields of the version were added by other programs.  They stay, after the contract's fields.
 4. No commit is needed if the version has the contract's mark.  No commit is made while another change may still
    store its contract.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from lancewal_core.errors import CommitUnknown, ContractChanged, ContractMismatch
from lancewal_core.rows.carry import Tree, holding, trees
from lancewal_core.rows.equal_cells import entries_of
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.checks import column_tree, fields_with_ids
from lancewal_core.table.columns.changes import Path, option
from lancewal_core.table.contract import Contract, columns_version
from lancewal_core.table.presence import check_present
from lancewal_core.table.protocol import ColumnsCommit, CommitLost, Committed, PinnedTable, StoredTable, columns_mark

CHANGE = "lancewal.columns"
"""Name of the property of a commit that changes columns.  Its value is the change that the commit belongs to
(``Contract.columns_change``)."""
TRIES = 20
"""Largest number of times that a step is tried, if other processes change the table or its contract at the same
time."""
_LOST = "and would lose which structs are null"


@dataclass(frozen=True, slots=True)
class Mark:
    """The mark of a table version's columns (module docstring).

    As text it is ``2-ab``, or ``2-ab..3-cd 9 10`` while a change is unfinished: ``made``, ``growing`` and ``added``."""

    made: str | None = None
    """Change of the contract (``Contract.columns_change``) that gave this table version its fields.  None: they are the
    fields of contract version 1."""
    growing: str | None = None
    """Unfinished change of the contract that has added fields to this table version.  None: there is none."""
    added: tuple[int, ...] = ()
    """Ids of fields that unfinished changes have added to this table version."""

    @staticmethod
    def of(pinned: PinnedTable) -> Mark:
        return Mark.parsed(columns_mark(pinned))

    @staticmethod
    def parsed(text: str | None) -> Mark:
        words = (text or "").split()
        made, _, growing = (words[0] if words else "").partition("..")
        added = tuple([int(word) for word in words[1:] if word.isascii() and word.isdigit()])
        return Mark(made or None, growing or None, added)

    @property
    def text(self) -> str | None:
        if self.growing is None:
            return self.made
        return " ".join([f"{self.made or ''}..{self.growing}", *map(str, self.added)])

    def is_ahead(self, contract: Contract) -> bool:
        """Return whether an unfinished change has changed the table version and may still store its contract.

        ``contract``: the newest contract that the caller knows.
        """
        return self.growing is not None and columns_version(self.growing) > contract.version


def grown(pinned: PinnedTable, contract: Contract) -> ColumnsCommit:
    """Return the commit that grows the version ``pinned`` for ``contract``, which is not stored yet (1)."""
    have, mark = version_trees(pinned), Mark.of(pinned)
    found = _together(contract_trees(contract, {tree.id for tree in _all(have)}), have, frozenset())
    added = {tree.id for tree in _all(found)} - {tree.id for tree in _all(have)}
    return _commit(pinned, found, contract, Mark(mark.made, contract.columns_change, (*mark.added, *sorted(added))))


def brought(pinned: PinnedTable, contract: Contract, own: Collection[int]) -> ColumnsCommit | None:
    """Return the commit that changes the columns of the version ``pinned`` to those of ``contract``, the newest one
    (2, 3).  Return None if no commit is needed, or if none may be made (4).

    ``own``: ids of the fields that the version has from the contract in its mark (``ids_of``).
    """
    mark = Mark.of(pinned)
    if mark == Mark(contract.columns_change) or mark.is_ahead(contract):
        return None
    have = version_trees(pinned)
    wanted = contract_trees(contract, {tree.id for tree in _all(have)})
    kept = {tree.id for tree in _all(wanted)}
    gone, given_up = set(own) - kept, set(mark.added) - kept
    waiting = {id_ for id_ in given_up if id_ > highest_named(contract)}
    if not gone.issuperset(given_up - waiting):
        gone |= given_up - waiting - _filled(pinned, given_up - waiting)
    found, new = _together(wanted, have, gone - waiting), Mark(contract.columns_change)
    if waiting:
        new = Mark(contract.columns_change, mark.growing, tuple(sorted(waiting)))
        if (found, new) == (have, mark):
            return None
    return _commit(pinned, found, contract, new)


def committed(
    store: ObjectStore,
    contract: Contract,
    table: StoredTable,
    commit: ColumnsCommit,
    step: AbstractContextManager[None],
) -> bool:
    """Make the commit and return whether it landed; False if it conflicted with another commit.

    ``step``: context in which the commit is made, such as a failpoint.  Raise ``CommitUnknown`` if the outcome is
    unknown.  Raise ``TableMissing`` or ``TableReplaced``, and commit nothing, if the table of ``contract`` was
    deleted or replaced.
    """
    check_present(store, contract)
    with step:
        outcome = table.change_columns(commit)
    if isinstance(outcome, CommitLost):
        raise CommitUnknown(
            f"it is not known whether the table's columns were changed: {outcome.cause}. Make the same call again to "
            "complete the change"
        )
    return isinstance(outcome, Committed)


def overtaken() -> ContractChanged:
    """Return the error for a step that was tried ``TRIES`` times, each time in vain because of other processes."""
    return ContractChanged(
        f"other processes changed the table or its contract at the same time, {TRIES} times in a row. Make the same call "
        "again to complete the change"
    )


def ids_of(pinned: PinnedTable, contract: Contract) -> frozenset[int]:
    """Return the ids of a contract's fields that the version ``pinned`` has, at any depth.

    If a widening has landed in the version, the field counts with its new id and type.  A field with one of these ids
    but another type, or in another struct, does not count.  Another program has added it, and Lance gave it the id."""
    have = version_trees(pinned)
    return frozenset(_own(contract_trees(contract, {tree.id for tree in _all(have)}), have))


def _own(ours: Sequence[Tree], have: Sequence[Tree]) -> Iterator[int]:
    there = {tree.id: tree for tree in have}
    for tree in ours:
        now = there.get(tree.id)
        if now is not None and (now.type.id == tree.type.id if now.within and tree.within else now.type == tree.type):
            yield tree.id
            yield from _own(tree.within, now.within)


def foreign_columns(pinned: PinnedTable, contract: Contract) -> tuple[str, ...]:
    """Return the names of columns, and paths of struct members, that other programs have added to the table.

    Fields that an unfinished change of lancewal has added are left out."""
    known = ids_of(pinned, contract).union(Mark.of(pinned).added)
    return tuple(chain.from_iterable(_unknown(tree, tree.name, known) for tree in version_trees(pinned)))


def _unknown(tree: Tree, path: str, known: Collection[int]) -> list[str]:
    if tree.id not in known:
        return [path]
    members = ((member, path if pa.types.is_list(tree.type) else f"{path}.{member.name}") for member in tree.within)
    return [found for member, its_path in members for found in _unknown(member, its_path, known)]


def write_widened(pinned: PinnedTable, fragment_id: int, wide: Sequence[Tree]) -> str:
    """Write columns of a fragment with the wider types and new ids in ``wide``.  Return the fragment's JSON with the
    new file."""
    schema, ids = _as_schema(pinned, wide)
    return pinned.write_widened(fragment_id, schema, ids)


def widened(
    pinned: PinnedTable, wide: Sequence[Tree], fragments: Sequence[str], properties: Mapping[str, str]
) -> ColumnsCommit:
    """Return the commit that gives columns the wider types and new ids in ``wide``.  The version's mark stays.

    ``fragments``: JSON of all fragments, as ``write_widened`` has returned it."""
    schema, ids = _as_schema(pinned, wide)
    columns = pa.schema([schema.field(f.name) if f.name in schema.names else f for f in pinned.schema])
    found = {**pinned.field_ids, **ids}
    return ColumnsCommit(pinned.version, columns, found, properties, columns_mark(pinned), tuple(fragments))


def _as_schema(pinned: PinnedTable, wide: Sequence[Tree]) -> tuple[pa.Schema, dict[str, tuple[int, ...]]]:
    schema = pa.schema([pinned.schema.field(tree.name).with_type(tree.type) for tree in wide])
    return schema, {tree.name: tuple([inner.id for inner in tree.all()]) for tree in wide}


def _commit(pinned: PinnedTable, columns: Sequence[Tree], contract: Contract, mark: Mark) -> ColumnsCommit:
    _check_names(pinned, columns, {tree.id: tree.name for tree in _all(version_trees(pinned))})
    nulls = {pinned.field_ids[field.name][0]: field.nullable for field in pinned.schema}
    fields = [pa.field(tree.name, tree.type, nullable=nulls.get(tree.id, True)) for tree in columns]
    ids = {tree.name: tuple([inner.id for inner in tree.all()]) for tree in columns}
    properties = {} if contract.columns_change is None else {CHANGE: contract.columns_change}
    return ColumnsCommit(pinned.version, pa.schema(fields), ids, properties, mark.text)


def _check_names(pinned: PinnedTable, fields: Sequence[Tree], names: Mapping[int, str], within: Path = ()) -> None:
    """Raise ``ContractMismatch`` if two of ``fields`` have the same name, at any depth.

    Then another program has given a field the name that a field of the contract must get back.  ``names``: field id to
    the name that the field has in the version."""
    first: dict[str, Tree] = {}
    for field in fields:
        ours, path = first.setdefault(field.name, field), (*within, field.name)
        if ours is not field:
            now, shown = names.get(ours.id, ours.name), ".".join(path)
            renamed = shlex.quote(f"{option(path)}={option((now,))}")
            raise ContractMismatch(
                f"version {pinned.version} of the Lance table calls the contract's column {shown!r} {now!r}, since a change "
                f"of columns was interrupted. Another program has added a column {shown!r} since. Finish the change, "
                f"`lancewal table alter --rename-column {renamed}`. Or give the added column another name, by "
                "`dataset.alter_columns` of pylance, and run the same command again",
                version=pinned.version,
            )
        inner = field
        while pa.types.is_list(inner.type) and inner.within:  # commands name members of a list's items without the item
            inner = inner.within[0]
        _check_names(pinned, inner.within, names, path)


def _all(columns: Sequence[Tree]) -> Iterator[Tree]:
    return chain.from_iterable(tree.all() for tree in columns)


def _held(pinned: PinnedTable) -> dict[int, list[int]]:
    """Return for each field id the ids of the fragments whose data files have this field."""
    found: dict[int, list[int]] = {}
    for fragment in pinned.fragments():
        for file in json.loads(pinned.fragment_json(fragment.fragment_id))["files"]:
            for id_ in file.get("fields", ()):
                found.setdefault(id_, []).append(fragment.fragment_id)
    return found


def held_together(pinned: PinnedTable) -> frozenset[frozenset[int]]:
    """Return the set of field ids that the data files of a fragment have, for each fragment.  Equal sets come once."""
    found: dict[int, set[int]] = {}
    for id_, fragments in _held(pinned).items():
        for fragment in fragments:
            found.setdefault(fragment, set()).add(id_)
    return frozenset(map(frozenset, found.values()))


def lost_structs(earlier: Iterable[Contract], struct: int, left: Collection[int]) -> str:
    """Return a message if a struct that keeps only the members ``left`` would lose the nulls of older rows; empty if
    not.

    A data file stores a struct only by its members.  If a file has no member that is left, all its structs would be
    null.  ``earlier``: the earlier contract versions.  ``struct`` and ``left`` are first ids (``Column.ids``)."""
    for version in earlier:
        found = chain.from_iterable(tree.all() for tree in trees(version.rows))
        then = {member.id for tree in found if tree.id == struct for member in tree.within}
        if then and then.isdisjoint(left):
            return f"rows of version {version.version} of the contract have no other member of the struct, {_LOST}"
    return ""


def lost_in_files(held: Iterable[Collection[int]], had: Collection[int], kept: Collection[int]) -> str:
    """Return a message as ``lost_structs`` does, by the fields in data files instead of contracts; empty if there is
    none.

    ``held``: the result of ``held_together``.  ``had``: Lance's ids of all fields in the struct.  ``kept``: Lance's
    ids of the fields that it keeps."""
    if any(not set(had).isdisjoint(ids) and set(kept).isdisjoint(ids) for ids in held):
        return f"some rows of the table were written without any other member of the struct, {_LOST}"
    return ""


def _filled(pinned: PinnedTable, ids: Collection[int]) -> set[int]:
    """Return the ids among ``ids`` of fields that are not null in some row.

    All these fields were added by unfinished changes.  lancewal writes only nulls into such a field, so a value comes
    from another program."""
    held, found = _held(pinned), set[int]()
    for column in version_trees(pinned):
        asked = {tree.id for tree in column.all()} & set(ids)
        fragments = sorted({f for id_ in asked for f in held.get(id_, ())})
        for batch in pinned.scan([column.name], fragment_ids=fragments) if fragments else ():
            found |= {tree.id for tree, values in _arrays(column, batch.column(0)) if values.null_count < len(values)}
    return found & set(ids)


def _arrays(tree: Tree, values: pa.Array) -> Iterator[tuple[Tree, pa.Array]]:
    """Yield a field and all fields within it, each with its values.  Values within a null count as null."""
    yield tree, values
    if tree.within:
        inner = [values.flatten()] if pa.types.is_list(values.type) else []
        if pa.types.is_struct(values.type):
            inner = values.flatten()
        elif pa.types.is_map(values.type):
            inner = [entries_of(values).flatten()]
        for member, held in zip(tree.within, inner, strict=True):
            yield from _arrays(member, held)


def version_trees(pinned: PinnedTable | ColumnsCommit) -> tuple[Tree, ...]:
    """Return the columns of a table version, or of the version that a commit will make, with Lance's ids."""
    return tuple([_tree(field, iter(pinned.field_ids[field.name])) for field in pinned.schema])


def _tree(field: pa.Field, ids: Iterator[int]) -> Tree:
    """Return a field with its ids.  It may have a type that no contract has, since other programs add columns too."""
    own = next(ids)
    return Tree(field.name, field.type, own, tuple([_tree(inner, ids) for inner in fields_with_ids(field.type)]))


def contract_trees(contract: Contract, there: Collection[int] = ()) -> tuple[Tree, ...]:
    """Return the columns of a contract, with Lance's ids.  ``there``: as in ``column_tree``."""
    return tuple([column_tree(column, there) for column in contract.columns])


def highest_field_id(pinned: PinnedTable, contract: Contract) -> int:
    """Return the highest field id that any contract version has named, or that the table version's schema or data files
    have."""
    return max(highest_named(contract), *ids_in_use(pinned))


def highest_named(contract: Contract) -> int:
    """Return the highest field id that any contract version up to ``contract`` has named."""
    return max(contract.highest_field_id or 0, *contract.field_ids)


def ids_in_use(pinned: PinnedTable) -> frozenset[int]:
    """Return the field ids that the version's schema or one of its data files has."""
    return frozenset(chain(chain.from_iterable(pinned.field_ids.values()), _held(pinned)))


def _together(wanted: Sequence[Tree], have: Sequence[Tree], dropped: Collection[int]) -> tuple[Tree, ...]:
    """Return the fields ``wanted``, then the other fields in ``have``, without those whose ids are in ``dropped``.

    A wanted field also keeps the further fields that the field with the same id in ``have`` has within it."""
    by_id = {tree.id: tree for tree in have}
    own = {tree.id for tree in wanted}
    kept = [_without(tree, dropped) for tree in have if tree.id not in own and tree.id not in dropped]
    return (*(_with_others(tree, by_id.get(tree.id), dropped) for tree in wanted), *kept)


def _with_others(wanted: Tree, have: Tree | None, dropped: Collection[int]) -> Tree:
    if have is None or not wanted.within or not have.within:
        return wanted
    return holding(wanted, _together(wanted.within, have.within, dropped))


def _without(tree: Tree, dropped: Collection[int]) -> Tree:
    inner = tuple([_without(member, dropped) for member in tree.within if member.id not in dropped])
    return tree if inner == tree.within else holding(tree, inner)
