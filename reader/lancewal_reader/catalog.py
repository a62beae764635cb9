"""``open_catalog``: tables by name, for readers in any process."""

from __future__ import annotations

import os
from collections.abc import Mapping

from lancewal_core.catalog.catalog import StoredCatalog, found_table
from lancewal_core.catalog.entry import TableEntry
from lancewal_core.catalog.named import active
from lancewal_core.catalog.opened import open_by_text
from lancewal_core.catalog.table_name import table_name
from lancewal_core.errors import InvalidInput
from lancewal_reader.cuts import CutTables, open_cut
from lancewal_reader.table import Table, open_table


def open_catalog(
    catalog: str | os.PathLike[str], *, password: str = "", storage_options: Mapping[str, str] | None = None
) -> Catalog:
    """Open a catalog, which finds tables by name: ``open_catalog("s3://lake")["shop.orders"]``.

    ``catalog``: the address of the catalog.  A catalog in a folder has a local path, ``file://`` or ``s3://``.  A
    server has ``postgresql://...`` or ``https://...``; pass its secret as ``password``, not in the address.
    ``storage_options`` are Lance's, for the catalog and for its tables.

    Raises ``InvalidSettings`` if the address is not valid, and ``InvalidInput`` for any other wrong argument.
    """
    text: object = os.fspath(catalog) if isinstance(catalog, os.PathLike) else catalog
    if not isinstance(text, str) or not text:
        raise InvalidInput(f"catalog {catalog!r}: expected its address, as text or a pathlib.Path")
    return Catalog(open_by_text(text, storage_options, password), storage_options)


class Catalog:
    """An open catalog, made by ``open_catalog``.  Threads may share it.

    Nothing is cached: each call asks the catalog.  It raises ``CatalogUnavailable`` or ``StoreUnavailable`` if the
    catalog does not answer.
    """

    def __init__(self, stored: StoredCatalog, storage_options: Mapping[str, str] | None) -> None:
        self._stored = stored
        self._storage_options = storage_options

    def __getitem__(self, name: str) -> Table:
        """Open the table ``name`` for reading.  Raises ``TableUnknown`` if there is no such table, or it was dropped.
        Other errors are those of ``open_table``.
        """
        if not isinstance(name, str):
            raise InvalidInput(f"{name!r} is not the name of a table in a catalog: expected text")
        entry = active(self._stored, found_table(self._stored, table_name(name)))
        return open_table(entry.uri, storage_options=self._storage_options)

    def cut(self, name: str) -> CutTables:
        """Read the cut ``name`` once, and return its tables in the state that the cut records:
        ``catalog.cut("june")["shop.orders"]``.

        Raises ``CutMissing`` if there is no such cut.
        """
        return open_cut(self._stored, name, lambda uri: open_table(uri, storage_options=self._storage_options))

    def tables(self) -> Mapping[str, TableEntry]:
        """Return the entries of all tables, sorted by name.  The entry of a dropped table has the state ``dropped``."""
        return self._stored.tables()
