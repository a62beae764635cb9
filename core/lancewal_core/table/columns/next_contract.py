"""Changes of a table's columns, as the next version of its contract.  Nothing is read or stored here.

The *first id* of a field is Lance's id that the field had when it was added (``Column.ids``).

Guarantees
 1. The result is a contract that ``decode_contract`` accepts, with the next version number and format 2.  Fields that
    stay keep their ids.  A new id is above all ids that any contract version, the schema or a data file has named.
 2. ``InvalidInput`` names the first change that is refused, why, and what to do instead.  All changes are made, or
    none.
 3. Keys, and the column by which rows expire, are neither dropped, renamed nor widened.
 4. A name in records means one field of its level (the columns, or the members of one struct).  A former or dropped
    name that is given to another field is no longer a former or dropped name.  The name of a column with a ``field``,
    or one that metadata fills, is no name in records: the column neither takes nor leaves it there.  ``dropped`` has
    one entry for each name of a level.
 5. A name that a call gives up (by a drop or rename) cannot be given to another field by the same call, since the table
    still has it when it grows.  An adoption can do so, since the table has its new names already.
 6. A struct keeps at least one member that it had in each contract version, and at least one of its members that each
    fragment's files have.  A data file stores a struct only by its members.  If a file has no member of a struct, Lance
    shows the struct as null, and a list of such structs without items.
 7. A column keeps its source in records (``json``, ``field``) when it is renamed or widened.  A column that is
    dropped and added again has the source with which it is added.
 8. The default of a struct uses the new version's names of members.  The value of a dropped member is removed, and
    does not come back if another member gets this name.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa

from lancewal_core.errors import InvalidInput, InvalidSchema, ObjectCorrupt
from lancewal_core.names import paths
from lancewal_core.rows.carry import Tree, fields_within, holding, trees, widens, with_leaves
from lancewal_core.rows.column_types import format_type, has_map, has_struct
from lancewal_core.rows.schema import check_row_schema, is_reserved
from lancewal_core.settings.declared import OF_ITSELF, ColumnSource, check_sources
from lancewal_core.settings.sections import TYPED_FORMATS
from lancewal_core.table.checks import column_tree
from lancewal_core.table.columns.changes import (
    Added,
    Adoption,
    ContractChange,
    Dropped,
    Forgotten,
    Path,
    Renamed,
    Widened,
    option,
)
from lancewal_core.table.columns.defaults import carried_default
from lancewal_core.table.columns.versions import lost_in_files, lost_structs
from lancewal_core.table.contract import (
    Column,
    Contract,
    DroppedField,
    FormerName,
    Widening,
    decode_contract,
    encode_contract,
)
from lancewal_core.table.protocol import PinnedTable


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Facts about the table that a change of its contract depends on."""

    highest_field_id: int
    """Highest field id that any contract version, the table's schema or a data file has named."""
    indexed: Mapping[str, Sequence[str]]
    """Column name to the names of the secondary indexes over the column or a member of it."""
    table: Sequence[Tree] = ()
    """Columns of the newest table version, with Lance's ids."""
    left_over: Collection[int] = ()
    """Ids of fields that an unfinished change has added to the table, without storing its contract.  A later change
    that adds a field of the same name and type uses the field that exists."""
    file_format: str = "2.2"
    """Format of the table's files.  Structs can be null from 2.1 on.  Members can be added and dropped, and columns
    can be maps, from 2.2 on."""
    earlier: Sequence[Contract] = ()
    """If a member of a struct is dropped: earlier contract versions, one for each state of the columns.  Else empty."""
    held: Collection[frozenset[int]] = ()
    """If a member of a struct is dropped: the result of ``versions.held_together``.  Else empty."""
    pinned: PinnedTable | None = None
    """Newest table version, from which changes by other programs are adopted."""
    now_ms: int = 0
    """Time of the change, in milliseconds since 1970."""


