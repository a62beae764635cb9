"""Find the durable positions of regions, and which regions have had no row.  No region is changed."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from lancewal_core.names.ids import Position, Region
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.state import GenerationRecord, GenerationState, RegionState
from lancewal_core.wal.entry import EntryHeader, NoRowYet
from lancewal_core.wal.log_end import confirm_end, segment_lost
from lancewal_core.wal.walk import walk_trailers


def durable_position(opened: OpenedTable, region: Region) -> Position | None:
    """Return the durable position of one region, as ``durable_positions`` does."""
    return durable_positions(opened, [region])[region]


def durable_positions(opened: OpenedTable, regions: Collection[Region]) -> dict[Region, Position | None]:
    """Return the position after the last durable record of each region.

    Before the first claim, the position is the contract's start; None means the first record that Kafka has.  While an
    owner is at work, the position may be higher by the time the caller uses it.

    Raise ``ObjectMissing`` if a segment is lost: records after the lost segment may be durable.
    """
    states = opened.states.read(regions)
    return {region: _durable(opened, region, states.get(region)) for region in regions}


def rejected_without_row(opened: OpenedTable, regions: Collection[Region]) -> dict[Region, NoRowYet | None]:
    """Return the number and kind of the rejected records of each region that has had no row.  None: the region has
    had a row, or that is not known.

    Errors are those of ``durable_positions``.  While an owner is at work, it may have written rows, or rejected more
    records, by the time the caller uses the result.
    """
    states = opened.states.read(regions)
    return {region: _rejected(opened, region, states.get(region)) for region in regions}


def _durable(opened: OpenedTable, region: Region, state: RegionState | None) -> Position | None:
    newest = None if state is None else state.newest
    if newest is None:
        return opened.contract.start_of(region.partition)
    if newest.state is not GenerationState.OPEN:
        return newest.next
    entries = _entries(opened, region, newest)
    if entries is None:
        return _durable(opened, region, opened.states.read([region]).get(region))
    return entries[-1].next if entries else newest.first


def _rejected(opened: OpenedTable, region: Region, state: RegionState | None) -> NoRowYet | None:
    if state is None:
        return NoRowYet()
    newest, told = state.newest, state.no_row_yet
    if told is None or newest is None or newest.state is not GenerationState.OPEN:
        return told
    entries = _entries(opened, region, newest)
    if entries is None:
        return _rejected(opened, region, opened.states.read([region]).get(region))
    return told.joined(NoRowYet.of(entries))


def _entries(opened: OpenedTable, region: Region, newest: GenerationRecord) -> list[EntryHeader] | None:
    """Return the entries of an OPEN generation.  None if its log was trimmed and the region's state no longer has
    this record: the caller reads the state again."""
    walk_log = partial(walk_trailers, opened.store, opened.tasks, newest.log)
    walked = confirm_end(opened.store, walk_log(newest.first_sequence), walk_log)
    if walked.later is not None:
        again = opened.states.read([region]).get(region)
        if again is not None and newest in again.generations:
            raise segment_lost(newest.log, walked.end, f"segment {walked.later} of its log exists")
        return None
    return [e for s in walked.segments for e in s.entries if e.region == region and e.first >= newest.first]
