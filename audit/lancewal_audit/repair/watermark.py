"""``lancewal repair merged-position``: infer what is merged, if the versions that recorded it are gone.

Guarantees
 1. The conclusion is a lower bound of what is merged and finished.  For each region it is the higher of two positions: that
    of the newest record left of a finished merge, and that of the newest generation marked MERGED in the region's state.
    A generation is marked only after its merge is finished.
 2. A conclusion that is too low gives the same rows in the end: generations above it still exist, and are merged again, in
    order.  These merges undo changes that a user made in their rows since.  Until they are done a plain reader may see
    older values.  Strong reads do not.  Reads of the table alone claim no positions, for the table may hold later rows.  If
    keys have changed their region since, the rows would not be the same, and the command is refused.  If keys are in
    conflict (``conflicts``), marks in the region's state do not count: such a merge may have set records aside in an
    object that nothing refers to any more.
 3. One put-if-absent decides: the record of the newest version under ``merges/``.
 4. If a restore is visible and not decided, the command is refused.  The report warns of a restore among the versions that
    are gone, which would make the conclusion too high.

Steps
 1. Check that W of the newest version is unknown, and find the version that is gone.
 2. Find the newest record below it, or existing transaction, whose merge is finished.
 3. For each region, find the generations marked in its state, and the generations above the conclusion.
 4. Once a person has accepted the conclusion, put the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from lancewal_audit.repair.context import RepairContext
from lancewal_audit.repair.restored import before_alteration
from lancewal_audit.repair.told import Told, told
from lancewal_core.errors import ATTACH_A_COPY, MergedPositionUnknown, RepairRefused
from lancewal_core.keys.conflicts import read_conflicts
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, Region, TableVersion
from lancewal_core.region.state import GenerationRecord, GenerationState, RegionState
from lancewal_core.table.protocol import TransactionInfo
from lancewal_core.table.watermarks import NOTHING_MERGED, InForce, Watermark, decode_merge_record, watermarks_of

_LOOKED_AT = 1_000
"""Upper bound of the number of versions, below the one that is gone, whose transactions are read."""


@dataclass(frozen=True, slots=True)
class WatermarkPlan:
    """The merged positions inferred for the table's newest version ``version``, and the evidence.  ``gone``: the
    version that is gone.
    """

    version: TableVersion
    gone: int
    left: InForce
    """The newest watermarks that are still recorded: those of a version below ``gone`` whose merge is finished."""
    marked: Mapping[Region, Watermark]
    """Watermarks by the generations marked MERGED in the regions' states."""
    waiting: Mapping[Region, tuple[GenerationRecord, ...]]
    """Flushed generations above the conclusion, which are merged again."""

    @property
    def conclusion(self) -> InForce:
        regions = dict(self.left.regions)
        for region, mark in self.marked.items():
            if mark.generation > self.left.generation(region):
                regions[region] = mark
        for region, records in self.waiting.items():
            if records:
                mark = regions.get(region, Watermark(Generation(0), records[0].first))
                regions[region] = replace(mark, perhaps=records[-1].generation)
        return InForce(self.version, None, regions, self.left.conflicts)

    def lines(self) -> list[Told]:
        """Return sentences about the evidence and the conclusion."""
        left = self.left.version
        found = [
            told(f"table version {self.gone} is gone, and nothing newer says what is merged", version=self.gone),
            told(f"the newest merged positions that are left were set by version {left}", version=left)
            if left
            else told("no merged positions are left at all"),
        ]
        for region, mark in sorted(self.conclusion.regions.items()):
            marked = self.marked.get(region)
            source = (
                "the region's state"
                if marked is not None and marked.generation == mark.generation
                else f"version {self.left.version}"
            )
            waits = self.waiting.get(region, ())
            found.append(
                told(
                    f"{region.name}: merged up to generation {mark.generation}, position {mark.next}, by {source}. "
                    f"Generations after it that are merged, perhaps for the second time: {len(waits)}; "
                    "changes that a user made in their rows since are undone",
                    **region.place,
                    generation=mark.generation,
                    position=mark.next,
                    merged_again=len(waits),
                )
            )
        found.append(
            told("if a user has restored the table among the versions that are gone, this is wrong: do not accept it")
        )
        return found


