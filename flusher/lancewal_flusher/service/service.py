"""The flusher service: open the table that the settings name, check it, and run turns until told to stop.

Steps
 1. Answer probes: from now on ``/readyz`` says why the process is not ready.  If ``table.uri`` is a name, ask the
    catalog for the table's address.  Read the contract, and check settings and table.  If a catalog or store does not
    answer or denies access, the process retries (``process.start``).
 2. Turns (``turns``): each pass begins with a *round* of merging, every ``flusher.merge_interval_s``, and at once
    while there is more to do.  No round begins a further merge after that time, so that the others have their turn
    under any load.  *Garbage collection* runs beside the rounds, every ``flusher.gc_interval_s``.  *Compaction* runs
    after a round when it is due, and at once after a merge that hides so many rows of a fragment that it should be
    rewritten (``cost.is_worn``).  *Index upkeep* alone runs after every merge.  *Expiry* and *widening* are turns too.
    A separate thread measures *visibility* every ``flusher.visibility_interval_s`` (``visibility``).
 3. When told to stop, finish the running merge and begin nothing new.  The process ends at the latest
    ``flusher.drain_timeout_s`` after the signal (``process.stop_signals``), even if the store hangs or the merge
    takes longer.  Such an end is a crash: the table either has the merge's commit, or the next flusher merges the
    same generations.  The process waits for a running round of garbage collection, and logs its error.

If garbage collection hangs, a metric shows it, and the log names it once a pause has waited for it for
``PAUSE_WAITS_S``.  After ``LOOP_LIMIT_S`` ``/livez`` fails and names it, as for a merge that hangs.

If the store does not answer, ``/readyz`` says so some seconds later, whatever the loop waits for.  Liveness does not
fail because of the store (``process.health``).

While an operator pauses the flusher, it runs no turn.  It reports that it is paused once no turn is running.  The
flusher reads the control object before each pass, and every ``control.POLL_S`` while it is paused.  It does not read
it while it waits for a round of garbage collection.  ``once`` is refused during a pause.  The backlog is shown even
without merges.  The flusher reads it before the first round, after a failed round, and during a pause as often as
rounds would begin.  So a paused flusher, or one that cannot merge, does not look idle.

Transient errors (``Retry``, ``Refresh``) and damage (``Corrupt``) are logged, and the turn is retried.  A round is
retried after a pause that doubles up to ``PAUSE_MAX_S``.  Damage is retried because a missing object may show up
again, or a person may repair it.  Meanwhile ``/readyz`` and the metrics show the error, which a process that has
ended could not.

Damage of one region's state, log or flushes holds up that region alone (``round``).  Damage of a merge record holds
up every merge.  Errors of other turns hold up no round.  An error after which a person must act (``ActionNeeded``)
ends the service.

``once`` (``run_once``) flushes every SEALED generation, merges until nothing is FLUSHED, then does the widening that
the contract asks for.  It collects no garbage and compacts nothing.  Every error ends it.  Damage of one region ends
it after all other regions are merged.
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
"""Number of rounds in a row without a merge, although generations wait, after which ``run_once`` gives up."""


@dataclass(frozen=True, slots=True)
class OnceSummary:
    """Result of one run of ``lancewal merge``.  ``finished`` is False if the run was told to stop before its end."""

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
                    f"{_ONCE_ROUNDS} rounds in a row have merged nothing, although generations wait. Run the command again. "
                    f"The last refusal: {report.refused[-1].reason if report.refused else 'none'}"
                )
        left = _ONCE_ROUNDS if finished else 0
        while left and not stopping():
            result = table.widen()
            if not isinstance(result, WideningBegun | Refused):
                break
            left -= isinstance(result, Refused)
        generations = sum(len(numbers) for merged in merges for numbers in merged.generations.values())
        return OnceSummary(len(merges), generations, table.context.watermarks.newest()[0].version, finished)
