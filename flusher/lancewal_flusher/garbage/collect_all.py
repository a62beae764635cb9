"""``lancewal gc``: show what garbage collection would do, or run rounds of it until what is free now is gone.

Steps of ``collect_to_the_end``
 1. List everything below ``_lancewal/``, for sizes and orphans; note each region's trimmed boundary.
 2. A round (``collect``).  What it finds free waits for the grace period, even if the flusher found it free long ago:
    each process goes by its own clock.
 3. ``wait``: sleep for the grace period and go on with 2, until nothing is left of what the first round found free.
    What becomes free meanwhile is left to others, so this ends beside a busy ingest too.

While an operator pauses the flusher no round begins, as in the service.

``look`` finds what a round would delete, on the histories that the round would leave, and changes nothing.
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
    """Counts of what a run did, or would do."""

    rounds: int
    deleted: tuple[CountedObjects, ...]
    """Objects deleted; if the run only looks: objects that a round would delete at once."""
    waiting: tuple[CountedObjects, ...]
    """Free objects that are deleted once they were free for ``grace_s``."""
    grace_s: int
    trimmed: tuple[Trimmed, ...]
    orphans: tuple[Orphan, ...]
    """Objects that nothing accounts for: listed, never deleted."""
    loose_data: UnnamedFiles | None
    """Data files that nothing names: counted, never deleted.  None if they cannot be known."""
    expired_rows: int | None = None
    """Rows that have expired, of a run that only looks; None where rows never do."""
    expired_versions: int = 0
    """Versions of the table, older than its version window."""
    dropped_snapshots: tuple[str, ...] = ()
    """Names of the snapshots whose time is over."""
    damaged: Mapping[str, str] = field(default_factory=dict)
    """Partitions of which nothing is deleted, since it is unknown what they need; with the damage."""
    names_fault: str | None = None
    """Why no version is removed and no snapshot dropped: a name of a branch or tag cannot be read."""


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
    """Return how many new versions a round would make of each page.

    In one version, regions of the page leave generations to history pages.  In another, trimmed boundaries of its
    regions move.
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

    Raises ``FlusherPaused`` if an operator has paused the flusher, so nothing more was deleted.
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
    """Return the summary of a run.  ``keys``: the keys of deleted objects, and of waiting ones."""
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
