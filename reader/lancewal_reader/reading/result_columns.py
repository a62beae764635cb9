"""The columns of a result.

Guarantees
 1. A result has the columns of its table version, also those of other programs, except their blobs.  The version's
    *mark* names the contract change that made its columns.  An entry or flush of the plan may be of a contract with
    newer columns.  Then the result has the columns of the newest such contract, with the version's types if these are
    wider.  Columns of other programs come after them.
 2. Fields are told apart by Lance's ids, as ``Column.ids`` keeps them.  So a value is in its own column, whatever that was
    called when the value was written.
 3. Columns of other programs have ids here that no contract has (``taken_whole``).  Lance may give them ids of dropped fields,
    whose values must not show in them.
 4. A read of a version with the newest contract's mark costs no request for this.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import pyarrow as pa

from lancewal_core.errors import ContractChanged, InvalidInput, InvalidSchema, LancewalError, or_error
from lancewal_core.region.flushes.manifest import read_flush
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.rows.carry import Tree, trees, widens, with_leaves
from lancewal_core.rows.column_types import format_type, parse_type
from lancewal_core.rows.schema import FieldIds, RowSchema
from lancewal_core.store.versioned import FIRST_VERSION
from lancewal_core.table.checks import blob_columns, changed_by_others, columns_as
from lancewal_core.table.columns.versions import Mark
from lancewal_core.table.contract import Contract, columns_version, newer_contract
from lancewal_core.table.protocol import ColumnsCommit, PinnedTable, columns_mark
from lancewal_reader.plan.log_entries import EntryRef
from lancewal_reader.plan.strong import FlushRef, ReadPlan, Source


def columns_of_plan(opened: OpenedTable, pinned: PinnedTable, plan: ReadPlan) -> RowSchema:
    """Return the columns of the plan's result.  ``pinned`` is the plan's version.

    Raises ``ContractMismatch`` if the version's primary key is not the contract's.  Raises ``ContractChanged`` if rows
    or columns follow a newer contract.
    """
    contract, ids = opened.contract, pinned.field_ids
    if columns_mark(pinned) == contract.columns_change and _has_all_names(pinned, contract):
        return contract.rows
    keys = [name for name in contract.primary_key if ids.get(name) != contract.fields_of[name]]
    if keys:
        raise changed_by_others(pinned, keys)
    newest = named = _contract_of_version(opened, pinned)
    if contract.columns_version > named.columns_version:
        newest = max((named, *(opened.contract_of(v) for v in _versions(opened, plan))), key=_age)
    knowing = _knowing(opened, pinned, named, newest.rows)
    _check_widened_ids(opened, pinned, (named.rows, newest.rows), knowing)
    before = _columns(pinned, named.rows, *knowing)
    if newest is named:
        return before
    own = _columns(pinned, newest.rows, *knowing)
    others = [
        (field, ids)
        for field, ids, was in zip(own.columns, own.ids, before.ids, strict=True)
        if ids[0] < 0 and was[0] < 0 and field.name not in newest.fields_of
    ]
    columns = pa.schema([*_as_wide(newest.rows, own), *(field for field, _ in others)])
    found = (*newest.rows.ids, *(ids for _, ids in others))
    return RowSchema(columns, contract.primary_key, contract.region_key, found)


def _as_wide(rows: RowSchema, own: RowSchema) -> list[pa.Field]:
    """Return the columns of ``rows``, with the wider types that a version may already have.

    ``own``: the version's columns.  A widening is committed to the table before a contract has the wider types."""
    there = {tree.id: tree.type for column in trees(own) for tree in column.all()}

    def wide(leaf: Tree) -> Tree:
        type_ = there.get(leaf.id, leaf.type)
        return replace(leaf, type=type_) if widens(leaf.type, type_) else leaf

    return [
        field.with_type(with_leaves(tree, wide).type) for field, tree in zip(rows.columns, trees(rows), strict=True)
    ]


def _has_all_names(pinned: PinnedTable, contract: Contract) -> bool:
    """Return whether a version has the contract's columns alone, and all names are the contract's, those of members too."""
    nested = [field for field in contract.rows.columns if pa.types.is_nested(field.type)]
    return [*pinned.field_ids.items()] == [*contract.fields_of.items()] and all(
        _plain(pinned.schema.field(field.name).type) == field.type for field in nested
    )


