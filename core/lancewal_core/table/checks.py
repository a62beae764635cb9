"""Checks that the Lance table fits the contract, and that the settings agree with the contract.

Every service makes these checks at its start, and checks the table again whenever it works on a newer version.  Users
may rename and drop columns, restore versions, and recreate tables at the same place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from lancewal_core.errors import ContractMismatch, InvalidSchema, TableElsewhere, TableReplaced
from lancewal_core.rows.carry import Tree, fields_within, holding, taken_whole, tree_of
from lancewal_core.rows.column_types import format_type, parse_type
from lancewal_core.rows.schema import FieldIds, RowSchema
from lancewal_core.settings.declared import column_source, type_text
from lancewal_core.settings.load import Settings, variable
from lancewal_core.settings.sections import ColumnText
from lancewal_core.store.address import place_of, same_place
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.contract import Column, Contract, former_columns
from lancewal_core.table.protocol import PinnedTable, columns_mark
from lancewal_core.table.watermarks import TABLE_UUID

_TABLE_TERMS = (
    "primary_key", "patches", "record_bytes_max", "on_bad_record", "on_misrouted", "history_window_s",
    "on_wrong_format", "version_window_s", "subscription_hold_s_max", "grace_s", "freshness_target_s", "ttl_column", "ttl_s",
    "on_unknown_column", "columns_max", "partitioner", "on_truncate", "snapshot_rows",
    "on_unavailable_value",
)  # fmt: skip
"""Settings ``table.NAME`` for which the contract has a term of the same name and meaning.  ``start`` is not among them,
since the contract has the offsets that it meant when the table was made."""


_ANOTHER_COLUMN = (
    ". A column keeps its json and its field for good: if producers have changed them, add a column, `lancewal table alter "
    "--add-column 'NAME: {type: TYPE, json: FORM, field: NAME}'`"
)
_Pair = tuple[str, Any, Any]
"""Key of a setting, its value, and the contract's value."""


def check_settings(settings: Settings, contract: Contract, store: ObjectStore | None = None) -> None:
    """Raise ``ContractMismatch`` if settings differ from the contract.  The error names all of them.  Settings that
    are not given are not checked.

    ``store``: the table's store.  With it, ``table.columns`` may also name the columns of an earlier contract version
    (``former_setting``).  The reason: nobody can change columns and all settings at the same moment."""
    check_allowed(settings, contract.topic, contract.dead_letters)
    given = settings.table.model_fields_set
    pairs: list[_Pair] = [
        _pair(name, getattr(settings.table, name), getattr(contract, name)) for name in _TABLE_TERMS if name in given
    ]
    if settings.table.region_key:
        pairs.append(("table.region_key", settings.table.region_key, contract.region_key))
    if settings.table.columns and (store is None or former_setting(settings, contract, store) is None):
        pairs.append(("table.columns", _canonical(settings.table.columns), _columns(contract)))
    metadata = _canonical(settings.table.metadata_columns)
    if metadata and not _had_metadata_columns(metadata, contract, store):
        pairs.append(("table.metadata_columns", metadata, _metadata_columns(contract)))
    pairs += _topics(settings, contract)
    formats = settings.table.format
    terms = {
        "value": contract.value_format,
        "key": contract.key_format,
        "record": contract.value_record or "",
        "envelope": contract.envelope,
        "unavailable_value": contract.unavailable_value,
    }
    for name, theirs in terms.items():
        if name in formats.model_fields_set:
            pairs.append((f"table.format.{name}", getattr(formats, name), theirs))
    _check_equal(pairs, _ANOTHER_COLUMN if _sources_alone_differ(settings.table.columns, contract) else "")


def _had_metadata_columns(wanted: list[tuple[str, str]], contract: Contract, store: ObjectStore | None) -> bool:
    """Return whether the contract has these metadata columns: names, and types with sources.  With ``store``, an
    earlier contract version may have them instead."""
    if set(wanted) == set(_metadata_columns(contract)):  # in any order: Helm sorts them
        return True
    return store is not None and any(
        set(_metadata_columns(one)) == set(wanted) for one in former_columns(store, contract)
    )


