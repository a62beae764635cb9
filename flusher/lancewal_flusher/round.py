"""One round of the flusher: finish, mark, merge until nothing waits.

Guarantee: rounds of any number of flushers may run at the same time and stop anywhere; each step is decided by a
compare-and-swap or by the table commit.

Steps
 1. Read the indexes of all regions (enumerated from the contract) and finish the newest unfinished merge.
 2. Record the watermarks in force for the newest version too, so that a clean-up never opens a gap in the walk.
 3. Mark generations MERGED that the table has merged (repairs a crash before the marking).
 4. Flush generations that stayed SEALED for long: their ingester is gone.
 5. Merge; after each merge finish it and mark it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lancewal_core.errors import ObjectMissing, PlanStale
from lancewal_core.failpoints import point
from lancewal_core.flush import flush_from_log
from lancewal_core.ids import Generation, Region
from lancewal_core.region_index import RegionIndex, State
from lancewal_core.transitions import merged
from lancewal_core.watermarks import InForce
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.finish import Finished, finish_newest
from lancewal_flusher.merge import Merged, MergeResult, NothingToMerge, Refused, merge_next
from lancewal_flusher.plan import MergeLimits


@dataclass(frozen=True, slots=True)
class RoundReport:
    """What a round did."""

    merges: tuple[Merged, ...]
    refused: int
    flushed: int
    finished: tuple[Finished, ...]


@dataclass(slots=True)
class SealedSince:
    """When each SEALED generation was first seen by this flusher (monotonic seconds)."""

    seen: dict[tuple[Region, Generation], float] = field(default_factory=dict)


def read_indexes(context: FlusherContext) -> dict[Region, RegionIndex]:
    """The newest index of every region that has one."""
    found = context.tasks.map(lambda region: (region, context.indexes.read(region)), context.contract.regions)
    return {region: index for region, index in found if index is not None}


def run_round(
    context: FlusherContext,
    limits: MergeLimits,
    sealed_since: SealedSince,
    sealed_grace_s: float,
    stopping: Callable[[], bool] = lambda: False,
    merges_max: int = 1_000,
) -> RoundReport:
    """See the module docstring.  ``sealed_grace_s``: how long an ingester may take to flush what it sealed."""
    # Step 1
    indexes = read_indexes(context)
    finished = [f for f in (finish_newest(context, indexes),) if f is not None]
    # Step 2
    newest = context.table.newest().version
    in_force = context.watermarks.at(newest)
    if in_force.version > 0 and in_force.version != newest:
        context.watermarks.record(in_force, newest, "checkpoint")
    # Step 3
    mark(context, indexes, in_force)
    # Step 4
    flushed = _flush_orphans(context, indexes, sealed_since, sealed_grace_s)
    # Step 5
    merges: list[Merged] = []
    refused = 0
    while len(merges) + refused < merges_max and not stopping():
        indexes = read_indexes(context)
        result: MergeResult = merge_next(context, indexes, limits)
        match result:
            case NothingToMerge():
                break
            case Refused():
                refused += 1
            case Merged():
                merges.append(result)
                done = finish_newest(context, indexes)
                if done is not None:
                    finished.append(done)
                mark(context, read_indexes(context), context.watermarks.at(result.version))
    return RoundReport(tuple(merges), refused, flushed, tuple(finished))


def mark(context: FlusherContext, indexes: dict[Region, RegionIndex], in_force: InForce) -> None:
    """Compare-and-swap to MERGED what the table has merged."""
    for region, index in sorted(indexes.items()):
        watermark = in_force.generation(region)
        if not any(r.state is State.FLUSHED and r.generation <= watermark for r in index.generations):
            continue
        with point("merged.cas", region=region.name):
            context.indexes.swap(
                region,
                lambda found, watermark=watermark: (
                    found  # type: ignore[misc] # mypy infers no type for a default
                    and merged(found, watermark, in_force.version, context.clock.now_ms(), context.new_id())
                ),
            )


def _flush_orphans(
    context: FlusherContext, indexes: dict[Region, RegionIndex], sealed_since: SealedSince, grace_s: float
) -> int:
    now = context.clock.monotonic()
    sealed = {(i.region, r.generation) for i in indexes.values() for r in i.generations if r.state is State.SEALED}
    sealed_since.seen = {key: sealed_since.seen.get(key, now) for key in sealed}
    count = 0
    for region, _generation in sorted(k for k, since in sealed_since.seen.items() if now - since >= grace_s):
        try:
            snapshot = flush_from_log(
                context.store, context.table, context.indexes, context.tasks, context.contract, region, context.new_id
            )
        except (PlanStale, ObjectMissing) as error:
            newer = context.indexes.read(region)
            if newer != indexes[region]:
                continue  # somebody else flushed it, or it is trimmed by now
            raise error
        count += snapshot is not None
    return count
