"""Collect garbage: delete objects that are merged and older than the history window.

This module deletes; ``find`` says what to delete.

Guarantees
 1. Nothing is deleted that the newest table version, a region state, or a history page above the trimmed boundary
    refers to.  The round ends if its view may be incomplete: a region state is below the table's watermark, a page is
    missing from a listing, or there is a newer contract.  If the state or a history page of one region is damaged,
    the region's boundary stays, and none of its objects is deleted.  Objects that the region may share with others
    are not deleted either: segments of any log, and old versions of its state page, which its repair uses.
 2. The boundary moves forward in the region state before anything below it is deleted.
 3. Except in step 7, only objects under ``_lancewal/`` are deleted, and of these only the kinds that ``object_kinds``
    assigns to garbage collection.  Adopted data files belong to the table.
 4. An object is *free* if nothing needs it any more.  A later round deletes it once the grace period has passed since
    it was first found free, if it still is.  So readers that run can end.  The rule also covers a write of a region
    state that has not reached the store yet.
 5. A fence is kept for at least seven days, so that a process that was frozen for hours still finds it.
 6. Any other error while reading ends the round before anything is deleted.
 7. Of each state page, and of the key catalog, version 1 remains, and the newest versions without a gap.  Older
    versions are deleted oldest first, each only if the one before it is gone (``page_chain``).

Steps of ``collect_garbage``
 1. List the candidates: WAL segments and their bundles, objects of flushes, parts of key runs, keys in conflict.
    They are listed before region states are read.  A generation that is opened later begins after every segment
    listed here, or, in the same log, after the first segment of the previous generation.  Most objects that the
    previous round found needed are not listed.
 2. Read W, the watermarks of the newest table version, and check that the contract is the newest.  Then read the
    state and the history pages of every region.  Regions come from the contract, never from a listing.  After a
    restore, or if W is unknown, that is an error: nothing is trimmed.
 3. For each region: move the oldest MERGED generations of a long state to a history page.  Find the generations whose
    history window is over, and that W contains.  Then read the subscriptions (``subscribed``).  Move the trimmed
    boundary past these generations, up to the first that a subscription needs.  Each change is a compare-and-swap.
 4. Find the candidates that are free now: segments before the first segment of each kept generation of their log
    (all, if no generation is kept), and bundles of only such segments; flushes whose generations are trimmed or have
    another flush (``flushes``); parts of key runs that the newest key catalog does not name; objects of keys in
    conflict that no existing version names.
 5. Find old objects.  A version of a state page is old if the newest is an hour younger, or if it is over seven days
    old.  A key catalog is old after an hour.  Of both, version 1 and the newest hundred versions are never old.
    History pages below the boundary, and parcels of tasks older than a day, are old too.
 6. Delete the objects that have been free for a grace period, and remember the other free ones.  Then delete the
    objects of step 5.
 7. Once an hour: drop expired snapshots, then have Lance remove the table's versions that are older than the version
    window (``table_versions``).  Both are left out while the name of a branch or tag cannot be read.  Then delete old
    objects of subscriptions.

A round reads the clock first, and histories before subscriptions.  So if a round misses a new subscription, it
deletes only objects whose windows were over when the subscription was made.  The process that makes a subscription
checks afterwards that no such object is needed.

Rounds of requests to the store (docs/reference/requests.md), as counted: 6 ("garbage round, nothing to delete").
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from lancewal_core.errors import Corrupt
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, LogId, Region, Sequence, TableVersion
from lancewal_core.process.failpoints import point
from lancewal_core.region.history import History, KnownPages, SoundHistories
from lancewal_core.region.state import GenerationRecord, decode_history, encode_history
from lancewal_core.region.states import Decide
from lancewal_core.region.transitions import paged, trim
from lancewal_core.store.object_kinds import Collected, kind_of
from lancewal_core.store.object_store import Done, put_new
from lancewal_core.table.subscriptions.holding import HOLDS_NOTHING, Holding
from lancewal_core.table.watermarks import InForce
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.garbage.find import boundary, claimed_histories, find_garbage, history_page_due, list_candidates
from lancewal_flusher.garbage.flushes import KnownFlushes
from lancewal_flusher.garbage.snapshots import drop_overdue
from lancewal_flusher.garbage.subscribed import (
    KeptBySubscription,
    KnownSubscriptions,
    kept_of,
    kept_segments,
    old_objects,
    read_holding,
)
from lancewal_flusher.garbage.table_versions import VersionsSeen, expire_versions, is_time


@dataclass(slots=True)
class GarbageState:
    """State that a flusher keeps between rounds of garbage collection.  ``free_since``: by key, when an object was
    first found free, in monotonic seconds.  The other fields are caches.
    """

    free_since: dict[str, float] = field(default_factory=dict)
    pages: KnownPages = field(default_factory=KnownPages)
    flushes: KnownFlushes = field(default_factory=KnownFlushes)
    versions: VersionsSeen = field(default_factory=VersionsSeen)
    subscriptions: KnownSubscriptions = field(default_factory=KnownSubscriptions)
    needed: Mapping[LogId, Sequence] = field(default_factory=dict)
    """First segment of each log that the previous round found needed; empty if unknown."""


@dataclass(frozen=True, slots=True)
class GarbageReport:
    """Result of one round of garbage collection.  ``deleted_keys``: objects that the round deleted.
    ``waiting_keys``: free objects whose grace period is not over.  ``trimmed``: new trimmed boundary of each region
    that changed.
    """

    deleted_keys: tuple[str, ...]
    waiting_keys: tuple[str, ...]
    trimmed: Mapping[Region, Generation]
    damaged: Mapping[Region, Corrupt] = field(default_factory=dict)
    """Damage of each region whose objects the round did not delete, because the region's needs are unknown."""
    expired_versions: tuple[TableVersion, ...] = ()
    """Versions of the table that the round removed."""
    dropped_snapshots: tuple[str, ...] = ()
    names_fault: Corrupt | None = None
    """Error because of which no version is removed and no snapshot dropped: the name of a branch or tag cannot be
    read.  None: there is no such error."""
    subscriptions: Mapping[str, KeptBySubscription] = field(default_factory=dict)
    """Lag of each subscription, and the segments and versions that it keeps beyond the windows, by name."""
    subscription_faults: Mapping[str, Corrupt] = field(default_factory=dict)
    """Error of each subscription that cannot be read, by name; of the list of subscriptions, under the name ``""``."""


