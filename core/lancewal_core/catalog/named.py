"""Texts by which people name a table: an address, or a name in the catalog.

Guarantees
 1. A text with a slash is an address, and no catalog is asked.  So a table is always opened by its address.
 2. A text without a slash is a name, if the catalog has an active table of this name.  Otherwise it is the address of a
    local folder, if there is one.  ``./orders`` names a folder in any case.
 3. Any other text without a slash is an error.  The name of a dropped table is an error too, unless the caller asks for
    dropped tables: the command that takes a drop back must find the table.
"""

from __future__ import annotations

import os

from lancewal_core.catalog.catalog import StoredCatalog
from lancewal_core.catalog.entry import TableEntry
from lancewal_core.catalog.table_name import is_table_name
from lancewal_core.errors import TableUnknown


def may_be_name(text: str) -> bool:
    """Return whether the text may be a table's name, so that a catalog is asked (guarantee 1)."""
    return bool(text) and "/" not in text


def address_of(catalog: StoredCatalog, text: str, *, dropped: bool = False) -> str:
    """Return the address that ``text`` means: ``text`` itself, or the address of the table with this name.  Raises
    ``TableUnknown`` if it is neither (guarantee 3).  ``dropped`` also accepts the name of a dropped table."""
    if not may_be_name(text):
        return text
    entry = catalog.table(text) if is_table_name(text) else None
    if entry is not None:
        return entry.uri if dropped else active(catalog, entry).uri
    if os.path.isdir(text):
        return text
    raise TableUnknown(
        f"{text} is neither a table of the catalog {catalog.where} nor a folder here. `lancewal catalog list` shows the "
        "catalog's tables, and `lancewal catalog register NAME -t ADDRESS` adds one. An address has a slash, such as ./orders",
        table=text,
    )


def known_address(catalog: StoredCatalog, text: str, *, dropped: bool = False) -> str:
    """Return what ``address_of`` returns.  If that raises ``TableUnknown``, return ``text`` itself."""
    try:
        return address_of(catalog, text, dropped=dropped)
    except TableUnknown:
        return text


def active(catalog: StoredCatalog, entry: TableEntry) -> TableEntry:
    """Return ``entry``.  Raises ``TableUnknown`` if its table was dropped."""
    if entry.state == "active":
        return entry
    raise TableUnknown(
        f"the table {entry.name} of the catalog {catalog.where}, at {entry.uri}, was dropped. `lancewal table undrop -t "
        f"{entry.name}` takes that back until its objects are deleted",
        table=entry.name,
    )