@dataclass(slots=True)
class _Fields:
    """The contract's columns while changes are made to them, one after the other."""

    columns: list[Tree]
    """The columns, with first ids."""
    defaults: dict[int, tuple[str, Tree]]
    """First id of a column to its default, and to the column with the member names that this default uses."""
    wider: dict[int, tuple[pa.DataType, int]]
    """First id of a field without fields inside to the wider type that it is to get, and to Lance's id with this
    type."""
    former: list[FormerName]
    dropped: list[DroppedField]
    own_ids: dict[int, int]
    """First id of a field to its present id in Lance."""
    since_ms: dict[int, int]
    """First id of a column to the time when its open widening was asked for, in milliseconds since 1970."""
    now_ms: int
    next_id: int
    earlier: Sequence[Contract]
    held: Collection[frozenset[int]]
    sources: dict[int, ColumnSource]
    """First id of a column to the source of its values in records."""
    left_over: Tree | None = None
    """Field of an unfinished change that the table has, if the present change adds the same field.  None: it adds a new
    one."""

    def new_id(self) -> int:
        self.next_id += 1
        return self.next_id - 1

    def numbered(self, name: str, type_: pa.DataType) -> Tree:
        """Return a field of this name and type, with new ids for it and all fields inside."""
        own = self.new_id()
        self.own_ids[own] = own
        return Tree(name, type_, own, tuple([self.numbered(f.name, f.type) for f in fields_within(type_)]))


def changed(contract: Contract, changes: Sequence[ContractChange], facts: Surroundings, change_id: str) -> Contract:
    """Return the next version of the contract, with ``changes`` made in their order (guarantees 1 to 8).  Return
    ``contract`` itself if all changes were made before.

    ``change_id``: random hex digits, which become part of ``Contract.columns_change``."""
    columns = trees(contract.rows)
    if all(_is_made(contract, columns, change) for change in changes):
        return contract
    version = contract.version + 1
    ids = zip(chain.from_iterable(c.ids for c in contract.columns), contract.field_ids, strict=True)
    fields = _Fields(
        columns=list(columns),
        defaults={
            c.ids[0]: (c.default, tree)
            for c, tree in zip(contract.columns, columns, strict=True)
            if c.default is not None
        },
        wider=_wider(contract),
        former=list(contract.former_names),
        dropped=list(contract.dropped),
        own_ids=dict(ids),
        since_ms={c.ids[0]: c.widening.since_ms for c in contract.columns if c.widening is not None},
        now_ms=facts.now_ms,
        next_id=facts.highest_field_id + 1,
        earlier=facts.earlier,
        sources={c.ids[0]: c.source for c in contract.columns},
        held=facts.held,
    )
    given_up = set[tuple[int | None, str]]()
    for change in changes:
        try:
            _check_allowed(contract, change, facts)
            if isinstance(change, Added | Renamed):
                _check_not_given_up(fields, change, given_up)
                fields.left_over = _in_table(fields, change, facts)
            if isinstance(change, Dropped):
                _check_name_in_table(fields, change, facts)
            fields.columns = _made(fields, change)
        except (InvalidInput, InvalidSchema) as error:
            raise InvalidInput(f"{_act(change)}: {error}. Nothing was changed") from error
        if isinstance(change, Renamed | Dropped):
            within, _ = _level(fields.columns, change.path[:-1])
            given_up.add((within, change.path[-1].lower()))
    moves = any(isinstance(change, Added | Renamed | Dropped | Adoption) for change in changes)
    try:
        found = contract.model_copy(
            update={
                "format": 2,
                "version": version,
                "columns": tuple([_column(tree, fields) for tree in fields.columns]),
                "columns_change": f"{version}-{change_id}" if moves else contract.columns_change,
                "highest_field_id": fields.next_id - 1,
                "former_names": tuple(fields.former),
                "dropped": tuple(fields.dropped),
            }
        )
        check_row_schema(found.rows)
        check_sources(found.rows, found.sources, found.envelope)
        return decode_contract(encode_contract(found), paths.contract_version(version, contract.making))
    except (InvalidSchema, ObjectCorrupt) as error:
        raise InvalidInput(f"{error}. Nothing was changed") from error


def _wider(contract: Contract) -> dict[int, tuple[pa.DataType, int]]:
    """Return the open widenings of the contract, in the form of ``_Fields.wider``."""
    found = {}
    for column in contract.columns:
        if column.widening is None:
            continue
        wide = column_tree(column.widened).all()
        for first, now, tree in zip(column.ids, column.field_ids, wide, strict=True):
            if tree.id != now:
                found[first] = (tree.type, tree.id)
    return found


def _with_types(tree: Tree, wider: Mapping[int, pa.DataType]) -> Tree:
    return with_leaves(tree, lambda leaf: replace(leaf, type=wider.get(leaf.id, leaf.type)))


