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
    """The schema after a change."""

    before: int
    """Version before the change; 0: there was no schema."""
    now: int


def make_schema(settings: Settings) -> tuple[Schema | None, list[str]]:
    """Make or upgrade the schema.  Return it, None if the catalog has none, and warnings about the server.

    The errors are those of ``catalog.postgres.migrate``."""
    of = settings.catalog
    if of.kind != "postgres":
        return None, []
    open_postgres(of.url, of.password)  # names the extra if it is missing
    from lancewal_core.catalog.postgres import connections, migrate

    before = migrate.init(of.url, of.password)
    return Schema(before, connections.SCHEMA_NEWEST), migrate.warnings(of.url, of.password)


def upgrade_schema(settings: Settings) -> Schema:
    """Upgrade the schema.  Raises ``InvalidInput`` if the catalog has none.  Raises ``CatalogRefused`` if it is
    missing, or newer.
    """
    of = settings.catalog
    if of.kind != "postgres":
        raise InvalidInput(f"a catalog of kind {of.kind} has no schema: only one of kind postgres is migrated")
    open_postgres(of.url, of.password)
    from lancewal_core.catalog.postgres import connections, migrate

    before = migrate.migrate(of.url, of.password)
    return Schema(before, connections.SCHEMA_NEWEST)