def collect_garbage(context: FlusherContext, state: GarbageState) -> GarbageReport:
    """Run one round of garbage collection (module steps), and report what it did."""
    now = context.clock.now_ms()
    # Step 1
    candidates = list_candidates(context, state.needed)
    # Step 2
    in_force, kept = claimed_histories(context, state.pages)
    # Step 3
    changed, holding = _shorten(context, kept.of, in_force, now, state.subscriptions)
    kept = SoundHistories({**kept.of, **changed}, {**kept.damaged, **holding.damaged}, holding.former)
    trimmed = {region: history.state.trimmed_generation for region, history in changed.items()}
    # Step 4, 5
    found = find_garbage(context, candidates, kept, now, state.flushes)
    state.needed = found.needed
    # Step 6
    monotonic = context.clock.monotonic()
    free = (k for k in found.free if monotonic - state.free_since.get(k, float("inf")) >= context.contract.grace_s)
    due = sorted(free, key=lambda key: (paths.is_flush_manifest(key), key))  # else nobody knows why the rest is free
    state.free_since = {key: state.free_since.get(key, monotonic) for key in found.free}
    _delete(context, due)
    for key in due:
        del state.free_since[key]
    _delete(context, found.old)
    # Step 7
    dropped: tuple[str, ...] = ()
    expired: tuple[TableVersion, ...] = ()
    old: tuple[str, ...] = ()
    if is_time(context, state.versions):
        state.versions.fault = context.table.names_fault()
        if state.versions.fault is None:
            dropped = drop_overdue(context.table, now)
        if dropped:
            state.versions.held = frozenset()  # the versions that they stood on may go
        expired = expire_versions(context, state.versions, in_force, kept, now, holding)
        old = old_objects(context, state.subscriptions, now)
        _delete(context, old)
    waiting = tuple(sorted(state.free_since))
    fault = state.versions.fault
    return GarbageReport(
        (*due, *found.old, *old), waiting, trimmed, kept.damaged, expired, dropped, fault,
        kept_of(holding, context.contract, state.subscriptions.segments, state.versions.subscribed), holding.faults,
    )  # fmt: skip


