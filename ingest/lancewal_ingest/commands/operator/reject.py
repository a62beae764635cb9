"""``lancewal offset reject``: reject bad or misrouted records that stopped a partition, and move its position past
them.

Guarantees
 1. The dead letter of each rejected record is acknowledged before its offset is durable, as under the policy
    ``dead-letter``.  If the contract's policy is ``ignore``, the record is passed over without a letter.  (A process
    with an older version of the contract may have stopped at such a record, or any process with ``ColumnUnknown``.)  A
    record that is bad only for its key form has a letter under every policy.
 2. Records are rejected only from the region's durable position on, only if the record there cannot be a row of this
    region, and only up to the offset that the operator names.
 3. Each entry is the one that ingest would write under the policy ``dead-letter``: good records in between become rows.
 4. Offsets that Kafka's client cannot read (``RecordsUnreadable``) are rejected one by one: each is listed, and has a
    letter without key and value.
 5. Nothing is decoded whose schema the table has not stored (``lancewal_core.wal.writer_schemas``).  The range ends
    before such a record.
 6. A dry run changes nothing, and reports what the same command would do.
 7. A range is done in pieces.  After a crash some pieces are done completely, and the region goes on after them.

Steps
 1. Check that the durable position is the offset.  Then repeat steps 2 and 3 for each piece of the range:
 2. Read records from Kafka, as many as a segment holds by weight, and decode them.  The very first record must be one
    that is rejected.
 3. Send dead letters and wait for their acknowledgement; then write an entry over the piece (``entry``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from lancewal_core.errors import InvalidInput, RecordsUnreadable
from lancewal_core.names.ids import OwnerId, Position, Region, position_after
from lancewal_core.region.durable_position import durable_position
from lancewal_core.table.contract import UNREADABLE
from lancewal_core.wal.entry import Entry, RejectedOffset
from lancewal_ingest.append.job import DeadLetters
from lancewal_ingest.append.pending import Pending, divided, joined
from lancewal_ingest.append.prepare import Consumed, Preparer
from lancewal_ingest.commands.operator.entry import write_entry
from lancewal_ingest.context import IngestContext
from lancewal_ingest.decode.outcomes import Rejected
from lancewal_ingest.decode.value_decoder import Schemas
from lancewal_ingest.decode.weight import PIECE_BYTES
from lancewal_ingest.kafka.source import Offsets
from lancewal_kafka.records import Records

_UNREADABLE_AT_ONCE = 10_000
"""Largest number of unreadable offsets that one entry lists."""

ReadRecords = Callable[[Region, Position, Position], tuple[Records, Position]]
"""Function that reads the records of a region from a first position to before an end.

It returns the records, and the position after them.  If they are many, it returns only the first ones."""


@dataclass(frozen=True, slots=True)
class Passed:
    """Counts of the records that the partition was moved past."""

    first: Rejected
    """Record that had stopped the partition."""
    rejected: Mapping[str, int]
    """Number of rejected records by kind."""
    letters: int
    """Number of rejected records that have a dead letter."""
    rows: int
    """Number of good records in the range; they became rows as in ingest."""
    goes_on: Position
    """Position at which the partition continues."""
    unreadable_to: Position | None = None
    """Position after the unreadable offsets at which the partition continues; None if these can be read."""


@dataclass(frozen=True, slots=True)
class Partition:
    """Access to a partition in Kafka, and to the topic of its dead letters."""

    offsets: Callable[[], Offsets]
    """Ask the broker, at each call, for the partition's offsets."""
    read: ReadRecords
    dead_letters: DeadLetters
    look_only: bool = False
    """Whether this is a dry run: neither letters nor entries are written."""


