"""Changes of columns in the steps of docs/protocol.md, by these lines alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lancewal_core.names import paths
from lancewal_core.store.object_store import Done, ObjectStore, put_once
from lancewal_core.table.contract import Column, Contract, DroppedField, FormerName, encode_contract
from lancewal_core.table.protocol import ColumnsCommit, Committed, StoredTable


def next_columns(
    contract: Contract, changes: Mapping[str, str | None], added: Mapping[str, str], **terms: Any
) -> Contract:
    """Return the next version: ``changes`` has new names by the old ones, None for a column that is dropped; ``added`` has
    types, each perhaps with a default: ``string = "none"``.  Columns keep their order, and those added come last."""
    highest = max(contract.highest_field_id or 0, *contract.field_ids)
    columns, former, dropped = list[Column](), list(contract.former_names), list(contract.dropped)
    for column in contract.columns:
        name = changes.get(column.name, column.name)
        if name is None:
            dropped.append(DroppedField(name=column.name))
            former = [one for one in former if one.id != column.ids[0]]
        else:
            if name != column.name:
                former.append(FormerName(id=column.ids[0], name=column.name))
            columns.append(column.model_copy(update={"name": name}))
    for name, text in added.items():
        type_, _, default = text.partition(" = ")
        ids = tuple(range(highest + 1, highest + 2 + type_.count("list<") + type_.count(":") + 3 * type_.count("map<")))
        highest = ids[-1]
        columns.append(Column(name=name, type=type_, field_ids=ids, default=default or None))
    version = contract.version + 1
    changed = {
        "columns": tuple(columns),
        "columns_change": f"{version}-{version:x}",
        "highest_field_id": highest,
        "former_names": tuple(former),
        "dropped": tuple(dropped),
    }
    return contract.model_copy(
        update={"format": 2, "version": version, **(changed if changes or added else {}), **terms}
    )


def change_table(store: ObjectStore, table: StoredTable, contract: Contract) -> None:
    """Grow, contract and shrink: bring the table to ``contract``, and store that."""
    pinned = table.newest()
    commit = ColumnsCommit(pinned.version, contract.rows.table, contract.fields_of, {}, contract.columns_change)
    if not contract.columns_unchanged and pinned.field_ids != contract.fields_of:
        assert isinstance(table.change_columns(commit), Committed)
    key = paths.contract_version(contract.version, contract.making)
    assert isinstance(put_once(store, key, encode_contract(contract)), Done)
