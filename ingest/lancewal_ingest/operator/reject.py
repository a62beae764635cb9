"""``lancewal offset reject``: lead a partition past bad or misrouted records that stopped it.

Guarantees
 1. Each such record is acknowledged as a dead letter before its offset is durable, as under the policies
    ``dead-letter``.  If the contract says ``ignore``, the record is passed over without a letter (a member of the
    version before may have stopped at it).
 2. Records are rejected only from the region's durable position on, only if the record there cannot be a row of this
    region, and only up to the offset that the operator names.
 3. An entry says what the policy ``dead-letter`` would have said: good records in between are rows, as they are when
    ingest reads them.
 4. Offsets that nobody can read (``RecordsUnreadable``) are rejected one by one: each is listed, and has a letter
    without key and value.
 5. A dry run changes nothing, and reports what the same command would do.
 6. A crash leaves whole pieces done; the region goes on after them.

Steps
 1. The durable position must be the offset.  Piece by piece:
 2. Read records from Kafka, as many as a segment takes by their weight, and decode them.  The first one of all must
    be rejected.
 3. Send dead letters and await their acknowledgement; then write an entry over the piece (``entry``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from lancewal_core.errors import InvalidInput, RecordsUnreadable
from lancewal_core.names.ids import OwnerId, Position, Region, position_after
from lancewal_core.region.durable_position import durable_position
from lancewal_core.table.contract import UNREADABLE
from lancewal_core.wal.entry import Entry, RejectedOffset
from lancewal_ingest.append.job import DeadLetters
from lancewal_ingest.append.pending import divided, joined
from lancewal_ingest.append.prepare import Consumed, Preparer, lenient
from lancewal_ingest.context import IngestContext
from lancewal_ingest.decode.decoder import PIECE_BYTES
from lancewal_ingest.decode.outcomes import Rejected
from lancewal_ingest.kafka.source import Offsets
from lancewal_ingest.operator.entry import write_entry
from lancewal_kafka.records import Records

_UNREADABLE_AT_ONCE = 10_000
"""Offsets of an entry that are rejected unread."""

ReadRecords = Callable[[Region, Position, Position], tuple[Records, Position]]
"""The records of a range, or of its beginning if they are many, and the position after them."""


@dataclass(frozen=True, slots=True)
class Passed:
    """Counts of the records that the partition was led past."""

    first: Rejected
    """The one that had stopped it."""
    rejected: Mapping[str, int]
    """Number by kind."""
    letters: int
    """Number of rejected records that are dead letters."""
    rows: int
    """Good records among them: they are in the table's log as any other."""
    goes_on: Position
    unreadable_to: Position | None = None
    """Position after further offsets that cannot be read either, if the partition goes on among such."""


@dataclass(frozen=True, slots=True)
class Partition:
    """Partition of the topic, as Kafka has it, and where its rejected records go."""

    offsets: Callable[[], Offsets]
    """Asked anew at each call."""
    read: ReadRecords
    dead_letters: DeadLetters
    look_only: bool = False
    """Nothing is written: neither letters nor entries."""


