"""Entries and cuts of catalogs for tests."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

from lancewal_core.catalog.catalog import StoredCatalog
from lancewal_core.catalog.cut import Cut, CutTable
from lancewal_core.catalog.entry import TableEntry

_writes = count(1)


def entry(name: str = "shop.orders", uri: str = "s3://lake/t", **terms: object) -> TableEntry:
    """Return an entry with these terms.  Each call is another write."""
    made = {"table_uuid": "u1", "topic": "orders", "changed_ms": 1, "write_id": f"write-{next(_writes)}"}
    return TableEntry.model_validate({"name": name, "uri": uri, **made, **terms})


def cut(name: str, number: int = 1, *, moving: bool = False) -> Cut:
    """Return a cut of one table.  Each call is another write."""
    tables = {"shop.orders": CutTable(uri="s3://lake/t", table_uuid="u1", receipt="lw1x", snapshot=f"{name}-1")}
    return Cut(
        name=name, moving=moving, number=number, tables=tables, asked_ms=1, took_ms=2, made_ms=3,
        write_id=f"write-{next(_writes)}",
    )  # fmt: skip


def shown(catalog: StoredCatalog) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return all that a catalog holds, but when and by which write an entry was written."""
    entries = {name: one.model_dump(exclude={"changed_ms", "write_id"}) for name, one in catalog.tables().items()}
    return entries, dict(catalog.cuts())
