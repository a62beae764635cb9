"""Measure how long it takes until a strong read sees produced records, end to end, without producing records.

A measurement asks Kafka where the partitions end, and waits until a strong reader's positions have reached these
ends.  It gives one time for each partition that has new records since the previous measurement.  Partitions without
new records give none.

Guarantees
 1. Ends are positions, after the last record that can be read.  Ingest's positions pass records that became dead
    letters, markers and aborted transactions too.  So a measurement waits for none of them longer than ingest waits
    before it moves a position without a row (a second).
 2. A partition that has not reached its end after ``TIMEOUT_S`` is a failure, named by a metric and a log line.
    Until the partition has reached it, each measurement counts a failure for it, but does not wait for it again.  A
    measurement for which Kafka or the store gave no answer is a failure too.
 3. Measurements run in a thread of their own and write nothing.  Neither turns nor the end of the process wait for
    them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from lancewal_core.errors import LancewalError
from lancewal_core.names.ids import Position, Region
from lancewal_core.process.clock import Clock
from lancewal_core.process.tasks import own_thread

TIMEOUT_S = 60.0
POLL_S = 0.1
"""Seconds between two reads of the visible positions.  A measured time is too long by at most this, and by the time
of one read."""

Failure = Literal["timeout", "kafka", "store"]


class VisibilityObserver(Protocol):
    """Receives the results of measurements, in the thread that measures."""

    def visible(self, seconds: float) -> None:
        """Record that a strong read saw the end of a partition, ``seconds`` after Kafka was asked for that end."""

    def not_visible(self, region: Region, position: Position, end: Position) -> None:
        """Record that the end of a partition was not visible within ``TIMEOUT_S``."""

    def unanswered(self, reason: Failure, error: LancewalError) -> None:
        """Record that a measurement ended without a result."""

    def measured(self, behind: Mapping[Region, int]) -> None:
        """Record the end of a measurement.  ``behind``: for each partition the number of offsets that no strong read
        saw.
        """


class Positions(Protocol):
    """Source of the positions that a strong read would see (``cuts.visible_positions``)."""

    def look(self, wanted: Collection[Region]) -> Mapping[Region, Position]: ...


@dataclass(slots=True)
class Visibility:
    """Repeated measurement of visibility.  ``ends`` asks Kafka.  ``pause`` waits for some seconds, and returns True at
    once when the process is told to stop.
    """

    ends: Callable[[], Mapping[Region, Position]]
    positions: Positions
    clock: Clock
    seen: VisibilityObserver
    pause: Callable[[float], bool]
    _ends: Mapping[Region, Position] = field(default_factory=dict)
    """Ends of the partitions in the newest measurement."""
    _missed: dict[Region, Position] = field(default_factory=dict)
    """Ends that were not visible within ``TIMEOUT_S``, and still are not."""

    def measure(self) -> None:
        """Do one measurement.  The first one only reads the ends of the partitions."""
        before = self._ends
        try:
            # What is read beforehand takes no part in what is measured: state of the regions, and the log up to now.
            self.positions.look(before)
        except LancewalError as error:
            self.seen.unanswered("store", error)
            return
        began = self.clock.monotonic()
        try:
            self._ends = self.ends()
        except LancewalError as error:
            self.seen.unanswered("kafka", error)
            return
        try:
            if not before:
                return
            new = {r: end for r, end in self._ends.items() if end > before.get(r, 0)}
            behind = self._still_missed()
            self._wait(began, {r: end for r, end in new.items() if r not in self._missed}, behind)
        except LancewalError as error:
            self.seen.unanswered("store", error)

    def _still_missed(self) -> dict[Region, int]:
        """Look again at ends that were missed before.  Return, by partition, how many offsets are still missing; 0 if
        none."""
        behind = dict.fromkeys(self._ends, 0)
        positions = self.positions.look(self._missed) if self._missed else {}
        for region, end in list(self._missed.items()):
            at = positions.get(region, Position(0))
            if at >= end:
                del self._missed[region]
            else:
                self._not_visible(region, at, behind)
        return behind

    def _not_visible(self, region: Region, at: Position, behind: dict[Region, int]) -> None:
        behind[region] = self._ends[region] - at
        self.seen.not_visible(region, at, self._ends[region])

    def _wait(self, began: float, wanted: dict[Region, Position], behind: dict[Region, int]) -> None:
        while wanted:
            positions = self.positions.look(wanted)
            took = self.clock.monotonic() - began
            for region, end in list(wanted.items()):
                if positions.get(region, 0) >= end:
                    del wanted[region]
                    self.seen.visible(took)
            if wanted and took >= TIMEOUT_S:
                self._missed |= wanted
                for region in wanted:
                    self._not_visible(region, positions.get(region, Position(0)), behind)
                break
            if wanted and self.pause(POLL_S):
                return
        self.seen.measured(behind)


def measuring(interval_s: float, made: Callable[[Callable[[float], bool]], Visibility]) -> AbstractContextManager[None]:
    """Measure every ``interval_s`` in a thread, inside the ``with`` block.

    ``made`` gets a function that pauses for some seconds and returns whether the thread must end.
    """

    def run(over: threading.Event) -> None:
        visibility = made(over.wait)
        while not over.is_set():
            began = visibility.clock.monotonic()
            visibility.measure()
            over.wait(max(0.0, interval_s - (visibility.clock.monotonic() - began)))

    return own_thread("visibility", run)