def former_setting(settings: Settings, contract: Contract, store: ObjectStore) -> int | None:
    """Return the earlier contract version whose columns ``table.columns`` names.  Return None if it names the present
    columns, or those of no version.

    This costs requests only if the columns were changed and the setting does not name the present ones."""
    wanted = _canonical(settings.table.columns)
    if not wanted or wanted == _columns(contract):
        return None
    return next((one.version for one in former_columns(store, contract) if _columns(one) == wanted), None)


def check_topics(settings: Settings, contract: Contract) -> None:
    """Raise ``ContractMismatch`` if ``kafka.topics`` does not allow the contract's topics, or if ``table.topic`` or
    ``table.dead_letter_topic`` names another one.

    A process that reads records or writes dead letters checks each contract version that it uses.  The reason:
    anybody who can write into the table's folder can choose the topics in a contract."""
    check_allowed(settings, contract.topic, contract.dead_letters)
    _check_equal(_topics(settings, contract))


def check_allowed(settings: Settings, topic: str, dead_letters: str) -> None:
    """Raise ``ContractMismatch`` if ``kafka.topics`` does not allow the topic of a table, or of its dead letters."""
    refused = [name for name in (topic, dead_letters) if not settings.kafka.allows(name)]
    if refused:
        raise ContractMismatch(
            f"kafka.topics ({variable('kafka.topics')}) is {_shown(settings.kafka.topics)} and does not allow "
            f"{' and '.join(map(repr, refused))}: the table has topic {topic!r} and dead-letter topic {dead_letters!r}. "
            "Add what the table may use to the setting, or find out who named other topics (`lancewal table show`)",
            settings=("kafka.topics",),
        )


def topics_are_bound(settings: Settings) -> bool:
    """Return whether the settings limit the topics that may be read and written to, whatever a contract names."""
    return bool(settings.kafka.topics or (settings.table.topic and settings.table.dead_letter_topic))


def _topics(settings: Settings, contract: Contract) -> list[_Pair]:
    return [
        (key, ours, theirs)
        for key, ours, theirs in (
            ("table.topic", settings.table.topic, contract.topic),
            ("table.dead_letter_topic", settings.table.dead_letter_topic, contract.dead_letters),
        )
        if ours
    ]


def _check_equal(pairs: Collection[_Pair], advice: str = "") -> None:
    empty: tuple[Any, ...] = ((), "")
    wrong = [(key, ours, theirs) for key, ours, theirs in pairs if ours not in empty and ours != theirs]
    if wrong:
        lines = [
            f"{key} ({variable(key)}) is {_shown(ours)}, the table's contract says {_shown(theirs)}"
            for key, ours, theirs in wrong
        ]
        raise ContractMismatch(
            "; ".join(lines)
            + ": correct or remove the setting (a contract changes by `lancewal table` commands only)"
            + advice,
            settings=tuple(key for key, _, _ in wrong),
        )


def check_place(uri: str, contract: Contract) -> None:
    """Raise ``TableElsewhere`` if the contract says another place than ``uri``.  Only writers check this, since a
    copy of a table may be read as it is."""
    here = place_of(uri)
    if contract.place is not None and not same_place(contract.place, here):
        raise TableElsewhere(
            f"the table at {here} has the contract of the table at {contract.place}. {elsewhere_advice(contract.place)}",
            place=contract.place,
        )


def elsewhere_advice(place: str | None) -> str:
    """Return advice for a table whose contract says another place.  ``place``: the one in the contract."""
    return (
        f"Was its folder moved here, or copied while neither ingest nor flusher worked on it? Then `lancewal table moved "
        f"--from {place}` makes it a table of its own, with all that it holds. If it is a copy from which only the merged "
        "rows are wanted: delete the copy's folder `_lancewal`, then `lancewal table attach`. If both addresses lead to one "
        "folder: use the other in table.uri"
    )


