"""Check table versions whose columns are wider, or of a newer contract version, than those of the contract that a
flusher uses.

Guarantees
 1. If a version has a column with the field id of its wider type, no row is written to the version with the
    contract's narrower type.  The column's values would be lost.
 2. Any flusher or command that reads such a version first writes the contract version with the wider types.  So a
    widening is completed wherever the process that began it has died.
 3. If a version has the columns of a newer contract version that dropped fields, no row is written to it with the
    older contract.  Another program's column may have the id of a dropped field, and would get that field's values.
"""

from __future__ import annotations

from collections.abc import Callable

from lancewal_core.errors import ContractChanged
from lancewal_core.process.failpoints import point
from lancewal_core.store.versioned import Version, swap
from lancewal_core.table.checks import in_version
from lancewal_core.table.columns.restored import check_fit
from lancewal_core.table.columns.versions import Mark
from lancewal_core.table.contract import (
    Column,
    Contract,
    columns_version,
    contract_family,
    decode_contract,
    encode_contract,
    newer_contract,
)
from lancewal_core.table.presence import check_present
from lancewal_core.table.protocol import ColumnsCommit, PinnedTable, columns_mark
from lancewal_flusher.context import FlusherContext


def check_version(context: FlusherContext, pinned: PinnedTable) -> None:
    """Check that rows may be written to a version.  Raises the errors of ``check_fit``.

    Raises ``ContractChanged`` if a widening has landed in the version.  A contract version with the wider types is
    then written first.  Raises it too if the version has the columns of a newer contract (guarantee 3).
    """
    check_fit(context.store, pinned, context.contract)
    if columns_version(Mark.of(pinned).made) > context.contract.version:
        newer = newer_contract(context.store, context.contract)
        if newer is not None:  # else the mark is of a former life of an attached table
            raise ContractChanged(
                f"table version {pinned.version} has columns of a newer contract than contract version "
                f"{context.contract.version}: read the contract again",
                version=pinned.version,
            )
    if all(in_version(pinned, column) is column for column in context.contract.columns):
        return
    take_wider(context, pinned)
    raise ContractChanged(
        f"table version {pinned.version} has wider columns than contract version {context.contract.version}: read the "
        "contract again",
        version=pinned.version,
    )


def take_wider(context: FlusherContext, pinned: PinnedTable) -> None:
    """Write a contract version with the wider types of the table version, and record this change in the table's
    metadata.  The record is left out if another change of columns is unfinished.
    """
    before: list[Contract] = []

    def wider(newest: Contract) -> tuple[Column, ...]:
        before[:] = [newest]
        return tuple(in_version(pinned, column) for column in newest.columns)

    after = swap_columns(context, wider, done=True)
    if after is None or columns_mark(pinned) != before[0].columns_change:
        return  # else a change of columns is unfinished, whose command brings the table to the contract
    newest = context.table.newest()
    if columns_mark(newest) == before[0].columns_change:
        # If something else lands in between, the next change of columns brings the mark.
        commit = ColumnsCommit(newest.version, newest.schema, newest.field_ids, {}, after.columns_change)
        check_present(context.store, context.contract)
        with point("columns.bring"):
            context.table.change_columns(commit)


def swap_columns(
    context: FlusherContext, columns_of: Callable[[Contract], tuple[Column, ...]], *, done: bool
) -> Contract | None:
    """Write the next contract version with other columns, and return it.  ``columns_of`` returns the columns, given
    the newest contract.  Return None if these are the newest contract's columns.

    ``done``: the change is in the table already: types have changed.  Otherwise only a request to widen columns
    changes.
    """
    family = contract_family(context.contract.making)
    made: list[Contract] = []

    def decide(found: Version | None) -> Contract | None:
        assert found is not None, "the contract was read"
        made.clear()
        newest = decode_contract(found.data, family.key(found.version))
        columns, version = columns_of(newest), newest.version + 1
        if columns == newest.columns:
            return None
        ids = [id_ for column in columns for id_ in column.lance_ids]
        terms = {
            "format": 2,
            "version": version,
            "columns": columns,
            "columns_change": f"{version}-{context.new_id()}" if done else newest.columns_change,
            "highest_field_id": max(newest.highest_field_id or 0, *ids),
        }
        made.append(newest.model_copy(update=terms))
        return made[0]

    with point("contract.put"):
        swap(context.store, family, context.clock, decide, encode_contract)
    return made[0] if made else None
