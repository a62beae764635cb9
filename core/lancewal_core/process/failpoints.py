"""Failpoints: named steps of the protocol at which tests record events, or kill, stop or fail a process.

``with point("wal.put"):`` reaches ``wal.put before``, runs the body, and reaches ``wal.put after`` if the body did
not raise.  Without configuration, a point costs one attribute test.

* ``LANCEWAL_EVENT_LOG=<file>``: append one JSON line each time a point is reached.  The line is written unbuffered
  *before* the act that it announces.  Only one thread at a time is at a point.  So the last line is that of the point
  at which the process was killed or stopped.
* ``LANCEWAL_FAILPOINT=<point>:<before|after>[:n]=kill|stop|error``: when the point is reached for the n-th time
  (default 1), send SIGKILL or SIGSTOP to this process, or raise ``FailpointError``.  Several failpoints are separated
  by commas, and act independently.  The setting is refused unless ``LANCEWAL_TESTING=1``.

``configure`` reads both once, in ``main``.  An empty value means not set.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Literal

from lancewal_core.errors import InvalidSettings

POINTS: frozenset[str] = frozenset(
    [
        "poll",
        "decode",
        "dlq.produce",
        "wal.put",
        "bundle.put",
        "memtable.apply",
        "offset.commit",
        "log.walk",
        "fence.put",
        "claim.cas",
        "seal.cas",
        "reanchor.cas",
        "handover.cas",
        "snapshot.write",
        "flushed.cas",
        "plan.pin",
        "fragment.write",
        "dv.write",
        "commit.send",
        "commit.recv",
        "merges.put",
        "followup.commit",
        "merged.cas",
        "keys.cas",
        "trim.cas",
        "trim.delete",
        "columns.bring",
        "columns.grow",
        "columns.widen",
        "contract.put",
        "catalog.swap",
        "cut.snapshot",
        "cut.put",
        "cut.drop",
        "cut.publish",
        "drop.contract",
        "drop.delete",
        "spark.task",
    ]
)

When = Literal["before", "after"]
_SPEC = re.compile(r"^(?P<point>[a-z.]+):(?P<when>before|after)(:(?P<n>[1-9][0-9]*))?=(?P<act>kill|stop|error)$")


class FailpointError(Exception):
    """Raised by a failpoint configured as ``error``."""


@dataclass(frozen=True, slots=True)
class Failpoint:
    """A configured failpoint: what to do when ``point`` is reached for the ``passing``-th time (from 1)."""

    point: str
    when: When
    passing: int
    act: Literal["kill", "stop", "error"]


def parse_failpoint(text: str) -> Failpoint:
    """Parse ``LANCEWAL_FAILPOINT``; ``InvalidSettings`` says what is wrong with it."""
    match = _SPEC.match(text)
    if match is None or match["point"] not in POINTS:
        raise InvalidSettings(
            f"LANCEWAL_FAILPOINT={text!r}: expected <point>:<before|after>[:n]=kill|stop|error with a point of "
            f"{', '.join(sorted(POINTS))}"
        )
    return Failpoint(match["point"], match["when"], int(match["n"] or 1), match["act"])  # type: ignore[arg-type] # the expression admits only the literals


class Failpoints:
    """The failpoints of one process."""

    def __init__(self, failpoints: Sequence[Failpoint], event_log: str | None) -> None:
        self._failpoints = tuple(failpoints)
        self._passed: Counter[tuple[str, When]] = Counter()
        self._lock = threading.Lock()
        self._log = None if event_log is None else os.open(event_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def passing(self, name: str, when: When, where: Mapping[str, object]) -> None:
        with self._lock:
            if self._log is not None:
                line = {"point": name, "when": when, "pid": os.getpid(), **where}
                os.write(self._log, json.dumps(line, default=str).encode() + b"\n")
            self._act(name, when)

    def _act(self, name: str, when: When) -> None:
        self._passed[name, when] += 1
        for failpoint in self._failpoints:
            if (failpoint.point, failpoint.when, failpoint.passing) != (name, when, self._passed[name, when]):
                continue
            match failpoint.act:
                case "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                case "stop":
                    # To this thread, which then goes no further.  Sent to the process it may reach another thread first,
                    # and this one, and whoever waits for the lock, pass points until that one has woken up.
                    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
                case "error":
                    raise FailpointError(f"failpoint {name}:{when}")


_active: Failpoints | None = None


def configure(environment: Mapping[str, str]) -> None:
    """Read the two variables from the environment, once.  Only ``main`` calls this."""
    global _active
    spec = environment.get("LANCEWAL_FAILPOINT") or None
    log = environment.get("LANCEWAL_EVENT_LOG") or None
    if spec is not None and environment.get("LANCEWAL_TESTING") != "1":
        raise InvalidSettings("LANCEWAL_FAILPOINT is refused unless LANCEWAL_TESTING=1: it kills or stops the process")
    found = [] if spec is None else [parse_failpoint(text) for text in spec.split(",")]
    _active = Failpoints(found, log) if found or log is not None else None


@contextmanager
def point(name: str, **where: object) -> Iterator[None]:
    """Mark one step of the protocol (module docstring)."""
    active = _active
    if active is None:
        yield
        return
    active.passing(name, "before", where)
    yield
    active.passing(name, "after", where)


@contextmanager
def points(name: str, wheres: Iterable[Mapping[str, object]]) -> Iterator[None]:
    """Mark one step that several objects take together.

    The point is reached once for each of ``wheres`` before the step, and once for each after it.  ``wheres`` are
    fields of the event log's lines.
    """
    with ExitStack() as entered:
        for where in wheres if _active is not None else ():
            entered.enter_context(point(name, **where))
        yield
