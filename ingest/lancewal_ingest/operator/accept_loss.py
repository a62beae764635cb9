"""``lancewal offset accept-loss``: go on after offsets that Kafka deleted before they became durable.

Guarantees
 1. Only offsets that Kafka no longer has are passed over: from the region's durable position to the first that it
    has.
 2. No loss without its record (``lancewal_core.region.loss_record``).
 3. If nothing is lost, nothing is touched.
 4. If only deletes may be lost (``tombstones``), nothing is passed over: what Kafka still has is read.
 5. If both are lost, both are recorded: the entry over the gap would hide that nobody has read for long.
 6. If Kafka ends below the durable position, what is durable stays, and nothing is passed over either.  The region
    goes on at that position once Kafka has grown up to it.  What Kafka gets below it is never read; that is what is
    recorded.

Steps
 1. Compare the durable position with Kafka's first and last, and look whether deletes after it may be gone.
 2. Record the loss, then write an entry without rows over it (``entry``); for deletes and for a lost tail the record
    alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lancewal_core.errors import InvalidInput
from lancewal_core.names.ids import OwnerId, Position, Region
from lancewal_core.region.durable_position import durable_position
from lancewal_core.region.loss_record import LossRecord, read_losses, write_loss
from lancewal_core.wal.entry import Entry
from lancewal_ingest.context import IngestContext
from lancewal_ingest.kafka.source import Offsets
from lancewal_ingest.operator.entry import no_rows, write_entry
from lancewal_ingest.retention.tombstones import accepted_up_to, lost_tombstones


@dataclass(frozen=True, slots=True)
class Accepted:
    """Loss that was recorded, and where the partition goes on."""

    losses: tuple[LossRecord, ...]
    goes_on: Position


def plan_loss(context: IngestContext, owner: OwnerId, region: Region, offsets: Callable[[], Offsets]) -> Accepted:
    """Return what would be accepted now, and write nothing.  ``InvalidInput`` if nothing is lost."""
    # Step 1
    position = durable_position(context, region)
    kafka = offsets()
    low = kafka.low
    if position is None:
        raise _nothing_lost(region, low, low)
    if position > kafka.high:
        replaced = LossRecord(
            first=kafka.high,
            next=position,
            accepted_at_ms=context.clock.now_ms(),
            accepted_by=owner,
            kind="replaced",
        )
        return Accepted((replaced,), position)
    if low <= position:
        loss = _tombstones(context, owner, region, position, kafka)
        if loss is None:
            raise _nothing_lost(region, position, low)
        return Accepted((loss,), position)
    return _offsets(context, owner, region, position, kafka)


def accept_loss(context: IngestContext, owner: OwnerId, region: Region, offsets: Callable[[], Offsets]) -> Accepted:
    """Steps 1 and 2; return what was accepted.  ``InvalidInput`` if nothing is lost."""
    # Step 1
    plan = plan_loss(context, owner, region, offsets)
    if plan.losses[0].kind != "offsets":
        write_loss(context.store, region, plan.losses[0], context.contract.making)
        return plan
    # Step 2
    accepted: list[Accepted] = []

    def make(first: Position) -> Entry:
        found = _offsets(context, owner, region, first, offsets())
        for one in found.losses:
            write_loss(context.store, region, one, context.contract.making)
        accepted.append(found)
        return Entry(region, first, found.goes_on, context.contract.version, no_rows(context.contract.rows.wal), ())

    # What Kafka lost is what this is about: opening the region must not stop at it.
    write_entry(context, owner, region, lambda: Offsets(Position(0), offsets().high), make)
    return accepted[0]


def _offsets(context: IngestContext, owner: OwnerId, region: Region, first: Position, kafka: Offsets) -> Accepted:
    """Return the loss records from ``first`` to where Kafka begins, and of deletes after that."""
    if kafka.low <= first:
        raise _nothing_lost(region, first, kafka.low)
    loss = LossRecord(first=first, next=kafka.low, accepted_at_ms=context.clock.now_ms(), accepted_by=owner)
    deletes = _tombstones(context, owner, region, kafka.low, kafka)
    return Accepted((loss,) if deletes is None else (loss, deletes), kafka.low)


def _tombstones(
    context: IngestContext, owner: OwnerId, region: Region, position: Position, kafka: Offsets
) -> LossRecord | None:
    """The record of deletes from ``position`` on that may be lost."""
    index, compaction = context.indexes.read([region]).get(region), kafka.compaction
    problem = lost_tombstones(context, index, position, compaction)
    if problem is None or compaction is None:
        return None
    # Anew where more has grown old since: a record is never replaced.
    first, _ = accepted_up_to(read_losses(context.store, region, context.contract.making), position)
    return LossRecord(
        first=first,
        next=compaction.old_beyond(position),
        accepted_at_ms=context.clock.now_ms(),
        accepted_by=owner,
        kind="tombstones",
    )


def _nothing_lost(region: Region, position: Position, low: Position) -> InvalidInput:
    return region.partition_error(
        InvalidInput,
        f"nothing is lost: durable up to position {position}, and Kafka begins at {low}. Nothing was changed",
    )
