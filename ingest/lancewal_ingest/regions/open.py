"""Open a region: take over a partition that Kafka assigned to this process.

Guarantees
 1. After it, the newest generation of the region is OPEN with our owner id and our log, and starts at the position where
    everything before is durable: nothing is skipped, nothing is read twice into different generations.
 2. Nothing can be added behind our back: the former owner's log has ended (a fence), or it handed over.
 3. Losing the race leaves everything as the winner made it.
 4. Where a segment is lost from the midst of the former owner's log, ``ObjectMissing`` names it and nothing is changed: a
    fence in its place would end the log for regions that are still written behind it.
 5. No record of a contract that was altered, or is about to be, becomes durable by a claim (``lancewal_core.table.drain``).
 6. A Kafka that does not answer, or that lost what comes next, costs no generation: it is asked before the claim.

Steps
 1. Read the newest region index.
 2. Where does the region continue?  No index: the contract's start.  Handed over: the newest generation's ``next``.
    OPEN in our own log (the region's state was dropped): read that log up to the next unsent segment; the caller has
    settled every PUT.  OPEN in another log: end that log with a fence; ``next`` of the region's last entry before it.
 3. Kafka must still have that position, and on a compacted topic what was deleted behind it: ``RetentionLost``,
    ``TopicTruncated``; ``KafkaBehind`` where a person has accepted that the topic lost its tail.
 4. Claim by compare-and-swap: the old generation SEALED there, the next OPEN.  Lost: ``OwnershipLost``; the caller starts
    again while the partition is still assigned to it.  Another owner's hand-over came in between: step 3 again.
 5. Read the drain, behind the claim: ``PartitionCountChanged`` where it is closed.  ``alter`` looks at the index behind
    closing it: it finds our claim and ends our log, or we find it closed.
 6. Generations that are SEALED and not FLUSHED are the caller's to flush.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lancewal_core.errors import (
    KafkaBehind,
    MergedPositionUnknown,
    OwnershipLost,
    RetentionLost,
    StoreInconsistent,
    StoreUnavailable,
    TableMissing,
    TableRestored,
    TopicTruncated,
)
from lancewal_core.ids import Position, Region
from lancewal_core.process.failpoints import point
from lancewal_core.region.end_region import end_generation, ended_at
from lancewal_core.region.history import check_reaches
from lancewal_core.region.index import GenerationRecord, RegionIndex, State
from lancewal_core.region.loss_record import read_losses
from lancewal_core.region.transitions import Claimant, Ended, claim, first_claim
from lancewal_core.table.drain import check_open, read_drain
from lancewal_core.wal.walk import walk
from lancewal_core.wal.writer import LogWriter
from lancewal_ingest.context import IngestContext
from lancewal_ingest.kafka.source import Offsets
from lancewal_ingest.retention.tombstones import lost_tombstones


@dataclass(frozen=True, slots=True)
class Opened:
    """``record`` is the generation that is now OPEN and ours; ``unflushed`` are SEALED ones before it, oldest first."""

    record: GenerationRecord
    unflushed: tuple[GenerationRecord, ...]


def open_region(context: IngestContext, writer: LogWriter, region: Region, offsets: Callable[[], Offsets]) -> Opened:
    """Steps 1 to 6.  The caller has settled ``writer``; ``offsets`` asks Kafka anew at each call."""
    # Step 1
    index = context.indexes.read([region]).get(region)
    _check_newest(context, region, index)
    # Step 2
    newest = None if index is None else index.newest
    ended: Ended | None = None
    if newest is not None and newest.state is State.OPEN:
        ended = _end(context, writer, region, newest)
    kafka = offsets()
    start = _start(context, region, kafka) if index is None else None
    position = start if newest is None else newest.next if ended is None else ended.next
    # Step 3
    if position is not None:
        problem = _problem(context, index, region, position, kafka)
        if problem is not None:
            if context.indexes.read([region]).get(region) != index:
                raise OwnershipLost(f"region {region.name}: another process went on with it", region=region.name)
            raise problem

    # Step 4
    def decide(found: RegionIndex | None) -> RegionIndex | None:
        claimant = Claimant(writer.owner, writer.log, writer.next_unsent)
        if found is None:
            if start is None:
                raise StoreInconsistent(f"region {region.name}: its index was read, and now is not there")
            return first_claim(region, context.contract.version, start, claimant, context.new_id())
        return claim(found, ended, context.contract.version, claimant, context.new_id())

    with point("claim.cas", region=region.name):
        ours, claimed = context.indexes.swap({region: decide})[region]
    if not ours or claimed is None or claimed.newest is None:
        raise OwnershipLost(f"region {region.name}: another process claimed it first", region=region.name)
    # Step 5
    drain = read_drain(context.store, context.contract)
    if drain is not None:
        check_open(context.contract, drain)
    if claimed.newest.first != position:
        # Anew: others may have come far before our claim.
        problem = _problem(context, claimed, region, claimed.newest.first, offsets())
        if problem is not None:
            raise problem
    # Step 6
    unflushed = tuple(r for r in claimed.generations if r.state is State.SEALED)
    return Opened(claimed.newest, unflushed)


def _start(context: IngestContext, region: Region, kafka: Offsets) -> Position:
    start = context.contract.start_of(region.partition)
    return kafka.low if start is None else start


def _end(context: IngestContext, writer: LogWriter, region: Region, record: GenerationRecord) -> Ended:
    """The end of the OPEN generation ``record``: of our own log as far as it is settled, of another after fencing it."""
    if record.log != writer.log:
        return end_generation(context, writer.owner, region, record)
    walked = walk(
        context.store,
        context.tasks,
        record.log,
        record.first_sequence,
        before=writer.next_unsent,
        regions=(region,),
    )
    if walked.end < writer.next_unsent:
        raise StoreInconsistent(
            f"segment {walked.end} of our own log {record.log} is not readable, though it was stored",
            log=record.log,
        )
    return ended_at(region, record, walked, context.clock.now_ms())


def _check_newest(context: IngestContext, region: Region, index: RegionIndex | None) -> None:
    try:
        _, in_force = context.watermarks.newest()
    except (TableRestored, MergedPositionUnknown):
        # Merges stop until a person has decided; consuming must not, or Kafka loses what nobody has made durable.
        return
    except TableMissing as error:
        # It was there when this process started: a proxy answers 404 for what it cannot reach, or somebody deleted it.
        raise StoreUnavailable(
            f"region {region.name}: {error}; it was there when this process started: look at the store, or stop ingest",
            region=region.name,
        ) from error
    check_reaches(region, index, in_force)


def _problem(
    context: IngestContext, index: RegionIndex | None, region: Region, position: Position, offsets: Offsets
) -> RetentionLost | TopicTruncated | KafkaBehind | None:
    """Why Kafka cannot go on at ``position``."""
    problem = offsets.problem(region.topic, region.partition, position, "durable")
    if isinstance(problem, TopicTruncated) and _is_accepted(context, region, position, offsets):
        return KafkaBehind(
            f"topic {region.topic} partition {region.partition}: Kafka ends at {offsets.high}, and its lost tail is accepted: "
            f"it is read again from position {position} on, once it has grown up to there",
            topic=region.topic,
            partition=region.partition,
        )
    return problem or lost_tombstones(context, index, position, offsets.compaction)


def _is_accepted(context: IngestContext, region: Region, position: Position, offsets: Offsets) -> bool:
    """Whether a person has accepted that Kafka ends below ``position`` (at least where it does now)."""
    return any(
        loss.kind == "replaced" and loss.first <= offsets.high and loss.next == position
        for loss in read_losses(context.store, region)
    )
