"""Deterministic schedules: actors on threads of which exactly one runs, switching where a twin says so.

Guarantees
 1. Between two switches an actor runs alone.  Who runs next is drawn from the seed, so the same seed and the same code
    give the same schedule, whatever the machine does.
 2. Time stands still while an actor runs; each switch takes ``tick_s``, and when everyone sleeps time jumps to the
    first that wakes.
 3. ``crash`` ends a group of actors at the switches where they are: ``Crash`` unwinds their threads, nothing they hold
    is used again.  ``pause`` freezes a group; its world goes on without it.
 4. ``run`` returns when its condition holds.  It raises what an actor raised, ``Deadlock`` when nobody can ever run,
    and ``TooLong`` after ``switches_max``.

An actor that is switched to holds the *baton*: the one released lock of all that threads wait on.  All threads share one
processor: they never run at the same time, and waking one on another processor took longer than what it then did.
"""

from __future__ import annotations

import os
import sys
import threading
import zlib
from collections.abc import Callable
from random import Random

Switch = Callable[[str], None]
"""Called by a twin before and after an effect; the argument says where."""


def no_switch(label: str) -> None:
    """For twins that run without a scheduler."""


class Crash(BaseException):
    """The actor's process is dead.  Not an ``Exception``: no code of the actor may survive it."""


class Deadlock(Exception):
    """Every actor waits for something that nobody will do."""


class TooLong(Exception):
    """The condition of ``run`` did not come about."""


class Actor:
    """One thread under the baton.  ``group`` is the process it belongs to."""

    def __init__(self, name: str, group: str, call: Callable[[], None]) -> None:
        self.name = name
        self.group = group
        self.done = False
        self.at = "start"
        self.error: BaseException | None = None
        self.crashing = False
        self.condition: Callable[[], bool] | None = None
        self.wakes_at: float | None = None
        self.paused_until = 0.0
        self._call = call
        self.baton = threading.Lock()
        self.baton.acquire()

    def run(self) -> None:
        self._call()


