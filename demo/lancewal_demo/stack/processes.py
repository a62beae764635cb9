"""A service as a child process: started with a log file, watched until it is ready, stopped within a deadline.

1. The child does not outlive this process, whatever ends this process (see ``die_with_parent``).  On systems other than
   Linux, only an orderly end of Python stops the child.
2. The child has a session of its own: Ctrl-C in the terminal reaches this process alone, which then stops its services in
   its own order.
3. Signals go only to children that this object started and has not waited for yet, so never to another process with the
   same process id.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from lancewal_core.errors import ActionNeeded

_DIE_WITH_PARENT = Path(__file__).with_name("die_with_parent.py")
_POLL_S = 0.05
_TAIL_BYTES = 64 * 1024


class StackFailed(ActionNeeded):
    """A part of the local stack could not be fetched, built or started; the message has the end of its log."""


class Process:
    """A running child.  Its output is appended to ``log``.

    Must be created on the main thread: Linux ties a child to the thread that started it.
    """

    def __init__(
        self, arguments: Sequence[str | Path], log: Path, *, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start the program.  ``environment`` is added to the environment of this process."""
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(f"start {arguments[0]} from the main thread: the child dies with the thread")
        self.log = log
        launcher = [sys.executable, "-I", "-S", str(_DIE_WITH_PARENT), str(os.getpid())]
        with open(log, "ab") as output:
            self._child = subprocess.Popen(
                [*launcher, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        atexit.register(self.kill)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """Exit code of the child; None while it runs; negative if a signal ended it."""
        return self._child.poll()

    def kill(self) -> None:
        """Send SIGKILL to the child and all processes that it started; do nothing if it has ended."""
        if self.exit_code is None:
            os.killpg(self.pid, signal.SIGKILL)
        self._forget()

    def stop(self, grace_s: float = 20.0) -> None:
        """Send SIGTERM, and call ``kill`` if the child still runs after ``grace_s`` seconds."""
        if self.exit_code is None:
            self._child.terminate()
            try:
                self._child.wait(grace_s)
            except subprocess.TimeoutExpired:
                self.kill()
        self._forget()

    def wait_until(self, ready: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Wait until ``ready()`` is true; ``StackFailed`` with the log's end if the child ends or the time is up."""
        deadline = time.monotonic() + timeout_s
        while not ready():
            if self.exit_code is not None:
                raise StackFailed(f"{what} ended with exit code {self.exit_code}.\n{log_tail(self.log)}")
            if time.monotonic() > deadline:
                raise StackFailed(f"{what} was not ready after {timeout_s:g} s.\n{log_tail(self.log)}")
            time.sleep(_POLL_S)

    def _forget(self) -> None:
        self._child.wait()
        atexit.unregister(self.kill)


class Restartable:
    """A server that runs inside ``with``; ``stop`` and ``kill`` keep its data and ports for another ``start``."""

    _process: Process | None = None
    _grace_s = 20.0

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.exit_code is None

    def start(self) -> None:
        """Start the server as ``_process``, and wait until it answers."""
        raise NotImplementedError

    def stop(self) -> None:
        """Shut the server down in order."""
        if self._process is not None:
            self._process.stop(self._grace_s)

    def kill(self) -> None:
        """End the server as a crash does (SIGKILL)."""
        if self._process is not None:
            self._process.kill()

    def freeze(self) -> None:
        """Make the server accept connections without answers (SIGSTOP), until ``thaw`` or ``kill``."""
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let the server continue after ``freeze``."""
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGCONT)

    def restart(self) -> None:
        """Start the server again; if it runs, stop it first."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def run_logged(
    arguments: Sequence[str | Path], log: Path, what: str, *, environment: Mapping[str, str] | None = None
) -> None:
    """Run a program to its end; ``StackFailed`` with the log's end if the exit code is not 0.

    Ctrl-C reaches the child too, so it does not run on.
    """
    with open(log, "ab") as output:
        code = subprocess.run(
            list(map(str, arguments)),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            check=False,
        ).returncode
    if code:
        raise StackFailed(f"{what} failed with exit code {code}.\n{log_tail(log)}")


def log_tail(log: Path, lines: int = 30) -> str:
    """Return the last ``lines`` lines of a log, under a heading that names the file."""
    with open(log, "rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - _TAIL_BYTES))
        text = file.read().decode(errors="replace")
    return "\n".join([f"The end of {log}:", *text.splitlines()[-lines:]])
