"""Reading a log to its end, and ending it.

Guarantees
 1. ``walk`` reads from a number to the tail, which is the first absent number or a fence.  Whether that number counts
    as the tail, or was trimmed, is for the caller to prove (it alone knows the indexes).  Where a later segment is there
    although that number is absent, the walk says so: the number was trimmed, or its segment is lost.
 2. A walk asks for one number behind an absent one; ``confirm_end`` finds later ones however many are absent in a row.
 3. ``end_log`` returns only when the log has ended, with a fence behind every segment; it puts none where a later number is
    there (guarantee 2), or was once, which would hide what lies behind.

Steps of ``confirm_end``
 1. List what lies behind the number at which the walk ended.  A listing may be stale or partial: it never proves an end,
    and can only refute one.  What it shows was there once, however old it is, and so was every number before.
 2. Walk on, to the last number that it shows.  What was absent may have come since: new, and then it does no harm; or put
    back, as from a backup, and then records behind it were durable before the walk began.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Generic, Protocol, TypeVar, assert_never

from lancewal_core import paths
from lancewal_core.errors import ObjectMissing
from lancewal_core.ids import LogId, OwnerId, Region, Sequence
from lancewal_core.process.clock import Clock
from lancewal_core.process.failpoints import point
from lancewal_core.process.tasks import Tasks, together
from lancewal_core.store.object_store import Done, Lost, ObjectStore, Unknown, no_verdict, put_once
from lancewal_core.wal.entry import kept_bytes
from lancewal_core.wal.listed import NOTHING_LISTED, ByBundles, Listed
from lancewal_core.wal.segment import (
    Fence,
    Segment,
    Trailer,
    decode_segment,
    decode_sound_trailer,
    decode_trailer,
    encode_fence,
)

S_co = TypeVar("S_co", covariant=True)
S = TypeVar("S", bound=Segment | Trailer)

NOTHING_SETTLED = Sequence(0)
_WINDOW = 32
"""Most segments that one step of a walk asks for at the same time, where it does not know that they are there."""
_FIRST = 2
"""How many a walk asks for at least: a number, and one behind it."""
_LOGS_KNOWN = 1_000
"""Logs of which a cache knows how they grow."""
_FENCE_TRIES = 8
_FENCE_PAUSE_S = 0.1
_FENCE_S = 15.0
"""No further try after so long: where requests hang until they time out, a caller's loop must still turn."""


@dataclass(frozen=True, slots=True)
class Walk(Generic[S_co]):
    """Segments (or their trailers) in order, and where the walk ended."""

    log: LogId
    segments: tuple[S_co, ...]
    end: Sequence
    """The first absent number, or the fence's."""
    fence: Fence | None
    later: Sequence | None = None
    """A number behind ``end`` that is there, though ``end`` is absent.  None: none of those that the walk has asked for."""


@dataclass(frozen=True, slots=True)
class _Begin(Generic[S]):
    """``window``: how many numbers a walk asks for first, beside ``listing``; ``ask``: how it asks for others, where not one
    by one."""

    window: int = _FIRST
    listing: Callable[[], Listed] | None = None
    ask: Callable[[Seq[Sequence], Listed], Seq[S | Fence | None]] | None = None


class WalkOn(Protocol[S_co]):
    """A walk of one log, but for where it begins and ends."""

    def __call__(self, start: Sequence, /, *, before: Sequence) -> Walk[S_co]: ...


