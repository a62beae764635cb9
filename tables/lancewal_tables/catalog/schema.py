"""The schema of a catalog in PostgreSQL: ``lancewal catalog init`` makes it, ``lancewal catalog migrate`` upgrades it.

A catalog of another kind has no schema.
"""

from __future__ import annotations

from dataclasses import dataclass

from lancewal_core.catalog.opened import open_postgres
from lancewal_core.errors import InvalidInput
from lancewal_core.settings.load import Settings


@dataclass(frozen=True, slots=True)
class Schema:
    """Version of the database schema before and after an upgrade."""

    before: int
    """Version before the change; 0: there was no schema."""
    now: int


def make_schema(settings: Settings) -> tuple[Schema | None, list[str]]:
    """Create or upgrade the catalog's database schema.  Return its versions, or None if this kind of catalog has no
    schema, and warnings about the server.

    Raises the errors of ``catalog.postgres.migrate``.
    """
    of = settings.catalog
    if of.kind != "postgres":
        return None, []
    open_postgres(of.url, of.password)  # names the extra if it is missing
    from lancewal_core.catalog.postgres import connections, migrate

    before = migrate.init(of.url, of.password)
    return Schema(before, connections.SCHEMA_NEWEST), migrate.warnings(of.url, of.password)


def upgrade_schema(settings: Settings) -> Schema:
    """Upgrade the catalog's database schema.  Raises ``InvalidInput`` if this kind of catalog has no schema.  Raises
    ``CatalogRefused`` if the schema is missing, or newer than this release.
    """
    of = settings.catalog
    if of.kind != "postgres":
        raise InvalidInput(f"a catalog of kind {of.kind} has no schema: only one of kind postgres is migrated")
    open_postgres(of.url, of.password)
    from lancewal_core.catalog.postgres import connections, migrate

    before = migrate.migrate(of.url, of.password)
    return Schema(before, connections.SCHEMA_NEWEST)
