"""Collect garbage: delete objects that are merged and older than the history window.

This module deletes; ``find`` says what to delete.

Guarantees
 1. Nothing is deleted that a table version in force, a region state or a history page above the trimmed boundary
    names.  What cannot be seen whole ends the round: a region state below the table's watermark, a page missing from a
    listing, a newer contract.  If the state or a history page of one region is damaged, that region's boundary stays, and
    nothing of it is deleted.  Nothing is deleted either that it may share with others unnoticed: segments of any log,
    and old versions of the page that it lies in, which its repair uses.
 2. The boundary moves forward in the region state before anything below it is deleted.
 3. Except in step 7, only objects under ``_lancewal/`` are deleted, and of these only such kinds as ``object_kinds``
    gives over to garbage collection; adopted data files are the table's.
 4. A running reader has the grace period: a free object is deleted by a later round, at least that long after it was
    first found free, if it still is.  The same rule covers a change of a region state that is still on its
    way.
 5. A fence outlives its log's segments by seven days, so that a process frozen for hours still meets it.
 6. Any other error while reading ends the round before anything is deleted.
 7. Of each page of region states, and of the key catalog, what remains is version 1 and one run up to the newest:
    versions go oldest first, each once the one before is gone (``page_chain``).

Steps of ``collect_garbage``
 1. List the candidates: WAL segments and their bundles, objects of flushes, parts of key runs, keys in conflict.
    They are listed before region states are read: a generation opened later begins after every segment listed here, or after
    where the generation before it begins, in the same log.  Most objects that the last round found needed are skipped.
 2. Read W of the newest table version and whether the contract is the newest, then the state and the history pages of
    every region.  Regions come from the contract, never from a listing.  After a restore, or if W is unknown, that is
    an error: nothing is trimmed.
 3. Per region: a long state leaves its oldest MERGED generations to a history page.  Generations whose history
    window is over, and that W holds, may go below the trimmed boundary.  Once that is decided, read the subscriptions
    (``subscribed``).  The boundary moves as far as none of them needs what is below.  Each by compare-and-swap.
 4. Which of the candidates are free now?  Segments below the lowest first segment that a kept generation of their log
    has (all, if none is kept), and bundles that copy no later one; flushes whose generations are trimmed or were
    flushed otherwise (``flushes``); parts that the newest key catalog does not name; keys in conflict that the commit
    of no existing version names.
 5. Find the old versions of pages (the newest is an hour younger, or they are over seven days old; not among the
    newest hundred, never version 1), the old key catalogs (over an hour, the same), the history pages below the
    boundary, and parcels of tasks that are older than a day.
 6. Delete what was free at an earlier round already, a grace period ago, and remember the rest; then what step 5
    found.
 7. Once an hour: drop the snapshots whose time is over, then have Lance remove the table's versions that are older
    than the version window (``table_versions``); neither while a name of a branch or tag cannot be read.  Then
    delete old objects of subscriptions.

The clock is read at the beginning, and histories before subscriptions.  So a round that does not see a subscription takes
only what was over when that subscription was made, which its maker looks for afterwards.

Rounds of requests, as counted: 6 ("garbage round, nothing to delete").
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
    """State that one flusher keeps between rounds: since when each object is free (monotonic seconds), and history
    pages.
    """

    free_since: dict[str, float] = field(default_factory=dict)
    pages: KnownPages = field(default_factory=KnownPages)
    flushes: KnownFlushes = field(default_factory=KnownFlushes)
    versions: VersionsSeen = field(default_factory=VersionsSeen)
    subscriptions: KnownSubscriptions = field(default_factory=KnownSubscriptions)
    needed: Mapping[LogId, Sequence] = field(default_factory=dict)
    """The first segment of each log that the last round found needed; empty: not known."""


@dataclass(frozen=True, slots=True)
class GarbageReport:
    """Keys of the objects that this round deleted, and of those that wait for their grace period."""

    deleted_keys: tuple[str, ...]
    waiting_keys: tuple[str, ...]
    trimmed: Mapping[Region, Generation]
    damaged: Mapping[Region, Corrupt] = field(default_factory=dict)
    """Regions of which nothing was deleted, since it is unknown what they need."""
    expired_versions: tuple[TableVersion, ...] = ()
    """Versions of the table that were removed."""
    dropped_snapshots: tuple[str, ...] = ()
    names_fault: Corrupt | None = None
    """Why no version is removed and no snapshot dropped: a name of a branch or tag cannot be read.  None otherwise."""
    subscriptions: Mapping[str, KeptBySubscription] = field(default_factory=dict)
    """Segments and versions that each subscription keeps beyond the windows, by name."""
    subscription_faults: Mapping[str, Corrupt] = field(default_factory=dict)
    """Subscriptions that cannot be read, by name; a list that cannot be read has the name ``""``."""


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
    """Move old generations to history pages, and trim others (step 3).  Return the new state of the regions that
    changed, and what subscriptions hold."""
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
    """Return up to which generation each region may be trimmed; regions that may not are left out."""
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
    """Write a history page, and return its generations: exactly these leave the state.  If the page is there already,
    its content counts.

    A page from before a restore may have other records of these generations.  Then they stay in the state (``paged``)
    until they are trimmed.
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