def check_identity(pinned: PinnedTable, contract: Contract) -> None:
    """Raise ``TableReplaced`` if ``pinned`` has another table uuid than the contract."""
    uuid = pinned.config.get(TABLE_UUID)
    if uuid != contract.table_uuid:
        raise TableReplaced(
            f"version {pinned.version} of the Lance table has uuid {uuid}, the contract says {contract.table_uuid}. "
            "If `lancewal table create`, `attach` or `moved` was interrupted here, run that command again. Otherwise "
            "another program has overwritten or recreated the table at the same place: put the former table back "
            "from a backup",
            version=pinned.version,
        )


def check_columns(pinned: PinnedTable, contract: Contract) -> None:
    """Raise ``ContractMismatch`` unless the version's columns fit the contract.

    They fit if the version has each field of the contract, by id, with the contract's type, and its other columns are
    nullable.  Names are compared only if the same change gave both their columns; otherwise a change is unfinished."""
    problems = misfits(pinned, contract, named=columns_mark(pinned) == contract.columns_change)
    if problems:
        raise ContractMismatch(
            f"version {pinned.version} of the Lance table does not have the contract's columns: "
            f"{'; '.join(sorted(problems))}. Change them back, restore the version before that change, or take the change "
            "into the contract: `lancewal table alter --adopt-column '*'`",
            version=pinned.version,
        )


def misfits(pinned: PinnedTable, contract: Contract, *, named: bool) -> list[str]:
    """Return texts that say how the version's columns do not fit the contract; empty if they fit.

    ``named``: whether names are compared too, not only ids and types."""
    ids = pinned.field_ids
    name_of = {ids[name][0]: name for name in pinned.schema.names}
    problems: list[str] = []
    for column in contract.columns:
        column = in_version(pinned, column)
        name = name_of.pop(column.field_ids[0], None) if column.field_ids else None
        if name is None:
            problems.append(_missing(column, pinned))
        else:
            wanted = pa.field(column.name, parse_type(column.type), column.name not in contract.primary_key)
            problems += _column_misfits(wanted, column.field_ids, pinned.schema.field(name), ids[name], named)
    for name in name_of.values():
        if not pinned.schema.field(name).nullable:
            problems.append(
                f"column {name!r} is not in the contract and not nullable, so that no row without it can be written; "
                f"{_declare(name, nullable=True)}"
            )
    return problems


def in_version(pinned: PinnedTable, column: Column) -> Column:
    """Return a contract's column as the version has it.  Fields whose widening has landed in the version are widened,
    and the others still have an open widening."""
    if column.widening is None:
        return column
    found = column_tree(column, {id_ for own in pinned.field_ids.values() for id_ in own})
    ids = tuple([tree.id for tree in found.all()])
    if ids == column.field_ids:
        return column
    left = None if ids == column.widening.field_ids else column.widening
    return column.model_copy(
        update={"type": format_type(found.type), "field_ids": ids, "first_ids": column.ids, "widening": left}
    )


def column_tree(column: Column, there: Collection[int] = ()) -> Tree:
    """Return a column of a contract as a tree of fields, with Lance's ids.

    ``there``: the ids of all fields of a table version.  Fields whose widening has landed in that version have the
    wider type and the new id."""
    tree = tree_of(pa.field(column.name, parse_type(column.type)), column.field_ids)
    return tree if column.widening is None else _landed(tree, column_tree(column.widened), there)


def _landed(tree: Tree, wide: Tree, there: Collection[int]) -> Tree:
    """Return the column ``tree``, with fields of the wider column ``wide`` in place of those that a table version has
    widened.

    ``there``: the ids of all fields of the version.
    """
    if tree.within:
        pairs = zip(tree.within, wide.within, strict=True)
        return holding(tree, [_landed(member, wider, there) for member, wider in pairs])
    # Another program's column may have got one of the new ids, but then the old ones are there too.
    return wide if tree.id not in there and wide.id in there else tree


