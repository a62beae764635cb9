"""The roles that the page about PostgreSQL makes: the services' role does what services do, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from lancewal_core.catalog.postgres import connections, migrate
from lancewal_core.catalog.postgres_catalog import PostgresCatalog
from lancewal_core.catalog.report import TableReport
from lancewal_core.errors import CatalogRefused
from tests.support.catalog_entries import cut, entry
from tests.support.postgres import PASSWORD, PostgresServer

PAGE = Path(__file__).resolve().parents[4] / "docs" / "how-to" / "catalog-in-postgresql.md"
OWNER, SERVICE = "catalog_owner", "lancewal"


@pytest.fixture
def server(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """A server in which a person did what the page says.  Its database is another one than that of other tests."""
    roles, rights = re.findall(r"```sql\n(CREATE ROLE.*?|GRANT.*?)```", PAGE.read_text(), re.DOTALL)
    for statement in roles.replace("'...'", f"'{PASSWORD}'").replace("DATABASE lake", "DATABASE by_page").split(";"):
        postgres.run(statement)  # a database is made in no transaction
    migrate.init(postgres.url("by_page", OWNER), PASSWORD)
    postgres.run(rights, "by_page", OWNER)
    yield postgres
    postgres.run("DROP DATABASE by_page WITH (FORCE)")
    for role in (SERVICE, OWNER):
        postgres.run(f"DROP ROLE {role}")


def of_service(server: PostgresServer) -> PostgresCatalog:
    return PostgresCatalog(server.url("by_page", SERVICE), PASSWORD)


def test_the_services_role_does_all_that_services_and_commands_do(server: PostgresServer) -> None:
    catalog = of_service(server)
    first, second = entry(), entry()
    assert catalog.swap_table("shop.orders", None, first)
    assert catalog.swap_table("shop.orders", first, second)
    assert catalog.tables() == {"shop.orders": second}
    moving = cut("live", moving=True)
    assert catalog.swap_cut("live", None, moving)
    assert catalog.cuts() == {"live": moving}
    for version in (1, 2):
        catalog.report(TableReport("u1", version, 1, 0.5), catalog.server())
    assert catalog.reported_to("u1") == catalog.server()
    assert server.run("SELECT name, merged_version FROM lancewal.tables", "by_page", SERVICE) == [("shop.orders", 2)]
    assert catalog.server() == PostgresCatalog(server.url("by_page"), PASSWORD).server()
    assert catalog.swap_cut("live", moving, None)
    assert catalog.swap_table("shop.orders", second, None)
    assert server.run("SHOW statement_timeout", "by_page", SERVICE) == [("5s",)]


FORBIDDEN = (
    "CREATE TABLE lancewal.more (n int)",
    "CREATE TABLE public.more (n int)",
    "CREATE SCHEMA more",
    "CREATE INDEX more ON lancewal.entries (write_id)",
    "CREATE VIEW lancewal.more AS SELECT 1",
    "CREATE ROLE more",
    "CREATE DATABASE more",
    "ALTER TABLE lancewal.entries ADD COLUMN more int",
    "ALTER TABLE lancewal.entries OWNER TO lancewal",
    "ALTER VIEW lancewal.tables RENAME TO more",
    "DROP TABLE lancewal.entries",
    "DROP VIEW lancewal.tables",
    "DROP SCHEMA lancewal CASCADE",
    "TRUNCATE lancewal.entries",
    "UPDATE lancewal.schema_version SET version = 0",
    "DELETE FROM lancewal.schema_version",
    "INSERT INTO lancewal.schema_version VALUES (2)",
    "SELECT * FROM others.things",
    "DELETE FROM others.things",
    "SET ROLE catalog_owner",
    "COPY lancewal.entries TO PROGRAM 'true'",
    "SELECT pg_promote()",
)
"""Statements that change the schema, the server, or what belongs to others."""


def test_the_services_role_does_nothing_else(server: PostgresServer) -> None:
    server.run("CREATE SCHEMA others; CREATE TABLE others.things (n int)", "by_page", OWNER)
    for statement in FORBIDDEN:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            server.run(statement, "by_page", SERVICE)


def test_the_schema_is_changed_by_its_owner_alone_and_a_newer_one_is_refused_by_name(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``entries`` of a newer schema has a column more.  The release before works on until its services meet the version."""
    service, owner = server.url("by_page", SERVICE), server.url("by_page", OWNER)
    for change in (migrate.init, migrate.migrate):
        with pytest.raises(CatalogRefused, match="Grant the role its rights"):
            change(service, PASSWORD)
    newest = connections.SCHEMA_NEWEST
    assert migrate.migrate(owner, PASSWORD) == newest
    running = of_service(server)
    assert running.tables() == {}
    with monkeypatch.context() as newer_release:
        added = b"ALTER TABLE lancewal.entries ADD COLUMN more int"
        files = {**migrate.migrations(), newest + 1: added}
        newer_release.setattr(migrate, "migrations", lambda: files)
        for module in (connections, migrate):
            newer_release.setattr(module, "SCHEMA_NEWEST", newest + 1)
        assert of_service(server).tables() == {}  # upgraded first: its release works with the schema of the one before
        assert migrate.migrate(owner, PASSWORD) == newest
        assert of_service(server).swap_table("shop.orders", None, entry())
    assert list(running.tables()) == ["shop.orders"]
    with pytest.raises(CatalogRefused, match=f"schema version {newest + 1}, .* upgrade lancewal"):
        of_service(server).tables()
