"""End what a region's owner has OPEN, whether that owner is dead, frozen or at work.

Guarantees
 1. ``end_generation`` says where the generation ends once its log has ended: nothing more becomes durable in it.
 2. After ``end_region`` nothing becomes durable in the region before somebody claims it again.
 3. Where a segment is lost from the midst of the log, ``ObjectMissing`` names it and nothing is changed: a fence in its
    place would end the log for regions that are still written behind it.

Steps of ``end_region``, again where the owner has sealed meanwhile, or another has claimed the region
 1. Read the newest index.  Nothing is OPEN: done.
 2. Fence the log.
 3. Compare-and-swap: SEALED where the log ends, and no other generation opened, as when an owner hands over.
"""

from __future__ import annotations

from collections.abc import Callable

from lancewal_core.errors import ObjectMissing, OwnershipLost, StoreInconsistent
from lancewal_core.ids import OwnerId, Region
from lancewal_core.process.failpoints import point
from lancewal_core.region.index import GenerationRecord, RegionIndex, State
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.transitions import Ended, retire
from lancewal_core.rows.record_times import RecordTimes
from lancewal_core.wal.segment import Segment
from lancewal_core.wal.walk import Walk, end_log


def end_region(opened: OpenedTable, new_id: Callable[[], str], ender: OwnerId, region: Region) -> None:
    """Steps 1 to 3."""
    while True:
        # Step 1
        index = opened.indexes.read([region]).get(region)
        newest = None if index is None else index.newest
        if newest is None or newest.state is not State.OPEN:
            return
        # Step 2
        try:
            ended = end_generation(opened, ender, region, newest)
        except OwnershipLost:
            continue

        # Step 3
        def decide(found: RegionIndex | None, ended: Ended = ended) -> RegionIndex | None:
            return found and retire(found, ended, new_id())

        with point("handover.cas", region=region.name, generation=newest.generation):
            ours, _ = opened.indexes.swap({region: decide})[region]
        if ours:
            return


def end_generation(opened: OpenedTable, ender: OwnerId, region: Region, record: GenerationRecord) -> Ended:
    """The end of the OPEN generation ``record``, after fencing its log.  ``OwnershipLost`` where the region went on."""
    try:
        walked = end_log(opened.store, opened.tasks, opened.clock, record.log, record.first_sequence, ender, region)
    except ObjectMissing as error:
        newer = opened.indexes.read([region]).get(region)
        if newer is not None and record in newer.generations:
            raise  # nothing from its first segment on was trimmed
        raise OwnershipLost(f"region {region.name}: another process went on with it", region=region.name) from error
    return ended_at(region, record, walked, opened.clock.now_ms())


def ended_at(region: Region, record: GenerationRecord, walked: Walk[Segment], now_ms: int) -> Ended:
    """The end of an OPEN generation by a walk from its first segment to the end of its log."""
    entries = [e for s in walked.segments for e in s.entries if e.region == region and e.first >= record.first]
    position = record.first
    for entry in entries:
        if entry.first != position:
            raise StoreInconsistent(
                f"region {region.name}: log {record.log} continues at {entry.first} where {position} was expected; "
                "the index read is out of date",
                region=region.name,
            )
        position = entry.next
    times = RecordTimes.of(e.rows for e in entries)
    return Ended(record.generation, record.log, position, walked.end, times, now_ms)
