"""Append: from consumed records to a durable segment.

Guarantees
 1. An entry holds exactly the rows of the records in [first, next), and lists the bad records (``prepare``).
 2. The contract's policy decides about a record that cannot be a row of its partition.  Its dead letter is
    acknowledged before its offset is durable, or it is ignored, or the partition stops right before it.  No policy
    decides about a record that its format passes over.
 3. If the dead-letter topic refuses a letter for its size, the partition stops right before that record.  No other
    partition stops.
 4. Nothing of a segment is written if the topic got another id before the segment's newest record was consumed.  The
    same holds for another number of partitions, unless the contract's partitions are drained (``draining``).
 5. A segment is put again, with the same number and the same bytes, until it is stored or a fence is met.
 6. All entries of a segment follow one version of the contract.  A record is rejected for its columns only by the
    newest version that a running process can follow.  While a region has no row, this holds for every rejection of its
    records.

Steps of ``AppendJob.run``.  After a transient error it is called again, and repeats steps 1 and 2 until step 2 has
succeeded once.  Letters of a region are not sent again once all of them were acknowledged.
 1. Decode the records into one entry per region.  If a newer contract version may decide otherwise about one of them,
    look for that version, and decode all records again by it.  If there is none, add what the records have and the
    contract lacks: columns for new fields (``new_columns``), else the first key form (``new_key_form``).  If this
    process has not read the schema of a record, end here without entries.  The caller then gets all records back, and
    those of that schema wait for it.
 2. Ask the broker for the topic: another id or number of partitions ends ingest with a named error.  If a drained
    partition ends before a record that is routed by the topic's new number of partitions, store that position.
 3. Send dead letters, and wait until they are acknowledged.
 4. PUT the next segment of our log, if absent.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from lancewal_core.errors import (
    DeadLetterRefused,
    LancewalError,
    RegistryUnavailable,
)
from lancewal_core.names.ids import Position, Region
from lancewal_core.process.failpoints import point
from lancewal_core.process.tasks import Tasks
from lancewal_core.record_keys.key_form import KeyForm
from lancewal_core.table.contract import Contract
from lancewal_core.wal.entry import Entry, RejectedOffset
from lancewal_core.wal.writer import LogWriter, PutResult
from lancewal_ingest.append.draining import NoteNew
from lancewal_ingest.append.new_columns import NewFields
from lancewal_ingest.append.prepare import Consumed, Preparer, Together, below
from lancewal_ingest.append.shared_rows import SharedPart
from lancewal_ingest.append.stops import Stop
from lancewal_ingest.decode.naming import OtherName
from lancewal_ingest.decode.outcomes import Rejected
from lancewal_kafka.records import Records

_DECODERS = 2
"""Groups of regions that are decoded in parallel.  Arrow's JSON reader releases Python's interpreter lock; the code
before and after it does not.  More groups wait for each other (own measurement: with 4, a tenth slower)."""


_NONE = Records([], [], [], [], [])


class DeadLetters(Protocol):
    """Destination of rejected records."""

    def send(self, region: Region, records: Records, rejected: Sequence[Rejected]) -> None:
        """Send a letter for each rejected record, and return once all are acknowledged.

        Raises ``KafkaUnavailable`` if some are not; the caller sends all of them again.  ``DeadLetterRefused`` has the
        offset of the first letter that the topic refuses for its size: letters before it are acknowledged.
        """


@dataclass(frozen=True, slots=True)
class Terms:
    """One version of the contract, with the decoder and the dead letters that follow it."""

    preparer: Preparer
    dead_letters: DeadLetters

    @property
    def contract(self) -> Contract:
        return self.preparer.contract


FindNewer = Callable[[Terms, NewFields, KeyForm | None], Terms | None]
"""Function that looks for a contract version newer than the given terms.  It returns the terms of that version; None if
there is none that a running process can follow.

The other arguments are new fields of records, and the key form of a record that has stopped its partition.  If there is
no newer version, the function may write one with columns for these fields, or with this form as the first one."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    region: Region
    entry: Entry | None
    letters: tuple[Rejected, ...]
    stop: Stop | None
    records: Records
    """Records of the letters alone: other records are rows by now, ignored or passed over."""
    shared: SharedPart | None
    """Place of the entry's rows in a batch that other entries share.  None if the entry has a batch of its own, as with
    letters."""

    @classmethod
    def of(cls, consumed: Consumed, found: Together) -> _Prepared:
        entry, letters, stop = found.outcome
        records = _at(consumed.records, [r.offset for r in letters]) if letters else _NONE
        return cls(consumed.region, entry, letters, stop, records, found.shared)

    def before(self, offset: Position, error: LancewalError) -> _Prepared:
        """Return the part before ``offset``, the offset of a refused letter, at which the partition stops by
        ``error``."""
        letters = tuple(r for r in self.letters if r.offset < offset)
        entry = None if self.entry is None else _cut(self.entry, offset)
        records = _at(self.records, [r.offset for r in letters])
        return _Prepared(self.region, entry, letters, Stop(self.region, offset, error), records, None)


def _at(records: Records, offsets: Sequence[int]) -> Records:
    """Return the records at the given offsets."""
    places = [bisect_left(records.offsets, offset) for offset in offsets]
    columns = (records.offsets, records.timestamps, records.keys, records.values, records.headers)
    return Records(*([column[place] for place in places] for column in columns))  # type: ignore[arg-type] # in order


