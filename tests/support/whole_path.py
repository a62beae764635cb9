"""The program under test as real processes: an installation, its settings, its services, and what they logged.

1. Commands come from the entry points that pyproject.toml names, whether or not the project is installed here; their
   processes are forked off one that has imported them (``forks``).
2. Every service has an event log of its own (``LANCEWAL_EVENT_LOG``) and a log file; a kill is what the operating system
   says it was (exit status -9), never what the test meant to do.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import tempfile
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import yaml

from lancewal_demo.stack.processes import log_tail
from tests.support.forks import PACKAGES, ROOT, Forked, Nursery

DEADLINE_S = 240.0
_POLL_S = 0.02
_FAILPOINT = re.compile(r"(?P<point>[a-z.]+):(?P<when>before|after)(:(?P<n>\d+))?=(?P<act>\w+)")

Event = Mapping[str, Any]


def until(
    condition: Callable[[], bool],
    what: Callable[[], object] = lambda: "",
    timeout_s: float = DEADLINE_S,
    poll_s: float = _POLL_S,
) -> None:
    """Return once ``condition()``; AssertionError with ``what()`` when the time is up."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"did not come about within {timeout_s:g} s: {what()}"
        time.sleep(poll_s)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command that ran to its end said."""

    code: int
    out: str
    err: str


class Lancewal:
    """An installation of the program in ``folder``, with one settings file."""

    def __init__(self, folder: Path, tree: Mapping[str, Any]) -> None:
        self.folder = folder
        self.config = folder / "lancewal.yaml"
        self._started: list[Service] = []
        info = folder / "site" / "lancewal-0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.4\nName: lancewal\nVersion: 0\n")
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        commands = project["entry-points"]["lancewal.commands"]
        lines = [f"{name} = {value}\n" for name, value in commands.items()]
        (info / "entry_points.txt").write_text("[lancewal.commands]\n" + "".join(lines))
        self.settings(tree)

    def settings(self, tree: Mapping[str, Any]) -> None:
        """Write the settings file; services read it when they start."""
        self.tree = dict(tree)
        self.config.write_text(yaml.safe_dump(dict(tree), sort_keys=False, allow_unicode=True))

    def run(self, *command: str, environment: Mapping[str, str] | None = None) -> Answer:
        """Run ``lancewal COMMAND`` with the settings file to its end."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            code = self._fork(command, environment or {}, out, err).wait(DEADLINE_S)
            out.seek(0)
            err.seek(0)
            return Answer(code, out.read().decode(), err.read().decode())

    def succeed(self, *command: str) -> str:
        """Run a command that must succeed; its standard output."""
        answer = self.run(*command)
        assert answer.code == 0, f"lancewal {' '.join(command)} gave {answer.code}:\n{answer.out}\n{answer.err}"
        return answer.out

    def start(
        self, *command: str, failpoint: str | None = None, environment: Mapping[str, str] | None = None
    ) -> Service:
        """Start ``lancewal COMMAND``; ``failpoint`` as in ``LANCEWAL_FAILPOINT``, the last one is how it ends."""
        name = f"{len(self._started) + 1:03d}-{command[0]}"
        events, log = self.folder / f"{name}.events", self.folder / f"{name}.log"
        variables = {**(environment or {}), "LANCEWAL_EVENT_LOG": str(events)}
        if failpoint is not None:
            variables |= {"LANCEWAL_TESTING": "1", "LANCEWAL_FAILPOINT": failpoint}
        with open(log, "ab") as output:
            process = self._fork(command, variables, output, output)
        self._started.append(Service(name, process, log, events, failpoint))
        return self._started[-1]

    @property
    def tails(self) -> str:
        """How every service stands that nobody has killed, and the end of its log."""
        shown = [s for s in self._started if s.exit_code != -signal.SIGKILL]
        return "\n".join(
            f"{s.name}: {'running' if s.running else f'ended with {s.exit_code}'}\n{s.tail}" for s in shown
        )

    def _fork(self, command: Sequence[str], more: Mapping[str, str], out: IO[bytes], err: IO[bytes]) -> Forked:
        with open(os.devnull, "rb") as nothing:
            arguments = [*command, "--config", str(self.config)]
            return Nursery.only().fork(arguments, self._environment(more), [nothing, out, err])

    def _environment(self, more: Mapping[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LANCEWAL_")}
        path = os.pathsep.join([str(self.folder / "site"), *(str(ROOT / package) for package in PACKAGES)])
        return {**kept, "PYTHONPATH": path, **more}


class Service:
    """A running ``lancewal`` process and its event log."""

    def __init__(self, name: str, process: Forked, log: Path, events: Path, failpoint: str | None) -> None:
        self.name = name
        self.failpoint = failpoint
        self.started_at = time.monotonic()
        self._process = process
        self._log = log
        self._place = events
        self._read = 0
        self._events: list[Event] = []

    @property
    def exit_code(self) -> int | None:
        return self._process.exit_code

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self.exit_code is None

    @property
    def events(self) -> Sequence[Event]:
        """Everything logged so far, in order; a line that is being written counts once it is whole."""
        if self._place.exists():
            with open(self._place, "rb") as file:
                file.seek(self._read)
                whole = file.read().rpartition(b"\n")[0]
            if whole:
                self._read += len(whole) + 1
                self._events += map(json.loads, whole.splitlines())
        return self._events

    def events_of(self, point: str) -> Sequence[Event]:
        return [event for event in self.events if event["point"] == point]

    def passed(self, point: str, when: str = "after") -> int:
        """How often this point was passed."""
        return sum(e["when"] == when for e in self.events_of(point))

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The JSON lines of its log; one that is being written counts once it is whole."""
        return [json.loads(line) for line in self.log.rpartition("\n")[0].splitlines() if line.startswith("{")]

    def logged(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line.get("event") == event]

    @property
    def opened(self) -> set[tuple[str, int]]:
        """The regions that this ingest has opened, some of them perhaps again after a rebalance."""
        return {(line["topic"], line["partition"]) for line in self.logged("partition_opened")}

    def reached(self) -> str | None:
        """``point:when`` if its failpoint was reached: passed exactly as often as the failpoint says."""
        if self.failpoint is None or (found := _last(self.failpoint)) is None:
            return None
        times = self.passed(found["point"], found["when"])
        return f"{found['point']}:{found['when']}" if times == int(found["n"] or 1) else None

    def check_killed(self) -> None:
        """SIGKILL has ended it, and the last thing that it has logged is its failpoint, passed as often as that says."""
        assert self.exit_code == -signal.SIGKILL, f"{self.name} ended with {self.exit_code}\n{self.tail}"
        assert self.failpoint is not None
        last = self.events[-1]
        met = f"{last['point']}:{last['when']}"
        assert _at(self.failpoint) == met, f"{self.name} died at {met}, not at {self.failpoint}"
        assert self.reached() == met

    @property
    def frozen(self) -> bool:
        """Whether SIGSTOP holds it."""
        state = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "T"

    def freeze(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()

    def terminate(self) -> None:
        """SIGTERM, and no waiting."""
        os.kill(self._process.pid, signal.SIGTERM)

    def stop(self) -> None:
        """SIGTERM; it must end well."""
        self._process.stop(grace_s=DEADLINE_S)
        assert self.exit_code == 0, f"{self.name} ended with {self.exit_code}\n{self.tail}"

    @property
    def tail(self) -> str:
        return log_tail(self._log)


def _at(failpoint: str) -> str:
    """``point:when`` of a failpoint."""
    found = _last(failpoint)
    assert found is not None, failpoint
    return f"{found['point']}:{found['when']}"


def _last(failpoints: str) -> re.Match[str] | None:
    return _FAILPOINT.fullmatch(failpoints.rpartition(",")[2])


@dataclass(frozen=True, slots=True)
class Life:
    """How a process is to end: at a failpoint, or so many seconds after its loop began to turn."""

    failpoint: str | None = None
    after_s: float = 0.0
    certain: bool = False
    """Whether the failpoint must be met, however long that takes."""


@dataclass(frozen=True, slots=True)
class Kill:
    """A process that SIGKILL has ended, by the word of the operating system."""

    name: str
    reached: str | None
    """``point:when`` where its failpoint killed it; None: somewhere, at a random moment."""
    began: frozenset[str]
    """Points whose newest passing was ``before``."""


class Slot:
    """One place of the fleet: a process, and its successor as soon as it is dead."""

    def __init__(self, lancewal: Lancewal, command: Sequence[str], lives: Sequence[Life], patience_s: float) -> None:
        """After the last of ``lives`` the process lives on.  A failpoint not met in ``patience_s`` becomes a random kill, but
        for those that must be met."""
        self._lancewal = lancewal
        self._command = tuple(command)
        self._lives = list(lives)
        self._patience_s = patience_s
        self._life: Life | None = None
        self._turning_at: float | None = None
        self.kills: list[Kill] = []
        self.service = self._next()

    @property
    def settled(self) -> bool:
        """All lives are spent."""
        return self._life is None

    def tick(self) -> Kill | None:
        """Look after the process; the kill, if it is dead since the last look."""
        service, life = self.service, self._life
        if service.exit_code is not None:
            assert service.exit_code == -signal.SIGKILL, (
                f"{service.name} ({service.failpoint}) ended with {service.exit_code}\n{service.tail}"
            )
            latest = {e["point"]: e["when"] for e in service.events}
            began = frozenset(point for point, when in latest.items() if when == "before")
            kill = Kill(service.name, service.reached(), began)
            self.kills.append(kill)
            self.service = self._next()
            return kill
        if life is None:
            return None
        now = time.monotonic()
        if self._turning_at is None and service.events:
            self._turning_at = now
        turning = 0.0 if self._turning_at is None else now - self._turning_at
        if turning > self._longest_s(life):
            service.kill()
        return None

    def _longest_s(self, life: Life) -> float:
        if life.failpoint is None:
            return life.after_s
        return DEADLINE_S if life.certain else self._patience_s

    def _next(self) -> Service:
        self._life = self._lives.pop(0) if self._lives else None
        self._turning_at = None
        failpoint = None if self._life is None or self._life.failpoint is None else f"{self._life.failpoint}=kill"
        return self._lancewal.start(*self._command, failpoint=failpoint)


def shuffled(
    rng: random.Random, failpoints: Sequence[str], randoms: int, longest_s: float, certain: Set[str] = frozenset()
) -> list[Life]:
    """These failpoints and so many random moments, in random order; ``certain``: ``point:when`` that must be met."""
    lives = [Life(f, certain=_at(f"{f}=kill") in certain) for f in failpoints] + [
        Life(after_s=rng.uniform(0.0, longest_s)) for _ in range(randoms)
    ]
    rng.shuffle(lives)
    return lives
