"""``lancewal offset accept-loss``: go on after offsets that Kafka deleted before they became durable.

Guarantees
 1. Only offsets that Kafka no longer has are passed over: from the region's durable position to Kafka's first offset.
 2. Every loss is recorded (``lancewal_core.region.loss_record``).
 3. If nothing is lost, nothing is changed.
 4. If only deletes may be lost (``tombstones``), no offset is passed over: all records that Kafka still has are read.
 5. If offsets and deletes are lost, both are recorded.  Otherwise the entry over the lost offsets would hide that no
    process has read the region for long.
 6. If Kafka ends below the durable position, durable rows stay, and no offset is passed over.  The region goes on at
    that position once Kafka has grown up to it.  Records that Kafka gets below that position are never read; these
    offsets are recorded as lost.

Steps
 1. Compare the durable position with Kafka's first and last offset, and check whether deletes after the position may
    be gone.
 2. Record the loss, then write an entry without rows over the lost offsets (``entry``).  For deletes and for a lost
    tail, only record the loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from lancewal_core.errors import InvalidInput
from lancewal_core.names.ids import OwnerId, Position, Region
from lancewal_core.region.durable_position import durable_position
from lancewal_core.region.loss_record import LossRecord, read_losses, write_loss
from lancewal_core.wal.entry import Entry
from lancewal_ingest.commands.operator.entry import no_rows, write_entry
from lancewal_ingest.context import IngestContext
from lancewal_ingest.kafka.source import Offsets
from lancewal_ingest.retention.tombstones import accepted_up_to, lost_tombstones


@dataclass(frozen=True, slots=True)
class Accepted:
    """The recorded losses, and the position at which the partition continues."""

    losses: tuple[LossRecord, ...]
    goes_on: Position


def plan_loss(context: IngestContext, owner: OwnerId, region: Region, offsets: Callable[[], Offsets]) -> Accepted:
    """Return the losses that ``accept_loss`` would record now, without writing anything.  Raises ``InvalidInput`` if
    nothing is lost.
    """
    # Step 1
    position = durable_position(context, region)
    kafka = offsets()
    low = kafka.low
    position = low if position is None else position
    if position > kafka.high:
        return Accepted((_loss(context, owner, kafka.high, position, "replaced"),), position)
    if low <= position:
        loss = _tombstones(context, owner, region, position, kafka)
        if loss is None:
            raise _nothing_lost(region, position, low)
        return Accepted((loss,), position)
    return _offsets(context, owner, region, position, kafka)


def accept_loss(context: IngestContext, owner: OwnerId, region: Region, offsets: Callable[[], Offsets]) -> Accepted:
    """Record the losses of a region, move the region past them, and return them.  Raises ``InvalidInput`` if nothing is
    lost.
    """
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

    # Opening the region must not stop at the offsets that Kafka lost: this command is for them.
    write_entry(context, owner, region, lambda: Offsets(Position(0), offsets().high), make)
    return accepted[0]


def _offsets(context: IngestContext, owner: OwnerId, region: Region, first: Position, kafka: Offsets) -> Accepted:
    """Return the loss of the offsets from ``first`` to Kafka's first one, and the loss of deletes after it if there is
    one."""
    if kafka.low <= first:
        raise _nothing_lost(region, first, kafka.low)
    loss = _loss(context, owner, first, kafka.low, "offsets")
    deletes = _tombstones(context, owner, region, kafka.low, kafka)
    return Accepted((loss,) if deletes is None else (loss, deletes), kafka.low)


def _tombstones(
    context: IngestContext, owner: OwnerId, region: Region, position: Position, kafka: Offsets
) -> LossRecord | None:
    """Return the record of deletes from ``position`` on that may be lost; None if none may be."""
    state, compaction = context.states.read([region]).get(region), kafka.compaction
    problem = lost_tombstones(context, region, state, position, compaction)
    if problem is None or compaction is None:
        return None
    # A record is never replaced.  If more records have grown old since the last one, a new record begins at its end.
    first, _ = accepted_up_to(read_losses(context.store, region, context.contract.making), position)
    return _loss(context, owner, first, compaction.old_beyond(position), "tombstones")


def _loss(
    context: IngestContext,
    owner: OwnerId,
    first: Position,
    next_: Position,
    kind: Literal["offsets", "tombstones", "replaced"],
) -> LossRecord:
    """Return the record of a loss of offsets from ``first`` to before ``next_``, accepted now.  ``owner``: the id of
    the command's process."""
    return LossRecord(first=first, next=next_, accepted_at_ms=context.clock.now_ms(), accepted_by=owner, kind=kind)


def _nothing_lost(region: Region, position: Position, low: Position) -> InvalidInput:
    return region.partition_error(
        InvalidInput,
        f"nothing is lost: durable up to position {position}, and Kafka begins at {low}. Nothing was changed",
    )