def _is_made(contract: Contract, columns: Sequence[Tree], change: ContractChange) -> bool:
    """Return whether the contract has the change already.  So a call that is repeated after a lost reply changes
    nothing."""
    if isinstance(change, Adoption):
        return False
    *outer, name = change.path
    try:
        within, fields = _level(columns, outer)
    except InvalidInput:
        return False
    found = next((tree for tree in fields if tree.name == name), None)
    match change:
        case Added():
            column = None if outer else next((c for c in contract.columns if c.name == name), None)
            default = None if column is None else column.default
            source = OF_ITSELF if column is None else column.source
            wanted = (change.type, change.default, change.source)
            return contract.format > 1 and found is not None and (found.type, default, source) == wanted
        case Widened():
            if found is None or contract.format < 2:
                return False
            asked = {id_: wider for id_, (wider, _) in _wider(contract).items()}
            return change.type in (found.type, _with_types(found, asked).type)
        case Renamed():
            renamed = next((tree for tree in fields if tree.name == change.name), None)
            if renamed is None or found is not None:
                return False
            if within is None and not _called_by_name(contract.sources.get(renamed.name, OF_ITSELF)):
                return any((d.name, d.within) == (name, within) for d in contract.dropped)
            return FormerName(id=renamed.id, name=name) in contract.former_names
        case Dropped():
            return found is None and any((d.name, d.within) == (name, within) for d in contract.dropped)
        case Forgotten():
            named = [d.forgotten for d in contract.dropped if (d.name, d.within) == (name, within)]
            named += [False for f in contract.former_names if f.name == name and f.id in {tree.id for tree in fields}]
            return bool(named) and all(named)


def _called_by_name(source: ColumnSource) -> bool:
    """Return whether records call a column with this source by its own name."""
    return source.field is None and source.metadata is None


def _in_table(fields: _Fields, change: Added | Renamed, facts: Surroundings) -> Tree | None:
    """Return the field outside the contract that the table has under the name which the change gives; None if there is
    none.

    Raise ``InvalidInput`` unless an unfinished change has added this field, and the present change adds the same one.
    The struct around the field is found by id, since the table may call it by another name.
    """
    within, ours = _level(fields.columns, change.path[:-1])
    have = facts.table if within is None else _members_of(facts.table, fields.own_ids[within])
    name = change.path[-1] if isinstance(change, Added) else change.name
    there = {tree.id for tree in have}
    own = {_id_there(fields, tree, there) for tree in ours}
    found = next((tree for tree in have if tree.name.lower() == name.lower() and tree.id not in own), None)
    if found is None:
        return None
    if found.id in facts.left_over and isinstance(change, Added) and (found.name, found.type) == (name, change.type):
        return found
    path = _path_of(facts.table, found.id)
    assert path is not None, "the table has it"
    has = f"the table has {'.'.join(path)!r} of type {format_type(found.type)}"
    if found.id in facts.left_over:
        raise InvalidInput(
            f"{has}, from a change that was not finished. Repeat that change, or make another change first, or choose "
            "another name"
        )
    if found.id in fields.own_ids.values():  # an unfinished change has given it this name
        raise InvalidInput(f"{has}, which the same call drops. Do that first, in a call of its own")
    adopts = f"--adopt-column {shlex.quote(option(path))}"
    raise InvalidInput(f"{has}, which is not the contract's. Choose another name, or adopt it: `{adopts}`")


def _id_there(fields: _Fields, tree: Tree, there: Collection[int]) -> int:
    """Return Lance's id of a field in a table version with the ids ``there``; the new one if its widening has landed."""
    now = fields.own_ids[tree.id]
    return fields.wider[tree.id][1] if tree.id in fields.wider and now not in there else now


def _check_name_in_table(fields: _Fields, change: Dropped, facts: Surroundings) -> None:
    """Raise ``InvalidInput`` if the same call gives another field the name that the table has for the dropped one.

    An unfinished change has given it this name, and the table still has it when it grows."""
    gone = _field(fields.columns, change.path)
    _, beside = _level(fields.columns, change.path[:-1])
    path = _path_of(facts.table, fields.own_ids[gone.id])
    if path is not None and any(tree.name.lower() == path[-1].lower() for tree in beside if tree is not gone):
        raise InvalidInput(
            f"the table calls it {'.'.join(path)!r}, and the same call gives another field this name. Drop it first, in a "
            "call of its own"
        )


