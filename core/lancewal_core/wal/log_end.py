"""Finding the end of a log, and ending a log with a fence.

Guarantees
 1. ``confirm_end`` finds what lies after the end of a walk, however many numbers are absent in a row.
 2. ``end_log`` returns only when the log has ended with a fence.  It puts no fence at a number before a segment that
    exists (guarantee 1) or existed once: the fence would hide the segments after it.

Steps of ``confirm_end``
 1. List the numbers after the one at which the walk ended.  A listing may be stale or partial: it never proves an end,
    and can only refute one.  A listed number existed once, however old the listing is, and so did every number before
    it.
 2. Continue the walk to the last number that the listing shows.  A number that was absent may exist by now.  If its
    segment is new, that does no harm.  If a person restored the segment, as from a backup, the walk needs it: records
    after it were durable before the walk began.
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
    """Function that walks one log from ``start`` to before the number ``before``."""

    def __call__(self, start: Sequence, /, *, before: Sequence) -> Walk[S_co]: ...


def confirm_end(store: ObjectStore, walked: Walk[S], walk_on: WalkOn[S]) -> Walk[S]:
    """Return the walk ``walked``, continued by ``walk_on`` to the last number that a listing shows after its end.

    If a number before a listed one is still absent, the result ends there, and its ``later`` is a listed number after
    it.  The absent segment was trimmed, or is lost."""
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

    ``starts``: for each region whose rows are checked, the segment in which its generation starts.  ``writer``: the
    owner id in the fence.

    When a generation starts in a segment, all segments before it are stored.  So all segments before the highest of
    ``starts`` existed once.  The same holds for all before ``settled``: the start of a generation of any other region.

    Raise ``ObjectMissing`` if a segment is lost, or was trimmed since the caller read the region's state.  The caller
    must read the state again.  Raise ``StoreUnavailable`` if the outcome of putting the fence stays unknown.
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
    """Return an error that names the absent segment at which a walk has ended, if it existed once; else None.

    The segment existed if a later segment exists, or if it lies before ``begins``, a segment in which a generation
    begins.  A listing that does not show it proves nothing."""
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
