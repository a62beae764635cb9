"""Reading a log to its end.

Guarantees
 1. A walk reads from a number to the tail, which is the first absent number or a fence.  The caller must prove that
    this number is the tail and was not trimmed, since only the caller knows the states of regions.  If a later segment
    exists although the number is absent, the walk reports it: the number was trimmed, or its segment is lost.
 2. After an absent number, a walk asks for one more number only.  ``log_end.confirm_end`` looks further.

``walk`` reads whole segments, and ``walk_cached`` takes known segments from a cache.  ``walk_trailers`` decodes only
trailers.  ``walk_sound`` returns trailers too, but also checks the rows of some regions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from lancewal_core.names import paths
from lancewal_core.names.ids import LogId, Region, Sequence
from lancewal_core.process.failpoints import point
from lancewal_core.process.tasks import Tasks, together
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.wal.listed import NOTHING_LISTED, ByBundles, Listed
from lancewal_core.wal.segment import (
    Fence,
    Segment,
    Trailer,
    decode_segment,
    decode_trailer,
    entries_of,
)
from lancewal_core.wal.segment_cache import SegmentCache, meet_segment

S_co = TypeVar("S_co", covariant=True)
S = TypeVar("S", bound=Segment | Trailer)

_WINDOW = 32
"""Most segments that one step of a walk asks for at the same time, if it does not know that they exist."""
_FIRST = 2
"""Least number of segments that a walk asks for: one, and the one after it."""


@dataclass(frozen=True, slots=True)
class Walk(Generic[S_co]):
    """Segments (or their trailers) in order, and where the walk ended."""

    log: LogId
    segments: tuple[S_co, ...]
    end: Sequence
    """The first absent number, or the fence's."""
    fence: Fence | None
    later: Sequence | None = None
    """A number after ``end`` that exists, though ``end`` is absent.  None: the walk has met no such number."""


@dataclass(frozen=True, slots=True)
class _Begin(Generic[S]):
    """Beginning of a walk.  The walk asks for ``window`` segments first, at the same time as for ``listing``.  ``ask``,
    if given, reads all later segments."""

    window: int = _FIRST
    listing: Callable[[], Listed] | None = None
    ask: Callable[[Seq[Sequence], Listed], Seq[S | Fence | None]] | None = None


def walk(
    store: ObjectStore,
    tasks: Tasks,
    log: LogId,
    start: Sequence,
    *,
    before: Sequence | None = None,
    regions: Collection[Region] | None = None,
) -> Walk[Segment]:
    """Read segments from ``start`` to the end of the log, or to before ``before``.  GETs run concurrently, in growing
    windows.

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
) -> Walk[Segment | Trailer]:
    """Read segments as ``walk`` does, but ask the store only for those that ``cache`` does not have.

    A segment that has no room in the cache comes as its trailer, unless it came in a bundle.

    The walk first asks for as many numbers as the log grew by at the walk before, and two more.  So it finds the end of
    an evenly growing log at once.  If the cache does not know the log, or it grew by more than ``_WINDOW`` segments
    lately, the walk also asks for a listing.  After that it reads bundles in place of segments that the listing shows.
    """

    def read(sequence: Sequence) -> Segment | Trailer | Fence | None:
        return meet_segment(store, paths.wal_segment(log, sequence), cache)

    known: list[Segment | Trailer] = []
    at = start
    while before is None or at < before:
        segment = cache.get(paths.wal_segment(log, at))
        if segment is None:
            break
        known.append(segment)  # without the threads that a walk of the store uses
        at = Sequence(at + 1)
    cold = not known and before is None  # nothing of this log is known: it may be long, and have bundles
    begin: _Begin[Segment | Trailer] = _Begin(min(_FIRST + cache.grown(log), _WINDOW))
    if cold or (before is None and cache.grown_lately(log) > _WINDOW):
        begin = _Begin(_FIRST, partial(Listed.behind, store, log, at), ByBundles(store, tasks, read, cache.add))
    walked = _walk(tasks, log, at, before, read, begin)
    if before is None:
        cache.has_grown(log, 0 if cold else len(walked.segments))
    return Walk(log, (*known, *walked.segments), walked.end, walked.fence, walked.later)


def walk_trailers(
    store: ObjectStore, tasks: Tasks, log: LogId, start: Sequence, *, before: Sequence | None = None
) -> Walk[Trailer]:
    """Walk as ``walk`` does, but decode no rows.  Without ``before`` the walk also begins with a listing."""

    begin: _Begin[Trailer] = _Begin(listing=None if before is not None else partial(Listed.behind, store, log, start))
    return _walk(tasks, log, start, before, partial(trailer_at, store, log), begin)


def trailer_at(store: ObjectStore, log: LogId, sequence: Sequence) -> Trailer | Fence | None:
    """Return the trailer or fence of one number, read without a listing; None if the number is absent."""
    key = paths.wal_segment(log, sequence)
    data = store.get(key)
    return None if data is None else decode_trailer(data, key, len(data))


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
            # What the listing shows is there, and asked for as such; else twice as many each time.
            window = listed.window(at) if at in listed.segments else max(min(window * 2, _WINDOW), _FIRST)
    return Walk(log, tuple(segments), at, None)


def _absent(
    at: Sequence, answers: Seq[S | Fence | None], before: Sequence | None, read: Callable[[Sequence], S | Fence | None]
) -> tuple[S | Fence | None, Sequence | None]:
    """Return the segment or fence at ``at`` if it exists after all, or else a later number that exists.

    ``answers`` are those for the numbers after ``at``.  A segment is sent only when the segment before it is settled.
    So if a number exists while the number before it was absent, the latter was stored between the two GETs, or was
    deleted.
    """
    if not answers and (before is None or at + 1 < before):
        answers = [read(Sequence(at + 1))]
    behind = next((n for n, answer in enumerate(answers, 1) if answer is not None), None)
    if behind is None:
        return None, None
    found = read(at)
    return (found, None) if found is not None else (None, Sequence(at + behind))


def walk_sound(
    store: ObjectStore,
    tasks: Tasks,
    log: LogId,
    starts: Mapping[Region, Sequence],
    *,
    start: Sequence | None = None,
    before: Sequence | None = None,
) -> Walk[Trailer]:
    """Walk from ``start``, or else from the lowest of ``starts``, and keep no rows.

    The rows of the regions in ``starts``, each from its start on, were decoded and are sound."""
    start = min(starts.values()) if start is None else start
    return _walk(tasks, log, start, before, partial(_sound, store, log, starts))


def _sound(
    store: ObjectStore, log: LogId, starts: Mapping[Region, Sequence], sequence: Sequence
) -> Trailer | Fence | None:
    key = paths.wal_segment(log, sequence)
    data = store.get(key)
    if data is None:
        return None
    trailer = decode_trailer(data, key, len(data))
    if isinstance(trailer, Trailer):
        for _ in entries_of(trailer, data, key, [region for region, start in starts.items() if start <= sequence]):
            pass  # a damaged entry raises
    return trailer
