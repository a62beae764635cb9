"""Control: the pauses that an operator has set for a table's services, as versioned objects
(``paths.control_version``).

A paused service keeps running.  Paused ingest makes durable what it has consumed and stays a member of its group, but
consumes nothing more.  The paused flusher finishes its round and begins no other.  Nothing that is stored or merged
depends on a pause.

Guarantees
 1. A change for one service never undoes a change for the other, whoever makes them at the same time.
 2. A pause with an end is over at that time by the clock of the paused process; nobody has to end the pause.
 3. A service that starts during a pause is paused before it consumes or merges anything.
 4. If the newest control cannot be read, the control that was read most recently holds.  So a failing store neither
    pauses nor resumes a service.

Steps
 1. ``set_pause``: compare-and-swap to the next version with that service's pause changed.
 2. A service reads the newest version at its start, then every ``POLL_S`` seconds.  Ingest does so in the background,
    the flusher before each round and while it is paused.  After the first read a service asks only for the next
    version, since no version is ever deleted.

Rounds of requests to the store (docs/reference/requests.md), as counted: 1 ("look for an operator's pause").
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from lancewal_core.errors import Corrupt, Refresh, Retry
from lancewal_core.names import paths
from lancewal_core.names.ids import Making
from lancewal_core.process.clock import Clock, utc_text
from lancewal_core.process.tasks import Task, Tasks
from lancewal_core.store.json_model import StoredVersion, Version1, Word
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.store.versioned import Declined, Family, Version, newest_behind, newest_version, swap

POLL_S = 5.0
"""Seconds after which a service reads the control again.  An operator waits for it; each read costs one GET."""
RESUMED: Literal["resumed"] = "resumed"

Until = Annotated[int, Field(ge=0)] | Literal["resumed"]
"""End of a pause: milliseconds since 1970 (UTC), or ``resumed`` if the pause lasts until an operator resumes the
service."""


class Service(StrEnum):
    """A service that can be paused."""

    INGEST = "ingest"
    FLUSHER = "flusher"


class Control(StoredVersion):
    """One version of the control: for each service the end of its pause; None: the service is not paused."""

    what = "control"
    format: Version1 = 1
    ingest: Until | None = None
    flusher: Until | None = None
    write_id: Word
    """Random id, another one in every version.  It shows whether a put with a lost reply was this process's own."""

    def paused(self, service: Service, now_ms: int) -> Until | None:
        """Return the end of the service's pause; None if it is not paused, or if the pause was over at ``now_ms``
        (milliseconds since 1970)."""
        until = self.ingest if service is Service.INGEST else self.flusher
        return None if until is None or (until != RESUMED and until <= now_ms) else until


RUNNING = Control(write_id="none")
"""The control of a table whose services no operator has ever paused."""


def _family(making: Making | None) -> Family:
    return Family.made(making, paths.control_prefix, paths.control_version, paths.parse_control_version)


def until_text(until: Until) -> str:
    """Return the text ``until resumed``, or ``until`` and the time."""
    return "until resumed" if until == RESUMED else f"until {utc_text(until)}"


# -- the operator's side (step 1) ------------------------------------------------------------------------------


def end_of_pause(clock: Clock, for_s: float | None) -> Until:
    """Return the end of a pause that begins now and lasts ``for_s`` seconds; None: until an operator resumes the
    service."""
    return RESUMED if for_s is None else clock.now_ms() + math.ceil(for_s * 1000)


def read_control(store: ObjectStore, making: Making | None) -> Control:
    """Return the newest control; ``RUNNING`` if there is none."""
    return _decoded(newest_version(store, _family(making)), making)


def changed(control: Control, service: Service, until: Until | None) -> Control:
    """Return the control with ``until`` as the end of the pause of ``service``; None: the service is not paused."""
    return control.model_copy(update={service.value: until})


def set_pause(
    store: ObjectStore,
    clock: Clock,
    new_id: Callable[[], str],
    service: Service,
    until: Until | None,
    making: Making | None,
) -> Control:
    """Pause ``service`` until ``until``, or resume it with None.  Return the newest control after that.

    Nothing is written if the newest control says so already."""

    def decide(found: Version | None) -> Control | None:
        before = _decoded(found, making)
        after = changed(before, service, until)
        return None if after == before else after.model_copy(update={"write_id": new_id()})

    outcome = swap(store, _family(making), clock, decide, Control.encode)
    return _decoded(outcome.found, making) if isinstance(outcome, Declined) else outcome.value


def _decoded(found: Version | None, making: Making | None) -> Control:
    return RUNNING if found is None else Control.decode(found.data, paths.control_version(found.version, making))


# -- the services' side (step 2) -------------------------------------------------------------------------------


class ControlReader:
    """Reader of the control for one service.  It keeps the control that it has read most recently."""

    def __init__(self, store: ObjectStore, clock: Clock, service: Service, making: Making | None) -> None:
        self.problem: Corrupt | None = None
        """Why the newest control is damaged; None if the newest read succeeded.  A person must repair it (guarantee
        4)."""
        self._store = store
        self._making = making
        self._clock = clock
        self._service = service
        self._looked = False
        self._known: Version | None = None
        self._control = RUNNING

    @property
    def paused(self) -> Until | None:
        """End of the service's pause, by the control that was read most recently; None if the service is not paused."""
        return self._control.paused(self._service, self._clock.now_ms())

    def read_or_raise(self) -> Until | None:
        """Read the newest control, then return ``paused``.  Damage goes into ``problem``.  Raise ``Retry`` or
        ``Refresh`` if the store fails."""
        try:
            found = self._newest()
            if found != self._known:
                self._control = _decoded(found, self._making)
                self._known = found
            self.problem = None
        except Corrupt as error:
            self.problem = error
        return self.paused

    def _newest(self) -> Version | None:
        if self._looked:
            return newest_behind(self._store, _family(self._making), self._known)
        found = newest_version(self._store, _family(self._making))
        self._looked = True
        return found

    def read(self) -> Until | None:
        """Do as ``read_or_raise`` does.  If the store fails, the control that was read most recently holds (guarantee
        4)."""
        with contextlib.suppress(Retry, Refresh):  # a store that fails shows in the service's own work
            self.read_or_raise()
        return self.paused


class ControlWatch:
    """Reads the control every ``POLL_S`` seconds in the background, for a loop that must not wait for the store.  The
    first read is done when the watch is made."""

    def __init__(self, reader: ControlReader, tasks: Tasks, clock: Clock) -> None:
        self._reader = reader
        self._tasks = tasks
        self._clock = clock
        reader.read_or_raise()  # guarantee 3
        self._again_at = clock.monotonic() + POLL_S
        self._asked: Task[object] | None = None

    @property
    def problem(self) -> Corrupt | None:
        return self._reader.problem

    def look(self) -> Until | None:
        """Return the end of the service's pause, or None.  Start a read if one is due.  This never waits for the
        store."""
        now = self._clock.monotonic()
        if self._asked is not None and self._asked.done():
            self._asked.result()
            self._asked = None
            self._again_at = now + POLL_S
        elif self._asked is None and now >= self._again_at:
            self._asked = self._tasks.start(self._reader.read)
        return self._reader.paused