def reject(
    context: IngestContext,
    owner: OwnerId,
    region: Region,
    offset: Position,
    through: Position,
    kafka: Partition,
) -> Passed:
    """Steps 1 to 3 for the offsets from ``offset`` to ``through``, this one included.

    ``InvalidInput`` if ``offset`` is not that of the record which stops the partition, or Kafka ends before ``through``.
    """
    # Step 1
    reached = durable_position(context, region)
    _check_reached(region, reached, offset, offset)
    end = position_after(through)
    held = kafka.offsets()
    if not held.low <= offset < held.high:
        raise _wrong(region, f"Kafka has no record at offset {offset}")
    if not offset <= through or end > held.high:
        raise _wrong(
            region, f"through offset {through}: expected one from {offset} to {held.high - 1}, which Kafka has"
        )
    preparer = Preparer(lenient(context.contract), context.drain)
    first: Rejected | None = None
    weights = preparer.weights
    kinds, sent, rows, at = Counter[str](), 0, 0, offset
    unreadable_to = offset
    while first is None or at < end:
        # Step 2
        readable = True
        try:
            records, behind = kafka.read(region, at, end)
        except RecordsUnreadable as error:
            beyond = error.where.get("behind")
            unreadable_to = Position(beyond) if isinstance(beyond, int) else end
            behind = Position(min(unreadable_to, end, at + _UNREADABLE_AT_ONCE))
            records, readable = _nothing_of(range(0)), False
        else:
            if first is None and records.offsets[:1] != [offset]:
                raise _wrong(region, f"Kafka has no record at offset {offset}")
            weight = int(weights.each(records).sum())
            piece, _ = divided(joined(None, records, behind, weight), PIECE_BYTES, weights, least=1)
            assert piece is not None  # the first record at least
            records, behind = piece.records, piece.next
        entry, rejected, stop = preparer.prepare(Consumed(region, at, behind, records))
        if entry is None and stop is not None:  # drained up to here
            if first is None:
                raise stop.error
            break
        if entry is not None and not readable:
            entry, records, rejected = _unread(entry)
        first = first or _first(entry, rejected)
        if entry is None or first is None or first.offset != offset:
            raise _wrong(region, f"the record at offset {offset} is a good one, it is not rejected")
        # Step 3
        if rejected and not kafka.look_only:
            kafka.dead_letters.send(region, records, rejected)
        if not kafka.look_only:
            _write(context, owner, region, kafka.offsets, entry, offset)
        kinds.update(listed.kind for listed in entry.rejected)
        sent += len(rejected)
        rows += entry.row_count
        at = entry.next
    return Passed(first, kinds, sent, rows, at, unreadable_to if unreadable_to > at else None)


def _first(entry: Entry | None, letters: Sequence[Rejected]) -> Rejected | None:
    """The first record that the entry lists, as its letter where it has one."""
    if entry is None or not entry.rejected:
        return None
    first = entry.rejected[0]
    if letters and letters[0].offset == first.offset:
        return letters[0]
    return Rejected(first.offset, first.kind, "the contract's policy is ignore")


def _unread(entry: Entry) -> tuple[Entry, Records, tuple[Rejected, ...]]:
    """Return the entry without rows in which all offsets count as unreadable, its records, and their letters."""
    offsets = range(entry.first, entry.next)
    letters = tuple(Rejected(o, UNREADABLE, "expected records that Kafka's client can read") for o in offsets)
    rejected = tuple(RejectedOffset(letter.offset, letter.kind) for letter in letters)
    return replace(entry, rejected=rejected), _nothing_of(offsets), letters


def _nothing_of(offsets: range) -> Records:
    count = len(offsets)
    return Records(list(offsets), [-1] * count, [None] * count, [None] * count, [None] * count)


def _write(
    context: IngestContext,
    owner: OwnerId,
    region: Region,
    offsets: Callable[[], Offsets],
    entry: Entry,
    offset: Position,
) -> None:
    def make(reached: Position) -> Entry:
        _check_reached(region, reached, entry.first, offset)
        return entry

    write_entry(context, owner, region, offsets, make)


def _check_reached(region: Region, reached: Position | None, wanted: Position, offset: Position) -> None:
    if reached != wanted:
        where = "at the first record that Kafka has" if reached is None else f"at offset {reached}"
        raise _wrong(
            region,
            f"the partition goes on {where}, not at {wanted}: only from the record that stops it on are records rejected",
            None if wanted == offset else f"Records before {wanted} are done; ingest goes on from there",
        )


def _wrong(region: Region, problem: str, done: str | None = None) -> InvalidInput:
    return region.partition_error(InvalidInput, f"{problem}. {done or 'Nothing was changed'}")
