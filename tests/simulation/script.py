"""What one process of a stage meets: cues, at which something else happens first, and faults, in order."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from tests.twins.faults import CommitFault, Faultless, ListFault, PutFault

S = TypeVar("S")


class Crashed(Exception):
    """The process died at a cue."""


def crash() -> None:
    """What a cue calls where the process is to die."""
    raise Crashed


class Unanswered(BaseException):
    """A request of a started task has no answer yet: the task is under way (``calm.AtOnce``)."""


def hang() -> None:
    """What a cue calls where a request is to have no answer for now."""
    raise Unanswered


@contextmanager
def stops(error: type[Exception], says: str = "", but_not: str = "\n") -> Iterator[None]:
    """What is done within ends by this error, the message of which has the one text and not the other."""
    try:
        yield
    except error as raised:
        if says in str(raised) and but_not not in str(raised):
            return
        raise
    raise AssertionError(f"{error.__name__} was expected")


@dataclass(slots=True)
class _Cue:
    act: str
    what: str
    passings: int
    """Passings that are still to come, this one included."""
    call: Callable[[], object]


@dataclass(slots=True)
class Script(Faultless):
    """The cues of one process, and the faults that it meets, in order."""

    trace: ClassVar[int] = 0
    """Hash of the calls that all processes have made so far, in order: two machines that differ in it played differently."""
    cues: list[_Cue] = field(default_factory=list)
    puts: list[tuple[str, PutFault]] = field(default_factory=list)
    """Part of a key, and what happens to the next put of such a key."""
    commits: list[CommitFault] = field(default_factory=list)
    listings: dict[str, ListFault] = field(default_factory=dict)
    """By part of a prefix, every listing of it; ``PARTIAL`` shows nothing at all."""
    down: list[tuple[str, str]] = field(default_factory=list)
    """Acts and parts of keys that fail once each."""

    def before(self, act: str, what: str, call: Callable[[], object], passing: int = 1) -> None:
        self.cues.append(_Cue(act, what, passing, call))

    def clear(self) -> None:
        """From now on nothing happens."""
        for part in (self.cues, self.puts, self.commits, self.listings, self.down):
            part.clear()

    def unavailable(self, act: str, what: str) -> bool:
        self._pass(act, what)
        return _taken(self.down, lambda item: item[0] == act and item[1] in what) is not None

    def put(self, key: str) -> PutFault:
        self._pass("put", key)
        found = _taken(self.puts, lambda item: item[0] in key)
        return PutFault.NONE if found is None else found[1]

    def commit(self) -> CommitFault:
        self._pass("commit", "table")
        return self.commits.pop(0) if self.commits else CommitFault.NONE

    def listing(self, prefix: str) -> ListFault:
        return next((fault for text, fault in self.listings.items() if text in prefix), ListFault.NONE)

    def some(self, items: Sequence[S]) -> list[S]:
        return []

    def _pass(self, act: str, what: str) -> None:
        Script.trace = zlib.crc32(f"{act} {what}\n".encode(), Script.trace)
        for cue in [c for c in self.cues if c.act == act and c.what in what]:
            cue.passings -= 1
            if cue.passings == 0:
                self.cues.remove(cue)
                cue.call()


def _taken(items: list[S], wanted: Callable[[S], bool]) -> S | None:
    found = next((item for item in items if wanted(item)), None)
    if found is not None:
        items.remove(found)
    return found