def blob_columns(pinned: PinnedTable) -> tuple[str, ...]:
    """Return the names of columns that Lance stores as blobs, or that have such fields within.  Only other programs add
    them.

    A scan returns descriptors instead of their values.  So lancewal can neither read such a column nor keep its
    values when it completes a row."""
    return tuple([field.name for field in pinned.schema if _has_blobs(field)])


def _has_blobs(field: pa.Field) -> bool:
    marked = (field.metadata or {}).get(b"lance-encoding:blob") == b"true"
    if marked or getattr(field.type, "extension_name", None) == "lance.blob.v2":
        return True
    within = [field.type.field(i) for i in range(field.type.num_fields)]
    return any(_has_blobs(inner) for inner in within)


def check_no_blobs(pinned: PinnedTable) -> None:
    """Raise ``ContractMismatch`` if the version has blob columns.  For callers that complete rows of the version by
    patches and write them again."""
    names = blob_columns(pinned)
    if names:
        raise ContractMismatch(
            f"version {pinned.version} of the Lance table has blob columns of another program: {list(names)}. A patch cannot "
            f"keep their values. Drop them by `dataset.drop_columns({list(names)})`, and keep blobs in a table of their own, "
            "by key",
            version=pinned.version,
        )


def columns_of(pinned: PinnedTable, contract: Contract) -> RowSchema:
    """Return the columns of a version with the field ids of ``contract`` (``columns_as``)."""
    return columns_as(pinned, contract.rows, (contract,))


def columns_as(pinned: PinnedTable, ours: RowSchema, contracts: Iterable[Contract]) -> RowSchema:
    """Return the columns of a version, in its order and with its names, without blob columns.

    Fields whose ids are in ``ours`` have these ids, which are first ids (``Column.ids``).  All other fields have
    negative ids by ``taken_whole``.  ``contracts``: contract versions that map Lance's ids to first ids.  Each field
    of ``ours`` must be in one of them."""
    known = {id_ for own in ours.ids for id_ in own}
    columns = [in_version(pinned, column) for contract in contracts for column in contract.columns]
    first = dict(pair for column in columns for pair in zip(column.field_ids, column.ids, strict=True))

    def ids(type_: pa.DataType, left: Iterator[int]) -> tuple[int, ...]:
        own = next(left)
        within = [id_ for child in fields_with_ids(type_) for id_ in ids(child.type, left)]
        return (first[own], *within) if first.get(own) in known else (taken_whole(own),)

    blobs = blob_columns(pinned)
    fields = [field for field in pinned.schema if field.name not in blobs]
    found = [ids(field.type, iter(pinned.field_ids[field.name])) for field in fields]
    return RowSchema(pa.schema(fields), ours.primary_key, ours.region_key, tuple(found))


def fields_with_ids(type_: pa.DataType) -> list[pa.Field]:
    """Return the fields directly within a field of this type that have ids of their own in Lance."""
    items = pa.types.is_large_list(type_)
    items = items or (pa.types.is_fixed_size_list(type_) and pa.types.is_struct(type_.value_type))
    return [type_.value_field] if items else fields_within(type_)


def _missing(column: Column, pinned: PinnedTable) -> str:
    """Return the text that says how the version differs from the contract in a column whose id the version lacks."""
    if column.name not in pinned.schema.names:
        return f"column {column.name!r} is missing"
    type_, ids = _type_text(pinned.schema.field(column.name).type), pinned.field_ids[column.name]
    if type_ != column.type:
        return f"column {column.name!r} has type {type_}, the contract says {column.type}"
    return f"column {column.name!r} has field ids {ids}, the contract says {column.field_ids}: it was dropped and recreated"


