"""Opening a catalog: by its address, or by the settings of a process."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lancewal_core.catalog.catalog import StoredCatalog
from lancewal_core.catalog.directory import DirectoryCatalog
from lancewal_core.errors import InvalidSettings, TableMissing
from lancewal_core.process.clock import Clock, SystemClock
from lancewal_core.process.tasks import Tasks, ThreadTasks
from lancewal_core.settings.catalog_url import kind_of_url
from lancewal_core.settings.load import Settings
from lancewal_core.store.address import whole_address
from lancewal_core.store.obstore import open_store

if TYPE_CHECKING:
    from lancewal_core.catalog.postgres_catalog import PostgresCatalog
    from lancewal_core.catalog.rest_catalog import RestCatalog


def open_directory(
    root: str, options: Mapping[str, str] | None = None, tasks: Tasks | None = None, clock: Clock | None = None
) -> DirectoryCatalog:
    """Return the catalog in the folder ``root``.  ``options`` are Lance's storage options.

    Raises ``InvalidSettings`` if the address is not valid, or the local folder does not exist.
    """
    try:
        store = open_store(root, options)
    except TableMissing:
        raise InvalidSettings(
            f"there is no catalog at {root}: the folder does not exist. Correct catalog.root, or make the catalog by "
            "`lancewal catalog init`"
        ) from None
    root = whole_address(root, options)
    return DirectoryCatalog(store, root, tasks or ThreadTasks(), clock or SystemClock(), lambda: uuid.uuid4().hex)


def open_postgres(url: str, password: str = "", root: str | None = None) -> PostgresCatalog:
    """Return the catalog in the database ``url``.  No connection is opened yet.

    Raises ``InvalidSettings`` if the address is not valid, or the extra ``postgres`` is not installed.
    """
    try:
        from lancewal_core.catalog.postgres_catalog import PostgresCatalog
    except ImportError as error:
        raise InvalidSettings(
            f"a catalog in PostgreSQL needs psycopg ({error}): pip install 'lancewal[postgres]'"
        ) from error
    return PostgresCatalog(url, password, root)


def open_rest(
    url: str,
    token: str = "",
    root: str | None = None,
    options: Mapping[str, str] | None = None,
    tasks: Tasks | None = None,
) -> RestCatalog:
    """Return the catalog behind a REST server at ``url``.  No request is sent yet.  Cuts are stored in the folder
    ``root``, with the storage options.

    Raises ``InvalidSettings`` if an address is not valid.
    """
    from lancewal_core.catalog.rest_catalog import RestCatalog

    tasks = tasks or ThreadTasks()
    return RestCatalog(url, token, root, open_directory(root, options, tasks) if root else None, tasks)


def open_by_text(text: str, options: Mapping[str, str] | None = None, password: str = "") -> StoredCatalog:
    """Open the catalog at an address: ``postgresql://...``, ``https://...``, or the root of a catalog in a folder.

    ``options`` are Lance's storage options.  ``password`` is that of a server.  Raises ``InvalidSettings`` if the
    address is not valid, or contains a secret.
    """
    match kind_of_url(text):
        case "postgres":
            return open_postgres(text, password)
        case "rest":
            return open_rest(text, password, options=options)
        case _:
            return open_directory(text, options)


def catalog_of(settings: Settings, tasks: Tasks | None = None, clock: Clock | None = None) -> StoredCatalog | None:
    """Return the catalog of the settings; None if they name none."""
    of = settings.catalog
    if not of.is_set:
        return None
    match of.kind:
        case "postgres":
            return open_postgres(of.url, of.password, of.root or None)
        case "rest":
            return open_rest(of.url, of.password, of.root or None, settings.storage.options, tasks)
        case "directory":
            return open_directory(of.root, settings.storage.options, tasks, clock)


def set_catalog(settings: Settings) -> StoredCatalog:
    """Return the catalog of the settings.  Raises ``InvalidSettings`` if they name none."""
    catalog = catalog_of(settings)
    if catalog is None:
        raise InvalidSettings(
            "the settings name no catalog: set catalog.root to the address of a folder for its tables"
        )
    return catalog
