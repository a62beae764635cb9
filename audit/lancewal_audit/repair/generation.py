"""``lancewal repair generation``: rebuild flushes of FLUSHED generations from their WAL entries.

Guarantees
 1. The new flush is the fold of exactly the records of the generation.  If the log does not have them, nothing is
    changed and ``RepairRefused`` says so.
 2. The compare-and-swap on the region's state decides: a generation that another process has rebuilt or merged
    meanwhile stays as it is.  Running the command again does no harm.
 3. No old file is changed; the garbage collector deletes files that nothing refers to.

Steps
 1. Find the FLUSHED generations that the table does not hold yet.
 2. Check the flush of each, and its log (``flush_state``).
 3. For each flush that is damaged or was named, write another flush, and swap it in.
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
    """Plan of a repair.  ``seen``: results for all flushes that were checked.  ``rebuild``: results for the flushes
    that are to be rebuilt."""

    region: Region
    seen: tuple[FlushState, ...]
    rebuild: tuple[FlushState, ...]

    def lines(self) -> list[Told]:
        """Return one sentence for each checked flush: its problem, and whether it is to be rebuilt."""
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
    """Check the region's flushes, and return the plan (steps 1 and 2).

    ``generation``: rebuild this generation alone, even if its flush is sound.  Raises ``RepairRefused`` if the log
    lacks its rows, or the generation does not wait for a merge.
    """
    # Step 1
    index = context.states.read([region]).get(region)
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
    """Rebuild the flushes of the plan (step 3).  Return what was done, one sentence for each generation."""
    done = []
    for state in plan.rebuild:
        record = state.record
        flushed = rebuild_flush(context, plan.region, record, context.new_id)
        said = "another process was faster. Run the command again" if flushed is None else f"rebuilt as {flushed.key}"
        key = None if flushed is None else flushed.key
        done.append(told(f"generation {record.generation}: {said}", **of_generation(plan.region, record), object=key))
    return done


def _waiting(context: RepairContext, region: Region, state: RegionState | None) -> list[GenerationRecord]:
    try:
        merged = context.watermarks.newest()[1].generation(region)
    except (TableRestored, MergedPositionUnknown):
        merged = Generation(0)  # merged generations may have to be merged again
    found = () if state is None else state.generations
    return [r for r in found if r.state is GenerationState.FLUSHED and r.generation > merged]


def _why_not(state: RegionState | None, generation: Generation) -> str:
    record = next((r for r in (() if state is None else state.generations) if r.generation == generation), None)
    match None if record is None else record.state:
        case None:
            return "is not in its region's state"
        case GenerationState.OPEN | GenerationState.SEALED:
            return "is not flushed yet: it is from its log"
        case _:
            return "is in the table already"