def _members_of(columns: Sequence[Tree], id_: int) -> Sequence[Tree]:
    for tree in chain.from_iterable(column.all() for column in columns):
        if tree.id == id_:
            return tree.within
    return ()


def _check_not_given_up(fields: _Fields, change: Added | Renamed, given_up: Collection[tuple[int | None, str]]) -> None:
    """Raise ``InvalidInput`` if the same call gives up the name that the change gives (guarantee 5).

    ``given_up``: first id of the struct, None for columns, and name in lower case."""
    within, _ = _level(fields.columns, change.path[:-1])
    name = change.name if isinstance(change, Renamed) else change.path[-1]
    if (within, name.lower()) in given_up:
        raise InvalidInput(f"the same call drops or renames {name!r}. Do that first, in a call of its own")


def _act(change: ContractChange) -> str:
    if isinstance(change, Adoption):
        return "adopting what other programs have done"
    name = ".".join(change.path)
    match change:
        case Added():
            return f"adding {name!r}"
        case Widened():
            return f"widening {name!r} to {format_type(change.type)}"
        case Renamed():
            return f"renaming {name!r} to {change.name!r}"
        case Dropped():
            return f"dropping {name!r}"
        case Forgotten():
            return f"forgetting {name!r}"


def _check_allowed(contract: Contract, change: ContractChange, facts: Surroundings) -> None:
    """Raise ``InvalidInput`` if the keys, the column by which rows expire, the column's source, the file format or an
    index forbid the change."""
    if isinstance(change, Forgotten | Adoption):
        return
    column, member = change.path[0], len(change.path) > 1
    metadata = contract.sources.get(column, OF_ITSELF).metadata
    if isinstance(change, Widened) and metadata is not None:
        raise InvalidInput(f"its values come from {metadata}, which has a fixed type")
    if not all(change.path):
        raise InvalidInput("a part of the name is empty")
    if column in contract.primary_key:
        raise InvalidInput(f"{column!r} is a column of the primary key. Keys never change: make another table")
    if column == contract.ttl_column and not isinstance(change, Added):
        raise InvalidInput(
            f"rows expire by {column!r}. Choose another column first: `lancewal table alter --ttl-column`"
        )
    if isinstance(change, Added) and change.source.json is not None and contract.value_format in TYPED_FORMATS:
        raise InvalidInput(
            f"json {change.source.json}: the table's format of values is {contract.value_format}, whose schemas say the form "
            "of each value. Leave json out, and take a type that the schema's type fits"
        )
    if isinstance(change, Added) and facts.file_format == "2.0" and has_struct(change.type):
        raise InvalidInput(
            "the table's files have format 2.0, which cannot hold a null struct. Add a column for each member, or copy the "
            "table by rows and attach the copy (docs/how-to/attach-a-table.md)"
        )
    if isinstance(change, Added) and facts.file_format in ("2.0", "2.1") and has_map(change.type):
        raise InvalidInput(
            f"the table's files have format {facts.file_format}, which cannot hold a map. Add a column of strings with "
            "json raw, or copy the table by rows and attach the copy (docs/how-to/attach-a-table.md)"
        )
    if member and facts.file_format in ("2.0", "2.1") and not isinstance(change, Widened):
        raise InvalidInput(
            "the table's files have a format in which members of structs cannot come and go (2.0 or 2.1). Add a column of "
            "the new type beside it"
        )
    indexes = facts.indexed.get(column, ())
    if indexes and isinstance(change, Widened | Dropped):
        raise InvalidInput(
            f"the column is indexed ({', '.join(indexes)}). First run, with pylance: "
            + ", ".join(f"`dataset.drop_index({index!r})`" for index in indexes)
            + (". Build the index again afterwards" if isinstance(change, Widened) else "")
        )


