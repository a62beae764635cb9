"""Create and upgrade the schema of a catalog in PostgreSQL, by numbered files that each run once.

Only ``lancewal catalog init`` and ``lancewal catalog migrate`` do this, with a role that owns the schema.  All files
run in one transaction, which also stores the new version.  If two commands run at once, one waits for the other, at
most ``STATEMENT_S`` seconds.  After that time it fails, and has changed nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources

import psycopg

from lancewal_core.catalog.postgres.connections import SCHEMA_NEWEST, Connection, Connections

_FILE = re.compile(r"(\d{4})_\w+\.sql")
_LOCK = b"SELECT pg_advisory_xact_lock(7813126)"
"""Statement that takes a lock until the end of the transaction.  The number is arbitrary: nothing else in the
database uses it."""
_SCHEMA = b"""
CREATE SCHEMA IF NOT EXISTS lancewal;
CREATE TABLE IF NOT EXISTS lancewal.schema_version (version integer NOT NULL);
INSERT INTO lancewal.schema_version SELECT 0 WHERE NOT EXISTS (SELECT FROM lancewal.schema_version)
"""


def init(url: str, password: str) -> int:
    """Create the schema, or upgrade an existing one.  Return the previous version; 0 if there was none."""
    return _changed(url, password, first=_SCHEMA)


def migrate(url: str, password: str) -> int:
    """Upgrade the schema, and return its previous version.  Raises ``CatalogRefused`` if there is no schema, or a newer
    one.
    """
    return _changed(url, password)


def warnings(url: str, password: str) -> list[str]:
    """Return warnings about settings of the server by which the catalog's last changes may be lost.  Only names and
    cuts could be lost.

    Only a role with ``pg_monitor`` sees which replicas are asynchronous.
    """
    [row] = Connections(url, password).run(
        b"SELECT current_setting('fsync'), current_setting('synchronous_commit'), "
        b"current_setting('synchronous_standby_names'), count(*), count(*) FILTER (WHERE sync_state = 'async') "
        b"FROM pg_stat_replication"
    )
    fsync, commit, standbys, replicas, asynchronous = row
    found = []
    if fsync == "off":
        found.append("fsync is off: a crash of the machine may damage the database")
    if commit == "off":
        found.append("synchronous_commit is off: a crash may lose the last changes")
    if asynchronous or (replicas and (not standbys or commit in ("off", "local"))):
        found.append("a replica is asynchronous: its promotion may lose the last changes")
    return found


def migrations() -> Mapping[int, bytes]:
    """Return the text of each migration by its number."""
    folder = resources.files("lancewal_core.catalog.postgres") / "migrations"
    found = {int(named[1]): file.read_bytes() for file in folder.iterdir() if (named := _FILE.fullmatch(file.name))}
    return dict(sorted(found.items()))


def _changed(url: str, password: str, first: bytes = b"") -> int:
    connections = Connections(url, password, checked=False)
    connection = connections.open()
    try:
        with connection.transaction():
            return _upgraded(connections, connection, first)
    except psycopg.Error as error:
        raise connections.told(error) from error
    finally:
        connection.close()


def _upgraded(connections: Connections, connection: Connection, first: bytes) -> int:
    connection.execute(_LOCK)
    if first:
        connection.execute(first)
    found = connection.execute(b"SELECT version FROM lancewal.schema_version FOR UPDATE").fetchone()
    before = int(found[0]) if found else 0
    connections.check_known(before)
    for number, text in migrations().items():
        if number > before:
            connection.execute(text)
    connection.execute(b"UPDATE lancewal.schema_version SET version = %s", (SCHEMA_NEWEST,))
    return before
