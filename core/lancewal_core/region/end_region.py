"""End the OPEN generations of regions, whether their owners are dead, frozen or at work.

Guarantees
 1. ``end_generations`` ends the logs first, then says where the generations end: nothing more becomes durable in these
    generations.  Each region has its own answer.
 2. After ``end_region`` nothing becomes durable in the region before somebody claims the region again.
 3. If a segment inside the log is lost, ``ObjectMissing`` names the segment and nothing is changed.  A fence at its
    number would cut off later segments, also for other regions.

Steps of ``end_generations``, for each log, logs side by side
 1. Walk the log once, from the lowest segment in which a generation begins, and fence it.
 2. For each region, take the entries from the start of its generation on.  If the log ends before that start, the
    generation's end is not found.  The walk may have asked for trimmed segments, or met the fence of a process with an
    old state.
 3. If a part of the log is damaged or lost, or step 2 finds no end, repeat the steps for each region alone, so that
    damage of one region stops no other.  The starts of the others' generations still prove which segments once existed.

Steps of ``end_region``, repeated if the owner has sealed meanwhile, or another process has claimed the region
 1. Read the newest state.  If no generation is OPEN, the region has ended.
 2. Fence the log.
 3. Compare-and-swap: mark the generation SEALED at the end of its log, and open no other, as in a hand-over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lancewal_core.errors import Corrupt, LancewalError, ObjectMissing, OwnershipLost, StoreInconsistent, or_raised
from lancewal_core.names.ids import LogId, OwnerId, Region, Sequence
from lancewal_core.process.failpoints import point
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.state import GenerationRecord, GenerationState, RegionState
from lancewal_core.region.transitions import Ended, retire
from lancewal_core.rows.record_times import RecordTimes
from lancewal_core.wal.entry import NoRowYet
from lancewal_core.wal.log_end import NOTHING_SETTLED, end_log
from lancewal_core.wal.segment import Trailer
from lancewal_core.wal.walk import Walk


def end_region(opened: OpenedTable, new_id: Callable[[], str], ender: OwnerId, region: Region) -> None:
    """End the OPEN generation of a region, by its steps in the module docstring."""
    while True:
        # Step 1
        state = opened.states.read([region]).get(region)
        newest = None if state is None else state.newest
        if newest is None or newest.state is not GenerationState.OPEN:
            return
        # Step 2
        try:
            ended = or_raised(end_generations(opened, ender, {region: newest})[region])
        except OwnershipLost:
            continue

        # Step 3
        def decide(found: RegionState | None, ended: Ended = ended) -> RegionState | None:
            return found and retire(found, ended, new_id())

        with point("handover.cas", region=region.name, generation=newest.generation):
            ours, _ = opened.states.swap({region: decide})[region]
        if ours:
            return


def end_generations(
    opened: OpenedTable, ender: OwnerId, records: Mapping[Region, GenerationRecord]
) -> dict[Region, Ended | LancewalError]:
    """Fence the logs of OPEN generations; return where each generation ends.  The answer is ``OwnershipLost`` for a
    region that another process has continued."""
    by_log: dict[LogId, dict[Region, GenerationRecord]] = {}
    for region, record in records.items():
        by_log.setdefault(record.log, {})[region] = record
    ended = opened.tasks.map(lambda log: _end(opened, ender, by_log[log], NOTHING_SETTLED), list(by_log))
    answers = {region: answer for part in ended for region, answer in part.items()}
    return {region: answers[region] for region in records}


def _end(
    opened: OpenedTable, ender: OwnerId, records: Mapping[Region, GenerationRecord], settled: Sequence
) -> dict[Region, Ended | LancewalError]:
    """End the generations of one log."""
    starts = {region: record.first_sequence for region, record in records.items()}
    settled = max(settled, *starts.values())
    log = next(iter(records.values())).log
    try:
        # Step 1
        walked = end_log(opened.store, opened.tasks, opened.clock, log, starts, ender, settled=settled)
    except LancewalError as error:
        if isinstance(error, Corrupt) and len(records) > 1:
            return _end_each(opened, ender, records, settled)
        return {region: _went_on(opened, region, record, error) for region, record in records.items()}
    # Step 2
    behind = {region: record for region, record in records.items() if record.first_sequence > walked.end}
    if len(records) == 1:
        behind = {}  # by itself already
    now_ms = opened.clock.now_ms()
    ended = {r: ended_at(r, record, walked, now_ms) for r, record in records.items() if r not in behind}
    return ended | _end_each(opened, ender, behind, settled)


def _end_each(
    opened: OpenedTable, ender: OwnerId, records: Mapping[Region, GenerationRecord], settled: Sequence
) -> dict[Region, Ended | LancewalError]:
    """End the generations of one log one by one, so that damage of one region stops no other (step 3)."""
    parts = opened.tasks.map(lambda r: _end(opened, ender, {r: records[r]}, settled), list(records))
    return {region: answer for part in parts for region, answer in part.items()}


def _went_on(opened: OpenedTable, region: Region, record: GenerationRecord, error: LancewalError) -> LancewalError:
    """Return ``error``, or ``OwnershipLost`` if the error only shows that the state read before is out of date."""
    if not isinstance(error, ObjectMissing):
        return error
    newer = opened.states.read_each([region])[region]
    if isinstance(newer, LancewalError):
        return newer
    if newer is not None and record in newer.generations:
        return error  # nothing from its first segment on was trimmed
    return region.error(OwnershipLost, "another process has continued this region")


def ended_at(region: Region, record: GenerationRecord, walked: Walk[Trailer], now_ms: int) -> Ended | StoreInconsistent:
    """Return the end of an OPEN generation, or the error ``StoreInconsistent`` if its entries have a gap.  ``walked``
    goes from the generation's first segment, or an earlier one, to the end of the log."""
    segments = [s for s in walked.segments if s.sequence >= record.first_sequence]
    entries = [e for s in segments for e in s.entries if e.region == region and e.first >= record.first]
    position = record.first
    for entry in entries:
        if entry.first != position:
            return region.error(
                StoreInconsistent,
                f"log {record.log} continues at {entry.first} where {position} was expected; the state read is out of date",
            )
        position = entry.next
    times = RecordTimes.joined(e.record_times for e in entries)
    return Ended(record.generation, record.log, position, walked.end, times, now_ms, NoRowYet.of(entries))
