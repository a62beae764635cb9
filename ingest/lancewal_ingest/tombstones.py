"""Whether deletes may be gone unread: on a compacted topic the broker removes a tombstone some time after it cleaned it.

Compaction keeps the newest record of each Kafka key, so a reader that is late still sees every key's last state, but a
delete only until ``delete.retention.ms`` has passed.  Who read the row before and comes later than that keeps it for ever.

A region's deletes may be gone if all of this holds:
 1. The region has read something before: to who begins, a delete that is gone means nothing.
 2. Records lie beyond its durable position, and the next of them is older than that time, or was itself removed.
 3. Its newest durable segment is older than that time, or was trimmed long ago.  Whoever reads all the time is never so late;
    this keeps apart who reads old records as soon as they are written.
 4. No person has accepted the loss at this position (``loss_record``).

The third is asked last: it reads trailers of segments, and only where the other two hold.
"""

from __future__ import annotations

from dataclasses import dataclass

from lancewal_core import paths
from lancewal_core.clock import Clock
from lancewal_core.errors import RetentionLost
from lancewal_core.ids import Position, Region, Sequence
from lancewal_core.log import walk_trailers
from lancewal_core.loss_record import read_losses
from lancewal_core.region_index import GenerationRecord, RegionIndex
from lancewal_core.segment import Fence, decode_trailer
from lancewal_core.store import ObjectStore
from lancewal_core.tasks import Tasks


@dataclass(frozen=True, slots=True)
class Compaction:
    """What a broker says of a compacted topic."""

    tombstones_s: float
    """How long it keeps a tombstone at least (``delete.retention.ms``)."""
    recent: Position
    """The first record that is not older than that; the end of the partition if there is none."""


def lost_tombstones(
    store: ObjectStore,
    tasks: Tasks,
    clock: Clock,
    index: RegionIndex | None,
    position: Position,
    compaction: Compaction | None,
) -> RetentionLost | None:
    """Why deletes beyond the durable ``position`` may be gone, if they may; see the module docstring."""
    if index is None or compaction is None or compaction.recent <= position:
        return None
    region = index.region
    if any(loss.kind == "tombstones" and loss.first == position for loss in read_losses(store, region)):
        return None
    written_at_ms = _written_at_ms(store, tasks, index)
    if written_at_ms is not None and clock.now_ms() - written_at_ms <= compaction.tombstones_s * 1000:
        return None
    return RetentionLost(
        f"topic {region.topic} partition {region.partition}: durable up to position {position} for longer than the topic "
        f"keeps tombstones (delete.retention.ms is {compaction.tombstones_s * 1000:g}): deletes among offsets {position} to "
        f"{compaction.recent - 1} may be gone, and their rows would stay. To go on all the same: `lancewal offsets "
        "accept-loss`",
        topic=region.topic,
        partition=region.partition,
    )


def _written_at_ms(store: ObjectStore, tasks: Tasks, index: RegionIndex) -> int | None:
    """When the region's newest durable segment was written; None where it is trimmed."""
    for record in reversed(index.generations):
        found = _newest_of(store, tasks, index.region, record)
        if found is not None:
            return found
    return None


def _newest_of(store: ObjectStore, tasks: Tasks, region: Region, record: GenerationRecord) -> int | None:
    if record.end_sequence is None:
        walked = walk_trailers(store, tasks, record.log, record.first_sequence)
        times = [t.written_at_ms for t in walked.segments if any(e.region == region for e in t.entries)]
        return times[-1] if times else None
    if record.wal_entries.last is None:
        return None
    for sequence in range(record.end_sequence - 1, record.first_sequence - 1, -1):
        key = paths.wal_segment(record.log, Sequence(sequence))
        data = store.get(key)
        if data is None:
            return None
        trailer = decode_trailer(data, key, len(data))
        if not isinstance(trailer, Fence) and any(e.region == region for e in trailer.entries):
            return trailer.written_at_ms
    return None
