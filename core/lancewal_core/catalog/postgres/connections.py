"""Statements that run in PostgreSQL, each in a transaction of its own.

Guarantees
 1. Connecting to one host takes at most ``CONNECT_S`` seconds, a statement at most ``STATEMENT_S``.  Then, and after
    a lost connection, ``CatalogUnavailable`` is raised.  The statement may still be done.
 2. A statement runs again, once, if its connection was lost.  So each statement must allow that: the answer may have
    been lost after the commit.
 3. A connection keeps no session state, and no statement is prepared.  PgBouncer may pool transactions.
 4. ``CatalogRefused``: a person must act, and the statement was not done.  The message says what to do.  No message
    has the password.

Connections are opened by the caller's thread when they are needed, and kept open for the next statement.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Sequence
from threading import Lock
from typing import Any

import psycopg
from psycopg.abc import RV, PQGen

from lancewal_core.catalog.postgres.parameters import CONNECT_S, parameters, shown
from lancewal_core.errors import CatalogRefused, CatalogUnavailable, InvalidInput, LancewalError
from lancewal_core.process.library_errors import without_secrets

STATEMENT_S = 5.0
"""Time limit for a statement and its answer, in seconds."""
SCHEMA_NEWEST = 1
"""Newest version of the schema that this release knows: the number of its last migration."""
SCHEMA_OLDEST = 1
"""Oldest version with which this release works: that of the release before."""
_IDLE_MAX = 4
_READ_VERSION = b"SELECT version FROM lancewal.schema_version"
_INIT = "run `lancewal catalog init` with a role that may create a schema"
_REFUSED = re.compile(
    r"password|authentication|pg_hba\.conf|certificate|SSL|no encryption|does not exist|permission denied"
    r"|not permitted to log in",
)
"""Words with which PostgreSQL and its client say that they do not accept each other, or that user or database are
missing.  An error of connecting has no code by which to tell."""
_OF_ALL_HOSTS = "All failures were:"
"""Text in an error of psycopg, before the failures of all hosts.  In front of this text stands the failure of the
last host."""
_LENGTH_MAX = 600
"""Largest number of characters of an error's text that are shown: enough for the failures of three hosts."""


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose statements time out on the client's side, so that a hanging server does not block."""

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        return super().wait(gen, interval, STATEMENT_S if timeout is None else timeout)


class Connections:
    """Connections to one database.  ``shown`` is its address in messages.

    ``checked``: each new connection first reads the version of the schema, which this release must know.
    """

    def __init__(self, url: str, password: str, *, checked: bool = True) -> None:
        self._parameters = parameters(url, password)
        self._checked = checked
        self.shown = shown(self._parameters)
        self._lock = Lock()
        self._idle: list[Connection] = []
        weakref.finalize(self, _close, self._idle, self._lock)

    def run(self, statement: bytes, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement, and return its rows.  The statement may be run twice."""
        lost = False
        try:
            try:
                return self._run(statement, values)
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                lost = _was_lost(error)
                if not lost:
                    raise
                _close(self._idle, self._lock)
                return self._run(statement, values)
        except (psycopg.Error, CatalogRefused) as error:
            told = self.told(error) if isinstance(error, psycopg.Error) else error
            if lost and isinstance(told, CatalogRefused):
                told = CatalogUnavailable(f"{told}. The statement may be done: its connection was lost")
            if told is error:
                raise
            raise told from error

    def open(self) -> Connection:
        """Return a new connection, which the caller closes."""
        try:
            return self._open()
        except psycopg.Error as error:
            raise self.told(error) from error

    def _run(self, statement: bytes, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        connection = connection or self._open()
        try:
            cursor = connection.execute(statement, values, prepare=False)
            rows = cursor.fetchall() if cursor.description else []
        except psycopg.OperationalError:
            connection.close()
            raise
        except BaseException as error:
            if not isinstance(error, psycopg.Error):
                connection.close()  # nobody knows what is under way on it
            raise
        finally:
            self._keep(connection)
        return rows

    def _keep(self, connection: Connection) -> None:
        with self._lock:
            if not connection.closed and len(self._idle) < _IDLE_MAX:
                self._idle.append(connection)
                return
        connection.close()

    def _open(self) -> Connection:
        connection = Connection.connect(**self._parameters, autocommit=True, prepare_threshold=None)
        try:
            if self._checked:
                self._check(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _check(self, connection: Connection) -> None:
        found = connection.execute(_READ_VERSION).fetchone()
        version = found[0] if found else 0
        self.check_known(version)
        if version < SCHEMA_OLDEST:
            raise CatalogRefused(
                f"the catalog {self.shown} has schema version {version}, and this release needs at least "
                f"{SCHEMA_OLDEST}: run `lancewal catalog migrate`"
            )

    def check_known(self, version: int) -> None:
        """Raise ``CatalogRefused`` if the schema is newer than this release."""
        if version > SCHEMA_NEWEST:
            raise CatalogRefused(
                f"the catalog {self.shown} has schema version {version}, and this release knows versions up to "
                f"{SCHEMA_NEWEST}: upgrade lancewal"
            )

    def told(self, error: psycopg.Error) -> LancewalError:
        """Convert an error of psycopg to an error of lancewal."""
        all_said = error.diag.message_primary or str(error)
        whole = " ".join(without_secrets(all_said.partition(_OF_ALL_HOSTS)[2] or all_said).split())
        text = whole[:_LENGTH_MAX] or type(error).__name__
        said = f"the catalog {self.shown} {{}}: {text}"
        match error:
            case psycopg.errors.InvalidSchemaName() | psycopg.errors.UndefinedTable():
                return CatalogRefused(f"{said.format('has no schema of lancewal')}. {_INIT[0].upper()}{_INIT[1:]}")
            case psycopg.errors.InsufficientPrivilege():
                return CatalogRefused(f"{said.format('refuses access')}. Grant the role its rights")
            case psycopg.errors.QueryCanceled():
                return CatalogUnavailable(said.format("ended the statement"))
            case psycopg.errors.DiskFull():
                return CatalogUnavailable(f"{said.format('is full')}. Make room on its disk")
            case psycopg.errors.ReadOnlySqlTransaction():
                return CatalogUnavailable(f"{said.format('takes no writes')}. Name the primary server in catalog.url")
            case psycopg.DataError() if error.sqlstate is not None:
                return InvalidInput(said.format("cannot store a value"))
            case psycopg.OperationalError() if error.sqlstate is None and _REFUSED.search(whole):
                return CatalogRefused(
                    f"{said.format('refuses the connection')}. Correct catalog.url and catalog.password (in Python the "
                    "argument password), or the server"
                )
            case _ if "session is read-only" in whole:
                return CatalogUnavailable(f"{said.format('takes no writes')}. Name the primary server in catalog.url")
            case _:
                return CatalogUnavailable(
                    f"{said.format('does not answer')}. Tables are still opened by their addresses. lancewal waits up to "
                    f"{CONNECT_S} s for a connection and {STATEMENT_S:.0f} s for a statement"
                )


def _was_lost(error: psycopg.Error) -> bool:
    """Return whether the connection ended during a statement; False if it was never opened, or a time limit
    passed."""
    text = str(error)
    return (
        error.sqlstate in (None, "57P01", "57P02", "57P03")
        and "connection failed" not in text
        and "timeout" not in text
    )


def _close(connections: list[Connection], lock: Lock) -> None:
    with lock:
        ending, connections[:] = list(connections), []
    for connection in ending:
        connection.close()
