"""``lancewal repair generation``: rebuild flushes of FLUSHED generations from their WAL entries.

Guarantees
 1. The new flush is the fold of exactly the records of the generation.  If the log does not have them, nothing is
    changed and ``RepairRefused`` says so.
 2. The compare-and-swap on the index decides: a generation that was rebuilt, or merged, by somebody else meanwhile
    stays as they left it.  Running the command again does no harm.
 3. No old file is touched; the garbage collector takes what nothing names.

Steps
 1. Which FLUSHED generations does the table not hold yet?
 2. Look at the flush of each, and at its log (``flush_state``).
 3. For each flush that is damaged, or that was named: write another, and swap it in.
"""

from __future__ import annotations

from dataclasses import dataclass

from lancewal_audit.repair.context import RepairContext
from lancewal_audit.repair.flush_state import FlushState, flush_state
from lancewal_audit.repair.told import Told, of_generation, told
from lancewal_core.errors import LOG_LOST, MergedPositionUnknown, RepairRefused, TableRestored
from lancewal_core.names.ids import Generation, Region
from lancewal_core.region.flush import rebuild_flush
from lancewal_core.region.state import GenerationRecord, GenerationState, RegionState


@dataclass(frozen=True, slots=True)
class GenerationRepair:
    """Flushes that were looked at, and those that are to be rebuilt."""

    region: Region
    seen: tuple[FlushState, ...]
    rebuild: tuple[FlushState, ...]

    def lines(self) -> list[Told]:
        """Report what was looked at, and what is to be done."""
        found = []
        for state in self.seen:
            what = "sound" if state.problem is None else state.problem
            then = ": rebuild it from its log" if state in self.rebuild else ""
            found.append(
                told(
                    f"generation {state.record.generation} ({state.record.first} to {state.record.next}): {what}{then}",
                    **of_generation(self.region, state.record),
                    problem=state.problem,
                    rebuild=state in self.rebuild,
                )
            )
        return found or [told("no flushed generation waits: nothing to look at")]


def plan_generations(context: RepairContext, region: Region, generation: Generation | None) -> GenerationRepair:
    """Steps 1 and 2.  ``generation``: rebuild that one alone, whatever it looks like."""
    # Step 1
    index = context.indexes.read([region]).get(region)
    records = _waiting(context, region, index)
    if generation is not None:
        records = [r for r in records if r.generation == generation]
        if not records:
            raise region.error(
                RepairRefused, f"generation {generation} {_why_not(index, generation)}. Nothing was changed"
            )
    # Step 2
    seen = tuple(flush_state(context, region, record) for record in records)
    rebuild = tuple(s for s in seen if s.problem is not None or generation is not None)
    for state in rebuild:
        if state.log_problem is not None:
            raise region.error(
                RepairRefused,
                f"the flush of generation {state.record.generation} cannot be made from its log: {state.log_problem}. "
                f"{LOG_LOST}. Nothing was changed",
            )
    return GenerationRepair(region, seen, rebuild)


def repair_generations(context: RepairContext, plan: GenerationRepair) -> list[Told]:
    """Step 3; return what was done, one line for each generation."""
    done = []
    for state in plan.rebuild:
        record = state.record
        flushed = rebuild_flush(context, plan.region, record, context.new_id)
        said = "somebody else was faster" if flushed is None else f"rebuilt as {flushed.key}"
        key = None if flushed is None else flushed.key
        done.append(told(f"generation {record.generation}: {said}", **of_generation(plan.region, record), object=key))
    return done


def _waiting(context: RepairContext, region: Region, index: RegionState | None) -> list[GenerationRecord]:
    try:
        merged = context.watermarks.newest()[1].generation(region)
    except (TableRestored, MergedPositionUnknown):
        merged = Generation(0)  # what was merged may be asked for again
    found = () if index is None else index.generations
    return [r for r in found if r.state is GenerationState.FLUSHED and r.generation > merged]


def _why_not(index: RegionState | None, generation: Generation) -> str:
    record = next((r for r in (() if index is None else index.generations) if r.generation == generation), None)
    match None if record is None else record.state:
        case None:
            return "is not in its index"
        case GenerationState.OPEN | GenerationState.SEALED:
            return "is not flushed yet: it is from its log"
        case _:
            return "is in the table already"
