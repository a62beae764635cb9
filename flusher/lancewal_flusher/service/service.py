"""The flusher service: build everything from settings, check, take turns until told to stop.

Steps
 1. Answer probes: from now on ``/readyz`` says what is missing.  If ``table.uri`` is a name, ask the catalog for its
    address.  Read the contract; check settings and table.  A catalog or store that does not answer or lets nobody in is
    asked again in the process (``process.start``).
 2. Turns (``turns``): each pass begins with a *round* of merging, every ``flusher.merge_interval_s``, and at once
    while there is more to do.  No round begins a further merge after that time, so that the others have their turn
    under any load.  *Garbage collection* runs beside the rounds, every ``flusher.gc_interval_s``.  *Compaction* runs
    after a round, and at once after a merge that wears a fragment so much that rewriting it costs less than leaving
    it (``cost``).  *Index upkeep* alone runs after every merge.  *Expiry* has its turn too.  In a thread of its own
    *visibility* is measured every ``flusher.visibility_interval_s`` (``visibility``).
 3. When told to stop, finish the merge under way and begin nothing.  ``flusher.drain_timeout_s`` after the signal the
    process has ended (``process.stop_signals``), even if the store hangs or the merge takes longer.  That is a crash:
    the table then has the merge's commit, or the next flusher merges the same again.  A round of garbage collection
    under way is waited for, and its error is logged, whatever it is.

Garbage collection that hangs is named: by the log if a pause has waited for it (``PAUSE_WAITS_S``), and by a metric.
After ``LOOP_LIMIT_S`` ``/livez`` names it, as it would name a merge.

A silent store is named some seconds later, whatever the loop waits for; liveness does not fail for that
(``process.health``).

While an operator pauses the flusher, it takes no turn, and says that it is paused once none is under way.  It asks
before each pass, and every ``control.POLL_S`` while it is paused, but not while it waits for a round of garbage
collection.  ``once`` is refused then.  What waits to be merged, and since when, is shown all the same.  The flusher
looks at it before the first round, during a pause as often as rounds would begin, and after a round that failed.
Neither a pause nor a flusher that cannot merge thus looks like a flusher that has nothing to do.

A fault that may pass (``Retry``, ``Refresh``) and damage (``Corrupt``) are logged, and the turn is tried again.  A
round is tried again after a pause that doubles up to ``PAUSE_MAX_S``.  A store may show again what it did not show,
or a person may repair it.  Until then ``/readyz`` and the metrics say it, which an ended process cannot.

Damage of one region's state, log or flushes holds up that region alone (``round``).  Damage of a merge record holds
up every merge.  Errors of other turns hold up no round.  What a person must decide or change (``ActionNeeded``) ends
the service with that error.

``once``: one flush of every SEALED generation, merges until nothing is FLUSHED, then the widening that the contract asks
for.  It collects no garbage and compacts nothing.  Every error ends it; damage of one region ends it when all others
are merged.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace

from lancewal_core.errors import FlusherPaused, PlanRetriesExhausted
from lancewal_core.names.ids import TableVersion
from lancewal_core.open import Address
from lancewal_core.process.stop_signals import end_in_time, stop_signals
from lancewal_core.settings.load import Settings
from lancewal_core.table.control import until_text
from lancewal_flusher.commit.send import Refused
from lancewal_flusher.event_table import FlusherEvents
from lancewal_flusher.merge.merge import Merged
from lancewal_flusher.service.process import FlusherProcess
from lancewal_flusher.upkeep.widening import WideningBegun

_ONCE_ROUNDS = 5
"""Rounds without a merge, though something waits, after which ``once`` gives up."""


@dataclass(frozen=True, slots=True)
class OnceSummary:
    """Counts of one run of ``lancewal merge``.  ``finished`` is False if the run was told to stop before its end."""

    merges: int
    generations: int
    version: TableVersion
    finished: bool


def run_flusher(settings: Settings, found: Callable[[], Settings] | None = None) -> None:
    """Run until SIGTERM or SIGINT.  Raises ``LancewalError`` where a person or a supervisor must act.

    ``found`` returns the settings with the table's address, which it looks up if ``table.uri`` is a name (step 1)."""
    seconds = settings.flusher.drain_timeout_s
    events = FlusherEvents(table=Address.of(settings).name)
    with end_in_time(seconds, lambda: events.end_forced(timeout_s=seconds)), stop_signals() as stopping:
        serve(settings, stopping, found=found)


def serve(
    settings: Settings,
    stopping: Callable[[], bool],
    began: Callable[[int], None] = lambda _: None,
    found: Callable[[], Settings] | None = None,
) -> None:
    """Run the service until told to stop (steps 1 to 3).  ``began`` is called with the HTTP port once the table is
    open.  ``found``: see ``run_flusher``."""
    settings.need("table.uri")
    with ExitStack() as stack:
        # Step 1
        process = FlusherProcess(settings, stopping, stack)
        port = process.listen(stack)
        table = process.open_when_it_can(found or (lambda: settings), process.metrics(settings, port), stack)
        if table is None:
            return
        table.watch(stack)
        process.add(table)
        began(port)
        # Steps 2 and 3
        process.work()


def run_once(settings: Settings, stopping: Callable[[], bool] = lambda: False) -> OnceSummary:
    """Flush and merge everything that is unmerged, once (``once`` in the module docstring).  Raises the first error."""
    with ExitStack() as stack:
        process = FlusherProcess(settings, stopping, stack)
        table = process.open(settings, process.metrics(settings), stack)
        table.limits = replace(table.limits, defer_s=0.0)  # nothing would come
        until = table.control.paused
        if until is not None:
            raise FlusherPaused(
                f"the flusher of {settings.table.uri} is paused {until_text(until)}: nothing is merged. End the pause with "
                "`lancewal resume flusher`"
            )
        in_vain = 0
        merges: list[Merged] = []
        finished = False
        while not finished and not stopping():
            report = table.round(0.0)
            merges += report.merges
            if report.left is not None:
                report.raise_held()
                finished = True
                continue
            in_vain = 0 if report.merges else in_vain + 1
            if in_vain >= _ONCE_ROUNDS:
                raise PlanRetriesExhausted(
                    f"{_ONCE_ROUNDS} rounds have merged nothing though something waits; the last refusal: "
                    f"{report.refused[-1].reason if report.refused else 'none'}"
                )
        left = _ONCE_ROUNDS if finished else 0
        while left and not stopping():
            result = table.widen()
            if not isinstance(result, WideningBegun | Refused):
                break
            left -= isinstance(result, Refused)
        generations = sum(len(numbers) for merged in merges for numbers in merged.generations.values())
        return OnceSummary(len(merges), generations, table.context.watermarks.newest()[0].version, finished)