def _column_misfits(
    wanted: pa.Field, wanted_ids: FieldIds, found: pa.Field, found_ids: FieldIds, named: bool
) -> Iterator[str]:
    """Yield texts that say how the version's column ``found`` differs from the contract's, ``wanted``.  ``named``:
    whether names are compared."""
    if found.nullable != wanted.nullable:
        yield (
            f"column {found.name!r} is {'' if found.nullable else 'not '}nullable, and must "
            f"{'not ' if found.nullable else ''}be; {_declare(found.name, nullable=not found.nullable)}"
        )
    try:
        yield from _misfits(tree_of(wanted, wanted_ids), tree_of(found, found_ids), wanted.name, named)
    except ValueError:  # lists and structs of other kinds
        yield f"column {found.name!r} has type {_type_text(found.type)}, the contract says {_type_text(wanted.type)}"


def _misfits(wanted: Tree, found: Tree, path: str, named: bool) -> Iterator[str]:
    """Yield texts that say how the field ``found``, and fields within it, differ from the contract's, ``wanted``.

    ``path``: the contract's name of the field, for the texts.  ``named``: whether names are compared."""
    if named and found.name != wanted.name:
        yield f"column {path!r} is missing, and has become {found.name!r}"
    if pa.types.is_struct(wanted.type) and pa.types.is_struct(found.type):
        members = {tree.id: (tree, field) for tree, field in zip(found.within, found.type, strict=True)}
        for member in wanted.within:
            there = members.pop(member.id, None)
            if there is None:
                yield f"column {f'{path}.{member.name}'!r} is missing"
            else:
                yield from _misfits(member, there[0], f"{path}.{member.name}", named)
        for tree, field in members.values():
            if not field.nullable:
                yield f"column {f'{path}.{tree.name}'!r} is not in the contract and not nullable"
    elif pa.types.is_list(wanted.type) and pa.types.is_list(found.type):
        (item,), (found_item,) = wanted.within, found.within
        if item.id != found_item.id:
            yield (
                f"column {path!r} has other items than the contract's: its items have field id {found_item.id}, the "
                f"contract says {item.id}"
            )
        else:  # Arrow's name of the items says nothing
            yield from _misfits(item, replace(found_item, name=item.name), path, named)
    elif found.type != wanted.type:
        yield f"column {path!r} has type {_type_text(found.type)}, the contract says {_type_text(wanted.type)}"


def _declare(name: str, *, nullable: bool) -> str:
    return f'change that by `dataset.alter_columns({{"path": "{name}", "nullable": {nullable}}})`'


def changed_by_others(pinned: PinnedTable, names: Sequence[str]) -> ContractMismatch:
    """Return the error for columns of the contract that another program has changed or replaced in the version."""
    return ContractMismatch(
        f"version {pinned.version} of the Lance table does not have the contract's columns {list(names)}: they were dropped, "
        "renamed, recreated or given another type. Change them back, restore the version before that change, or read "
        "other columns",
        version=pinned.version,
    )


def _pair(name: str, setting: Any, term: Any) -> _Pair:
    """Return the setting ``table.NAME`` with the contract's term.  If the term is None, the empty value of the
    setting's type stands for it."""
    return f"table.{name}", setting, type(setting)() if term is None else term


def _columns(contract: Contract) -> list[tuple[str, str]]:
    return [_said(column) for column in contract.columns if column.metadata is None]


def _metadata_columns(contract: Contract) -> list[tuple[str, str]]:
    return [_said(column) for column in contract.columns if column.metadata is not None]


def _said(column: Column) -> tuple[str, str]:
    return column.name, column.type + column.source.text


def _canonical(columns: Mapping[str, ColumnText]) -> list[tuple[str, str]]:
    return [
        (name, format_type(parse_type(type_text(column))) + column_source(column).text)
        for name, column in columns.items()
    ]


def _sources_alone_differ(columns: Mapping[str, ColumnText], contract: Contract) -> bool:
    types = [(name, format_type(parse_type(type_text(column)))) for name, column in columns.items()]
    return types == [(column.name, column.type) for column in contract.columns if column.metadata is None]


def _type_text(type_: Any) -> str:
    try:
        return format_type(type_)
    except InvalidSchema:
        return str(type_)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return "{" + ", ".join(f"{name}: {type_}" for name, type_ in value) + "}"
    return str(list(value)) if isinstance(value, tuple) else repr(value)
