"""Consumers of changes as processes that are killed: each is followed by the next until its kills are spent."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lancewal_demo.stack.processes import log_tail
from tests.support.forks import PACKAGES, ROOT, Forked, Nursery


@dataclass
class Keeper:
    """A consumer, and its successor as soon as it is dead."""

    name: str
    program: Path
    kills: list[str]
    """Points at which it gets SIGKILL (``keeper``), a life each.  After the last one it lives on."""
    process: Forked | None = None
    met: list[str] = field(default_factory=list)

    def tick(self) -> bool:
        """Look after it; whether it has died since the last look."""
        if self.process is not None and self.process.exit_code is None:
            return False
        died = self.process is not None
        if self.process is not None:
            assert self.process.exit_code == -signal.SIGKILL, f"{self.name} ended by itself\n{self.tail}"
            assert self.kills, f"somebody else has killed {self.name}"
            self.met.append(self.kills.pop(0))
        arguments = ["-m", "tests.kept.keeper", str(self.program), *self.kills[:1]]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, *(ROOT / p for p in PACKAGES))))}
        with open(os.devnull, "rb") as nothing, self._log.open("ab") as log:
            self.process = Nursery.only().fork(arguments, environment, [nothing, log, log])
        return died

    def end(self) -> None:
        """Kill it at last."""
        assert self.process is not None
        self.process.kill()

    @property
    def tail(self) -> str:
        """What was met, what comes next, and the end of the log."""
        said = log_tail(self._log) if self._log.exists() else ""
        return f"{self.name}: {self.met}, then {self.kills[:1]}\n{said}"

    @property
    def _log(self) -> Path:
        return self.program.with_suffix(".log")


def program_of(folder: Path, name: str, parts: Sequence[str], texts: Mapping[str, str]) -> Path:
    """Programs of a page as one file, with these texts in place of those of the page."""
    program = "\n\n".join(parts)
    for text, there in texts.items():
        assert f'"{text}"' in program, text
        program = program.replace(f'"{text}"', repr(there))
    path = folder / f"{name}.py"
    path.write_text(program)
    return path
