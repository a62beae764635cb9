"""One round of the flusher: finish, mark, merge until nothing waits.

Guarantee: rounds of any number of flushers may run at the same time and stop anywhere.  Each step is decided by a
compare-and-swap or by the table commit.

A region's state, log or flush may be damaged, its log or flush lost, or too many of its keys in conflict.  Such a
region holds up no other: the report names it, and every round tries it again.  While its state is damaged, nothing of
it is flushed, merged or marked, and commits keep its watermark as it was.  In one case its state may be needed: to
finish a merge that took generations of that very region.  That ends the round.

Steps
 1. Look (``merge.look``): check that the newest version is the contract's table, and finish the newest unfinished
    merge.
 2. Record the watermarks in force for the newest version too, so that they stay known if a clean-up removes older
    versions.
 3. Mark generations as MERGED that a finished merge has put into the table, in case a process died before it did so.
 4. Flush generations that have been SEALED for long, because their ingest process is gone.
 5. Merge the generations that wait.  After each merge finish it and mark its generations, maintain the key index at
    the same time, and look again.  Too many refusals in a row end the round, so that another process that keeps
    changing the table can finish.  The round also ends after ``MERGES_MAX`` merges, if ``stopping`` returns True, or if
    ``enough`` returns True after a merge.  If generations come as fast as they are merged, some always wait, and other
    turns must run too.

``ContractChanged``, ``ContractMismatch``: rows were written with a newer contract, or the newest version does not fit
the contract.  The caller runs the round again with the newest contract (``by_newest_contract``).  If the round has
merged something and there is a newer contract, the round ends without an error.  The next round then begins with that
contract.

Rounds of requests to the store (docs/reference/requests.md), as counted: 14 ("merge round"), 1 ("merge round, nothing
to merge").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import assert_never

from lancewal_core.errors import ContractChanged, ContractMismatch, Corrupt, RegionConflict, or_raised
from lancewal_core.names.ids import Region
from lancewal_core.process.failpoints import point
from lancewal_core.process.tasks import together
from lancewal_core.region.flush import flush_from_logs
from lancewal_core.region.state import GenerationState, RegionState
from lancewal_core.region.transitions import merged
from lancewal_core.table.columns.versions import foreign_columns
from lancewal_core.table.contract import newer_contract
from lancewal_core.table.watermarks import InForce
from lancewal_flusher.commit.send import Refused, checkpoint
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.merge.finish import Finished, SettledMerge, finish_newest
from lancewal_flusher.merge.first_seen import FirstSeen
from lancewal_flusher.merge.look import Look, look
from lancewal_flusher.merge.merge import Merged, MergeResult, NothingToMerge, Proven, merge_next
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_flusher.upkeep.key_runs import UpkeepReport, UpkeepState, keep_up

MERGES_MAX = 1_000
REFUSALS_MAX = 8
"""Number of refused merges in a row after which a round ends."""


@dataclass(frozen=True, slots=True)
class RoundReport:
    """Report of a round.  ``flushed``: number of sealed generations that the round flushed."""

    merges: tuple[Merged, ...]
    refused: tuple[Refused, ...]
    """Merges that were refused, one for each attempt."""
    flushed: int
    finished: tuple[Finished, ...]
    upkeep: tuple[UpkeepReport, ...]
    """Reports of the key index's upkeep, one for each run."""
    left: NothingToMerge | None
    """State of the table when the round ended because nothing was left to merge; None if it ended for another
    reason."""
    held: Mapping[Region, Corrupt | RegionConflict]
    """Error of each region that waits for a person.  Its state, or an object that its generations need, is damaged or
    lost, or too many of its keys are in conflict."""
    foreign_columns: tuple[str, ...] = ()
    """Names of columns of other programs in the version that was the newest when the round began."""

    def raise_held(self) -> None:
        """Raise the error of the first region in ``held``, if there is one."""
        for _, error in sorted(self.held.items()):
            raise error


@dataclass(slots=True)
class RoundState:
    """State that a flusher keeps between rounds.  Losing it costs time, never rows."""

    sealed: FirstSeen = field(default_factory=FirstSeen)
    waiting: FirstSeen = field(default_factory=FirstSeen)
    """Since when this process has seen generations wait for a merge.  ``sealed``: the same for generations that wait
    for a flush."""
    upkeep: UpkeepState = field(default_factory=UpkeepState)


