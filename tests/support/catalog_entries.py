"""Entries of catalogs for tests."""

from __future__ import annotations

from itertools import count

from lancewal_core.catalog.entry import TableEntry

_writes = count(1)


def entry(name: str = "shop.orders", uri: str = "s3://lake/t", **terms: object) -> TableEntry:
    """Return an entry with these terms.  Each call is another write."""
    made = {"table_uuid": "u1", "topic": "orders", "changed_ms": 1, "write_id": f"write-{next(_writes)}"}
    return TableEntry.model_validate({"name": name, "uri": uri, **made, **terms})
