"""``lancewal gc``: show what garbage collection would do, or run rounds of it until all objects that are free now are
deleted.

Steps of ``collect_to_the_end``
 1. List everything below ``_lancewal/``, for sizes and orphans; note each region's trimmed boundary.
 2. Run a round (``collect``).  Objects that it finds free wait for the grace period, even if the flusher found them
    free long ago.  Each process counts the grace period itself.
 3. ``wait``: sleep for the grace period and go on with 2, until all objects that the first round found free are
    deleted.  Objects that become free later are left to later runs and the flusher, so this ends even while ingest is
    busy.

While an operator pauses the flusher no round begins, as in the service.

``look`` computes the histories that a round would leave, finds the objects that the round would delete, and changes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from lancewal_core.errors import FlusherPaused
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, Page, Region
from lancewal_core.process.clock import sleep_unless
from lancewal_core.region.history import History, SoundHistories
from lancewal_core.store.object_store import ObjectInfo
from lancewal_core.table.control import ControlReader, Service, until_text
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.garbage.collect import GarbageState, collect_garbage
from lancewal_flusher.garbage.find import claimed_histories, find_garbage, list_candidates, shortened
from lancewal_flusher.garbage.flushes import KnownFlushes
from lancewal_flusher.garbage.kinds import CountedObjects, Orphan, grouped, orphans
from lancewal_flusher.garbage.snapshots import overdue
from lancewal_flusher.garbage.subscribed import KnownSubscriptions, read_holding
from lancewal_flusher.garbage.table_versions import find_due
from lancewal_flusher.garbage.unnamed_data_files import UnnamedFiles, find_unnamed
from lancewal_flusher.upkeep.expiry import count_expired


@dataclass(frozen=True, slots=True)
class Trimmed:
    """Generations ``first`` to ``last`` of a region that were trimmed."""

    region: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class GarbageSummary:
    """Result of ``lancewal gc``: what a run did.  With ``--dry-run``: what a round would do now."""

    rounds: int
    deleted: tuple[CountedObjects, ...]
    """Deleted objects, counted by kind.  With ``--dry-run``: objects that a round would delete at once."""
    waiting: tuple[CountedObjects, ...]
    """Free objects, counted by kind.  They are deleted once they have been free for ``grace_s`` seconds."""
    grace_s: int
    trimmed: tuple[Trimmed, ...]
    orphans: tuple[Orphan, ...]
    """Objects that nothing refers to (``kinds.orphans``).  They are only listed, never deleted."""
    loose_data: UnnamedFiles | None
    """Data files that neither the newest version nor a waiting flush names.  They are only counted.  None if they are
    unknown, because a flush or a region's state is damaged."""
    expired_rows: int | None = None
    """With ``--dry-run``: number of expired rows.  None without ``--dry-run``, or if the table's rows never expire."""
    expired_versions: int = 0
    """Number of the table's versions that were removed, because they are older than the version window.  With
    ``--dry-run``: that would be removed."""
    dropped_snapshots: tuple[str, ...] = ()
    """Names of the expired snapshots that were dropped.  With ``--dry-run``: that would be dropped."""
    damaged: Mapping[str, str] = field(default_factory=dict)
    """Damage of each partition whose objects are not deleted, because its needs are unknown; by the partition's
    name."""
    names_fault: str | None = None
    """Error because of which no version is removed and no snapshot dropped: the name of a branch or tag cannot be
    read.  None: there is no such error."""


def look(context: FlusherContext) -> GarbageSummary:
    """Return what a garbage collection that starts now would do.  Reads only."""
    now = context.clock.now_ms()
    listed = context.store.list(paths.ROOT)
    candidates = list_candidates(context)
    in_force, before = claimed_histories(context)
    window_ms = context.contract.history_window_s * 1000
    known = KnownSubscriptions()
    holding = read_holding(context, known, in_force, before.of, now)
    window_ms = holding.window_ms(window_ms, context.contract)
    after = {
        r: shortened(h, in_force.generation(r), now, window_ms, holding.free_up_to(r)) for r, h in before.of.items()
    }
    of = {region: history for region, (history, _) in after.items()}
    kept = SoundHistories(of, {**before.damaged, **holding.damaged}, holding.former)
    flushes = KnownFlushes()
    found = find_garbage(context, candidates, kept, now, flushes, _swaps(context, after))
    trimmed = _moved(_boundaries(before), _boundaries(kept))
    fault, ttl = context.table.names_fault(), context.contract.ttl
    return replace(
        _summary(context, listed, (found.old, found.free), trimmed, (kept, flushes)),
        expired_rows=None if ttl is None else count_expired(context.table, context.clock, ttl),
        expired_versions=0 if fault else len(find_due(context, in_force, before, now, holding).versions),
        dropped_snapshots=() if fault else tuple(overdue(context.table, now)),
        names_fault=None if fault is None else str(fault),
    )


