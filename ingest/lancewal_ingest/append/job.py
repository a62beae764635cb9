"""Append: from consumed records to a durable segment.

Guarantees
 1. An entry holds what the records of [first, next) come to (``prepare``), nothing else; those that are no rows are listed.
 2. A record that is no row of its partition is acknowledged as a dead letter before its offset is durable, is passed over,
    or its partition stops right before it, as the contract's policies say.
 3. Where the dead-letter topic refuses a letter for its size, the partition stops right before it, and no other.
 4. Nothing of a batch is written if the topic's id changed by the time its newest record had arrived, or its number of
    partitions, unless the old ones are drained (``draining``).
 5. A segment is repeated, same number and same bytes, until it is stored or a fence is met.

Steps of ``AppendJob.run``, which is run again after a passing fault: 1 and 2 until 2 was done, each letter and the rest once
 1. Decode, one entry per region.
 2. Ask the broker for the topic: another id or number of partitions ends ingest by name.  Where a partition is drained
    up to a record of the new number, note that.
 3. Dead letters, acknowledged.
 4. PUT if absent the next segment of our log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from lancewal_core.errors import (
    DeadLetterRefused,
    LancewalError,
)
from lancewal_core.names.ids import Position, Region
from lancewal_core.process.failpoints import point
from lancewal_core.process.tasks import Tasks
from lancewal_core.wal.entry import Entry, RejectedOffset
from lancewal_core.wal.writer import LogWriter, PutResult
from lancewal_ingest.append.draining import NoteNew
from lancewal_ingest.append.prepare import Consumed, Preparer, Stop, Together, below
from lancewal_ingest.append.shared_rows import SharedPart
from lancewal_ingest.decode.outcomes import Rejected
from lancewal_kafka.records import Records

_DECODERS = 2
"""Regions decoded at the same time: Arrow's JSON reader leaves the interpreter free, what comes before and after does not.
More only keep each other waiting (own measurement: with 4, a tenth slower)."""


_NONE = Records([], [], [], [], [])


class DeadLetters(Protocol):
    """Destination of bad records."""

    def send(self, region: Region, records: Records, rejected: Sequence[Rejected]) -> None:
        """Return once every one is acknowledged; ``KafkaUnavailable`` otherwise (sending again is right).
        ``DeadLetterRefused`` has the offset of the first that the topic never takes: those before it are acknowledged."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    region: Region
    entry: Entry | None
    letters: tuple[Rejected, ...]
    stop: Stop | None
    records: Records
    """Records of the letters; the others are rows by now, or ignored."""
    shared: SharedPart | None
    """See ``Together``; None where there are letters."""

    @classmethod
    def of(cls, consumed: Consumed, found: Together) -> _Prepared:
        (entry, letters, stop), shared = found
        records = _at(consumed.records, [r.offset for r in letters]) if letters else _NONE
        return cls(consumed.region, entry, letters, stop, records, shared)

    def before(self, offset: Position, error: LancewalError) -> _Prepared:
        """Return what is left where the partition stops at ``offset``, that of a letter."""
        letters = tuple(r for r in self.letters if r.offset < offset)
        entry = None if self.entry is None else _cut(self.entry, offset)
        records = _at(self.records, [r.offset for r in letters])
        return _Prepared(self.region, entry, letters, Stop(self.region, error), records, None)


def _at(records: Records, offsets: Sequence[int]) -> Records:
    """Return the records at the given offsets."""
    places = [bisect_left(records.offsets, offset) for offset in offsets]
    columns = (records.offsets, records.timestamps, records.keys, records.values, records.headers)
    return Records(*([column[place] for place in places] for column in columns))  # type: ignore[arg-type] # in order


def _cut(entry: Entry, next_: Position) -> Entry | None:
    """The part of an entry before a position; None where nothing is."""
    if next_ == entry.first:
        return None
    rows, rejected = below(next_, entry.rows, entry.rejected)
    return replace(entry, next=next_, held=rows, rejected=rejected)


class AppendJob:
    """One segment on its way; ``run`` may be called again after a ``Retry`` error or an ``Unsettled`` result.

    ``check`` asks the broker for the topic (``check_topic``).
    """

    def __init__(
        self,
        check: Callable[[], None],
        preparer: Preparer,
        dead_letters: DeadLetters,
        writer: LogWriter,
        tasks: Tasks,
        consumed: Sequence[Consumed],
        note_new: NoteNew | None = None,
    ) -> None:
        self.entries: tuple[Entry, ...] = ()
        self.shared: tuple[SharedPart | None, ...] = ()
        """Shared rows of each entry, see ``Together``."""
        self.stops: tuple[Stop, ...] = ()
        self.letters = 0
        """How many dead letters were acknowledged."""
        self._consumed: Sequence[Consumed] = consumed
        self._check = check
        self._preparer = preparer
        self._dead_letters = dead_letters
        self._writer = writer
        self._tasks = tasks
        self._note_new = note_new
        self._unsent: list[_Prepared] | None = None
        """With letters that are not acknowledged yet."""
        self._done: list[_Prepared] = []

    @property
    def decoded(self) -> dict[Region, Position]:
        """How far each partition's records are entries, stored or not.  May be asked from any thread."""
        prepared = [*(self._unsent or ()), *self._done]
        return {p.region: p.entry.next for p in prepared if p.entry is not None}

    def ignored(self, entry: Entry) -> list[RejectedOffset]:
        """Return what one of its entries lists that is passed over and is no dead letter."""
        return self._preparer.ignored(entry)

    def run(self) -> PutResult | None:
        """The result of step 4; None when no entry is left to write."""
        if self._unsent is None:
            # Step 1
            with point("decode"):
                prepared = self._prepared()
            # Step 2
            self._check()
            new_from = {
                p.region: p.stop.new_from for p in prepared if p.stop is not None and p.stop.new_from is not None
            }
            if new_from and self._note_new is not None:
                self._note_new(new_from)
            self._consumed = ()  # what is needed of them is in what was prepared
            self._unsent = [p for p in prepared if p.letters]
            self._done = [p for p in prepared if not p.letters]
        # Step 3
        while self._unsent:
            self._done.append(self._sent(self._unsent[0]))
            self._unsent.pop(0)
        self.entries = tuple(p.entry for p in self._done if p.entry is not None)
        self.shared = tuple(p.shared for p in self._done if p.entry is not None)
        self.stops = tuple(p.stop for p in self._done if p.stop is not None)
        # Step 4
        if not self._writer.settled:
            return self._writer.put_again()
        return self._writer.put(self.entries) if self.entries else None

    def _sent(self, prepared: _Prepared) -> _Prepared:
        """Wait until its letters are acknowledged, up to one that is refused."""
        with point("dlq.produce", region=prepared.region.name):
            try:
                self._dead_letters.send(prepared.region, prepared.records, prepared.letters)
            except DeadLetterRefused as error:
                offset = error.where["offset"]
                if not isinstance(offset, int):
                    raise
                prepared = prepared.before(Position(offset), error)
        self.letters += len(prepared.letters)
        return prepared

    def _prepared(self) -> list[_Prepared]:
        """Records of each region as they were prepared, in no order."""

        def prepare(group: Sequence[Consumed]) -> list[_Prepared]:
            return list(map(_Prepared.of, group, self._preparer.prepare_all(group)))

        found = self._tasks.map(prepare, [self._consumed[n::_DECODERS] for n in range(_DECODERS)])
        return [prepared for group in found for prepared in group]
