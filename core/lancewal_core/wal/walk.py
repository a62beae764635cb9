"""Reading a log to its end.

Guarantees
 1. A walk reads segments from a start to the first absent number or a fence.  Only the caller, who knows the states of
    regions, can prove that an absent number is the log's tail and was not trimmed.  If the walk finds a later segment
    after the absent number, it reports that (``Walk.later``): the absent segment was trimmed, or is lost.
 2. After an absent number, a walk may ask for only one more number.  ``log_end.confirm_end`` looks further.

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
"""Largest number of segments that one step of a walk asks for at the same time, if no listing shows them."""
_FIRST = 2
"""How many numbers a walk asks for at least, in one step: one, and the one after it."""


@dataclass(frozen=True, slots=True)
class Walk(Generic[S_co]):
    """Result of a walk: segments (or their trailers) in order, and where the walk ended."""

    log: LogId
    segments: tuple[S_co, ...]
    end: Sequence
    """The first absent number, the fence's number, or the number before which the walk was asked to stop."""
    fence: Fence | None
    later: Sequence | None = None
    """Number of a segment that exists after ``end``, although ``end`` is absent.  None: the walk has found no such
    segment."""


@dataclass(frozen=True, slots=True)
class _Begin(Generic[S]):
    """How a walk begins.  It first asks for ``window`` numbers, and for ``listing`` at the same time.

    ``ask``, if given, reads all later numbers; it gets these and the listing."""

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
    """Read segments from ``start`` to the end of the log, or to before the number ``before``.  Each step sends its GETs
    concurrently.  It asks for twice as many numbers as the step before, up to ``_WINDOW``.

    ``regions``: decode only the entries of these regions.
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

    If the cache has no room for a segment, the result has only its trailer, unless the segment came in a bundle.

    The walk first asks for as many numbers as the previous walk found new segments, and two more, at most ``_WINDOW``.
    So it finds the end of an evenly growing log at once.

    Without ``before``, the walk also lists a log of which the cache lacks segment ``start``, or that grew by more than
    ``_WINDOW`` segments lately.  Then it first asks for two numbers.  After that it reads bundles in place of listed
    segments.
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
    """Read trailers as ``walk`` reads segments, without decoding rows.  Without ``before``, also list the log first."""

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

    ``answers`` are the answers for the numbers after ``at``.  A segment is sent only when the segment before it is
    stored.  So if a number exists while the number before it was absent, the latter was stored between the two GETs,
    or was deleted.
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
    """Read trailers from ``start``, or else from the lowest of ``starts``, and check the rows of some regions.

    ``starts``: the regions to check, each with the first segment whose rows are decoded.  Rows are not kept.  A damaged
    entry raises ``ObjectCorrupt``."""
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