def _check_widened_ids(
    opened: OpenedTable, pinned: PinnedTable, wanted: Sequence[RowSchema], contracts: Sequence[Contract]
) -> None:
    """Raise ``ContractChanged`` if the version lacks fields of ``wanted``, and a newer contract may know their new
    ids.

    A widened field gets a new id.  The widening is committed to the table before the contract with the wider type."""
    lacks = any(_lacks(pinned, rows, contracts) for rows in wanted)
    if lacks and newer_contract(opened.store, opened.contract) is not None:
        raise ContractChanged(
            f"version {pinned.version} may have wider columns of a contract after version {opened.contract.version}: "
            "open the table again",
            version=pinned.version,
        )


def _lacks(pinned: PinnedTable, rows: RowSchema, contracts: Sequence[Contract]) -> bool:
    """Return whether the version lacks fields of ``rows``, as far as ``contracts`` know their ids."""
    there = {id_ for ids in columns_as(pinned, rows, contracts).ids for id_ in ids}
    return any(id_ >= 0 and id_ not in there for ids in rows.ids for id_ in ids)


def _knowing(opened: OpenedTable, pinned: PinnedTable, named: Contract, rows: RowSchema) -> tuple[Contract, ...]:
    """Return the contracts that know the ids of fields in a table version.  ``named``: the contract of the version's
    mark.  ``rows``: the columns of ``named``, or of a newer contract that unmerged rows name.

    The newest contract may not know a field that was dropped since, nor the id that a field had between two
    widenings.  If a field is missing, each contract back to ``named`` that changed columns is read, by one request
    each."""
    found = [named, *_made(opened, rows), opened.contract]
    if any(_lacks(pinned, wanted, found) for wanted in (named.rows, rows)):
        while found[-1].columns_version > named.columns_version:
            found.append(opened.contract_of(found[-1].columns_version - 1))
    return tuple(found)


def _made(opened: OpenedTable, rows: RowSchema) -> list[Contract]:
    """Return the contract versions read so far whose columns are the first columns of ``rows``."""
    contracts = {c.version: c for c in (*opened.contracts.known, opened.contract)}
    return [c for c in contracts.values() if rows.ids[: len(c.columns)] == c.rows.ids]


def check_no_blobs_asked(pinned: PinnedTable, names: Collection[str]) -> None:
    """Raise ``InvalidInput`` if one of these columns is a blob column that another program added.  No read returns such
    columns.
    """
    wrong = [name for name in blob_columns(pinned) if name in names]
    if wrong:
        raise InvalidInput(
            f"column {wrong[0]!r} is a blob column that another program added, and lancewal does not read blob columns. Leave "
            f"it out, or read it by pylance: `dataset.take_blobs({wrong[0]!r}, ...)` at table version {pinned.version}"
        )


def columns_of_version(opened: OpenedTable, pinned: PinnedTable, rows: RowSchema) -> RowSchema:
    """Return the columns of a table version, with the ids that they have in a result with the columns ``rows``."""
    contract = opened.contract
    if rows is contract.rows and columns_mark(pinned) == contract.columns_change and _has_all_names(pinned, contract):
        return rows
    return _columns(pinned, rows, *_knowing(opened, pinned, _contract_of_version(opened, pinned), rows))


def columns_commit(opened: OpenedTable, pinned: PinnedTable, rows: RowSchema) -> ColumnsCommit | None:
    """Return the commit that changes a table version's columns to those of a result; None if they are equal.

    Raises ``InvalidInput`` if a column would have to be widened, which means rewriting its values.
    """
    own = columns_of_version(opened, pinned, rows)
    if own.signature == rows.signature:
        return None
    contracts = {c.version: c for c in (*opened.contracts.known, opened.contract)}
    made = _made(opened, rows)
    types = {ids[0]: (field.type, field.name) for field, ids in zip(own.columns, own.ids, strict=True)}
    known = {column.ids: column for c in sorted(contracts.values(), key=_age) for column in c.columns}
    found: dict[str, FieldIds] = {}
    for field, ids in zip(rows.columns, rows.ids, strict=True):
        name, type_ = field.name, field.type
        was, before = types.get(ids[0], (type_, None))
        if was != type_ and ids not in known:
            raise changed_by_others(pinned, [name])
        if was != type_ and not pa.types.is_nested(was):
            raise InvalidInput(
                f"column {name!r} was widened to {type_} between table version {pinned.version} and other records of this "
                "point: choose another point"
            )
        same = before is not None and was == type_
        found[name] = pinned.field_ids[before] if same and before is not None else known[ids].field_ids
    mark = max(made, key=_age).columns_change if made else columns_mark(pinned)
    return ColumnsCommit(pinned.version, rows.table, found, {}, mark)


