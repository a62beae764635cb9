"""A service as a child process: started with a log file, watched until it is ready, stopped within a deadline.

1. The child does not outlive this process, whatever ends this process (see ``die_with_parent``); on systems other than Linux
   only an orderly end of Python stops it.
2. The child is in a session of its own: Ctrl-C in the terminal reaches this process alone, which then stops its
   services in the order it wants.
3. Signals go only to children that this object started and that have not been waited for yet, so never to a
   stranger that got the same process id.
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
        """``environment`` is added to the environment of this process."""
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
        """None while it runs; negative if a signal ended it."""
        return self._child.poll()

    def kill(self) -> None:
        """SIGKILL to the child and to whatever it started; nothing if it has ended."""
        if self.exit_code is None:
            os.killpg(self.pid, signal.SIGKILL)
        self._forget()

    def stop(self, grace_s: float = 20.0) -> None:
        """SIGTERM, and ``kill`` if it still runs after ``grace_s`` seconds."""
        if self.exit_code is None:
            self._child.terminate()
            try:
                self._child.wait(grace_s)
            except subprocess.TimeoutExpired:
                self.kill()
        self._forget()

    def wait_until(self, ready: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Return once ``ready()`` is true; StackFailed with the log's end if the child ends or the time is up."""
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

    def start(self) -> None:
        """Start ``_process``, and wait until it answers."""
        raise NotImplementedError

    def stop(self) -> None:
        """An orderly shut-down."""
        if self._process is not None:
            self._process.stop(self._grace_s)

    def kill(self) -> None:
        """End it as a crash does (SIGKILL)."""
        if self._process is not None:
            self._process.kill()

    def freeze(self) -> None:
        """Let it take connections and say nothing on them, until ``thaw`` or ``kill``."""
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Go on where ``freeze`` has held it."""
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGCONT)

    def restart(self) -> None:
        """Start it again; a running one is stopped first."""
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
    """Run to the end; StackFailed with the log's end when the exit code is not 0.

    Ctrl-C reaches the child too, so nothing is left running.
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
    """The last ``lines`` lines under a heading that names the file."""
    with open(log, "rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - _TAIL_BYTES))
        text = file.read().decode(errors="replace")
    return "\n".join([f"The end of {log}:", *text.splitlines()[-lines:]])
