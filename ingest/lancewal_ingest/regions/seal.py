"""Seal, re-anchor and hand over: how an OPEN generation of ours ends or moves.

Guarantees
 1. The positions of a SEALED generation are exactly those of its durable entries; its log holds them in [first_sequence,
    end_sequence).
 2. Never while the region has an entry in a segment whose PUT is not settled: the caller settles the log first, and the
    check is here.
 3. Where another owner has claimed the region, nothing changes and ``OwnershipLost`` says so.

Steps
 1. Check that the log is settled.
 2. Compare-and-swap: OPEN g -> SEALED with its ``next``; g + 1 OPEN from there, from the next segment not yet
    sent, taken anew at each try.  Handing over opens no g + 1.
    Re-anchor: the first segment of an OPEN generation without entries moves there.
"""

from __future__ import annotations

from lancewal_core.errors import OwnershipLost
from lancewal_core.process.failpoints import point
from lancewal_core.region.index import GenerationRecord, RegionIndex
from lancewal_core.region.transitions import Claimant, reanchor, seal
from lancewal_core.rows.record_times import RecordTimes
from lancewal_core.wal.writer import LogWriter
from lancewal_ingest.context import IngestContext
from lancewal_ingest.regions.memtable import MemTable


def seal_generation(
    context: IngestContext, writer: LogWriter, memtable: MemTable, *, hand_over: bool
) -> tuple[GenerationRecord, GenerationRecord | None]:
    """The generation as SEALED, and the following one unless handing over."""
    _check_settled(writer)  # Step 1
    times = RecordTimes.of(memtable.batches)

    def decide(index: RegionIndex | None) -> RegionIndex | None:
        claimant = Claimant(writer.owner, writer.log, writer.next_unsent)
        return index and seal(
            index,
            memtable.generation,
            claimant,
            memtable.position,
            context.new_id(),
            record_times=times,
            now_ms=context.clock.now_ms(),
            hand_over=hand_over,
        )

    # Step 2
    with point(
        "handover.cas" if hand_over else "seal.cas", region=memtable.region.name, generation=memtable.generation
    ):
        ours, index = context.indexes.swap({memtable.region: decide})[memtable.region]
    if not ours or index is None:
        raise _lost(memtable)
    records = {r.generation: r for r in index.generations}
    return records[memtable.generation], None if hand_over else index.generations[-1]


def reanchor_generation(context: IngestContext, writer: LogWriter, memtable: MemTable) -> None:
    """Move the first segment of an empty OPEN generation forward, so that it pins no old segments."""
    _check_settled(writer)  # Step 1
    if memtable.entries:
        raise RuntimeError(f"region {memtable.region.name} has entries: it is sealed, not re-anchored")

    def decide(index: RegionIndex | None) -> RegionIndex | None:
        claimant = Claimant(writer.owner, writer.log, writer.next_unsent)
        return index and reanchor(index, memtable.generation, claimant, context.new_id())

    # Step 2
    with point("reanchor.cas", region=memtable.region.name):
        _, index = context.indexes.swap({memtable.region: decide})[memtable.region]
    newest = None if index is None else index.newest
    if newest is None or (newest.generation, newest.owner, newest.log) != (
        memtable.generation, writer.owner, writer.log
    ):  # fmt: skip
        raise _lost(memtable)
    memtable.first_sequence = newest.first_sequence


def _check_settled(writer: LogWriter) -> None:
    if not writer.settled:
        raise RuntimeError(f"log {writer.log} has an unsettled segment: settle it before an index changes")


def _lost(memtable: MemTable) -> OwnershipLost:
    return OwnershipLost(f"region {memtable.region.name}: another process owns it now", region=memtable.region.name)