def _made(fields: _Fields, change: ContractChange) -> list[Tree]:
    match change:
        case Added():
            if len(change.path) > 1 and change.default is not None:
                raise InvalidInput("a member of a struct cannot have a default. Leave it out")
            found = _with_new(fields, change)
            if change.source.metadata is None:
                _take_name(fields, change.path[:-1], change.source.field or change.path[-1])
            return found
        case Widened():
            return _replaced(fields.columns, change.path, lambda tree: _to_widen(fields, tree, change.type))
        case Renamed():
            field = _field(fields.columns, change.path)
            _check_free(_level(fields.columns, change.path[:-1])[1], change.name, but=field.name)
            if _called_by_name(fields.sources.get(field.id, OF_ITSELF)):
                _take_name(fields, change.path[:-1], change.name)
                fields.former.append(FormerName(id=field.id, name=field.name))
            else:
                _note_unused(fields, None, field.name)
            return _replaced(fields.columns, change.path, lambda tree: replace(tree, name=change.name))
        case Dropped():
            _check_keeps_a_member(fields, change.path)
            _drop_names(fields, change.path)
            return _replaced(fields.columns, change.path, lambda tree: None)
        case Forgotten():
            _forget(fields, change.path)
            return fields.columns
        case Adoption():
            return _adopted(fields, change)


def _adopted(fields: _Fields, change: Adoption) -> list[Tree]:
    """Drop, rename and add fields as other programs have done.  ``adopt`` has checked the changes.

    All names are given up before any is given to a field, so that fields can swap names."""
    for id_ in change.dropped:
        path = _path_of(fields.columns, id_)
        if path is not None:  # else it was in another one that is dropped
            _drop_names(fields, path)
            fields.columns = _replaced(fields.columns, path, lambda tree: None)
    apart = {
        id_ for id_, source in fields.sources.items() if not _called_by_name(source)
    }  # records use no name of the table
    named = {id_: _path_of(fields.columns, id_) for id_ in change.names if id_ not in apart}
    fields.former += [FormerName(id=id_, name=path[-1]) for id_, path in named.items() if path is not None]
    fields.columns = [_with_names(tree, change.names) for tree in fields.columns]
    for taken in change.taken:
        fields.left_over = taken.tree
        fields.columns = _with_new(fields, Added(taken.path, taken.tree.type))
    for path in (*(_path_of(fields.columns, id_) for id_ in named), *(taken.path for taken in change.taken)):
        if path is not None:
            _take_name(fields, path[:-1], path[-1])
    return fields.columns


def _path_of(columns: Sequence[Tree], id_: int) -> Path | None:
    """Return the path of the field with the first id ``id_``, without the items of lists; None if there is none."""
    for tree in columns:
        if tree.id == id_:
            return (tree.name,)
        inner = tree
        while pa.types.is_list(inner.type):
            inner = inner.within[0]
        path = _path_of(inner.within, id_)
        if path is not None:
            return (tree.name, *path)
    return None


def _with_names(tree: Tree, names: Mapping[int, str]) -> Tree:
    within = [_with_names(member, names) for member in tree.within]
    return replace(holding(tree, within) if within else tree, name=names.get(tree.id, tree.name))


def _level(columns: Sequence[Tree], outer: Sequence[str]) -> tuple[int | None, Sequence[Tree]]:
    """Return the id of the struct at the path ``outer``, and its members; for the empty path None and the columns.

    Raise ``InvalidInput`` if there is no such struct.
    """
    within, fields = None, columns
    for place, name in enumerate(outer):
        path = ".".join(outer[: place + 1])
        found = next((tree for tree in fields if tree.name == name), None)
        if found is None:
            raise _missing(path, fields)
        while pa.types.is_list(found.type):
            found = found.within[0]
        if not pa.types.is_struct(found.type):
            raise InvalidInput(f"{path!r} has no members, since type {format_type(found.type)} has none")
        within, fields = found.id, found.within
    return within, fields


def _field(columns: Sequence[Tree], path: Path) -> Tree:
    """Return the field at a path.  Raise ``InvalidInput`` if there is none."""
    _, fields = _level(columns, path[:-1])
    found = next((tree for tree in fields if tree.name == path[-1]), None)
    if found is None:
        raise _missing(".".join(path), fields)
    return found


def _missing(path: str, fields: Sequence[Tree]) -> InvalidInput:
    return InvalidInput(f"there is no {path!r}. There are {[tree.name for tree in fields]}")


def _take_name(fields: _Fields, outer: Path, name: str) -> None:
    """Free ``name`` at the path ``outer`` for a field that gets it (guarantee 4).

    Former names are removed.  An entry in ``dropped`` stays, marked as forgotten.
    """
    within, members = _level(fields.columns, outer)
    ids = {tree.id for tree in members}
    fields.former = [f for f in fields.former if not (f.name == name and f.id in ids)]
    fields.dropped = [
        d.model_copy(update={"forgotten": True}) if (d.name, d.within) == (name, within) else d for d in fields.dropped
    ]


