"""The durable position of a region, read without touching it."""

from __future__ import annotations

from functools import partial

from lancewal_core.ids import Position, Region
from lancewal_core.process.tasks import Tasks
from lancewal_core.region.index import State
from lancewal_core.region.indexes import RegionIndexes
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.contract import Contract
from lancewal_core.wal.walk import doubted, segment_lost, walk_trailers


def durable_position(
    store: ObjectStore, tasks: Tasks, indexes: RegionIndexes, contract: Contract, region: Region
) -> Position | None:
    """Position behind the last durable record; None where nothing was ever claimed and the start is the first record
    that Kafka has.  While an owner is at work it may be higher by the time it is looked at.

    ``ObjectMissing`` where a segment is lost, behind which more may be durable.
    """
    index = indexes.read(region)
    newest = None if index is None else index.newest
    if newest is None:
        return contract.start_of(region.partition)
    if newest.state is not State.OPEN:
        return newest.next
    walk_log = partial(walk_trailers, store, tasks, newest.log)
    walked = doubted(store, walk_log(newest.first_sequence), walk_log)
    if walked.later is not None:
        again = indexes.read(region)
        if again is not None and newest in again.generations:
            raise segment_lost(newest.log, walked.end, f"segment {walked.later} of its log is there")
        return durable_position(store, tasks, indexes, contract, region)  # trimmed: the region has gone on
    reached = [e.next for s in walked.segments for e in s.entries if e.region == region and e.first >= newest.first]
    return reached[-1] if reached else newest.first