def _cut(entry: Entry, next_: Position) -> Entry | None:
    """Return the part of an entry before a position; None if that part is empty."""
    if next_ == entry.first:
        return None
    rows, rejected = below(next_, entry.rows, entry.rejected)
    return replace(entry, next=next_, held=rows, rejected=rejected)


@dataclass(slots=True, eq=False)
class AppendJob:
    """Work that makes one segment durable.  ``run`` may be called again after a ``Retry`` error or an ``Unsettled``
    result.

    ``check`` asks the broker for the topic (``check_topic``).
    """

    check: Callable[[], None]
    terms: Terms
    """Version of the contract that the entries follow.  Safe to read once the job has ended."""
    newer: FindNewer
    writer: LogWriter
    tasks: Tasks
    consumed: Sequence[Consumed]
    note_new: NoteNew | None = None
    entries: tuple[Entry, ...] = ()
    shared: tuple[SharedPart | None, ...] = ()
    """For each entry the place of its rows in a batch that other entries share; None if it has a batch of its own."""
    stops: tuple[Stop, ...] = ()
    other_names: Mapping[OtherName, int] = field(default_factory=dict)
    """How often rows use each name that is not a current name of a column."""
    passed_over: Mapping[str, int] = field(default_factory=dict)
    """Number of records that are passed over, by kind."""
    changed_ms: int = 0
    """Time at which the source made one of the newest changes, in milliseconds since 1970
    (``DecodedValues.changed_ms``); 0 if no record tells a time."""
    letters: int = 0
    """Number of dead letters that were acknowledged."""
    given_back: Sequence[Consumed] = ()
    """All records of the segment, if this process has not read the schema of one of them.  The job then has no entries,
    letters or stops."""
    _unsent: list[_Prepared] | None = None
    """Regions with letters that are not acknowledged yet.  None until step 2 is done."""
    _done: list[_Prepared] = field(default_factory=list)
    _decoding: bool = False

    @property
    def decoded(self) -> dict[Region, Position]:
        """Position up to which the records of each partition are decoded, whether or not they are stored.  Any thread
        may call.
        """
        prepared = [*(self._unsent or ()), *self._done]
        return {p.region: p.entry.next for p in prepared if p.entry is not None}

    @property
    def decodes_in_python(self) -> bool:
        """Whether step 1 is running with a decoder in Python, which holds the interpreter's lock.  Any thread may
        call."""
        return self._decoding and self.terms.preparer.names_schemas

    def ignored(self, entry: Entry) -> list[RejectedOffset]:
        """Return the rejected offsets of one of this job's entries that the contract ignores: they are not dead
        letters."""
        return self.terms.preparer.ignored(entry)

    def run(self) -> PutResult | None:
        """Do steps 1 to 4 and return the result of the PUT; None if no entry is left to write."""
        if self._unsent is None:
            # Step 1
            with point("decode"):
                self._decoding = True
                try:
                    prepared = self._prepared()
                finally:
                    self._decoding = False
            if prepared is None:
                self.given_back, self.consumed = self.consumed, ()
                return None
            # Step 2
            self.check()
            new_from = {
                p.region: p.stop.new_from for p in prepared if p.stop is not None and p.stop.new_from is not None
            }
            if new_from and self.note_new is not None:
                self.note_new(new_from)
            self.consumed = ()  # what is needed of them is in what was prepared
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
        if not self.writer.settled:
            return self.writer.put_again()
        self.writer.schema = self.terms.contract.rows.wal
        return self.writer.put(self.entries) if self.entries else None

    def _sent(self, prepared: _Prepared) -> _Prepared:
        """Send the letters of a region, and return it; cut before the first letter that the topic refuses for its
        size."""
        with point("dlq.produce", region=prepared.region.name):
            try:
                self.terms.dead_letters.send(prepared.region, prepared.records, prepared.letters)
            except DeadLetterRefused as error:
                offset = error.where["offset"]
                if not isinstance(offset, int):
                    raise
                prepared = prepared.before(Position(offset), error)
        self.letters += len(prepared.letters)
        return prepared

    def _prepared(self) -> list[_Prepared] | None:
        """Return the prepared records of each region, in no order (step 1); None if a schema was not read yet."""
        try:
            found = self._by_newest()
        except RegistryUnavailable:
            return None
        self.other_names = sum((Counter(one.other_names) for _, one in found), Counter[OtherName]())
        self.passed_over = sum((Counter(one.passed_over) for _, one in found), Counter[str]())
        self.changed_ms = max((one.changed_ms for _, one in found), default=0)
        return [_Prepared.of(consumed, one) for consumed, one in found]

    def _by_newest(self) -> list[tuple[Consumed, Together]]:
        found = self._together()
        while any(one.by_terms for _, one in found):
            fields = {name: type_ for _, one in found for name, type_ in one.new_fields.items()}
            stops = [one.outcome.stop for _, one in found if one.outcome.stop is not None]
            form = next((stop.key_form for stop in stops if stop.key_form is not None), None)
            newer = self.newer(self.terms, fields, form)
            if newer is None:
                break
            self.terms = newer
            found.clear()  # before the rows are there a second time
            found = self._together()
        return found

    def _together(self) -> list[tuple[Consumed, Together]]:
        preparer = self.terms.preparer

        def prepare(group: Sequence[Consumed]) -> list[tuple[Consumed, Together]]:
            return list(zip(group, preparer.prepare_all(group), strict=True))

        found = self.tasks.map(prepare, [self.consumed[n::_DECODERS] for n in range(_DECODERS)])
        return [one for group in found for one in group]
