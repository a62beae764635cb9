"""Processes of ``lancewal`` forked off one that has imported it: a service starts in a moment, where its imports alone take
two seconds of a processor.

1. What runs is a process of its own, in a session of its own, with its own memory, environment and standard files; signals,
   exit statuses and SIGKILL are the operating system's.  It does not outlive the process that it is forked off, nor that the
   tests.
2. The nursery, which is forked, only imports: it opens nothing, reads no settings, and starts no threads but those that
   libraries start when they are imported; a test holds that.  What a process would read of its environment while it
   imports is therefore none of ours: who tests that starts a process anew.
3. A process id is somebody else's only after ``Forked`` has let go of it: until then one that has ended is kept as a zombie.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import wait as ready_ones
from pathlib import Path
from typing import IO, cast

from lancewal_demo.stack import Process

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("api", "core", "kafka", "ingest", "flusher", "reader", "tables", "audit", "demo")
IMPORTED = (
    "lancewal_core",
    "lancewal_kafka",
    "lancewal_ingest",
    "lancewal_flusher",
    "lancewal_reader",
    "lancewal_audit",
)
NOT_IMPORTED = ("tests.twins", "lancewal_reader.spark")
"""What no service imports."""
MESSAGE_BYTES_MAX = 1 << 20
_POLL_S = 0.02
_PR_SET_PDEATHSIG = 1


# -- in the tests' process -------------------------------------------------------------------------------------------


class Nursery:
    """The process that is forked; one of each process of tests, begun when it is first needed."""

    _only: Nursery | None = None

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="lancewal-forks-")
        self._place = Path(self._folder.name) / "socket"
        self._process = Process(
            [sys.executable, "-m", "tests.support.forks", self._place],
            Path(self._folder.name) / "log",
            environment={
                "PYTHONPATH": os.pathsep.join(map(str, (ROOT, *(ROOT / package for package in PACKAGES)))),
                "OPENBLAS_NUM_THREADS": "1",
            },
        )
        self._process.wait_until(self._place.exists, "the process that is forked", 120.0)

    @classmethod
    def only(cls) -> Nursery:
        if cls._only is None:
            cls._only = cls()
        return cls._only

    @property
    def pid(self) -> int:
        return self._process.pid

    def fork(self, arguments: Sequence[str], environment: Mapping[str, str], files: Sequence[IO[bytes]]) -> Forked:
        """``lancewal ARGUMENTS``, or ``python -m MODULE ...`` where they begin with ``-m``, with this environment alone;
        ``files``: standard input, output and error."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.connect(str(self._place))
        message = json.dumps([list(arguments), dict(environment), os.getcwd()]).encode()
        assert len(message) <= MESSAGE_BYTES_MAX
        socket.send_fds(connection, [message], [file.fileno() for file in files])
        return Forked(connection, int(connection.recv(64)))


class Forked:
    """A process that was forked off.  ``exit_code`` as of ``subprocess``: negative if a signal ended it."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self.pid = pid
        self._connection = connection
        self._exit_code: int | None = None
        atexit.register(self.kill)

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._wait(0.0)

    def kill(self) -> None:
        """SIGKILL to the process and to whatever it started; nothing if it has ended."""
        if self.exit_code is None:
            os.killpg(self.pid, signal.SIGKILL)
        self._forget()

    def stop(self, grace_s: float) -> None:
        """SIGTERM, and ``kill`` if it still runs after ``grace_s`` seconds."""
        if self.exit_code is None:
            os.kill(self.pid, signal.SIGTERM)
            if self._wait(grace_s) is None:
                self.kill()
        self._forget()

    def wait(self, timeout_s: float) -> int:
        """Its exit code; TimeoutError, and it is killed, where it runs longer."""
        code = self._wait(timeout_s)
        if code is None:
            self.kill()
            raise TimeoutError(f"process {self.pid} still ran after {timeout_s:g} s")
        self._forget()
        return code

    def _wait(self, timeout_s: float | None) -> int | None:
        if self._exit_code is None and ready_ones([self._connection], timeout_s):
            said = self._connection.recv(64)
            assert said, "the process that is forked has died"
            self._exit_code = int(said)
        return self._exit_code

    def _forget(self) -> None:
        if self._connection.fileno() >= 0:
            self._wait(None)
            self._connection.close()
        atexit.unregister(self.kill)


# -- in the nursery --------------------------------------------------------------------------------------------------


def import_all() -> None:
    """Everything that a service or command may import."""
    importlib.import_module("lancewal_core.cli.program")
    for package in IMPORTED:
        paths = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages(paths, f"{package}."):
            if not module.name.startswith(NOT_IMPORTED) and not module.name.endswith("__main__"):
                importlib.import_module(module.name)


def nurse(place: str) -> None:
    """Fork whatever is asked for; returns in the forked process, prepared to be ``lancewal``."""
    import_all()
    gc.collect()
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(place + ".new")
    listener.listen(64)
    os.rename(place + ".new", place)
    running: dict[socket.socket, int] = {}
    ended: set[int] = set()
    nursery = os.getpid()
    while True:
        ready = ready_ones([listener, *running], _POLL_S if len(running) > len(ended) else None)
        for connection in cast("list[socket.socket]", ready):
            if connection is listener:
                asked, _ = listener.accept()
                message, files, _, _ = socket.recv_fds(asked, MESSAGE_BYTES_MAX, 3)
                pid = os.fork()
                if pid == 0:
                    for of_another in (listener, asked, *running):
                        of_another.close()
                    become(json.loads(message), files, nursery)
                    return
                for file in files:
                    os.close(file)
                running[asked] = pid
                asked.send(str(pid).encode())
            else:  # let go of
                pid = running.pop(connection)
                connection.close()
                if pid not in ended:
                    os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                ended.discard(pid)
        for connection, pid in running.items():
            if pid not in ended and (found := os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)):
                ended.add(pid)
                status = found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
                connection.send(str(status).encode())


def become(asked: tuple[list[str], dict[str, str], str], files: list[int], nursery: int) -> None:
    """The process that was asked for."""
    arguments, environment, folder = asked
    os.setsid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != nursery:
        os._exit(1)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.argv = ["-c", *arguments]
    sys.path[:0] = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]


if __name__ == "__main__":
    nurse(sys.argv[1])
    if sys.argv[1:2] == ["-m"]:
        del sys.argv[:2]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        from lancewal_core.cli.program import main

        main()
