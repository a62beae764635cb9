"""Permanent loss through a lost segment: positions whose records are in no segment, and that Kafka has deleted.

Guarantees
 1. Only records that exist nowhere are given up: the positions of a gap below Kafka's first.  Records that Kafka still has
    are read.
 2. In a compacted topic everything that Kafka still has of a gap is read.  Besides the positions below Kafka's first, only
    deletes may be lost: compaction removes other records only after a later one superseded them, but deletes by themselves.
    So a row that such a delete removed may stay.
 3. Every loss has its record (``loss_record``), written before a generation is flushed without the positions.  It names the
    segment, since these positions had been durable and earlier reads may have seen their records.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Literal

from lancewal_audit.repair.context import RepairContext
from lancewal_audit.repair.generation_parts import Gap
from lancewal_audit.repair.told import Told, told
from lancewal_audit.repair.topic_records import TopicRecords
from lancewal_core.errors import RetentionLost, TopicUnsuitable
from lancewal_core.names.ids import OwnerId, Position, Region
from lancewal_core.region.loss_record import LossRecord, behind_losses, read_losses, replaced_below, write_loss


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Positions [``first``, ``next``) of a region whose records are given up: lost, and left out of a repaired flush.
    ``kind``: see ``LossRecord``."""

    region: Region
    first: Position
    next: Position
    kind: Literal["offsets", "tombstones"]
    kafka_first: Position
    """First offset that Kafka has of the partition."""

    @property
    def cause(self) -> str:
        """Text that says which offsets are lost, and why."""
        what = f"topic {self.region.topic} partition {self.region.partition}: offsets {self.first} to {self.next - 1}"
        if self.kind == "offsets":
            return f"{what} are in no segment, and Kafka begins at {self.kafka_first}"
        return f"{what} are in no segment, and the topic is compacted: deletes among them may be gone"

    def told(self, before: str = "") -> Told:
        """Return the text that says which offsets are lost, and what that means for rows.  ``before``: text to begin
        with."""
        means = (
            "they are given up: their keys keep the state that earlier records gave them"
            if self.kind == "offsets"
            else "rows that these removed may stay"
        )
        loss = {"kind": self.kind, "first": self.first, "next": self.next}
        return told(f"{before}{self.cause}; {means}", **self.region.place, **loss)


def given_up(
    context: RepairContext, topic: TopicRecords, region: Region, gaps: Seq[Gap], *, compacted: bool
) -> tuple[GivenUp, ...]:
    """Return the positions of the gaps that can no longer be read anywhere, and whose loss nobody has accepted yet."""
    found: list[GivenUp] = []
    # If the topic lost its tail, Kafka has other records at these offsets.  Only later offsets can be read again.
    if not gaps:
        return ()
    losses = read_losses(context.store, region, context.contract.making)
    low = max(topic.low(region.partition), replaced_below(losses))
    for gap in gaps:
        needed = behind_losses(losses, gap.first)
        kept = min(max(needed, low), gap.next)
        if needed < kept:
            found.append(GivenUp(region, needed, kept, "offsets", low))
        if compacted and kept < gap.next and not _deletes_accepted(losses, kept, gap.next):
            found.append(GivenUp(region, kept, gap.next, "tombstones", low))
    return tuple(found)


def is_compacted(topic: TopicRecords) -> bool:
    """Return whether compaction may have removed records of the topic.  Raises ``TopicReplaced`` if the topic was
    replaced.
    """
    try:
        topic.check()
    except TopicUnsuitable:
        return True
    return False


def refuse(lost: Seq[GivenUp]) -> None:
    """Raise ``RetentionLost`` or ``TopicUnsuitable`` with all these lost positions, if there are any."""
    if not lost:
        return
    first = lost[0]
    error = RetentionLost if first.kind == "offsets" else TopicUnsuitable
    raise error(
        f"{'. '.join(one.cause for one in lost)}. Restore the object from the store's own versions. If the ingest process "
        "that wrote it still runs, stop it in order: it flushes what it has in memory. Or give the offsets up: "
        "--accept-loss. Nothing was changed",
        **first.region.place,
    )


def record_losses(context: RepairContext, lost: Iterable[GivenUp], segment: str, person: OwnerId) -> None:
    """Write the records of these losses (guarantee 3); ``segment``: key of the object that is repaired."""
    for one in lost:
        loss = LossRecord(
            first=one.first,
            next=one.next,
            accepted_at_ms=context.clock.now_ms(),
            accepted_by=person,
            kind=one.kind,
            segment=segment,
        )
        write_loss(context.store, one.region, loss, context.contract.making)


def _deletes_accepted(losses: Seq[LossRecord], first: Position, end: Position) -> bool:
    return any(
        loss.segment is not None and loss.kind == "tombstones" and loss.first <= first and end <= loss.next
        for loss in losses
    )
