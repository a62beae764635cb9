"""Append: from consumed records to a durable segment.

Guarantees
 1. An entry holds what ``Decoder`` makes of the records of [first, next), nothing else; bad records are listed in it.
 2. A bad record is acknowledged as a dead letter before its offset is durable, or its partition stops right before it, as
    the contract's ``on_bad_record`` says.
 3. Where the dead-letter topic refuses a letter for its size, the partition stops right before it, and no other.
 4. A misrouted record does the same, as ``on_misrouted`` says.
 5. Nothing of a batch is written if the topic's id changed by the time its newest record had arrived, or its number of
    partitions, unless the old ones are drained (``draining``).
 6. A segment is repeated, same number and same bytes, until it is stored or a fence is met.

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
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.errors import (
    BadRecord,
    DeadLetterRefused,
    LancewalError,
    Misrouted,
)
from lancewal_core.ids import Position, Region
from lancewal_core.process.failpoints import point
from lancewal_core.process.tasks import Tasks
from lancewal_core.rows.region_key import RegionKeyCodec
from lancewal_core.rows.schema import OFFSET
from lancewal_core.table.contract import Contract
from lancewal_core.table.drain import Drain
from lancewal_core.wal.entry import Entry, RejectedOffset
from lancewal_core.wal.writer import LogWriter, PutResult
from lancewal_ingest.append.draining import DrainLimit, NoteNew
from lancewal_ingest.append.routing import routing_of
from lancewal_ingest.decode.decoder import Decoder
from lancewal_ingest.decode.outcomes import Rejected
from lancewal_ingest.formats import value_decoder
from lancewal_kafka.records import Records

MISROUTED = "misrouted"
"""Kind of rejection beside those of ``decode.outcomes``: the record lies in another partition than it belongs in."""
R = TypeVar("R", Rejected, RejectedOffset)
_DECODERS = 2
"""Regions decoded at the same time: Arrow's JSON reader leaves the interpreter free, what comes before and after does not.
More only keep each other waiting (own measurement: with 4, a tenth slower)."""


@dataclass(frozen=True, slots=True)
class Consumed:
    """Records of one region, behind its durable position: all of [first, next)."""

    region: Region
    first: Position
    next: Position
    records: Records


class DeadLetters(Protocol):
    """Where bad records go."""

    def send(self, region: Region, records: Records, rejected: Sequence[Rejected]) -> None:
        """Return once every one is acknowledged; ``KafkaUnavailable`` otherwise (sending again is right).
        ``DeadLetterRefused`` has the offset of the first that the topic never takes: those before it are acknowledged."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A partition that cannot go on, and why."""

    partition: int
    error: LancewalError
    new_from: Position | None = None
    """Where a record lies that belongs here by the topic's number of partitions only."""


def lenient(contract: Contract) -> Contract:
    """Under which no record stops a partition: an entry over the same positions is the same under any policy."""
    return contract.model_copy(update={"on_bad_record": "dead-letter", "on_misrouted": "dead-letter"})


