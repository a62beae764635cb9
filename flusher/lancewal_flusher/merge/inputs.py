"""Choose and read the inputs of a merge (steps 1 and 2 of ``merge``).

Inputs are generations that wait, according to the region states of a ``look``, and their flushes.

Guarantee: if a region's state is missing or ends below the region's watermark, the state was lost, and an error says
so.  A merge takes one generation of a region, to adopt its files or to combine it with generations of other regions.
Or it takes several generations of the region, to combine them (``plan``, ``region_input``).  If a flush is lost for
good, or its manifest is damaged, the merge leaves out its generation and all later ones of that region.  If the
content of a flush is damaged, or the region's state, the merge leaves out the whole region.  The result names regions
with damage.  All other regions are merged.

Objects and files of flushes are not checked before they are read.  If the read finds one missing, all are checked,
and each flush that lacks one is rebuilt.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import pyarrow as pa

from lancewal_core.errors import Corrupt, ObjectCorrupt, ObjectMissing, RegionConflict
from lancewal_core.names.ids import Generation, Region
from lancewal_core.process.failpoints import point
from lancewal_core.process.tasks import Tasks, together
from lancewal_core.region.flush import rebuild_flush
from lancewal_core.region.flush_files import read_flushes
from lancewal_core.region.flushes.manifest import Flush, FlushedGeneration
from lancewal_core.region.history import check_reaches
from lancewal_core.region.state import GenerationRecord, RegionState
from lancewal_core.rows.fold import partial_schema
from lancewal_core.rows.schema import RowSchema
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.contract import Contract
from lancewal_core.table.protocol import StoredTable, files_of
from lancewal_core.table.watermarks import InForce
from lancewal_flusher.commit.send import Refused, Why, is_finished
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.merge.first_seen import FirstSeen
from lancewal_flusher.merge.look import Look
from lancewal_flusher.merge.plan import MergeLimits, RegionMerge, choose, combined_regions, unmerged, within_memory
from lancewal_flusher.merge.region_input import RegionInput, read_region_inputs


@dataclass(frozen=True, slots=True)
class MergeInputs:
    """Inputs of the next merge, chosen from the unmerged generations.  ``waited_s``: for how long the oldest of them
    has waited; infinite if the merge must not wait for more.
    """

    in_force: InForce
    states: Mapping[Region, RegionState]
    region_inputs: Sequence[RegionInput]
    waited_s: float
    left: Mapping[Region, Corrupt | RegionConflict] = field(default_factory=dict)
    """Error of each region that the merge leaves out, wholly or from some generation on.  Something that the merge
    needs is damaged or lost, or too many keys are in conflict (``set_aside``)."""

    @property
    def nbytes(self) -> int:
        """Stored bytes of the chosen flushes."""
        return sum(flushed.nbytes for taken in self.region_inputs for flushed in taken.merge.flushes)

    def partials(self, rows: RowSchema) -> pa.Table:
        """Return the patches of all regions, in the order of ``keys``."""
        found = [w.partials for w in self.region_inputs if w.partials.num_rows]
        return pa.concat_tables(found).combine_chunks() if found else partial_schema(rows).empty_table()

    def keys(self) -> pa.Table:
        """Return the keys of all regions, keys of patches first."""
        partials = [w.keys.slice(0, w.partials.num_rows) for w in self.region_inputs]
        others = [w.keys.slice(w.partials.num_rows) for w in self.region_inputs]
        return pa.concat_tables([*partials, *others]).combine_chunks()


def read_inputs(
    context: FlusherContext, seen: Look, limits: MergeLimits, first_seen: FirstSeen, *, rebuild: bool = True
) -> MergeInputs | Refused:
    """Choose and read the inputs of the next merge (steps 1 and 2 of ``merge``).  Return ``Refused`` if nothing can
    be merged now.

    Without ``rebuild`` nothing is written: a region's generations end before a flush with missing files.
    """
    # Step 1
    with point("plan.pin"):
        in_force = seen.in_force
        if not is_finished(context, in_force):
            # Only the newest merge is ever finished: building on this one would leave it as it is for good.
            return Refused(f"the merge of table version {in_force.version} is not finished yet", Why.UNFINISHED)
        indexes = seen.states
        for region in context.contract.regions:
            if region not in seen.damaged:
                check_reaches(region, indexes.get(region), in_force)
        waiting = unmerged(indexes, in_force)
        keys_waiting = [(region, record.generation) for region, records in waiting.items() for record in records]
        ages = first_seen.ages_s(keys_waiting, context.clock.monotonic())
    # Step 2
    flushes, damaged, raced = _flushes(context, waiting, whole=not rebuild, rebuild=rebuild)
    taken = _take(context, ages, limits, flushes, damaged)
    if isinstance(taken, ObjectMissing) and rebuild:
        flushes, damaged, raced = _flushes(context, waiting, whole=True, rebuild=rebuild)
        taken = _take(context, ages, limits, flushes, damaged)
    if isinstance(taken, ObjectMissing):
        # The next look says what that means.
        return Refused(f"an object of a flush was deleted while the merge was planned: {taken}", Why.CLEANED_UP)
    region_inputs, waited_s = taken
    # What somebody else has rebuilt may have waited for longer than all others: nothing is put off then.
    left = {**seen.damaged, **damaged}
    return MergeInputs(in_force, indexes, region_inputs, math.inf if raced else waited_s, left)


def _take(
    context: FlusherContext,
    ages: Mapping[tuple[Region, Generation], float],
    limits: MergeLimits,
    flushes: Mapping[Region, Sequence[FlushedGeneration]],
    damaged: dict[Region, Corrupt],
) -> tuple[Sequence[RegionInput], float] | ObjectMissing:
    """Return the inputs that a merge takes from these flushes, and how many seconds the oldest of them has waited.
    The time is infinite if memory has no room for the other regions' flushes.

    Return ``ObjectMissing`` if an object or file of a flush is gone.  Add regions with other damage to ``damaged``.
    ``ages``: for how many seconds each generation has waited.
    """
    share = limits.share(len(flushes))
    merges = []
    for region, found in sorted(flushes.items()):
        try:
            merge = choose(region, found, share)
            merges.append(replace(merge, files_fit=_files_fit(context.contract, context.contract_of, merge)))
        except ObjectCorrupt as error:  # a contract that cannot be read
            damaged[region] = error
    region_inputs: list[RegionInput] = []
    full = False
    while merges and not region_inputs:
        chosen = within_memory(merges, lambda m: ages[m.region, m.flushes[0].generation], limits)
        full = len(chosen) < len(merges)
        prepared = read_region_inputs(context, chosen, combined_regions(chosen, limits))
        for merge, taken in zip(chosen, prepared, strict=True):
            match taken:
                case RegionInput():
                    region_inputs.append(taken)
                case ObjectMissing():
                    return taken
                case _:
                    damaged[merge.region] = taken
        # If all of these are damaged, it is the others' turn.
        tried = {merge.region for merge in chosen}
        merges = [merge for merge in merges if merge.region not in tried]
    # Not of a region that is left: it waits for a repair, however long that takes.
    generations = {(one.merge.region, flushed.generation) for one in region_inputs for flushed in one.merge.flushes}
    # What is full has nothing to wait for: more would not fit in.
    waited_s = math.inf if full else max((ages[key] for key in generations), default=0.0)
    return region_inputs, waited_s


def _files_fit(contract: Contract, contract_of: Callable[[int], Contract], merge: RegionMerge) -> bool:
    """Return whether the contract has every field of the contracts under which these flushes were written.  Fields of
    columns that were dropped as a whole do not matter."""
    wanted, kept = set(contract.field_ids), {column.ids[0] for column in contract.columns}
    written = {flushed.contract_version for flushed in merge.flushes}
    columns = chain.from_iterable(contract_of(version).columns for version in written)
    return all(wanted.issuperset(column.field_ids) or column.ids[0] not in kept for column in columns)


def _flushes(
    context: FlusherContext,
    waiting: Mapping[Region, Sequence[GenerationRecord]],
    *,
    whole: bool,
    rebuild: bool,
) -> tuple[dict[Region, list[FlushedGeneration]], dict[Region, Corrupt], bool]:
    """Return the flushes that wait, by region, up to the first that is damaged, lost, or rebuilt by another process
    (step 2).

    Also return the damage, by region, and whether a flush is left out because another process has rebuilt or merged
    it.  ``whole``: check all objects and files, and treat a flush that lacks one as lost.
    """
    named = [(region, record) for region, records in sorted(waiting.items()) for record in records]
    if not named:
        return {}, {}, False
    # What the key index has is asked for at the same time.
    flushes, _ = together(
        context.tasks,
        lambda: read_flushes(context.store, context.tasks, {r.flush for _, r in named if r.flush is not None}),
        context.keys.catalogs.recent,
    )
    intact = [_named(flushes, *one) for one in named]
    if whole:
        missing = _missing(
            context.store, context.table, context.tasks, [one for one in intact if isinstance(one, FlushedGeneration)]
        )
        intact = [None if isinstance(one, FlushedGeneration) and missing & _content(one) else one for one in intact]
    found: dict[Region, list[FlushedGeneration]] = {}
    damaged: dict[Region, Corrupt] = {}
    ended: set[Region] = set()
    for (region, record), flushed in zip(named, intact, strict=True):
        if region in ended:
            continue
        if flushed is None and rebuild:
            flushed = _rebuild(context, region, record)
        if isinstance(flushed, FlushedGeneration):
            found.setdefault(region, []).append(flushed)
            continue
        ended.add(region)  # the next round reads what somebody else has written, or repaired
        if flushed is not None:
            damaged[region] = flushed
    return found, damaged, rebuild and bool(ended - damaged.keys())


def _rebuild(context: FlusherContext, region: Region, record: GenerationRecord) -> FlushedGeneration | Corrupt | None:
    """Rebuild a flush from the log.  Return None if another process has rebuilt or merged it first.  Return the error
    if the log does not have the rows."""
    try:
        return rebuild_flush(context, region, record, context.new_id)
    except ObjectMissing as error:
        return ObjectMissing(f"{record.flush} cannot be rebuilt: {error}", object=record.flush)
    except Corrupt as error:
        return error


def _named(
    flushes: Mapping[str, Flush | Corrupt], region: Region, record: GenerationRecord
) -> FlushedGeneration | Corrupt | None:
    """Return the generation's part of its flush; None if the manifest is missing, the error if the manifest cannot be
    read."""
    match flushes.get(record.flush or ""):
        case None | ObjectMissing():
            return None
        case Flush() as flush:
            try:
                return flush.generation_of(region, record.generation)
            except Corrupt as error:
                return error
        case error:
            return error


def _content(flushed: FlushedGeneration) -> frozenset[str]:
    """Return the object keys and the data file names that hold a part of the flush."""
    sides = {side.key for side in (flushed.deletes, flushed.patches) if side is not None}
    return files_of(flushed.fragments if flushed.rows else ()) | sides


def _missing(
    store: ObjectStore, table: StoredTable, tasks: Tasks, flushes: Sequence[FlushedGeneration]
) -> frozenset[str]:
    """Return the objects and files of flushes that do not exist."""
    sides = sorted({side.key for s in flushes for side in (s.deletes, s.patches) if side is not None})
    there = tasks.map(lambda key: store.get_range(key, 0, 1) is not None, sides) if sides else []
    lost = {key for key, is_there in zip(sides, there, strict=True) if not is_there}
    files = files_of(f for s in flushes for f in s.fragments)
    return frozenset(lost) | frozenset(table.files_missing(sorted(files)))
