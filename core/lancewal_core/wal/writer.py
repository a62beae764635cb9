"""Writing a log: the segments of one ingest process, numbered without gaps.

A segment is *settled* once this process knows that the store has it.

Guarantees
 1. Only its owner writes data segments into a log, one after the other: segment n + 1 is not sent before segment n is
    settled.  So a number that is taken holds the owner's own segment (its reply was lost) or a fence.  If it holds
    anything else (a damaged segment, or an object that somebody else has put there), this writer cannot go on.
 2. ``LogWriter.put`` returns ``Durable`` only if the store holds exactly the bytes that were sent, under that number.
 3. A fence ends a log (``log_end``): nothing after the fence's number is ever part of the log.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import pyarrow as pa

from lancewal_core.errors import Corrupt, ObjectCorrupt
from lancewal_core.names import paths
from lancewal_core.names.ids import LogId, OwnerId, Sequence
from lancewal_core.process.clock import Clock
from lancewal_core.process.failpoints import point
from lancewal_core.store.object_store import Lost, ObjectStore, Unknown, put_once
from lancewal_core.wal.entry import Entry
from lancewal_core.wal.segment import Fence, Segment, decode_segment, encode_segment


@dataclass(frozen=True, slots=True)
class Durable:
    """The segment is stored under ``sequence``; ``size`` is in bytes."""

    sequence: Sequence
    size: int
    etag: str | None = field(default=None, compare=False)
    """Entity tag of the object; None if an earlier call stored it, or if the store gave no tag."""
    written_at_ms: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class FencedOut:
    """Another process has ended this log with a fence, since it took this process for dead."""

    fence: Fence


@dataclass(frozen=True, slots=True)
class Occupied:
    """The segment cannot become part of the log.  The log cannot go on.

    Either the object under its number is neither this segment nor a fence, and nobody knows whether the segment was
    ever there.  A process that claims the regions finds the same object.  Or the segment is too large to be read
    back."""

    error: Corrupt


@dataclass(frozen=True, slots=True)
class Unsettled:
    """The outcome of the PUT is unknown.  ``put_again`` repeats the same PUT."""

    cause: str


PutResult = Durable | FencedOut | Occupied | Unsettled


_PUTS = 5


def length_of(entries: float) -> float:
    """Return the length that a segment adds to its log: 1, or half the square root of its number of entries if that is
    more.

    Generations are sealed when their log has become too long.  Readers and new owners go over each entry.  So the more
    entries segments have, the sooner generations should end.  But to end a generation is expensive by itself.  The root
    is between the two (decision 0046).
    """
    return max(1.0, math.sqrt(entries) / 2)


class LogWriter:
    """Appends segments to one log, one at a time."""

    def __init__(self, store: ObjectStore, clock: Clock, log: LogId, owner: OwnerId, schema: pa.Schema) -> None:
        self.log = log
        self.owner = owner
        self._store = store
        self._clock = clock
        self.schema = schema
        """Columns of the rows of all entries from the next segment on (``RowSchema.wal``)."""
        self.length = 0.0
        """Sum of ``length_of`` over all segments that were sent."""
        self._next = Sequence(0)
        self._unsettled: bytes | None = None
        self._written_at_ms = 0
        """Time when the newest segment was first sent, in milliseconds since 1970; 0 if none was."""
        self._alive_at = (clock.monotonic(), clock.now_ms())
        self._puts_s: deque[float] = deque(maxlen=_PUTS)

    @property
    def put_s(self) -> float:
        """Median duration of the newest PUTs, at most five, that stored a segment, in seconds; 0 before the first.

        One slow PUT does not change the median.  Any thread may read it."""
        return statistics.median(tuple(self._puts_s) or (0.0,))

    @property
    def silent_s(self) -> float:
        """Seconds since the newest segment was stored, or since this writer was made if there is none.

        This is the longer time of two clocks, since one of them may stand still while a machine sleeps."""
        monotonic, wall_ms = self._alive_at
        return max(self._clock.monotonic() - monotonic, (self._clock.now_ms() - wall_ms) / 1000)

    @property
    def next_unsent(self) -> Sequence:
        """Number of the next segment that has not been sent."""
        return Sequence(self._next + (self._unsettled is not None))

    @property
    def settled(self) -> bool:
        return self._unsettled is None

    def put(self, entries: Seq[Entry]) -> PutResult:
        """Send the next segment.  Raise ``RuntimeError`` if the previous one is not settled."""
        if self._unsettled is not None:
            raise RuntimeError(f"segment {self._next} of log {self.log} is not settled")
        self._written_at_ms = self._clock.now_ms()
        segment = Segment(self.log, self._next, self.owner, tuple(entries), self._written_at_ms)
        self._unsettled = encode_segment(segment, self.schema)
        self.length += length_of(len(entries))
        return self.put_again()

    def put_again(self) -> PutResult:
        """Send the unsettled segment again: the same bytes under the same number.  Raise ``RuntimeError`` if there is
        none."""
        data = self._unsettled
        if data is None:
            raise RuntimeError(f"log {self.log} has no unsettled segment")
        key = paths.wal_segment(self.log, self._next)
        began = self._clock.monotonic()
        try:
            with point("wal.put", object=key):
                outcome = put_once(self._store, key, data)
        except Corrupt as error:  # too large to be read back
            return Occupied(error)
        if isinstance(outcome, Lost):
            return self._met(outcome.found, key)
        if isinstance(outcome, Unknown):
            return Unsettled(outcome.cause)
        sequence, self._next, self._unsettled = self._next, Sequence(self._next + 1), None
        self._alive_at = (self._clock.monotonic(), self._clock.now_ms())
        self._puts_s.append(self._alive_at[0] - began)
        return Durable(sequence, len(data), outcome.etag, self._written_at_ms)

    def _met(self, found: bytes, key: str) -> FencedOut | Occupied:
        try:
            other = decode_segment(found, key)
        except Corrupt as error:
            return Occupied(error)
        if isinstance(other, Fence):
            return FencedOut(other)
        told = f"writer {other.writer}, we are {self.owner}"
        return Occupied(
            ObjectCorrupt(f"{key} holds a data segment that this process did not write ({told})", object=key)
        )