class Preparer:
    """Turns consumed records into entries by the contract."""

    def __init__(self, contract: Contract, drain: Drain | None = None) -> None:
        self._contract = contract
        self._drained = None if drain is None else DrainLimit(contract, drain)
        rows = contract.rows
        self._decoder = Decoder(
            rows,
            value_decoder(contract.value_format, rows),
            patches=contract.patches,
            record_bytes_max=contract.record_bytes_max,
            key_decoder=_primary_key_decoder(contract),
        )
        self.weights = self._decoder.weights
        self._routing = routing_of(contract)

    def prepare(self, consumed: Consumed) -> tuple[Entry | None, tuple[Rejected, ...], Stop | None]:
        """The entry (None if the very first record stops the partition), its bad records, and the stop if there is one."""
        decoded = self._decoder.decode(consumed.records)
        rows, rejected, next_ = decoded.rows, decoded.rejected, consumed.next
        region = consumed.region
        belongs = self._routing.partitions(consumed.records, rows)
        stop: Stop | None = None
        if self._drained is not None:
            end = self._drained.end(region, next_, consumed.records, rows, belongs)
            if end is not None:
                stop = Stop(region.partition, end.error, end.at if end.new else None)
                next_ = max(end.at, consumed.first)
                rows, rejected = _below(next_, rows, rejected)
                belongs = belongs[: rows.num_rows]
        if self._contract.on_misrouted == "dead-letter":
            here = belongs == region.partition
            if not here.all():
                letters = self._misrouted_letters(rows.column(OFFSET).filter(pa.array(~here)), belongs[~here])
                rejected = tuple(sorted([*rejected, *letters], key=lambda letter: letter.offset))
                rows, belongs = rows.filter(pa.array(here)), belongs[here]
        cut, error = self._first_stop(region, rows, belongs, rejected)
        if error is not None:
            stop = Stop(region.partition, error)
            rows, rejected = _below(cut, rows, rejected)
            next_ = cut
        if next_ == consumed.first:
            return None, (), stop
        entry = Entry(
            region,
            consumed.first,
            next_,
            self._contract.version,
            rows,
            tuple(RejectedOffset(r.offset, r.kind) for r in rejected),
        )
        return entry, rejected, stop

    def _misrouted_letters(self, offsets: pa.Array, belongs: npt.NDArray[np.int32]) -> list[Rejected]:
        subject = self._routing.subject
        return [
            Rejected(offset, MISROUTED, f"its {subject} belongs to partition {place} of {self._contract.partitions}")
            for offset, place in zip(offsets.to_pylist(), belongs.tolist(), strict=True)
        ]

    def _first_stop(
        self, region: Region, rows: pa.RecordBatch, belongs: npt.NDArray[np.int32], rejected: Sequence[Rejected]
    ) -> tuple[Position, LancewalError | None]:
        """Where the partition must stop, as the position of the record that stops it, and why."""
        stops = self._contract.on_bad_record == "stop"
        bad = next((r for r in rejected if r.kind != MISROUTED), None) if stops else None
        wrong = np.flatnonzero(belongs != region.partition)
        if len(wrong):
            offset = rows.column(OFFSET)[int(wrong[0])].as_py()
            if bad is None or offset < bad.offset:
                return Position(offset), Misrouted(
                    f"topic {region.topic} partition {region.partition} offset {offset}: the record's "
                    f"{self._routing.subject} belongs to partition {int(belongs[wrong[0]])} of "
                    f"{self._contract.partitions}. Likely cause: {self._routing.cause}. To go on without this record: "
                    f"`lancewal offset reject {region.topic}-{region.partition}-{offset}`",
                    topic=region.topic, partition=region.partition, offset=offset,
                )  # fmt: skip
        if bad is not None:
            return Position(bad.offset), BadRecord(
                f"topic {region.topic} partition {region.partition} offset {bad.offset}: {bad.message} ({bad.kind}); "
                "the contract's on_bad_record is 'stop'. Send this one record to the dead letters: "
                f"`lancewal offset reject {region.topic}-{region.partition}-{bad.offset}`",
                topic=region.topic, partition=region.partition, offset=bad.offset,
            )  # fmt: skip
        return Position(0), None


def _below(cut: Position, rows: pa.RecordBatch, rejected: Sequence[R]) -> tuple[pa.RecordBatch, tuple[R, ...]]:
    """What lies before ``cut``."""
    count = int(np.searchsorted(rows.column(OFFSET).to_numpy(), cut))
    return rows.slice(0, count), tuple(r for r in rejected if r.offset < cut)


