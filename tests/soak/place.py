"""One process of the fleet, and what is to happen to it next: killed, frozen, ended, and started again."""

from __future__ import annotations

import random
import re
import time
from typing import Protocol

from tests.soak.pace import STORM_LIFE_S, Pace, Span
from tests.support.whole_path import Service
from tests.whole_path.world import World

_UNAVAILABLE = re.compile(r"^lancewal: (kafka|store)_unavailable: ", re.MULTILINE)


class Stage(Protocol):
    """What a place knows of its soak."""

    world: World
    rng: random.Random

    def note(self, act: str, **more: object) -> None: ...

    def soon(self, span: Span) -> float: ...


class Place:
    """See the module docstring.  ``pace`` may change while it lives."""

    def __init__(self, soak: Stage, command: str, pace: Pace, *, storm: bool) -> None:
        self.pace = pace
        self._soak = soak
        self._command = command
        self._storm = storm and command == "ingest"
        self._frozen = False
        self._start_at: float | None = None
        """When to start it again, after it has ended by itself."""
        self._ended_by: float | None = None
        """When it must have ended, after it was asked to."""
        self.service: Service = soak.world.lancewal.start(command, "run")
        self._next_at = self._soon()

    def tick(self) -> None:
        """Look after the process, and do to it what is due."""
        if not self.look_after() or time.monotonic() < self._next_at:
            return
        if self._frozen:
            self.thaw()
            self._next_at = self._soon()
            return
        act = self._soak.rng.choice(["kill", "kill", "freeze", "end"])
        if act == "end" and not self.service.log:
            act = "kill"  # the interpreter is still loading: nobody is there to hear SIGTERM
        self._soak.note(act, process=self.service.name)
        match act:
            case "freeze":
                self.service.freeze()
                self._frozen = True
                self._next_at = self._soak.soon(self.pace.frozen)
            case "kill":
                self.service.kill()
                self._start()
            case "end":
                self.service.terminate()
                self._ended_by = time.monotonic() + self.pace.grace_s

    def look_after(self) -> bool:
        """Whether it runs and nothing is under way with it; what has ended is started again, if it may end."""
        if self._start_at is not None:
            if time.monotonic() >= self._start_at:
                self._start()
            return False
        if self._ended_by is not None:
            return self._ending(self._ended_by)
        if self.service.exit_code is None:
            return True
        if not self._met_nobody:
            raise AssertionError(
                f"{self.service.name} ended by itself with {self.service.exit_code}\n{self.service.tail}"
            )
        self._soak.note("restart", process=self.service.name)
        self._start_at = time.monotonic() + self.pace.supervisor_s
        return False

    def thaw(self) -> None:
        if self._frozen:
            self.service.thaw()
            self._frozen = False

    @property
    def _met_nobody(self) -> bool:
        """It was started while Kafka or the store was away, and has ended with these words.  Or it was told to end, and one of
        them went away meanwhile."""
        away = _UNAVAILABLE.search(self.service.log) is not None or bool(self.service.logged("end_forced"))
        return self.service.exit_code == 3 and away

    def _ending(self, by: float) -> bool:
        if self.service.exit_code is None:
            if time.monotonic() < by:
                return False
            if not self.pace.overdue_is_killed:
                raise AssertionError(
                    f"{self.service.name} has not ended {self.pace.grace_s:g} s after SIGTERM\n{self.service.tail}"
                )
            self._soak.note("overdue", process=self.service.name)
            self.service.kill()
            self._start()
            return False
        if self.service.exit_code != 0 and not self._met_nobody:
            raise AssertionError(f"{self.service.name} was to end, with {self.service.exit_code}\n{self.service.tail}")
        self._soak.note("ended", process=self.service.name)
        self._start()
        return False

    def _start(self) -> None:
        self._start_at = self._ended_by = None
        self.service = self._soak.world.lancewal.start(self._command, "run")
        self._next_at = self._soon()

    def _soon(self) -> float:
        return self._soak.soon(STORM_LIFE_S if self._storm else self.pace.life)
