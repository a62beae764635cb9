"""Find out whether a region may have missed deletes: on a compacted topic the broker removes tombstones after a time.

Compaction keeps the newest record of each Kafka key, so a late reader still sees the last state of every key.  But a
delete can be read only until ``delete.retention.ms`` has passed since it was cleaned.  A reader that read the row
before, and reads again only after that time, keeps the row for ever.

A region's deletes may be gone if all of this holds:
 1. The region has read records before.  For a region that only begins, a missed delete changes nothing if rows tell
    their partition (``Contract.rows_tell_partition``).  All records of a primary key then have one Kafka key in one
    partition, so a delete that is removed has taken the older records with it.  Otherwise producers may have written
    one primary key in several ways.  An older record with a differently written key may have stayed, and a region that
    only begins would bring its row back.
 2. Records lie after its durable position, and the next of them is older than ``delete.retention.ms``, or was removed.
    The broker finds the first recent record of the whole partition by timestamp.  If that record lies below the
    position, its timestamp may be later than when it was written.  Then the records after the position count as old if
    condition 3 holds.
 3. Its newest durable segment is older than ``delete.retention.ms``, or was trimmed long ago; or the caller knows that
    it has not read for so long.  This excludes a region that reads old records as soon as they are written.  A region
    that had no records for so long looks like one that nobody read.  If then a new record is superseded and removed
    before it was read, this is a false alarm.
 4. No person has accepted the loss at this position (``loss_record``), up to the records that are old by now.  Each
    record of an acceptance begins where the one before ends.  Records that grow old within ``ACCEPTED_S`` after an
    acceptance are accepted too, since a person needs time to start ingest.

Condition 3 is checked last, because it reads trailers of segments.  It does not list the log to verify where the log
ends (decision 0015).  A lost segment makes the region look unread for longer.  So it may cause a false alarm, but
never hides a loss.
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
"""Seconds that a person has for starting ingest after accepting a loss."""


def lost_tombstones(
    opened: OpenedTable,
    region: Region,
    state: RegionState | None,
    position: Position,
    compaction: Compaction | None,
    read_at_ms: int | None = None,
) -> RetentionLost | None:
    """Return an error if Kafka may have removed deletes after ``position``; otherwise None.

    ``state``: None if the region begins only now, at ``position``.  ``read_at_ms``: the time up to which the caller has
    read the region.  With None, the time is that of the region's newest segment.
    """
    if compaction is None or compaction.old_beyond(position) <= position:
        return None
    if state is None and opened.contract.rows_tell_partition:
        return None
    old_end = compaction.old_beyond(position)
    accepted, accepted_at_ms = accepted_up_to(read_losses(opened.store, region, opened.contract.making), position)
    if accepted >= old_end or (accepted > position and opened.clock.now_ms() - accepted_at_ms <= ACCEPTED_S * 1000):
        return None
    if read_at_ms is None:
        read_at_ms = None if state is None else _written_at_ms(opened, state)
        if read_at_ms is None and compaction.recent < position:
            return None  # there is no sign that the timestamp of the record below the position is wrong
    if read_at_ms is not None and opened.clock.now_ms() - read_at_ms <= compaction.tombstones_s * 1000:
        return None
    way_on = (
        f"To go on all the same: `lancewal offset accept-loss {region.topic}-{region.partition}`, then restart ingest"
    )
    if state is None:
        return region.partition_error(
            RetentionLost,
            f"the topic is compacted, and begins at position {position} with records that are older than it keeps tombstones "
            f"(delete.retention.ms is {compaction.tombstones_s * 1000:g}). {opened.contract.why_rows_do_not_tell}, so a "
            f"removed delete may have left an older record of its row among offsets {position} to {old_end - 1}, and the row "
            f"would come back. Producers that always write a key in one way leave none. {way_on}",
        )
    return region.partition_error(
        RetentionLost,
        f"durable up to position {position} for longer than the topic keeps tombstones (delete.retention.ms is "
        f"{compaction.tombstones_s * 1000:g}). Deletes among offsets {position} to {old_end - 1} may be gone, and their "
        f"rows would stay. {way_on}",
    )


def accepted_up_to(losses: Seq[LossRecord], position: Position) -> tuple[Position, int]:
    """Return the position up to which a person has accepted that deletes from ``position`` on may be gone.

    Also return the time of the newest acceptance, in milliseconds since 1970.  If there is none, the result is
    ``position`` and 0."""
    at, accepted_at_ms = position, 0
    for loss in losses:
        if loss.kind == "tombstones" and loss.first == at:
            at, accepted_at_ms = Position(loss.next), loss.accepted_at_ms
    return at, accepted_at_ms


def _written_at_ms(opened: OpenedTable, state: RegionState) -> int | None:
    """Return when the region's newest durable segment was written, in milliseconds since 1970; None if it is gone, or
    if there is none."""
    for record in reversed(state.generations):
        found = _newest_of(opened, state.region, record)
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