def reject(
    context: IngestContext,
    owner: OwnerId,
    region: Region,
    offset: Position,
    through: Position,
    kafka: Partition,
) -> Passed:
    """Reject the bad and misrouted records from ``offset`` to ``through``, inclusive.

    Raises ``InvalidInput`` if the record at ``offset`` is not the one that stops the partition, or if Kafka does not
    have ``through``.
    """
    # Step 1
    reached = durable_position(context, region)
    _check_reached(region, reached, offset, offset)
    end = _end(region, offset, through, kafka.offsets())
    schemas = context.stored_schemas
    preparer = Preparer(context.contract, context.drain, schemas, reads_again=True)
    first: Rejected | None = None
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
            weight = int(preparer.weights.each(records).sum())
            piece, _ = divided(joined(None, records, behind, weight), PIECE_BYTES, preparer.weights, least=1)
            assert piece is not None  # the first record at least
            records, behind = _with_schemas(region, piece, preparer, schemas, offset)
        entry, rejected, stop = preparer.prepare(Consumed(region, at, behind, records))
        if entry is None and stop is not None:  # the partition is drained up to this position
            if first is None:
                raise stop.error
            break
        if entry is not None and not readable:
            entry, records, rejected = _unread(entry)
        first = first or _first(entry, rejected)
        if entry is None or first is None or first.offset != offset:
            raise _wrong(region, f"the record at offset {offset} is a good one and is not rejected")
        # Step 3
        if rejected and not kafka.look_only:
            kafka.dead_letters.send(region, records, rejected)
        if not kafka.look_only:
            write_entry(context, owner, region, kafka.offsets, partial(_at, region, entry, offset))
        kinds.update(listed.kind for listed in entry.rejected)
        sent += len(rejected)
        rows += entry.row_count
        at = entry.next
    return Passed(first, kinds, sent, rows, at, unreadable_to if unreadable_to > at else None)


def _end(region: Region, offset: Position, through: Position, held: Offsets) -> Position:
    """Return the position after the range.  ``InvalidInput`` if Kafka, which has the offsets ``held``, lacks some of
    it."""
    if not held.low <= offset < held.high:
        raise _wrong(region, f"Kafka has no record at offset {offset}")
    if not offset <= through < held.high:
        raise _wrong(
            region, f"through offset {through}: expected one from {offset} to {held.high - 1}, which Kafka has"
        )
    return position_after(through)


def _with_schemas(
    region: Region, piece: Pending, preparer: Preparer, schemas: Schemas, offset: Position
) -> tuple[Records, Position]:
    """Return the records before the first one whose schema is not stored, and the position after them."""
    records = piece.records
    missing = [(int(at.min()), key) for key, at in preparer.schemas_of(records) if not schemas.read(key)]
    if not missing:
        return records, piece.next
    place, key = min(missing)
    at = Position(records.offsets[place])
    if place == 0:
        raise _wrong(
            region,
            f"the record at offset {at} names schema {key}, which the table has not stored. Ingest looks it up, or says what "
            "to do. If no registry has it: `lancewal table alter --on unknown-schema=dead-letter`",
            None if at == offset else f"Records before {at} are done; ingest goes on from there",
        )
    return records.part(0, place), at


def _first(entry: Entry | None, letters: Sequence[Rejected]) -> Rejected | None:
    """Return the first rejected record of the entry, with the message of its letter if it has one; None if none is
    rejected."""
    if entry is None or not entry.rejected:
        return None
    first = entry.rejected[0]
    if letters and letters[0].offset == first.offset:
        return letters[0]
    return Rejected(first.offset, first.kind, "the contract's policy is ignore")


def _unread(entry: Entry) -> tuple[Entry, Records, tuple[Rejected, ...]]:
    """Return ``entry`` with all its offsets rejected as unreadable, records without content, and their letters."""
    offsets = range(entry.first, entry.next)
    letters = tuple(Rejected(o, UNREADABLE, "expected records that Kafka's client can read") for o in offsets)
    rejected = tuple(RejectedOffset(letter.offset, letter.kind) for letter in letters)
    return replace(entry, rejected=rejected), _nothing_of(offsets), letters


def _nothing_of(offsets: range) -> Records:
    count = len(offsets)
    return Records(list(offsets), [-1] * count, [None] * count, [None] * count, [None] * count)


def _at(region: Region, entry: Entry, offset: Position, reached: Position) -> Entry:
    """Return ``entry`` if the region's durable position ``reached`` is where it begins."""
    _check_reached(region, reached, entry.first, offset)
    return entry


def _check_reached(region: Region, reached: Position | None, wanted: Position, offset: Position) -> None:
    if reached != wanted:
        where = "at the first record that Kafka has" if reached is None else f"at offset {reached}"
        raise _wrong(
            region,
            f"the partition goes on {where}, not at {wanted}. Give the record that stops the partition",
            None if wanted == offset else f"Records before {wanted} are done; ingest goes on from there",
        )


def _wrong(region: Region, problem: str, done: str | None = None) -> InvalidInput:
    return region.partition_error(InvalidInput, f"{problem}. {done or 'Nothing was changed'}")
