"""Finding the end of a log, and ending a log with a fence.

Guarantees
 1. ``confirm_end`` finds what lies after the end of a walk, however many numbers are absent in a row.
 2. ``end_log`` returns only when the log has ended, with a fence after every segment.  It puts no fence before a number
    that exists (guarantee 1) or existed once: the fence would hide the segments after it.

Steps of ``confirm_end``
 1. List the numbers after the one at which the walk ended.  A listing may be stale or partial: it never proves an end,
    and can only refute one.  A listed number existed once, however old the listing is, and so did every number before
    it.
 2. Walk on, to the last number that the listing shows.  A number that was absent may exist by now.  If it is new, that
    does no harm.  If it was restored, as from a backup, records after it were durable before the walk began.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Protocol, TypeVar

from lancewal_core.errors import ObjectMissing
from lancewal_core.names import paths
from lancewal_core.names.ids import LogId, OwnerId, Region, Sequence
from lancewal_core.process.clock import Clock
from lancewal_core.process.failpoints import point
from lancewal_core.process.tasks import Tasks
from lancewal_core.store.object_store import Done, ObjectStore
from lancewal_core.store.versioned import put_until_told
from lancewal_core.wal.segment import Fence, Segment, Trailer, encode_fence
from lancewal_core.wal.walk import Walk, walk_sound

S_co = TypeVar("S_co", covariant=True)
S = TypeVar("S", bound=Segment | Trailer)

NOTHING_SETTLED = Sequence(0)


class WalkOn(Protocol[S_co]):
    """A walk of one log, from a start to an end that the caller gives."""

    def __call__(self, start: Sequence, /, *, before: Sequence) -> Walk[S_co]: ...


def confirm_end(store: ObjectStore, walked: Walk[S], walk_on: WalkOn[S]) -> Walk[S]:
    """Return the walk, continued as far as a listing shows numbers after its end.

    If a number before a listed one is still absent, ``later`` of the walk is set: that object was trimmed, or is
    lost."""
    if walked.fence is not None or walked.later is not None:
        return walked
    # Step 1
    listed = store.list(paths.log_prefix(walked.log), after=paths.wal_segment(walked.log, walked.end))
    numbers = [found[1] for info in listed if (found := paths.parse_wal_segment(info.key)) is not None]
    if not numbers:
        return walked
    # Step 2
    on = walk_on(walked.end, before=Sequence(max(numbers) + 1))
    later = on.later or min((number for number in numbers if number > on.end), default=None)
    return Walk(walked.log, (*walked.segments, *on.segments), on.end, on.fence, None if on.fence else later)


def end_log(
    store: ObjectStore,
    tasks: Tasks,
    clock: Clock,
    log: LogId,
    starts: Mapping[Region, Sequence],
    writer: OwnerId,
    *,
    settled: Sequence = NOTHING_SETTLED,
) -> Walk[Trailer]:
    """Walk ``log`` as ``walk_sound`` does and fence it at its tail (guarantee 2).  ``fence`` of the result is the fence
    that ended the log.

    A generation starts in a segment before which all segments are settled.  So all segments before the highest of
    ``starts`` existed once.  So did all before ``settled``, by which the caller can add the start of another region's
    generation.

    Raise ``ObjectMissing`` if a segment is lost, or was trimmed since the caller read the region's state: the caller
    must look again.  Raise ``StoreUnavailable`` if no put of the fence got a verdict.
    """
    settled = max(settled, *starts.values())

    def walk_log(start: Sequence, *, before: Sequence | None = None) -> Walk[Trailer]:
        return walk_sound(store, tasks, log, starts, start=start, before=before)

    start = min(starts.values())
    segments: list[Trailer] = []
    while True:
        walked = confirm_end(store, walk_log(start), walk_log)
        segments.extend(walked.segments)
        if walked.fence is not None:
            return Walk(log, tuple(segments), walked.end, walked.fence)
        lost = lost_at_end(walked, settled)
        if lost is not None:
            raise lost
        fence = Fence(log, walked.end, writer, clock.now_ms())
        key = paths.wal_segment(log, walked.end)
        with point("fence.put", object=key):
            outcome = put_until_told(store, key, clock, partial(encode_fence, fence))
        if isinstance(outcome, Done):
            return Walk(log, tuple(segments), walked.end, fence)
        start = walked.end  # a data segment came first, or another claimer's fence: go on walking


def lost_at_end(walked: Walk[S], begins: Sequence) -> ObjectMissing | None:
    """Return an error that names the segment at which a walk has ended, if that segment existed once; else None.

    It existed if a later segment exists, or if a generation begins after it (at ``begins``), whatever a listing
    shows."""
    if walked.later is not None:
        return segment_lost(walked.log, walked.end, f"segment {walked.later} of its log exists")
    if walked.end < begins:
        return segment_lost(walked.log, walked.end, f"a generation begins in segment {begins} of its log")
    return None


def segment_lost(log: LogId, sequence: Sequence, why: str) -> ObjectMissing:
    """Return the error that names a lost segment; ``why`` says how its existence is known."""
    key = paths.wal_segment(log, sequence)
    return ObjectMissing(
        f"{key} is missing: {why}. Restore the object, or read its records from Kafka again (`lancewal repair segment`)",
        object=key,
    )
