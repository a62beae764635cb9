"""``lancewal offsets reject``: lead a partition past the one bad or misrouted record that stopped it.

Guarantees
 1. The record is acknowledged as a dead letter before its offset is durable, as under the policies ``dlq``.
 2. Only the record at the region's durable position, and only one that cannot be a row of this region.
 3. The entry says what ``ingest.bad_records: dlq`` (of a misrouted one, ``misrouted: dlq``) would have said.

Steps
 1. The durable position must be the offset.
 2. Read that record from Kafka and decode it: it must be rejected.
 3. Dead letter, acknowledged; then an entry of that one offset (``operator_entry``).
"""

from __future__ import annotations

from collections.abc import Callable

from lancewal_core.durable_position import durable_position
from lancewal_core.errors import InvalidInput
from lancewal_core.ids import OwnerId, Position, Region, position_after
from lancewal_core.segment import Entry
from lancewal_ingest.append import Consumed, DeadLetters, Preparer
from lancewal_ingest.context import IngestContext
from lancewal_ingest.decode.records import Records, Rejected
from lancewal_ingest.operator_entry import write_entry
from lancewal_ingest.source import Offsets

ReadRecord = Callable[[Region, Position], Records]
"""The record at an offset; without one where Kafka has none there (any more)."""


def reject(
    context: IngestContext,
    owner: OwnerId,
    region: Region,
    offset: Position,
    offsets: Callable[[], Offsets],
    read: ReadRecord,
    dead_letters: DeadLetters,
) -> Rejected:
    """Steps 1 to 3; what was wrong with the record.  ``InvalidInput`` if it is not the one that stops the partition."""
    # Step 1
    _check_reached(
        region, durable_position(context.store, context.tasks, context.indexes, context.contract, region), offset
    )
    # Step 2
    records = read(region, offset)
    if records.offsets != [offset]:
        raise _wrong(region, f"Kafka has no record at offset {offset}")
    lenient = context.contract.model_copy(update={"misrouted": "dlq"})
    entry, rejected, _ = Preparer(lenient, "dlq").prepare(Consumed(region, offset, position_after(offset), records))
    if entry is None or not rejected:
        raise _wrong(region, f"the record at offset {offset} is a good one, it is not rejected")
    # Step 3
    dead_letters.send(region, records, rejected)

    def make(first: Position) -> Entry:
        _check_reached(region, first, offset)
        return entry

    write_entry(context, owner, region, offsets, make)
    return rejected[0]


def _check_reached(region: Region, reached: Position | None, offset: Position) -> None:
    if reached != offset:
        where = "at the first record that Kafka has" if reached is None else f"at offset {reached}"
        raise _wrong(
            region, f"the partition goes on {where}, not at {offset}: only the record that stops it is rejected"
        )


def _wrong(region: Region, problem: str) -> InvalidInput:
    return InvalidInput(
        f"topic {region.topic} partition {region.partition}: {problem}. Nothing was changed",
        topic=region.topic,
        partition=region.partition,
    )
