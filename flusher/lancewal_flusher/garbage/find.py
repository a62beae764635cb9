"""Find objects that are no longer needed: the half of garbage collection (``collect``) that only reads.

Guarantee: nothing here changes anything.  ``collect`` deletes the objects found, and ``lancewal gc --dry-run`` shows
them.

Rounds of requests (requests of one round are sent at the same time), for any number of regions:
 - one of listings for step 1;
 - for step 2, the newest version and its W beside the contract, the region states, and the history pages that no earlier
   round has read;
 - one for steps 4 and 5, and one more to read some of the listed objects.

Flushes of all regions are one listing.  The listing of logs is read in answers of up to 1,000 objects.  It takes
answers for segments that may be free, and one for each long log.  It skips segments that an earlier round has found
needed (``list_segments``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from functools import partial

from lancewal_core.errors import ObjectCorrupt
from lancewal_core.keys.catalog import catalog_family
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, LogId, Page, Sequence
from lancewal_core.process.tasks import together
from lancewal_core.region.history import History, KnownPages, SoundHistories, read_sound_histories
from lancewal_core.region.state import GenerationRecord, GenerationState
from lancewal_core.region.states import page_family
from lancewal_core.region.transitions import trim
from lancewal_core.store.object_store import ANSWER_OBJECTS, ObjectInfo, ObjectStore
from lancewal_core.store.versioned import FIRST_VERSION, Family
from lancewal_core.table.presence import check_present
from lancewal_core.table.watermarks import InForce
from lancewal_core.wal.segment import Fence, decode_segment
from lancewal_flusher.context import FlusherContext, check_contract
from lancewal_flusher.garbage.conflicts import free_conflicts
from lancewal_flusher.garbage.flushes import KnownFlushes, free_flushes

FENCE_KEPT_MS = 7 * 24 * 3600 * 1000
PAGES_KEPT_MS = 3600 * 1000
"""Milliseconds: a version of a state page is kept until the newest version is this much younger, by the store's clock
(``page_chain``)."""
PAGES_KEPT_AT_REST_MS = FENCE_KEPT_MS
"""Milliseconds for which a version of a state page is kept if no version is ``PAGES_KEPT_MS`` younger."""
CATALOGS_KEPT_MS = 3600 * 1000
"""Milliseconds for which replaced key catalogs are kept.  A process that goes on from an old catalog lists the newer
ones first, and a catalog is only a hint."""
VERSIONS_KEPT = 100
PARCEL_KEPT_MS = 24 * 3600 * 1000
"""Milliseconds for which parcels of tasks are kept: far longer than any merge takes.  Only a crash leaves a parcel."""
FENCE_SIZE_MAX = 512
"""Largest size of a fence, in bytes.  An object of a log that is no larger is read to find out whether it is a fence.
No segment with rows is that small."""
HISTORY_PAGE_AT = 64
"""A region state with at least this many MERGED generations moves all but the newest ``HISTORY_PAGE_REST`` of them to
a history page.
"""
HISTORY_PAGE_REST = 16
_LAST = Sequence(2**64 - 1)


@dataclass(frozen=True, slots=True)
class GarbageCandidates:
    """Listed objects that may be free: segments with bundles and fences, parts of key runs, keys in conflict, objects
    of flushes.  They are listed before any region state is read.
    """

    segments: Seq[ObjectInfo]
    key_parts: Seq[ObjectInfo]
    conflicts: Seq[ObjectInfo]
    flushes: Seq[ObjectInfo]


@dataclass(frozen=True, slots=True)
class Garbage:
    """Keys of objects to delete."""

    free: frozenset[str]
    """Keys of free objects.  They are deleted once the grace period has passed since they were first found free."""
    old: tuple[str, ...]
    """Keys of old objects.  They are deleted at once, in this order."""
    needed: Mapping[LogId, Sequence]
    """First segment of each log that is needed; empty if the state of a region is damaged, because the needed
    segments are then unknown."""


def list_candidates(context: FlusherContext, needed: Mapping[LogId, Sequence] | None = None) -> GarbageCandidates:
    """List the objects that may be free (step 1).  ``needed``: for each log the first segment that the previous round
    still needed.
    """
    lists: list[Callable[[], Seq[ObjectInfo]]] = [
        lambda: list_segments(context.store, needed or {}),
        lambda: context.store.list(paths.KEY_PARTS),
        lambda: context.store.list(paths.CONFLICTS),
        lambda: context.store.list(paths.FLUSHES),
    ]
    return GarbageCandidates(*context.tasks.map(lambda listed: listed(), lists))


def list_segments(store: ObjectStore, needed: Mapping[LogId, Sequence]) -> Seq[ObjectInfo]:
    """List segments, bundles and fences of all logs.  Some objects may be missing if they are needed, or were needed in
    the previous round.

    Listing one day of a log takes thousands of requests, and nearly all objects that they return are needed.  If an
    answer ends with an object that ``needed`` covers, the next request begins after this log.  The next round finds
    objects that became free since.
    """
    if not needed:
        return store.list(paths.WAL)
    found: list[ObjectInfo] = []
    after: str | None = None
    while True:
        answer = store.list(paths.WAL, limit=ANSWER_OBJECTS, after=after)
        found.extend(answer)
        if len(answer) != ANSWER_OBJECTS:  # a folder answers with all at once
            return found
        after = max(info.key for info in answer)
        parsed = _newest_in(after)
        if parsed is not None and parsed[1] >= needed.get(parsed[0], _LAST):
            after = paths.wal_segment(parsed[0], _LAST)


def claimed_histories(context: FlusherContext, known: KnownPages | None = None) -> tuple[InForce, SoundHistories]:
    """Read the watermarks and the histories of all regions (step 2).  ``known``: history pages that earlier rounds
    read.

    Raises ``TableMissing``, ``TableReplaced`` or ``ContractMismatch`` if the table is gone, or was replaced, or has
    another contract.  Damaged regions are in ``SoundHistories.damaged``.  Their needs are unknown.  So none of their
    objects is free, and none that they may share with other regions.
    """
    store, contract = context.store, context.contract
    looks: list[Callable[[], object]] = [lambda: check_present(store, contract), lambda: check_contract(context)]
    _, (_, in_force) = together(
        context.tasks, lambda: context.tasks.map(lambda look: look(), looks), context.watermarks.newest
    )
    return in_force, read_sound_histories(context, context.contract.regions, in_force, known)


def find_garbage(
    context: FlusherContext,
    candidates: GarbageCandidates,
    kept_by: SoundHistories,
    now: int,
    known: KnownFlushes,
    swaps: Mapping[Page, int] | None = None,
) -> Garbage:
    """Find the objects that are free, and those that are old (steps 4 and 5).

    ``known``: manifests that the previous round read.  ``swaps``: for ``--dry-run``, the number of versions that step
    3 would have written of each state page.
    """
    swaps, histories = swaps or {}, kept_by.of
    needed = _needed_segments([*histories.values(), *kept_by.former.values()])
    page_of = context.contract.page_of
    # Step 4
    looks: list[Callable[[], Collection[str]]] = [
        lambda: () if kept_by.damaged else _free_segments(context, candidates.segments, needed, now),
        lambda: free_flushes(context, candidates.flushes, kept_by, known, now),
        lambda: _free_key_parts(context, candidates.key_parts),
        lambda: free_conflicts(context, candidates.conflicts),
    ]
    kinds = len(looks)
    # Step 5
    # Repair of a damaged region uses older versions of its page.
    repaired = set(map(page_of, kept_by.damaged))
    for page in dict.fromkeys(map(page_of, histories)):
        if page in repaired:
            continue
        is_old, kept = partial(_page_is_old, now, page in swaps), VERSIONS_KEPT - swaps.get(page, 0)
        looks.append(partial(_listed_old_versions, context.store, page_family(page), is_old, kept))
    catalogs = catalog_family(context.contract.making)
    looks.append(
        lambda: _listed_old_versions(context.store, catalogs, lambda ms, _: now - ms >= CATALOGS_KEPT_MS, VERSIONS_KEPT)
    )
    looks.append(lambda: [key for history in histories.values() for key in _old_history_pages(history)])
    looks.append(lambda: _old_parcels(context, now))
    found = context.tasks.map(lambda look: look(), looks)
    old = tuple(key for keys in found[kinds:] for key in keys)
    return Garbage(frozenset().union(*found[:kinds]), old, {} if kept_by.damaged else needed)


def history_page_due(history: History, watermark: Generation) -> tuple[GenerationRecord, ...]:
    """Return the oldest MERGED generations of a long region state, to be moved to a history page.  Empty if the state
    is short.

    Only generations before the next existing history page are returned.  A page that was written before a restore may
    begin among them; of two such pages the later one counts.
    """
    merged = [r for r in history.state.generations if r.state is GenerationState.MERGED and r.generation <= watermark]
    if len(merged) < HISTORY_PAGE_AT:
        return ()
    begins = [page[0].generation for _, page in history.pages if page[0].generation > merged[0].generation]
    return tuple(r for r in merged[:-HISTORY_PAGE_REST] if not begins or r.generation < min(begins))


def shortened(
    history: History, watermark: Generation, now: int, window_ms: int, up_to: Generation | None = None
) -> tuple[History, tuple[bool, bool]]:
    """Return the history that a region would have after step 3, if no other process changed it.  Also return whether
    step 3 would write a history page for the region, and whether it would trim the region.

    A history page that step 3 would write is not included: its generations count the same while they are in the state.
    """
    reached = boundary(history, watermark, now, window_ms, up_to)
    trimmed = None if reached is None else trim(history.state, reached, history.state.write_id, history.generations)
    swaps = bool(history_page_due(history, watermark)), trimmed is not None
    return History(trimmed or history.state, history.pages), swaps


def boundary(
    history: History, watermark: Generation, now: int, window_ms: int, up_to: Generation | None = None
) -> GenerationRecord | None:
    """Return the newest generation up to which all are merged and past their history window; None if there is none.
    The region's newest generation is never returned.  ``up_to``: the newest generation that no subscription needs;
    None if subscriptions need no generation.
    """
    found: GenerationRecord | None = None
    for record in history.generations[:-1]:
        if record.state is not GenerationState.MERGED or record.generation > watermark:
            break
        if record.merged_at_ms is None or now - record.merged_at_ms < window_ms:
            break
        if up_to is not None and record.generation > up_to:
            break
        found = record
    return found


def _needed_segments(histories: Iterable[History]) -> dict[LogId, Sequence]:
    """Return the first needed segment of each log: the first one in which a kept generation begins."""
    needed: dict[LogId, Sequence] = {}
    for history in histories:
        for record in history.generations:
            needed[record.log] = min(needed.get(record.log, record.first_sequence), record.first_sequence)
    return needed


def _free_segments(
    context: FlusherContext, segments: Seq[ObjectInfo], needed: Mapping[LogId, Sequence], now: int
) -> set[str]:
    free: set[str] = set()
    doubtful: list[str] = []
    for info in segments:
        parsed = _newest_in(info.key)
        if parsed is None or (parsed[0] in needed and parsed[1] >= needed[parsed[0]]):
            continue
        if paths.parse_wal_bundle(info.key) is not None:
            free.add(info.key)
        elif now - info.modified_ms < FENCE_KEPT_MS and info.size <= FENCE_SIZE_MAX:
            doubtful.append(info.key)
        else:
            free.add(info.key)
    fences = context.tasks.map(lambda key: _is_fence(context, key), doubtful) if doubtful else []
    return free | {key for key, fence in zip(doubtful, fences, strict=True) if not fence}


def _newest_in(key: str) -> tuple[LogId, Sequence] | None:
    """Return the log and the number of a segment or fence, or of the last segment that a bundle copies.  Return None
    for other objects."""
    bundled = paths.parse_wal_bundle(key)
    return paths.parse_wal_segment(key) if bundled is None else (bundled[0], bundled[2])


def _is_fence(context: FlusherContext, key: str) -> bool:
    data = context.store.get(key)
    try:
        return data is not None and isinstance(decode_segment(data, key, ()), Fence)
    except ObjectCorrupt:
        return True  # it may have been one: kept as long as that


def _free_key_parts(context: FlusherContext, listed: Seq[ObjectInfo]) -> set[str]:
    """Return the keys of those parts of key runs that the newest key catalog does not name.  They belong to runs that
    were merged into others, or that were never added to a catalog.

    A listing of catalogs that lacks objects makes no part free.  Version 1 of the catalog is never deleted, and is
    read by its key.  So an empty listing is not believed if version 1 exists (``newest_version``), nor a listing that
    names a version which is gone.  No part is free then.

    There is one exception: a listing shows version 1 alone, although newer versions exist and those after version 1
    are deleted.  Such a listing makes parts free, and they are deleted if a listing a grace period later shows the
    same.  That costs time but no row: a run without its parts covers no file, so merges scan its files.
    """
    begun = frozenset(context.key_parts_begun)  # before the catalog, which names what is done with by then
    catalog = context.keys.catalogs.read_sound()
    if catalog is None:
        return set()
    named = {part.object for run in catalog.runs for part in run.parts}
    return {info.key for info in listed if paths.parse_key_part(info.key) is not None} - named - begun


def _page_is_old(now: int, swapped: bool, modified_ms: int, newest_ms: int) -> bool:
    """Whether a version of a state page is old.  ``modified_ms`` and ``newest_ms``: when this version and the newest
    one were stored.  ``swapped``: step 3 would have written a newer version just now.
    """
    younger_ms = now if swapped else newest_ms
    return younger_ms - modified_ms >= PAGES_KEPT_MS or now - modified_ms >= PAGES_KEPT_AT_REST_MS


def _listed_old_versions(
    store: ObjectStore, family: Family, is_old: Callable[[int, int], bool], kept: int
) -> list[str]:
    return old_versions(store, family, store.list(family.prefix), is_old, kept)


def old_versions(
    store: ObjectStore,
    family: Family,
    listed: Iterable[ObjectInfo],
    is_old: Callable[[int, int], bool],
    kept: int,
) -> list[str]:
    """Return the keys of the versions that may be deleted, oldest first.  Version 1 and the newest ``kept`` versions
    stay.  A version also stays if the listing lacks an existing version between version 1 and it.

    ``is_old`` gets the times when a version and the newest one were stored (ms since 1970), and returns whether the
    version is old.
    """
    found = []
    for info in listed:
        version = family.parse(info.key)
        if version is not None and version != FIRST_VERSION:
            found.append((version, info.modified_ms))
    found.sort()
    old: list[int] = []
    for version, modified_ms in found[:-kept]:
        if not is_old(modified_ms, found[-1][1]) or (old and version != old[-1] + 1):
            break
        old.append(version)
    if old and old[0] - 1 != FIRST_VERSION and store.get(family.key(old[0] - 1)) is not None:
        return []
    return [family.key(version) for version in old]


def _old_parcels(context: FlusherContext, now: int) -> list[str]:
    return [
        info.key
        for info in context.store.list(paths.PARCELS)
        if now - info.modified_ms >= PARCEL_KEPT_MS and paths.parse_parcel_part(info.key) is not None
    ]


def _old_history_pages(history: History) -> list[str]:
    return [key for key, page in history.pages if page[-1].generation <= history.state.trimmed_generation]
