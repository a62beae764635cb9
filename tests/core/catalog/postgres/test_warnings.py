"""Warnings of ``lancewal catalog init`` about a server that may lose the catalog's last changes, on real servers."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from lancewal_core.catalog.postgres.migrate import warnings
from tests.support.postgres import DATABASE, PASSWORD, PostgresServer

OWNER = "catalog_owner"
FSYNC, COMMIT, REPLICA = "fsync is off", "synchronous_commit is off", "a replica is asynchronous"


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server of its own, whose settings a test changes, as safe as PostgreSQL is by itself."""
    server = PostgresServer()
    server.options["fsync"] = "on"
    with server:
        server.database()
        server.run(f"CREATE ROLE {OWNER} LOGIN PASSWORD '{PASSWORD}'")
        rights = "GRANT USAGE ON SCHEMA lancewal TO {0}; GRANT SELECT ON lancewal.schema_version TO {0}"
        server.run(rights.format(OWNER), DATABASE)
        yield server


def warned(server: PostgresServer) -> list[str]:
    """Return how the warnings begin that a superuser gets, and the schema's owner too."""
    of_owner = warnings(server.url(DATABASE, OWNER), PASSWORD)
    assert warnings(server.url(DATABASE), PASSWORD) == of_owner
    return [text.partition(":")[0] for text in of_owner]


def follows(server: PostgresServer, name: str, how: str) -> None:
    """Await that a replica streams in this way."""
    asked = f"SELECT 1 FROM pg_stat_replication WHERE (application_name, state, sync_state) = ('{name}', 'streaming', '{how}')"
    began = time.monotonic()
    while not server.run(asked):
        assert time.monotonic() - began < 60
        time.sleep(0.02)


def test_what_may_lose_changes_is_named(server: PostgresServer) -> None:
    """Each setting and each kind of replica makes its warning alone."""
    assert warned(server) == []
    with server.follower("near"):
        follows(server, "near", "async")
        assert warned(server) == [REPLICA]
        server.configure("synchronous_standby_names", "near")
        follows(server, "near", "sync")
        assert warned(server) == []
        for setting, expected in (("off", [COMMIT, REPLICA]), ("local", [REPLICA]), ("remote_apply", [])):
            server.run(f"ALTER DATABASE {DATABASE} SET synchronous_commit = {setting}")
            assert warned(server) == expected, setting
        with server.follower("far"):
            follows(server, "far", "async")
            (text,) = warnings(server.url(DATABASE), PASSWORD)
            assert text.startswith(REPLICA)
            assert warnings(server.url(DATABASE, OWNER), PASSWORD) == []  # it may not see which one is which
        server.configure("synchronous_standby_names", "")
    server.run(f"ALTER DATABASE {DATABASE} SET synchronous_commit = off")
    assert warned(server) == [COMMIT]
    server.run(f"ALTER DATABASE {DATABASE} RESET ALL")
    server.stop()
    server.options["fsync"] = "off"
    server.start()
    assert warned(server) == [FSYNC]