def check_values(opened: OpenedTable, pinned: PinnedTable, rows: RowSchema, names: Collection[str]) -> None:
    """Raise ``ContractMismatch`` if another program has replaced one of these columns by its own.

    Such a column lacks values of records.  ``rows``: columns of the result.
    """
    if rows is opened.contract.rows:
        return
    named = _contract_of_version(opened, pinned)
    there = {own[0] for own in columns_as(pinned, named.rows, _knowing(opened, pinned, named, rows)).ids}
    gone = {c.ids[0]: c.name for c in named.columns if c.ids[0] not in there and c.name in pinned.field_ids}
    wrong = {name for name, own in zip(rows.columns.names, rows.ids, strict=True) if own[0] in gone}
    wrong |= set(gone.values())
    if not wrong.isdisjoint(names):
        raise changed_by_others(pinned, sorted(wrong.intersection(names)))


def know_contracts(opened: OpenedTable, plan: ReadPlan) -> None:
    """Read each contract version that rows of the plan name, if its columns may differ from the newest ones."""
    if not opened.contract.columns_unchanged:
        for version in _versions(opened, plan):
            if version < opened.contract.columns_version:
                opened.contract_of(version)


def _contract_of_version(opened: OpenedTable, pinned: PinnedTable) -> Contract:
    """Return the contract whose columns a table version has.  A change of columns that is unfinished in this version
    is ignored.

    If no contract names the version's change, somebody has since deleted the contracts and attached the table again.
    Then the first contract of the attached table is returned."""
    ours, made = opened.contract, Mark.of(pinned).made
    if made == ours.columns_change:
        return ours
    version = columns_version(made)
    newest = ours if version <= ours.version else newer_contract(opened.store, ours) or ours
    if version <= newest.version:
        named = opened.contract_of(version)
        if named.columns_change == made:
            return named
    return ours if ours.columns_unchanged else opened.contract_of(FIRST_VERSION)


def _versions(opened: OpenedTable, plan: ReadPlan) -> list[int]:
    """Return the contract versions that entries and flushes of the plan name."""
    flushes = sorted({source.key for source in _sources(plan) if isinstance(source, FlushRef)})
    read = opened.tasks.map(lambda key: or_error(lambda: read_flush(opened.store, key)), flushes)
    # The rows of a flush that cannot be read come from its entries, or end the read by name.
    versions = {flush.contract_version for flush in read if not isinstance(flush, LancewalError)}
    return sorted(versions | {source.contract_version for source in _sources(plan) if isinstance(source, EntryRef)})


def _sources(plan: ReadPlan) -> Iterator[Source]:
    return (source for delta in plan.deltas for source in delta.sources)


def _age(contract: Contract) -> int:
    return contract.columns_version


def _columns(pinned: PinnedTable, ours: RowSchema, *contracts: Contract) -> RowSchema:
    """Return the version's columns, with the ids of ``columns_as`` and the Arrow types that contracts use."""
    own = columns_as(pinned, ours, contracts)
    fields = [pa.field(f.name, _plain(f.type), f.name not in ours.primary_key) for f in own.columns]
    return replace(own, columns=pa.schema(fields))


@lru_cache(maxsize=1024)
def _plain(type_: pa.DataType) -> pa.DataType:
    """Return the Arrow type that contracts use for a column's type.  Columns of other programs may have types that no
    contract has; these are returned unchanged.
    """
    try:
        return parse_type(format_type(type_))
    except InvalidSchema:
        return type_
