"""``lancewal offsets reject``: lead a partition past bad or misrouted records that stopped it.

Guarantees
 1. Each such record is acknowledged as a dead letter before its offset is durable, as under the policies ``dlq``.
 2. Only from the region's durable position on, only where the record there cannot be a row of this region, and only up to
    the offset that the operator names.
 3. An entry says what ``ingest.bad_records: dlq`` (of a misrouted one, ``misrouted: dlq``) would have said: good records
    in between are rows, as they are when ingest reads them.
 4. A crash leaves whole pieces done; the region goes on behind them.

Steps
 1. The durable position must be the offset.  Piece by piece:
 2. Read records from Kafka and decode them: the first one of all must be rejected.
 3. Dead letters, acknowledged; then an entry over the piece (``operator_entry``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lancewal_core.durable_position import durable_position
from lancewal_core.errors import InvalidInput
from lancewal_core.ids import OwnerId, Position, Region, position_after
from lancewal_core.segment import Entry
from lancewal_ingest.append import Consumed, DeadLetters, Preparer
from lancewal_ingest.context import IngestContext
from lancewal_ingest.decode.records import Records, Rejected
from lancewal_ingest.operator_entry import write_entry
from lancewal_ingest.source import Offsets

ReadRecords = Callable[[Region, Position, Position], tuple[Records, Position]]
"""The records of a range, or of its beginning where they are many, and the position behind them."""


@dataclass(frozen=True, slots=True)
class Passed:
    """What became of the records that the partition was led past."""

    first: Rejected
    """The one that had stopped it."""
    rejected: Mapping[str, int]
    """Number by kind."""
    rows: int
    """Good records among them: they are in the table's log as any other."""
    goes_on: Position


def reject(
    context: IngestContext,
    owner: OwnerId,
    region: Region,
    offset: Position,
    through: Position,
    offsets: Callable[[], Offsets],
    read: ReadRecords,
    dead_letters: DeadLetters,
) -> Passed:
    """Steps 1 to 3 for the offsets from ``offset`` to ``through``, this one included.

    ``InvalidInput`` if ``offset`` is not that of the record which stops the partition, or Kafka ends before ``through``.
    """
    # Step 1
    reached = durable_position(context.store, context.tasks, context.indexes, context.contract, region)
    _check_reached(region, reached, offset, offset)
    end = position_after(through)
    kafka = offsets()
    if not kafka.low <= offset < kafka.high:
        raise _wrong(region, f"Kafka has no record at offset {offset}")
    if not offset <= through or end > kafka.high:
        raise _wrong(
            region, f"through offset {through}: expected one from {offset} to {kafka.high - 1}, which Kafka has"
        )
    preparer = Preparer(context.contract.model_copy(update={"misrouted": "dlq"}), "dlq", context.drain)
    first: Rejected | None = None
    kinds, rows, at = Counter[str](), 0, offset
    while first is None or at < end:
        # Step 2
        records, behind = read(region, at, end)
        if first is None and records.offsets[:1] != [offset]:
            raise _wrong(region, f"Kafka has no record at offset {offset}")
        entry, rejected, stop = preparer.prepare(Consumed(region, at, behind, records))
        if entry is None and stop is not None:  # drained up to here
            if first is None:
                raise stop.error
            break
        first = first or next(iter(rejected), None)
        if entry is None or first is None or first.offset != offset:
            raise _wrong(region, f"the record at offset {offset} is a good one, it is not rejected")
        # Step 3
        if rejected:
            dead_letters.send(region, records, rejected)
        _write(context, owner, region, offsets, entry, offset)
        kinds.update(letter.kind for letter in rejected)
        rows += entry.rows.num_rows
        at = entry.next
    return Passed(first, kinds, rows, at)


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
            None if wanted == offset else f"What lies before {wanted} is done; ingest goes on from there",
        )


def _wrong(region: Region, problem: str, done: str | None = None) -> InvalidInput:
    return InvalidInput(
        f"topic {region.topic} partition {region.partition}: {problem}. {done or 'Nothing was changed'}",
        topic=region.topic,
        partition=region.partition,
    )