def _check_keeps_a_member(fields: _Fields, path: Path) -> None:
    """Raise ``InvalidInput`` if the member at ``path`` cannot be dropped without losing nulls of its struct (guarantee
    6)."""
    gone = _field(fields.columns, path)
    within, siblings = _level(fields.columns, path[:-1])
    if within is None:
        return
    left = [tree for tree in siblings if tree is not gone]
    if not left:
        raise InvalidInput("a struct keeps at least one member. Drop the whole struct")
    lost = lost_structs(fields.earlier, within, {tree.id for tree in left})
    lost = lost or lost_in_files(fields.held, _lance_ids(fields, siblings), _lance_ids(fields, left))
    if lost:
        raise InvalidInput(f"{lost}. Add a column of the new type, write both for a time, and drop the whole struct")


def _lance_ids(fields: _Fields, trees: Sequence[Tree]) -> frozenset[int]:
    """Return Lance's ids of fields and of all fields inside, including the ids that open widenings will give."""
    first = [tree.id for outer in trees for tree in outer.all()]
    return frozenset(
        [*map(fields.own_ids.__getitem__, first), *(fields.wider[i][1] for i in first if i in fields.wider)]
    )


def _drop_names(fields: _Fields, path: Path) -> None:
    """Record the names that records may use for the field at ``path``, former ones included, as dropped names."""
    within, _ = _level(fields.columns, path[:-1])
    field = _field(fields.columns, path)
    gone = {tree.id for tree in field.all()}
    own = _name_in_records(fields, field)
    names = [] if own is None else [own, *(f.name for f in fields.former if f.id == field.id)]
    fields.dropped = [
        d
        for d in fields.dropped
        if (d.within, d.name) not in {(within, name) for name in names} and d.within not in gone
    ]
    fields.dropped += [DroppedField(name=name, within=within) for name in names]
    if field.name not in names:
        _note_unused(fields, within, field.name)
    fields.former = [f for f in fields.former if f.id not in gone]
    fields.wider = {i: wider for i, wider in fields.wider.items() if i not in gone}


def _name_in_records(fields: _Fields, field: Tree) -> str | None:
    """Return the name that records use for a field now; None if metadata of records fills it."""
    source = fields.sources.get(field.id, OF_ITSELF)
    return (source.field or field.name) if source.metadata is None else None


def _note_unused(fields: _Fields, within: int | None, name: str) -> None:
    """Record a name that a column gives up and that records have not used for it.  A repeated call is recognised by
    this name."""
    if all((d.name, d.within) != (name, within) for d in fields.dropped):
        fields.dropped.append(DroppedField(name=name, within=within, forgotten=True))


def _forget(fields: _Fields, path: Path) -> None:
    """Forget a former or dropped name: records may no longer use it.  The contract keeps it as forgotten, so that a
    repeated call is recognised.  Raise ``InvalidInput`` for any other name."""
    within, members = _level(fields.columns, path[:-1])
    name, ids = path[-1], {tree.id for tree in members}
    if name in (_name_in_records(fields, tree) for tree in members):
        raise InvalidInput(
            "records use this name for a field now, so there is no former name to forget. Leave `--forget-name` out"
        )
    former = [f for f in fields.former if not (f.name == name and f.id in ids)]
    dropped = [d for d in fields.dropped if (d.name, d.within) != (name, within)]
    if len(former) == len(fields.former) and all(d.forgotten for d in fields.dropped if d not in dropped):
        raise InvalidInput("it is neither a former name of a field nor the name of one that was dropped")
    fields.former = former
    fields.dropped = [*dropped, DroppedField(name=name, within=within, forgotten=True)]


def _with_new(fields: _Fields, change: Added) -> list[Tree]:
    *outer, name = change.path
    _check_free(_level(fields.columns, outer)[1], name)
    new = fields.left_over or fields.numbered(name, change.type)
    fields.own_ids |= {tree.id: tree.id for tree in new.all()}
    if change.default is not None:
        fields.defaults[new.id] = change.default, new
    if change.source != OF_ITSELF:
        if outer:
            raise InvalidInput("a member of a struct cannot have json, field or a source of its own. Leave them out")
        if change.source.metadata is not None and change.default is not None:
            raise InvalidInput(f"its values come from {change.source.metadata}, so it has no default. Leave it out")
        fields.sources[new.id] = change.source
    if not outer:
        return [*fields.columns, new]
    return _replaced(fields.columns, tuple(outer), lambda tree: _with_member(tree, new))


