"""A merge task that halts the executor process which loads it first, so that a test can act in the middle of a merge."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
_DEADLINE_S = 120.0


@dataclass(slots=True)
class Gate:
    """``folder`` is empty at first."""

    folder: Path

    def before(self, task: T) -> T:
        """``task`` once it is loaded elsewhere; loading it waits there, the first time, until the gate is opened."""
        return _Gated(task, str(self.folder))  # type: ignore[return-value] # it is one after pickling

    def held(self) -> int:
        """Wait until a process is held; its id."""
        until = time.monotonic() + _DEADLINE_S
        while not (text := _read(self.folder / "held")):
            assert time.monotonic() < until, "no executor has come to the gate"
            time.sleep(0.01)
        return int(text)

    def open(self) -> None:
        (self.folder / "open").touch()


@dataclass(frozen=True, slots=True)
class Broken:
    """A task that cannot be loaded anywhere else."""

    text: str

    def __reduce__(self) -> tuple[object, ...]:
        return _raise, (self.text,)


class _Gated:
    def __init__(self, task: object, folder: str) -> None:
        self._value = (task, folder)

    def __reduce__(self) -> tuple[object, ...]:
        return _pass, self._value


def _pass(task: object, folder: str) -> object:
    try:
        file = os.open(f"{folder}/held", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return task
    os.write(file, str(os.getpid()).encode())
    os.close(file)
    until = time.monotonic() + _DEADLINE_S
    while not os.path.exists(f"{folder}/open"):
        assert time.monotonic() < until, "nobody has opened the gate"
        time.sleep(0.01)
    return task


def _raise(text: str) -> object:
    raise RuntimeError(text)


def _read(file: Path) -> str:
    return file.read_text() if file.exists() else ""
