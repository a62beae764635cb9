"""Find whether deletes may be gone unread: on a compacted topic the broker removes a tombstone some time after it
cleaned it.

Compaction keeps the newest record of each Kafka key, so a reader that is late still sees every key's last state.  It
sees a delete only until ``delete.retention.ms`` has passed.  A reader that read the row before and comes later keeps
it for ever.

A region's deletes may be gone if all of this holds:
 1. The region has read something before: if a region only begins, a delete that is gone means nothing.
 2. Records lie beyond its durable position, and the next of them is older than that time, or was itself removed.  The
    broker finds the first record by its time in the whole partition.  If that record lies below the position, its
    time may be ahead of when it was written.  What lies beyond is then taken for old, if the third condition tells
    that it is so.
 3. Its newest durable segment is older than that time, or was trimmed long ago; or the caller knows since when it has
    not read.  This keeps apart a region that reads old records as soon as they are written.  A region that was quiet
    for so long cannot be told from one that nobody read.  If then a new record is superseded and removed before it
    was read, this is a false alarm.
 4. No person has accepted it at this position (``loss_record``), up to the records that are old by now.  Each record
    of an acceptance begins where the one before ends.  What grows old within ``ACCEPTED_S`` is accepted with it: the
    region cannot be opened in the same moment.

The third is asked last: it reads trailers of segments, and only if the others hold.  It asks for no listing that
doubts a log's end (decision 0015).  A lost segment makes the time longer, so it can raise the alarm and never silence
it.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

from lancewal_core.errors import RetentionLost
from lancewal_core.names import paths
from lancewal_core.names.ids import Position, Region, Sequence
from lancewal_core.region.loss_record import LossRecord, read_losses
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.state import GenerationRecord, RegionState
from lancewal_core.wal.segment import Fence, decode_trailer
from lancewal_core.wal.walk import walk_trailers
from lancewal_kafka.retention import Compaction

ACCEPTED_S = 3600.0
"""Time in which a person starts ingest after accepting a loss."""


def lost_tombstones(
    opened: OpenedTable,
    index: RegionState | None,
    position: Position,
    compaction: Compaction | None,
    read_at_ms: int | None = None,
) -> RetentionLost | None:
    """Return why deletes beyond ``position`` may be gone; None if none may be.  See the module docstring.

    ``read_at_ms``: until when the caller has read the region; None: its durable segments tell.
    """
    if index is None or compaction is None or compaction.old_beyond(position) <= position:
        return None
    region, old_end = index.region, compaction.old_beyond(position)
    accepted, accepted_at_ms = accepted_up_to(read_losses(opened.store, region, opened.contract.making), position)
    if accepted >= old_end or (accepted > position and opened.clock.now_ms() - accepted_at_ms <= ACCEPTED_S * 1000):
        return None
    if read_at_ms is None:
        read_at_ms = _written_at_ms(opened, index)
        if read_at_ms is None and compaction.recent < position:
            return None  # nothing tells that the time of the record below is wrong
    if read_at_ms is not None and opened.clock.now_ms() - read_at_ms <= compaction.tombstones_s * 1000:
        return None
    return region.partition_error(
        RetentionLost,
        f"durable up to position {position} for longer than the topic keeps tombstones (delete.retention.ms is "
        f"{compaction.tombstones_s * 1000:g}). Deletes among offsets {position} to {old_end - 1} may be gone, and their "
        f"rows would stay. To go on all the same: `lancewal offset accept-loss {region.topic}-{region.partition}`",
    )


def accepted_up_to(losses: Seq[LossRecord], position: Position) -> tuple[Position, int]:
    """Return the position up to which a person has accepted that deletes from ``position`` on may be gone, and when
    last.  If nobody has, the position is ``position``."""
    at, accepted_at_ms = position, 0
    for loss in losses:
        if loss.kind == "tombstones" and loss.first == at:
            at, accepted_at_ms = Position(loss.next), loss.accepted_at_ms
    return at, accepted_at_ms


def _written_at_ms(opened: OpenedTable, index: RegionState) -> int | None:
    """When the region's newest durable segment was written; None where it is trimmed."""
    for record in reversed(index.generations):
        found = _newest_of(opened, index.region, record)
        if found is not None:
            return found
    return None


def _newest_of(opened: OpenedTable, region: Region, record: GenerationRecord) -> int | None:
    if record.end_sequence is None:
        walked = walk_trailers(opened.store, opened.tasks, record.log, record.first_sequence)
        times = [t.written_at_ms for t in walked.segments if any(e.region == region for e in t.entries)]
        return times[-1] if times else None
    if record.next == record.first:
        return None
    for sequence in range(record.end_sequence - 1, record.first_sequence - 1, -1):
        key = paths.wal_segment(record.log, Sequence(sequence))
        data = opened.store.get(key)
        if data is None:
            return None
        trailer = decode_trailer(data, key, len(data))
        if not isinstance(trailer, Fence) and any(e.region == region for e in trailer.entries):
            return trailer.written_at_ms
    return None