def _with_member(tree: Tree, new: Tree) -> Tree:
    if pa.types.is_list(tree.type):
        return holding(tree, (_with_member(tree.within[0], new),))
    if not pa.types.is_struct(tree.type):
        raise InvalidInput(f"{tree.name!r} has type {format_type(tree.type)}, which has no members")
    return holding(tree, (*tree.within, new))


def _to_widen(fields: _Fields, tree: Tree, type_: pa.DataType) -> Tree:
    """Record in ``fields.wider`` the wider types that ``type_`` gives to ``tree`` or to fields inside.  Return ``tree``
    unchanged."""
    if tree.type == type_:
        raise InvalidInput(f"it has type {format_type(type_)} already")
    inner = fields_within(type_)
    alike = pa.types.is_list(tree.type) == pa.types.is_list(type_) and not pa.types.is_map(tree.type)
    if tree.within and alike and [member.name for member in tree.within] == [field.name for field in inner]:
        for member, field in zip(tree.within, inner, strict=True):
            if member.type != field.type:
                _to_widen(fields, member, field.type)
        return tree
    if tree.within or inner or not widens(tree.type, type_):
        raise InvalidInput(
            f"not every value of {format_type(tree.type)} is one of {format_type(type_)}. Add a column of the new type, "
            "write both for a time, and drop the old one"
        )
    if tree.id in fields.wider:
        raise InvalidInput(f"it is being widened to {format_type(fields.wider[tree.id][0])}. Wait until that is done")
    fields.wider[tree.id] = (type_, fields.new_id())
    return tree


def _check_free(fields: Collection[Tree], name: str, *, but: str | None = None) -> None:
    """Raise ``InvalidInput`` if one of ``fields`` has the name, in upper or lower case, or if the name is reserved.

    ``but``: the present name of the field that is renamed."""
    taken = next((tree.name for tree in fields if tree.name.lower() == name.lower() and tree.name != but), None)
    if taken is not None or name == but:
        raise InvalidInput(
            f"the name {name!r} is taken, by {taken or but!r}. Names must differ in more than upper and lower case"
        )
    if is_reserved(name):
        raise InvalidInput(f"the name {name!r} is reserved for what lancewal, Lance and Spark add to rows")


def _replaced(fields: Sequence[Tree], path: Path, make: Callable[[Tree], Tree | None]) -> list[Tree]:
    """Return ``fields`` with the result of ``make`` in place of the field at the path; if it is None, without the
    field.

    Raise ``InvalidInput`` if there is no such field."""
    _field(fields, path)
    name, *rest = path
    return [new for tree in fields for new in (_at(tree, tuple(rest), make) if tree.name == name else (tree,))]


def _at(tree: Tree, rest: Path, make: Callable[[Tree], Tree | None]) -> Iterator[Tree]:
    if not rest:
        made = make(tree)
        if made is not None:
            yield made
    elif pa.types.is_list(tree.type):
        yield holding(tree, tuple(_at(tree.within[0], rest, make)))
    else:
        yield holding(tree, tuple(_replaced(tree.within, rest, make)))


def _column(tree: Tree, fields: _Fields) -> Column:
    first = tuple([inner.id for inner in tree.all()])
    ids = tuple([fields.own_ids[i] for i in first])
    wide = tuple([fields.wider[i][1] if i in fields.wider else fields.own_ids[i] for i in first])
    default = carried_default(*fields.defaults[tree.id], tree) if tree.id in fields.defaults else None
    wider = format_type(_with_types(tree, {i: type_ for i, (type_, _) in fields.wider.items()}).type)
    widening = Widening(type=wider, field_ids=wide, since_ms=fields.since_ms.get(tree.id, fields.now_ms))
    source = fields.sources.get(tree.id, OF_ITSELF)
    return Column(
        name=tree.name,
        type=format_type(tree.type),
        field_ids=ids,
        first_ids=None if ids == first else first,
        default=default,
        widening=None if wide == ids else widening,
        json_form=source.json,
        toast=source.toast,
        field=source.field,
        metadata=source.metadata,
    )