def run_round(
    context: FlusherContext,
    limits: MergeLimits,
    state: RoundState,
    sealed_grace_s: float,
    stopping: Callable[[], bool] = lambda: False,
    enough: Callable[[], bool] = lambda: False,
) -> RoundReport:
    """Run a merge round (module steps).  ``sealed_grace_s``: seconds that ingest has to flush a sealed generation
    before the flusher does it.
    """
    # Step 1
    first = look(context)
    settled = finish_newest(context, first)
    finished = [] if settled.finished is None else [settled.finished]
    if finished:
        first = look(context)
    # Step 2
    checkpoint(context, first.pinned.version)
    # Step 3
    mark(context, first.states, settled.in_force)
    # Step 4
    orphans = _orphans(context, first.states, state.sealed, sealed_grace_s)
    flushed, damaged = _flush_orphans(context, orphans)
    seen = None if orphans else first
    # Step 5
    merges: list[Merged] = []
    refused: list[Refused] = []
    kept_up: list[UpkeepReport] = []
    in_a_row = 0
    left: NothingToMerge | None = None
    try:
        while left is None and len(merges) < MERGES_MAX and in_a_row < REFUSALS_MAX and not stopping():
            if merges and enough():
                break
            result: MergeResult = merge_next(context, limits, state.waiting, state.upkeep.adopted, seen)
            seen = None
            proven: Proven | None = None
            match result:
                case NothingToMerge():
                    left = result
                    continue
                case Refused():
                    refused.append(result)
                    in_a_row += 1
                case Merged():
                    merges.append(replace(result, proven=None))
                    proven = result.proven
                    in_a_row = 0
                case _:
                    assert_never(result)
            after = proven or look(context)
            settled, upkeep = together(
                context.tasks,
                partial(_finish_and_mark, context, after),
                partial(keep_up, context, state.upkeep, pinned=after.pinned),
            )
            if settled.finished is not None:
                finished.append(settled.finished)
            kept_up.append(upkeep)
        if left is None or left.version != state.upkeep.done_for:
            kept_up.append(keep_up(context, state.upkeep))
    except (ContractChanged, ContractMismatch):
        if not merges or newer_contract(context.store, context.contract) is None:
            raise
        left = None  # the next round meets it again, and begins by it
    last = left or next(reversed(merges), None)
    held = {**damaged, **(first.damaged if last is None else last.left)}
    others = foreign_columns(first.pinned, context.contract)
    return RoundReport(tuple(merges), tuple(refused), flushed, tuple(finished), tuple(kept_up), left, held, others)


def _finish_and_mark(context: FlusherContext, seen: Look | Proven) -> SettledMerge:
    """Finish the newest merge, then mark its generations.  The order matters: finishing may need the generations, and
    MERGED generations may be trimmed."""
    settled = finish_newest(context, seen)
    mark(context, seen.states, settled.in_force)
    return settled


def mark(context: FlusherContext, states: Mapping[Region, RegionState], in_force: InForce) -> None:
    """Mark generations that the table has merged as MERGED, by compare-and-swap.  ``in_force``: the watermarks of a
    finished merge.

    ``states`` tell which regions may have such generations.  Each region is decided on its newest state.  A state
    that has become damaged meanwhile does not affect other regions; the next look reports it.
    """
    due = [
        region
        for region, state in sorted(states.items())
        if any(
            r.state is GenerationState.FLUSHED and r.generation <= in_force.generation(region)
            for r in state.generations
        )
    ]

    def decide(found: RegionState | None) -> RegionState | None:
        if found is None:
            return None
        watermark = in_force.generation(found.region)
        return merged(found, watermark, in_force.version, context.clock.now_ms(), context.new_id())

    if due:
        with point("merged.cas", regions=len(due)):
            for answer in context.states.swap_each(dict.fromkeys(due, decide)).values():
                if not isinstance(answer, Corrupt):
                    or_raised(answer)


def _orphans(
    context: FlusherContext, states: Mapping[Region, RegionState], first_seen: FirstSeen, grace_s: float
) -> list[Region]:
    """Return the region of each generation that this process has seen SEALED for ``grace_s`` seconds.  A region with
    several such generations is returned several times."""
    sealed = {
        (i.region, r.generation) for i in states.values() for r in i.generations if r.state is GenerationState.SEALED
    }
    ages = first_seen.ages_s(sealed, context.clock.monotonic())
    return [region for region, _ in sorted(key for key, age_s in ages.items() if age_s >= grace_s)]


def _flush_orphans(context: FlusherContext, orphans: Sequence[Region]) -> tuple[int, dict[Region, Corrupt]]:
    """Flush sealed generations.  Return how many were flushed, and the errors of regions whose next generation has
    damaged or lost entries.
    """
    count, damaged = 0, dict[Region, Corrupt]()
    left = Counter(orphans)
    while left:
        answers = flush_from_logs(context, list(left), context.new_id)
        damaged |= {region: error for region, error in answers.items() if isinstance(error, Corrupt)}
        count += sum(or_raised(answer) is not None for region, answer in answers.items() if region not in damaged)
        # The next of each: they are flushed in order.
        left = Counter({region: n - 1 for region, n in left.items() if n > 1 and region not in damaged})
    return count, damaged