class Scheduler:
    """See the module docstring.  ``stay`` is the probability to go on with the actor that runs, if it can."""

    def __init__(self, seed: str, *, stay: float = 0.0, tick_s: float = 0.002) -> None:
        self.now = 0.0
        self.switches = 0
        self.trace = 0
        """Hash of the schedule so far."""
        self._rng = Random(f"{seed}/schedule")
        self._stay = stay
        self._tick_s = tick_s
        self._actors: list[Actor] = []
        self._current: Actor | None = None
        self._main = threading.Lock()
        self._main.acquire()
        self._until: Callable[[], bool] = lambda: False
        self._switches_max = 0
        self._verdict: BaseException | None = None

    # -- called by actors and by the main thread -----------------------------------------------------------------

    def spawn(self, name: str, call: Callable[[], None], group: str | None = None) -> Actor:
        """A new actor; it begins at some switch after this."""
        actor = Actor(name, group or name, call)
        self._actors.append(actor)
        threading.Thread(target=self._body, args=(actor,), name=name, daemon=True).start()
        return actor

    def crash(self, group: str) -> None:
        """End all actors of the group where they are."""
        for actor in self._actors:
            if actor.group == group:
                actor.crashing = True

    def pause(self, group: str, seconds: float) -> None:
        """Freeze all actors of the group."""
        for actor in self._actors:
            if actor.group == group:
                actor.paused_until = self.now + seconds

    def groups(self) -> set[str]:
        return {actor.group for actor in self._actors}

    # -- called by actors ----------------------------------------------------------------------------------------

    @property
    def current(self) -> Actor | None:
        """The actor that runs; None in the main thread."""
        return self._current

    def switch(self, label: str) -> None:
        """Let another actor run, perhaps.  Without effect in the main thread."""
        if self._current is not None:
            self._pass(self._current, label)

    def sleep(self, seconds: float) -> None:
        """Let that much time pass."""
        if self._current is None:
            self.now += seconds
        else:
            self.wait(None, seconds, "sleep")

    def wait(self, condition: Callable[[], bool] | None, timeout_s: float | None, label: str) -> None:
        """Go on when ``condition`` holds, or after ``timeout_s``.  It must be cheap and change nothing."""
        actor = self._current
        if actor is None:
            raise RuntimeError(f"only actors wait ({label})")
        actor.condition = condition or _never
        actor.wakes_at = None if timeout_s is None else self.now + timeout_s
        self._pass(actor, label)

    # -- called by the main thread -------------------------------------------------------------------------------

    def run(self, until: Callable[[], bool], switches_max: int = 1_000_000) -> None:
        """Let the actors run until the condition holds (guarantee 4)."""
        self._until = until
        self._switches_max = self.switches + switches_max
        self._verdict = None
        self._hand_over(self._choose(None))
        self._main.acquire()
        if self._verdict is not None:
            raise self._verdict

    def close(self) -> None:
        """End all actors."""
        self._until = lambda: not self._actors
        while self._actors:
            for actor in self._actors:
                actor.crashing = True
            self._verdict = None
            self._switches_max = self.switches + 100_000
            self._hand_over(self._choose(None))
            self._main.acquire()

    # -- the baton -----------------------------------------------------------------------------------------------

    def _pass(self, actor: Actor, label: str) -> None:
        actor.at = label
        following = self._choose(actor)
        if following is not actor:
            self._hand_over(following)
            actor.baton.acquire()
        actor.condition = actor.wakes_at = None
        if actor.crashing:
            raise Crash(actor.name)

    def _hand_over(self, following: Actor | None) -> None:
        self._current = following
        (self._main if following is None else following.baton).release()

    def _body(self, actor: Actor) -> None:
        if sys.platform == "linux":
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # this thread's alone
        actor.baton.acquire()
        try:
            if not actor.crashing:
                actor.run()
        except Crash:
            pass
        except BaseException as error:
            actor.error = error
        actor.done = True
        self._actors.remove(actor)
        if actor.error is not None:
            self._verdict = actor.error
            self._hand_over(None)
        else:
            self._hand_over(self._choose(None))

    def _choose(self, running: Actor | None) -> Actor | None:
        """Who runs next; None for the main thread."""
        self.switches += 1
        self.now += self._tick_s
        if self._until():
            return None
        if self.switches > self._switches_max:
            self._verdict = TooLong(f"after {self.switches} switches, at {self.now:.1f} s:\n{self._where()}")
            return None
        while True:
            ready = [a for a in self._actors if a.crashing] or [a for a in self._actors if self._ready(a)]
            if ready:
                break
            times = [t for a in self._actors if (t := self._wakes(a)) is not None]
            if not times:
                self._verdict = Deadlock(f"at {self.now:.1f} s:\n{self._where()}")
                return None
            self.now = max(self.now, min(times))
            if self._until():
                return None
        if running in ready and self._stay and self._rng.random() < self._stay:
            chosen = running
        else:
            chosen = ready[self._rng.randrange(len(ready))] if len(ready) > 1 else ready[0]
        self.trace = zlib.crc32(f"{chosen.name} {chosen.at}".encode(), self.trace)
        return chosen

    def _ready(self, actor: Actor) -> bool:
        if actor.paused_until > self.now:
            return False
        if actor.condition is None:
            return True
        return (actor.wakes_at is not None and actor.wakes_at <= self.now) or actor.condition()

    def _wakes(self, actor: Actor) -> float | None:
        """When time alone makes the actor ready."""
        if actor.condition is None or actor.wakes_at is not None or actor.condition():
            return max(actor.paused_until, actor.wakes_at or 0.0)
        return actor.paused_until if actor.paused_until > self.now else None

    def _where(self) -> str:
        return "\n".join(f"  {a.name} [{a.group}]: {a.at}, until {a.wakes_at}" for a in self._actors)


def _never() -> bool:
    return False