def _swaps(context: FlusherContext, after: Mapping[Region, tuple[History, tuple[bool, bool]]]) -> dict[Page, int]:
    """Return the number of new versions that a round would write of each state page; pages without one are left out.

    A round writes one version to move generations of the page's regions to history pages, and one to move trimmed
    boundaries.
    """
    found: dict[Page, list[tuple[bool, bool]]] = {}
    for region, (_, swaps) in after.items():
        found.setdefault(context.contract.page_of(region), []).append(swaps)
    counted = {page: sum(any(each) for each in zip(*swaps, strict=True)) for page, swaps in found.items()}
    return {page: swaps for page, swaps in counted.items() if swaps}


def collect_to_the_end(
    context: FlusherContext,
    *,
    wait: bool,
    stopping: Callable[[], bool] = lambda: False,
) -> GarbageSummary:
    """Run rounds of garbage collection (steps 1 to 3).

    ``wait``: as in step 3.  Raises ``FlusherPaused`` if an operator has paused the flusher; nothing more is deleted
    then.
    """
    # Step 1
    control = ControlReader(context.store, context.clock, Service.FLUSHER, context.contract.making)
    _refuse_paused(control)
    listed = context.store.list(paths.ROOT)
    before = _boundaries(claimed_histories(context)[1])
    trimmed: dict[Region, Generation] = {}
    state, deleted, expired, rounds = GarbageState(), list[str](), 0, 0
    dropped: list[str] = []
    first: frozenset[str] | None = None
    while True:
        # Step 2
        report = collect_garbage(context, state)
        rounds += 1
        deleted += report.deleted_keys
        trimmed |= report.trimmed
        expired += len(report.expired_versions)
        dropped += report.dropped_snapshots
        first = frozenset(report.waiting_keys) if first is None else first
        left = first.intersection(report.waiting_keys)
        # Step 3
        if not left or stopping() or not (wait or context.contract.grace_s == 0):
            break
        context.events.garbage_awaited(objects=len(left), grace_s=context.contract.grace_s)
        sleep_unless(stopping, context.clock, context.contract.grace_s)
        if stopping():
            break
        _refuse_paused(control)
    kept = claimed_histories(context)[1]
    summary = _summary(context, listed, (deleted, report.waiting_keys), _moved(before, trimmed), (kept, state.flushes))
    fault = None if report.names_fault is None else str(report.names_fault)
    return replace(
        summary, rounds=rounds, expired_versions=expired, dropped_snapshots=tuple(dropped), names_fault=fault
    )


def _summary(
    context: FlusherContext,
    listed: Iterable[ObjectInfo],
    keys: tuple[Iterable[str], Iterable[str]],
    trimmed: tuple[Trimmed, ...],
    known: tuple[SoundHistories, KnownFlushes],
) -> GarbageSummary:
    """Return the summary of a run.  ``listed``: all objects below ``_lancewal/``.  ``keys``: the keys of deleted
    objects, and those of waiting ones.
    """
    kept, flushes = known
    now, sizes = context.clock.now_ms(), {info.key: info.size for info in listed}
    deleted, waiting = keys
    return GarbageSummary(
        0,
        grouped(deleted, sizes),
        grouped(waiting, sizes),
        context.contract.grace_s,
        trimmed,
        orphans(listed, context.contract, now, flushes),
        None if kept.damaged else find_unnamed(context, kept.of.values(), now),
        damaged={region.name: str(error) for region, error in kept.damaged.items()},
    )


def _moved(before: Mapping[Region, Generation], after: Mapping[Region, Generation]) -> tuple[Trimmed, ...]:
    """Return the generations of each region between its trimmed boundary ``before`` and ``after``."""
    ends = {region: (before.get(region, Generation(0)), end) for region, end in after.items()}
    return tuple(Trimmed(region.name, start + 1, end) for region, (start, end) in ends.items() if end > start)


def _boundaries(kept: SoundHistories) -> dict[Region, Generation]:
    return {region: history.state.trimmed_generation for region, history in kept.of.items()}


def _refuse_paused(control: ControlReader) -> None:
    until = control.read_or_raise()
    if control.problem is not None:
        raise control.problem
    if until is not None:
        raise FlusherPaused(
            f"the flusher is paused {until_text(until)}: nothing more is deleted. `lancewal gc --dry-run` only looks; "
            "`lancewal resume flusher` ends the pause"
        )