def plan_watermark(context: RepairContext) -> WatermarkPlan | None:
    """Infer the merged positions (steps 1 to 3), and return them with the evidence.  None if the merged positions are
    known.

    Raises ``TableRestored`` if a restore must be decided first.  Raises ``ObjectMissing`` or ``ObjectCorrupt`` if there
    are keys in conflict that cannot be read.  Raises ``RepairRefused`` if generations cannot be merged again in order.
    """
    # Step 1
    version = context.table.newest().version
    try:
        context.watermarks.at(version)
        return None
    except MergedPositionUnknown as error:
        gone = int(str(error.where["version"]))
    # Step 2
    left = _left(context, gone)
    read_conflicts(context.store, left.conflicts, context.contract)  # what nobody can read is not to be in force
    # Step 3
    marked: dict[Region, Watermark] = {}
    in_conflict = not context.contract.rows_tell_partition and bool(context.store.list(paths.CONFLICTS, limit=1))
    waiting: dict[Region, tuple[GenerationRecord, ...]] = {}
    for region, state in context.read_states().items():
        mark = _marked(state)
        if mark is None:
            continue
        if in_conflict:
            _check_again(region, state, left)
            mark = Watermark(Generation(0), mark.next)
        if mark.generation > 0:
            marked[region] = mark
        merged = max(mark.generation, left.generation(region))
        waiting[region] = tuple(r for r in state.generations if r.generation > merged and r.flush is not None)
    plan = WatermarkPlan(version, gone, left, marked, waiting)
    moved = before_alteration(context, plan.conclusion)
    if moved:
        raise RepairRefused(
            "the number of partitions was altered after the merged positions that are left, and with it the partitions of "
            f"keys. {moved[:3]} would be merged again after newer rows. To go on, {ATTACH_A_COPY}. Nothing was changed"
        )
    return plan


def _check_again(region: Region, state: RegionState, left: InForce) -> None:
    """Raise ``RepairRefused`` if only some of the generations above ``left`` could be merged again.

    A merge whose record is gone may have set records of keys in conflict aside, so all its generations are needed."""
    if state.generations[0].generation > left.generation(region) + 1:
        raise region.error(
            RepairRefused,
            f"keys are in conflict, and it is not known which records were set aside after generation "
            f"{left.generation(region)}. Generations below {state.generations[0].generation} would be merged again, and have "
            f"left the region's state. To go on, {ATTACH_A_COPY}. Nothing was changed",
        )


def accept_watermark(context: RepairContext, plan: WatermarkPlan) -> list[Told]:
    """Record the inferred positions (step 4), and return what was done.  Raises ``RepairRefused`` if another process
    was faster.
    """
    found = context.watermarks.decide(plan.conclusion, "accepted")
    if (found.regions, found.conflicts) != (plan.conclusion.regions, plan.conclusion.conflicts):
        raise RepairRefused(
            f"another process recorded other merged positions of table version {plan.version} meanwhile: run the command "
            "again",
            version=plan.version,
        )
    return [told(f"recorded for table version {plan.version}; start the flusher again", version=plan.version)]


def _left(context: RepairContext, gone: int) -> InForce:
    """Return the newest watermarks of a finished merge below the version ``gone``."""
    left = _newest_below(context, gone)
    while (
        left.merge is not None
        and context.store.get(paths.merge_finished(left.version, context.contract.making)) is None
    ):
        left = _newest_below(context, left.version)
    return left


def _newest_below(context: RepairContext, below: int) -> InForce:
    newest = max((version for version in context.watermarks.recorded_versions() if version < below), default=0)
    for at in range(below - 1, max(newest, below - 1 - _LOOKED_AT), -1):
        found = context.table.transaction(at)
        if not isinstance(found, TransactionInfo):
            continue
        in_force = watermarks_of(found, at)
        if in_force is not None:
            return in_force
        if found.operation == "Restore":
            raise RepairRefused(
                f"table version {at}, below version {below}, is a restore that nobody has decided about. So it is not known "
                f"which merges the versions above it contain. To go on, {ATTACH_A_COPY}. Nothing was changed",
                version=at,
            )
    if newest == 0:
        return NOTHING_MERGED
    key = paths.merge_record(TableVersion(newest), context.contract.making)
    data = context.store.get(key)
    if data is None:
        raise RepairRefused(f"{key} has vanished: run the command again", object=key)
    return decode_merge_record(data, key)


def _marked(state: RegionState) -> Watermark | None:
    """Return the watermark by the region's state: generations marked MERGED, or no longer listed, are merged."""
    if not state.generations:
        return None
    mark = Watermark(Generation(state.generations[0].generation - 1), state.generations[0].first)
    for record in state.generations:
        if record.state is GenerationState.MERGED and record.next is not None:
            mark = Watermark(record.generation, record.next)
    return mark
