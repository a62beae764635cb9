"""``lancewal table attach``: make an existing Lance table a lancewal table.  Its rows stay as they are.

First, everything is checked and nothing is changed: the settings, the topic, and whether lancewal supports each column's
type.  No primary key may have a null or occur twice.  Then:

 1. Schema changes of the Lance table; no data is written.  If the Lance table was a lancewal table before, its mark of
    columns is removed, since it names contracts that are gone (docs/protocol.md, "Columns that change").  Key columns
    that allow nulls are declared not nullable.  After a crash here, the same command continues.
 2. to 4. are the steps of ``register``: contract, checkpoint, identity.

If others write to the table between the check and step 2, the keys are checked again.  Keys that users write into the
table later are their responsibility: a Lance table cannot refuse them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from lancewal_core.errors import ContractMismatch, InvalidSchema, StoreUnavailable
from lancewal_core.names.ids import TableVersion
from lancewal_core.open import Address, Folder
from lancewal_core.rows.column_types import format_type, has_struct, parse_type
from lancewal_core.rows.schema import RowSchema
from lancewal_core.rows.ttl import check_ttl
from lancewal_core.settings.declared import declared_keys, declared_ttl, type_text
from lancewal_core.settings.load import Settings
from lancewal_core.table.contract import Contract, column_texts
from lancewal_core.table.lance.pinned import LancePinnedTable
from lancewal_core.table.protocol import ColumnsCommit, Committed, columns_mark
from lancewal_tables.define.register import begun_contract, first_contract, go_on, register, store_error
from lancewal_tables.define.topic import check_asked, fitting_topic, no_warning
from lancewal_tables.define.unique_keys import check_unique_keys

if TYPE_CHECKING:
    from lancewal_kafka.topic import TopicInspector


def attach_table(
    settings: Settings,
    inspector: TopicInspector | None = None,
    warn: Callable[[str], object] = no_warning,
    *,
    look_only: bool = False,
    name: str | None = None,
) -> Contract:
    """Make the existing Lance table at ``table.uri`` a lancewal table, and return its contract.

    ``look_only``: only check, and return the contract that would be put.  ``warn`` is called with each warning.
    ``name``: the name of the table in the catalog, for its contract.

    Errors: those of ``create_table``, ``TableMissing``, ``DuplicateKeys``.  Raises ``ContractMismatch`` if the settings
    declare other columns than the table has.
    """
    check_asked(settings, "table.uri")
    address = Address.of(settings)
    folder = address.folder()
    pinned = folder.table.newest()
    begun = begun_contract(folder)
    if begun is not None:
        check_unique_keys(pinned, begun.rows)
        return go_on(folder, pinned, begun, settings, look_only=look_only)
    rows = existing_rows(pinned, settings)
    check_ttl(declared_ttl(settings.table), rows, settings.table.patches)
    topic = fitting_topic(settings, rows, inspector)
    check_unique_keys(pinned, rows)
    for text in topic.warnings:
        warn(text)
    nullable = [name for name in rows.primary_key if pinned.schema.field(name).nullable]
    if look_only:
        if nullable:
            warn(f"columns {nullable} of the Lance table would be declared not nullable, in a commit of its own")
        return first_contract(address.uri, pinned, rows, settings.table, topic, name)
    checked, changes = pinned.version, 0
    # Step 1.  There was no contract yet when this version was pinned, so its mark is no present one.
    if columns_mark(pinned) is not None:
        _forget_mark(folder, pinned)
        pinned, changes = folder.table.newest(), changes + 1
    if nullable:
        try:
            pinned.dataset.alter_columns(*({"path": name, "nullable": False} for name in nullable))
        except OSError as error:
            raise store_error(error, f"declaring {nullable} of {address.uri} not nullable") from error
        changes += 1
    # Steps 2 to 4
    pinned = folder.table.newest()
    if pinned.version != checked + changes:
        check_unique_keys(pinned, existing_rows(pinned, settings))
    contract = first_contract(address.uri, pinned, rows, settings.table, topic, name)
    return register(folder, pinned, contract)


def _forget_mark(folder: Folder, pinned: LancePinnedTable) -> None:
    commit = ColumnsCommit(TableVersion(pinned.version), pinned.schema, pinned.field_ids, {})
    outcome = folder.table.change_columns(commit)
    if not isinstance(outcome, Committed):
        raise StoreUnavailable(
            f"others changed the columns of {folder.table.uri} at the same time, or the store did not answer: {outcome}. "
            "Run the same command again"
        )


def existing_rows(pinned: LancePinnedTable, settings: Settings) -> RowSchema:
    """Return the Lance table's columns with the keys that the settings declare.

    ``InvalidSchema`` names every column and every property of the table that lancewal does not support."""
    storage = str(pinned.file_format)
    problems = []
    if storage in ("legacy", "0.1"):
        problems.append(
            f"its files have Lance's format {storage}, which loses nulls: rewrite the table in format 2.1 or later"
        )
    if pinned.dataset.mem_wal_index_details() is not None:
        problems.append(
            "Lance's own MemWAL is initialised on it, and lancewal does not read its rows. Write its rows into the table and "
            'drop its index, `dataset.drop_index("__lance_mem_wal")` (docs/how-to/attach-a-table.md shows how)'
        )
    for field in pinned.schema:
        try:
            plain = parse_type(format_type(field.type))
        except InvalidSchema as error:
            alike, way = _same_values(field.type), str(error)
            if alike is not None:
                cast = f'dataset.alter_columns({{"path": "{field.name}", "data_type": {_in_python(alike)}}})'
                way = f"type {field.type} is not supported, but another has the same values: convert the column by `{cast}`"
            problems.append(f"column {field.name!r}: {way}")
            continue
        if plain != field.type:
            problems.append(f"column {field.name!r}: type {field.type} differs from {plain}, which lancewal supports")
        elif _inner_names(plain) != _inner_names(field.type):  # which Arrow takes for the same type
            problems.append(
                f"column {field.name!r}: type {field.type} names the items of a list otherwise than {plain}, and Lance "
                "would refuse rows of lancewal: rewrite the column"
            )
        if not field.nullable and field.name not in settings.table.primary_key:
            problems.append(
                f"column {field.name!r} is not nullable: a record may leave out any column but the key; allow nulls by "
                f'`dataset.alter_columns({{"path": "{field.name}", "nullable": True}})`'
            )
        if storage == "2.0" and has_struct(field.type):
            problems.append(
                f"column {field.name!r}: files of Lance's format 2.0 cannot hold a null struct: rewrite the table in 2.1"
            )
    if problems:
        raise InvalidSchema(f"{settings.table.uri} cannot be attached: " + "; ".join(problems))
    declared = {name: type_text(column) for name, column in settings.table.columns.items()}
    metadata = settings.table.metadata_columns
    if declared and list(declared.items()) != [
        column for column in column_texts(pinned.schema).items() if column[0] not in metadata
    ]:
        raise ContractMismatch(
            f"table.columns declares {declared}, the table at {settings.table.uri} has {column_texts(pinned.schema)}; "
            "leave table.columns out, or correct it"
        )
    fields = [pa.field(field.name, field.type) for field in pinned.schema]
    return declared_keys(pa.schema(fields), settings.table)


def _same_values(type_: pa.DataType) -> pa.DataType | None:
    """Return a supported type that has the same values as ``type_``, and to which Lance can cast a column.  None if
    there is none."""
    types = pa.types
    if types.is_dictionary(type_):
        return _same_values(type_.value_type)
    if types.is_large_list(type_) or types.is_list(type_):
        item = _same_values(type_.value_type)
        return None if item is None else pa.list_(item)
    if types.is_struct(type_):
        return None  # Lance cannot cast structs
    if types.is_timestamp(type_) and type_.tz is not None:
        return pa.timestamp(type_.unit, "UTC")
    plain = pa.date32() if type_ == pa.date64() else type_
    try:
        return parse_type(format_type(plain))
    except InvalidSchema:
        return None


def _in_python(type_: pa.DataType) -> str:
    if pa.types.is_list(type_):
        return f"pa.list_({_in_python(type_.value_type)})"
    if pa.types.is_timestamp(type_):
        return f"pa.timestamp({type_.unit!r}, {type_.tz!r})"
    if pa.types.is_decimal128(type_):
        return f"pa.decimal128({type_.precision}, {type_.scale})"
    return "pa.bool_()" if pa.types.is_boolean(type_) else f"pa.{format_type(type_)}()"


def _inner_names(type_: pa.DataType) -> list[str]:
    return [n for i in range(type_.num_fields) for n in (type_.field(i).name, *_inner_names(type_.field(i).type))]