class SegmentCache:
    """Decoded segments by object key; immutable objects, so what was read stays true.  ``bytes_max`` bounds it."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._segments: dict[str, tuple[Segment, int]] = {}
        """Each with the bytes that it keeps."""
        self._grown: dict[LogId, int] = {}
        self._lock = Lock()

    def grown(self, log: LogId) -> int:
        """How many segments the last walk of this log found behind those that are here."""
        return self._grown.get(log, 0)

    def has_grown(self, log: LogId, segments: int) -> None:
        with self._lock:
            self._grown.pop(log, None)
            self._grown[log] = segments
            if len(self._grown) > _LOGS_KNOWN:
                del self._grown[next(iter(self._grown))]

    def get(self, key: str) -> Segment | None:
        found = self._segments.get(key)
        return None if found is None else found[0]

    def add(self, key: str, segment: Segment, nbytes: int | None = None) -> None:
        """``nbytes``: its share, where it keeps memory that others keep too."""
        nbytes = 1000 + (kept_bytes(segment.entries) if nbytes is None else nbytes)
        with self._lock:
            if key in self._segments:
                return
            self._segments[key] = (segment, nbytes)
            self._bytes += nbytes
            while self._bytes > self._bytes_max and len(self._segments) > 1:
                _, oldest = self._segments.pop(next(iter(self._segments)))
                self._bytes -= oldest


def walk(
    store: ObjectStore,
    tasks: Tasks,
    log: LogId,
    start: Sequence,
    *,
    before: Sequence | None = None,
    regions: Collection[Region] | None = None,
) -> Walk[Segment]:
    """Read segments from ``start`` up to the tail, or to ``before`` (exclusive); GETs run in growing windows.

    ``regions`` limits the entries that are decoded.
    """

    def read(sequence: Sequence) -> Segment | Fence | None:
        key = paths.wal_segment(log, sequence)
        data = store.get(key)
        return None if data is None else decode_segment(data, key, regions)

    return _walk(tasks, log, start, before, read)


def walk_cached(
    store: ObjectStore,
    tasks: Tasks,
    log: LogId,
    start: Sequence,
    cache: SegmentCache,
    *,
    before: Sequence | None = None,
) -> Walk[Segment]:
    """``walk`` that asks the store only for segments that ``cache`` does not have.

    It begins with as many as the log had grown by at the walk before, and two, which shows the end of one that grows evenly
    at once.  Of a log that the cache does not know it asks for a listing at the same time, and then for bundles where they
    copy segments that the listing shows, instead of these.
    """

    def read(sequence: Sequence) -> Segment | Fence | None:
        return read_segment(store, paths.wal_segment(log, sequence), cache)

    known: list[Segment] = []
    at = start
    while before is None or at < before:
        segment = cache.get(paths.wal_segment(log, at))
        if segment is None:
            break
        known.append(segment)  # without the threads that a walk of the store uses
        at = Sequence(at + 1)
    cold = not known and before is None
    ahead = min(_FIRST + cache.grown(log), _WINDOW)
    begin: _Begin[Segment] = _Begin(ahead)
    if cold:
        begin = _Begin(ahead, partial(Listed.behind, store, log, at), ByBundles(store, tasks, read, cache.add))
    walked = _walk(tasks, log, at, before, read, begin)
    if before is None:
        cache.has_grown(log, 0 if cold else len(walked.segments))
    return Walk(log, (*known, *walked.segments), walked.end, walked.fence, walked.later)


def walk_trailers(
    store: ObjectStore, tasks: Tasks, log: LogId, start: Sequence, *, before: Sequence | None = None
) -> Walk[Trailer]:
    """``walk`` that decodes no rows; it begins with a listing too."""

    def read(sequence: Sequence) -> Trailer | Fence | None:
        key = paths.wal_segment(log, sequence)
        data = store.get(key)
        return None if data is None else decode_trailer(data, key, len(data))

    begin: _Begin[Trailer] = _Begin(listing=None if before is not None else partial(Listed.behind, store, log, start))
    return _walk(tasks, log, start, before, read, begin)


def read_segment(store: ObjectStore, key: str, cache: SegmentCache) -> Segment | Fence | None:
    """One segment, from the cache or the store; None if there is none."""
    cached = cache.get(key)
    if cached is not None:
        return cached
    data = store.get(key)
    if data is None:
        return None
    decoded = decode_segment(data, key)
    if isinstance(decoded, Segment):
        cache.add(key, decoded)
    return decoded


def _walk(
    tasks: Tasks,
    log: LogId,
    start: Sequence,
    before: Sequence | None,
    read: Callable[[Sequence], S | Fence | None],
    begin: _Begin[S] | None = None,
) -> Walk[S]:
    segments: list[S] = []
    answers: Seq[S | Fence | None]
    at = start
    listed, begin = NOTHING_LISTED, begin or _Begin()
    window, listing = begin.window, begin.listing
    with point("log.walk", log=log, start=start):
        while before is None or at < before:
            stop = at + window if before is None else min(at + window, before)
            numbers = [Sequence(n) for n in range(at, stop)]
            if listing is not None:
                answers, listed = together(tasks, partial(tasks.map, read, numbers), listing)
                listing = None
            elif begin.ask is not None:
                answers = begin.ask(numbers, listed)
            else:
                answers = tasks.map(read, numbers)
            for behind, found in enumerate(answers, 1):
                later = None
                if found is None:
                    found, later = _absent(at, answers[behind:], before, read)
                if found is None or isinstance(found, Fence):
                    return Walk(log, tuple(segments), at, found, later)
                segments.append(found)
                at = Sequence(at + 1)
            window = max(min(window * 2, _WINDOW), _FIRST) if at not in listed.segments else listed.window(at)
    return Walk(log, tuple(segments), at, None)


def _absent(
    at: Sequence, answers: Seq[S | Fence | None], before: Sequence | None, read: Callable[[Sequence], S | Fence | None]
) -> tuple[S | Fence | None, Sequence | None]:
    """What ``at`` holds after all, or else a later number that is there; ``answers`` are those for the numbers behind it.

    A number is sent only when the one before it is settled: one that is there while the one before it is absent means
    that this one has come between the two GETs, or is gone.
    """
    if not answers and (before is None or at + 1 < before):
        answers = [read(Sequence(at + 1))]
    behind = next((n for n, answer in enumerate(answers, 1) if answer is not None), None)
    if behind is None:
        return None, None
    found = read(at)
    return (found, None) if found is not None else (None, Sequence(at + behind))


def confirm_end(store: ObjectStore, walked: Walk[S], walk_on: WalkOn[S]) -> Walk[S]:
    """The walk, gone on with as far as a listing shows numbers behind its end.  Where one is absent still its ``later`` is
    set: what was there was trimmed, or is lost."""
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


def walk_sound(
    store: ObjectStore,
    tasks: Tasks,
    log: LogId,
    starts: Mapping[Region, Sequence],
    *,
    before: Sequence | None = None,
) -> Walk[Trailer]:
    """``walk`` from the lowest of ``starts``, that keeps no rows: entries of these regions, from where each of them starts,
    were decoded, and are sound."""
    return _walk(tasks, log, min(starts.values()), before, partial(_sound, store, log, starts))


def _sound(
    store: ObjectStore, log: LogId, starts: Mapping[Region, Sequence], sequence: Sequence
) -> Trailer | Fence | None:
    key = paths.wal_segment(log, sequence)
    data = store.get(key)
    if data is None:
        return None
    return decode_sound_trailer(data, key, [region for region, start in starts.items() if start <= sequence])


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
    """Walk ``log`` as ``walk_sound`` does and fence it at its tail; the result's ``fence`` is what ended it (guarantee 3).

    A generation starts in a segment below which all are settled, so the highest of ``starts`` tells of segments that were
    there once; so does ``settled``, where the caller knows of another region's.

    ``ObjectMissing`` where a segment is lost, or was trimmed since the caller read the index: it must look again.
    """
    settled = max(settled, *starts.values())
    read = partial(_sound, store, log, starts)

    def walk_log(start: Sequence, *, before: Sequence | None = None) -> Walk[Trailer]:
        return _walk(tasks, log, start, before, read)

    start = min(starts.values())
    segments: list[Trailer] = []
    unknown = 0
    unknown_since = 0.0
    while True:
        walked = confirm_end(store, walk_log(start), walk_log)
        segments.extend(walked.segments)
        if walked.fence is not None:
            return Walk(log, tuple(segments), walked.end, walked.fence)
        if walked.later is not None:
            raise segment_lost(log, walked.end, f"segment {walked.later} of its log is there")
        if walked.end < settled:
            raise segment_lost(log, walked.end, f"a generation begins in segment {settled} of its log")
        fence = Fence(log, walked.end, writer, clock.now_ms())
        key = paths.wal_segment(log, walked.end)
        sent_at = clock.monotonic()
        with point("fence.put", object=key):
            outcome = put_once(store, key, encode_fence(fence))
        match outcome:
            case Done():
                return Walk(log, tuple(segments), walked.end, fence)
            case Lost():
                start = walked.end  # a data segment came first, or another claimer's fence: go on walking
            case Unknown(cause=cause):
                unknown_since = unknown_since if unknown else sent_at
                unknown += 1
                if unknown >= _FENCE_TRIES or clock.monotonic() - unknown_since > _FENCE_S:
                    raise no_verdict(key, cause)
                clock.sleep(_FENCE_PAUSE_S * 2**unknown)
                start = walked.end
            case _:
                assert_never(outcome)


def segment_lost(log: LogId, sequence: Sequence, why: str) -> ObjectMissing:
    """The error that names a segment which was there, as ``why`` shows."""
    key = paths.wal_segment(log, sequence)
    return ObjectMissing(
        f"{key} is missing: {why}. Restore the object, or read its records from Kafka again (`lancewal repair segment`)",
        object=key,
    )
