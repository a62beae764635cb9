"""A PgBouncer of a test that pools transactions over few sessions of a PostgreSQL server.  It listens on 127.0.0.1 only."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg
import pytest

from tests.support.postgres import DATABASE, PASSWORD, PostgresServer, as_user, open_folder

SESSIONS = 2
"""Sessions of the server.  More clients than that share them, statement by statement."""


def program() -> str:
    """Return PgBouncer's program.  Skip the test where there is none: no wheel carries it."""
    found = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin") or shutil.which("pgbouncer")
    if found is None:
        pytest.skip("no pgbouncer is installed; Debian's package pgbouncer has one")
    return found


class PgBouncer:
    """Runs inside ``with``."""

    def __init__(self, server: PostgresServer) -> None:
        self._server, self._program = server, program()
        self._folder = Path(tempfile.mkdtemp(prefix="lancewal-pgbouncer-", dir=open_folder()))
        self._folder.chmod(0o755)
        with closing(socket.socket()) as taken:
            taken.bind(("127.0.0.1", 0))
            self.port: int = taken.getsockname()[1]

    def url(self, user: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{DATABASE}"

    def database(self) -> str:
        """Return the address of an empty catalog, whose schema was made through the pooler."""
        from lancewal_core.catalog.postgres.migrate import init

        self._server.database()
        self._server.run("DROP SCHEMA lancewal CASCADE", DATABASE)
        init(self.url(), PASSWORD)
        return self.url()

    def __enter__(self) -> Self:
        users, settings = self._folder / "users.txt", self._folder / "pgbouncer.ini"
        users.write_text(f'"postgres" "{PASSWORD}"\n')
        settings.write_text(
            f"[databases]\n{DATABASE} = host=127.0.0.1 port={self._server.port}\n[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\npool_mode = transaction\n"
            f"default_pool_size = {SESSIONS}\nauth_type = scram-sha-256\nauth_file = {users}\n"
            "admin_users = postgres\n"
        )
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, settings], stdout=log, stderr=log, start_new_session=True, **as_user()
            )
        while True:
            assert self._process.poll() is None, (self._folder / "log").read_text()[-3000:]
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=5):
                return self

    def sessions(self) -> int:
        """Return how many sessions of the server the pooler has."""
        console = f"postgresql://postgres@127.0.0.1:{self.port}/pgbouncer"
        with closing(psycopg.connect(console, password=PASSWORD, autocommit=True)) as connection:
            cursor = connection.execute("SHOW SERVERS")
            return len(cursor.fetchall())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