def _shorten(
    context: FlusherContext,
    histories: Mapping[Region, History],
    in_force: InForce,
    now: int,
    known: KnownSubscriptions,
) -> tuple[dict[Region, History], Holding]:
    """Move old generations to history pages, and trim others (step 3).  Return the new history of each region that
    changed, and what subscriptions need."""
    changed: dict[Region, History] = {}
    pages: dict[Region, tuple[str, tuple[GenerationRecord, ...]]] = {}
    for region, history in histories.items():
        page = history_page_due(history, in_force.generation(region))
        if page:
            key = paths.history_page(region, page[0].generation, context.contract.making)
            pages[region] = key, _put_page(context, region, history.state.contract_version, key, page)
    for region, (ours, state) in context.states.swap(
        {region: _paged(context, page) for region, (_, page) in pages.items()}
    ).items():
        if ours and state is not None:
            changed[region] = History(state, (*histories[region].pages, pages[region]))
    now_kept = {**histories, **changed}
    window_ms = context.contract.history_window_s * 1000
    over = _boundaries(now_kept, in_force, now, window_ms)
    # From here on nothing more is over: a subscription that is made later finds that (``subscriptions.needs``).
    holding = read_holding(context, known, in_force, now_kept, now)
    known.segments = kept_segments(holding, now_kept, over)
    window_ms = holding.window_ms(window_ms, context.contract)
    reached = _boundaries(now_kept, in_force, now, window_ms, holding)
    if reached:
        with point("trim.cas", regions=len(reached)):
            swapped = context.states.swap(
                {region: _trimmed(context, record, now_kept[region]) for region, record in reached.items()}
            )
        for region, (ours, state) in swapped.items():
            if ours and state is not None:
                changed[region] = History(state, changed.get(region, histories[region]).pages)
    return changed, holding


def _boundaries(
    histories: Mapping[Region, History],
    in_force: InForce,
    now: int,
    window_ms: int,
    holding: Holding = HOLDS_NOTHING,
) -> dict[Region, GenerationRecord]:
    """Return the last generation of each region that may be trimmed; regions without one are left out."""
    found = {
        region: boundary(history, in_force.generation(region), now, window_ms, holding.free_up_to(region))
        for region, history in histories.items()
    }
    return {region: record for region, record in found.items() if record is not None}


def _paged(context: FlusherContext, page: Seq[GenerationRecord]) -> Decide:
    return lambda found: found and paged(found, page, context.new_id())


def _trimmed(context: FlusherContext, reached: GenerationRecord, history: History) -> Decide:
    return lambda found: found and trim(found, reached, context.new_id(), history.generations)


def _put_page(
    context: FlusherContext, region: Region, contract_version: int, key: str, page: tuple[GenerationRecord, ...]
) -> tuple[GenerationRecord, ...]:
    """Write a history page, and return its generations, which are then removed from the state.  If the page exists
    already, return the generations of the existing page.

    A page that was written before a restore may have other records of these generations.  The generations then stay
    in the state (``paged``) until they are trimmed.
    """
    outcome = put_new(context.store, key, encode_history(region, contract_version, page))
    return page if isinstance(outcome, Done) else decode_history(outcome.found, key).generations


def _delete(context: FlusherContext, keys: Seq[str]) -> None:
    for key in keys:
        kind = kind_of(key)
        if kind is None or kind.collected not in (Collected.WHEN_FREE, Collected.WHEN_OLD):
            raise AssertionError(f"{key} is never deleted")  # guarantee 3
    if keys:
        with point("trim.delete", first=keys[0], objects=len(keys)):
            context.store.delete(keys)