def _primary_key_decoder(contract: Contract) -> Callable[[bytes], tuple[object, ...] | None] | None:
    """How a record key gives the primary key; None where it does not hold all of it, or nothing says how."""
    rows = contract.rows
    if set(rows.region_key) != set(rows.primary_key):
        return None
    codec = RegionKeyCodec(pa.schema([rows.columns.field(name) for name in rows.region_key]))
    places = [contract.region_key.index(name) for name in contract.primary_key]

    def decode(key: bytes) -> tuple[object, ...] | None:
        values = codec.decode(key)
        return None if values is None else tuple(values[i] for i in places)

    return decode


@dataclass(frozen=True, slots=True)
class _Prepared:
    region: Region
    entry: Entry | None
    rejected: tuple[Rejected, ...]
    stop: Stop | None
    bad: Records
    """Those that are rejected; the others are rows by now."""

    @classmethod
    def of(cls, consumed: Consumed, preparer: Preparer) -> _Prepared:
        entry, rejected, stop = preparer.prepare(consumed)
        return cls(consumed.region, entry, rejected, stop, _at(consumed.records, [r.offset for r in rejected]))

    def before(self, offset: Position, error: LancewalError) -> _Prepared:
        """What is left where the partition stops at ``offset``, one of the rejected."""
        rejected = tuple(r for r in self.rejected if r.offset < offset)
        entry = None if self.entry is None else _cut(self.entry, offset)
        bad = _at(self.bad, [r.offset for r in rejected])
        return _Prepared(self.region, entry, rejected, Stop(self.region.partition, error), bad)


def _at(records: Records, offsets: Sequence[int]) -> Records:
    """Those at the given offsets."""
    places = [bisect_left(records.offsets, offset) for offset in offsets]
    columns = (records.offsets, records.timestamps, records.keys, records.values, records.headers)
    return Records(*([column[place] for place in places] for column in columns))  # type: ignore[arg-type] # in order


def _cut(entry: Entry, next_: Position) -> Entry | None:
    """The part of an entry before a position; None where nothing is."""
    if next_ == entry.first:
        return None
    rows, rejected = _below(next_, entry.rows, entry.rejected)
    return replace(entry, next=next_, rows=rows, rejected=rejected)


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
        self.stops: tuple[Stop, ...] = ()
        self.rejected = 0
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

    def run(self) -> PutResult | None:
        """The result of step 4; None when no entry is left to write."""
        if self._unsent is None:
            # Step 1
            with point("decode"):
                prepared = self._prepared()
            # Step 2
            self._check()
            new_from = {
                p.stop.partition: p.stop.new_from
                for p in prepared
                if p.stop is not None and p.stop.new_from is not None
            }
            if new_from and self._note_new is not None:
                self._note_new(new_from)
            self._consumed = ()  # what is needed of them is in what was prepared
            self._unsent = [p for p in prepared if p.rejected]
            self._done = [p for p in prepared if not p.rejected]
        # Step 3
        while self._unsent:
            self._done.append(self._sent(self._unsent[0]))
            self._unsent.pop(0)
        self.entries = tuple(p.entry for p in self._done if p.entry is not None)
        self.stops = tuple(p.stop for p in self._done if p.stop is not None)
        # Step 4
        if not self._writer.settled:
            return self._writer.put_again()
        return self._writer.put(self.entries) if self.entries else None

    def _sent(self, prepared: _Prepared) -> _Prepared:
        """Its letters are acknowledged, up to one that is refused."""
        with point("dlq.produce", region=prepared.region.name):
            try:
                self._dead_letters.send(prepared.region, prepared.bad, prepared.rejected)
            except DeadLetterRefused as error:
                offset = error.where["offset"]
                if not isinstance(offset, int):
                    raise
                prepared = prepared.before(Position(offset), error)
        self.rejected += len(prepared.rejected)
        return prepared

    def _prepared(self) -> list[_Prepared]:
        """What became of each region's records, in no order."""
        groups = [self._consumed[n::_DECODERS] for n in range(_DECODERS)]
        found = self._tasks.map(lambda group: [_Prepared.of(c, self._preparer) for c in group], groups)
        return [prepared for group in found for prepared in group]
