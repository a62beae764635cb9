"""Make a catalog's root folder, and the database schema of a catalog in PostgreSQL.  Catalogs of other kinds have no
schema."""

from __future__ import annotations

import os
from contextlib import closing
from uuid import uuid4

from lancewal_core.catalog.catalog import StoredCatalog
from lancewal_core.catalog.opened import open_postgres, set_catalog
from lancewal_core.errors import InvalidInput, InvalidSettings, StoreNotWritable
from lancewal_core.names import paths
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.settings.load import Settings
from lancewal_core.store.address import local_folder, place_of
from lancewal_core.store.obstore import open_store
from lancewal_core.table.contract import newest_contract
from lancewal_core.table.proof.store_proof import StoreWay, prove_store


def make_root(settings: Settings) -> StoredCatalog:
    """Create the root of the catalog in the settings if one is set, and return the catalog.  An existing root does not
    change.

    Raises ``InvalidSettings`` if the root is the folder of a table, because the catalog would then be moved or deleted
    with the table.  The store must support put-if-absent, by which entries are changed.  Otherwise ``StoreNotWritable``
    or an error of ``prove_store`` is raised.
    """
    root = settings.catalog.root
    if root:
        folder = local_folder(root)
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StoreNotWritable(
                    f"cannot make the folder {folder}: {error.strerror}. Correct catalog.root"
                ) from error
        options = settings.storage.options
        with closing(ThreadTasks()) as tasks:
            way = StoreWay.of(root, options, os.environ)
            store = open_store(root, options)
            if store.list(paths.VERSIONS) or newest_contract(store) is not None:
                raise InvalidSettings(
                    f"catalog.root is {place_of(root)}, the folder of a table: set it to a folder in which tables lie"
                )
            prove_store(store, tasks, way, root, lambda: uuid4().hex)
    return set_catalog(settings)


def make_schema(settings: Settings) -> tuple[int | None, list[str]]:
    """Create or upgrade the catalog's database schema.  Return the schema's version and warnings about the server; None
    and no warnings if this kind of catalog has no schema.

    Raises the errors of ``catalog.postgres.migrate``.
    """
    of = settings.catalog
    if of.kind != "postgres":
        return None, []
    open_postgres(of.url, of.password)  # names the extra if it is missing
    from lancewal_core.catalog.postgres import connections, migrate

    migrate.init(of.url, of.password)
    return connections.SCHEMA_NEWEST, migrate.warnings(of.url, of.password)


def upgrade_schema(settings: Settings) -> tuple[int, int]:
    """Upgrade the catalog's database schema.  Return its versions before and after.

    Raises ``InvalidInput`` if this kind of catalog has no schema.  Raises ``CatalogRefused`` if the schema is missing, or
    newer than this release.
    """
    of = settings.catalog
    if of.kind != "postgres":
        raise InvalidInput(
            f"a catalog of kind {of.kind} has no schema to migrate: only catalogs of kind postgres have one"
        )
    open_postgres(of.url, of.password)
    from lancewal_core.catalog.postgres import connections, migrate

    return migrate.migrate(of.url, of.password), connections.SCHEMA_NEWEST
