"""``lancewal repair restored --rows-since drop|replay``: decide about rows merged since, after a user's restore.

* ``drop``: the restored version is the state up to all that was ever merged.  What those merges brought is dropped,
  and what they set aside of keys in conflict: these are as the restored version had them.
* ``replay``: the table is again at the watermarks of the version that was restored; all above is merged again.

Guarantees
 1. One put-if-absent decides, the record of the restore's own version under ``merges/``: of two persons one wins, and
    the other is told.  No commit is needed: a merge from before the restore conflicts with it, and none is planned
    from above it before that record is there.
 2. Until then strong reads and merges stop, and nothing is trimmed.  From then on the record holds for later versions
    that have none of their own.
 3. After ``replay`` every generation above the watermarks is FLUSHED again and can be read, from its flush or its
    log.  If one cannot (its history window is over, its objects are lost), ``replay`` is refused beforehand, and the
    error names it.
 4. A crash at any point leaves the decision open: generations that are FLUSHED again are MERGED by the next round, if
    the decision is ``drop``.  Repeating is right.

Steps
 1. Find the restores that nobody has decided, oldest first; what each leads to.
 2. Per region: the generations above, from index and history pages.  Can each be read?
 3. Compare-and-swap each index: MERGED generations above become FLUSHED (``transitions.revived``).
 4. Put the records, oldest first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from lancewal_audit.repair.context import RepairContext
from lancewal_audit.repair.flush_state import flush_state
from lancewal_audit.repair.told import Told, told
from lancewal_core.errors import (
    MergedPositionUnknown,
    OutsideHistoryWindow,
    PlanStale,
    RepairRefused,
    StoreInconsistent,
    TableRestored,
)
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, Region, TableVersion
from lancewal_core.region.history import generations_behind
from lancewal_core.region.state import GenerationRecord, GenerationState, RegionState
from lancewal_core.region.transitions import revived
from lancewal_core.table.conflicts_ref import ConflictsRef
from lancewal_core.table.protocol import TransactionInfo
from lancewal_core.table.watermarks import Decision, InForce, kind_of

Choice = Literal["drop", "replay"]
_STORED: Mapping[Choice, Decision] = {"drop": "keep", "replay": "replay"}
"""Words of the record: the version keeps its rows, or they are replayed."""
_CHOICES = {stored: choice for choice, stored in _STORED.items()}
_TRIES = 5
_LOOKED_AT = 1_000
"""Number of newest merge records in which a decision is searched, to report it; a day or so makes more merges."""


@dataclass(frozen=True, slots=True)
class Restore:
    """A version that is a restore, and the one that it brought back."""

    version: TableVersion
    restored: int


@dataclass(frozen=True, slots=True)
class RestoredPlan:
    """Plan of the decision.  ``records``: what is to be in force at each undecided restore, oldest first; none if all is
    decided."""

    choice: Choice
    restores: tuple[Restore, ...]
    records: tuple[InForce, ...]
    again: Mapping[Region, tuple[GenerationRecord, ...]]
    """Generations that are to be merged again."""
    decided: tuple[TableVersion, str] | None = None
    """The newest restore that somebody has decided about, and how, where nothing is undecided."""

    @property
    def in_force(self) -> InForce:
        return self.records[-1]

    def lines(self) -> list[Told]:
        """Report which restores are undecided, and what each choice means."""
        if self.decided is not None:
            version, choice = self.decided
            said = f"the restore at table version {version} is decided: {choice} stands. No other is undecided, nothing to do"
            return [told(said, version=version, rows_since=choice)]
        if not self.records:
            return [told("no restore is undecided: what is merged is known, nothing to do")]
        found = [
            told(
                f"table version {r.version} is a restore of version {r.restored}",
                version=r.version,
                restored=r.restored,
            )
            for r in self.restores
        ]
        for region, mark in sorted(self.in_force.regions.items()):
            at = {"generation": mark.generation, "position": mark.next}
            said = f"{region.name}: merged up to generation {mark.generation}, position {mark.next}"
            found.append(told(said, **region.place, **at))
        for region, records in sorted(self.again.items()):
            first, last = records[0].generation, records[-1].generation
            said = f"{region.name}: generations {first} to {last}, positions from {records[0].first}, are merged again"
            found.append(told(said, **region.place, merged_again=len(records), first=records[0].first))
        if not self.again:
            found.append(told("nothing is merged again"))
        conflicts = self.in_force.conflicts
        if conflicts is not None and conflicts.keys:
            said = (
                f"{conflicts.keys} keys in conflict wait for a decision as the restored version has them. Later decisions "
                "on them and their later records count no more"
                + ("" if self.choice == "drop" else ", until they are merged again")
            )
            found.append(told(said, keys_in_conflict=conflicts.keys))
        return found


def plan_restored(context: RepairContext, choice: Choice) -> RestoredPlan:
    """Steps 1 and 2.  ``RepairRefused``, ``MergedPositionUnknown``."""
    # Step 1
    restores = _undecided(context)
    if not restores:
        told = _decision(context)
        if told is not None and told[1] != choice:
            raise RepairRefused(
                f"the restore at table version {told[0]} is decided: {told[1]} stands, and the flusher goes by it. "
                f"{choice} cannot be had any more. Nothing was changed",
                version=told[0],
            )
        return RestoredPlan(choice, (), (), {}, told)
    decided: dict[int, InForce] = {}
    for restore in restores:
        base = restore.version - 1 if choice == "drop" else restore.restored
        regions = _in_force(context, base, decided).regions
        decided[restore.version] = InForce(restore.version, None, regions, _conflicts(context, restore, decided))
    records = tuple(decided[r.version] for r in restores)
    # Step 2
    before = _in_force(context, restores[-1].version - 1, decided)
    _check_contract(context, before, records[-1])
    again = {}
    for region, found in _above(context, context.contract.regions, records[-1]).items():
        if any(r.state is GenerationState.MERGED for r in found):
            _check_readable(context, region, found)
            again[region] = tuple(r for r in found if r.state is GenerationState.MERGED)
    return RestoredPlan(choice, restores, records, again)


def repair_restored(context: RepairContext, plan: RestoredPlan) -> list[Told]:
    """Steps 3 and 4; return what was done."""
    # Step 3
    if plan.again:
        _revive(context, sorted(plan.again), plan.in_force)
    # Step 4
    for record in plan.records:
        found = context.watermarks.decide(record, _STORED[plan.choice])
        if (found.regions, found.conflicts) != (record.regions, record.conflicts):
            raise RepairRefused(
                f"somebody has decided otherwise about the restore at table version {record.version}: look at `lancewal "
                "status`",
                version=record.version,
            )
    if not plan.records:
        return []
    version = plan.in_force.version
    said = f"table version {version}: {plan.choice} is recorded; start the flusher, and open readers again"
    return [told(said, version=version, rows_since=plan.choice)]


def _undecided(context: RepairContext) -> tuple[Restore, ...]:
    found: list[Restore] = []
    at = int(context.table.newest().version)
    while at > 0:
        try:
            context.watermarks.at(at)
            break
        except MergedPositionUnknown:
            break  # ``replay`` may not need what lies below
        except TableRestored as error:
            version = TableVersion(int(str(error.where["version"])))
        info = context.table.transaction(version)
        if not isinstance(info, TransactionInfo) or info.restored is None:
            raise RepairRefused(f"table version {version} is a restore, and what it restored cannot be read any more")
        found.append(Restore(version, info.restored))
        at = version - 1
    return tuple(reversed(found))


def _decision(context: RepairContext) -> tuple[TableVersion, str] | None:
    """Return the newest restore, among the newest records, that a person has decided about, and the decision in force."""
    listed = [info.key for info in context.store.list(paths.merges_prefix(context.contract.making), limit=_LOOKED_AT)]
    versions = sorted((v for key in listed if (v := paths.parse_merge_record(key)) is not None), reverse=True)
    for version in versions[:_LOOKED_AT]:
        key = paths.merge_record(version, context.contract.making)
        data = context.store.get(key)
        kind = None if data is None else kind_of(data, key)
        if kind in _CHOICES:
            return version, _CHOICES[kind]
    return None


def _in_force(context: RepairContext, version: int, decided: Mapping[int, InForce]) -> InForce:
    """W of a version, as it will be once ``decided`` is recorded."""
    try:
        return context.watermarks.at(version)
    except TableRestored as error:
        planned = decided.get(int(str(error.where["version"])))
        if planned is None:
            raise
        return planned
    except MergedPositionUnknown as error:
        raise MergedPositionUnknown(
            f"what table version {version} holds cannot be told: {error}. The other choice of --rows-since may not "
            "need it",
            version=version,
        ) from error


def _conflicts(context: RepairContext, restore: Restore, decided: Mapping[int, InForce]) -> ConflictsRef | None:
    """Return the keys in conflict of the version restored, which describe its rows.  ``MergedPositionUnknown`` only if
    some conflict."""
    if not context.contract.keyed_by_bytes:
        return None
    try:
        return _in_force(context, restore.restored, decided).conflicts
    except MergedPositionUnknown:
        if not context.store.list(paths.conflicts_prefix(), limit=1):
            return None
        raise


def _check_contract(context: RepairContext, before: InForce, after: InForce) -> None:
    """Refuse where keys have moved between regions since: the order in which they are merged again would not be Kafka's."""
    ours = set(context.contract.regions)
    moved = [r.name for r in before.regions if r not in ours and before.generation(r) != after.generation(r)]
    moved += before_alteration(context, after)
    if moved:
        raise RepairRefused(
            f"since the restored version the table's contract has changed, and with it the partitions of keys. {moved[:3]} "
            "would be merged again after rows that are newer. Only --rows-since drop is possible. Nothing was changed"
        )


def before_alteration(context: RepairContext, in_force: InForce) -> list[str]:
    """Names of the regions whose watermark lies below where ``alter --partitions`` has moved keys to others."""
    altered = context.contract.altered_at
    regions = context.contract.regions[: len(altered)]
    return [r.name for r in regions if (in_force.position(r) or 0) < altered[r.partition]]


Above = dict[Region, list[GenerationRecord]]


def _above(context: RepairContext, regions: Collection[Region], in_force: InForce) -> Above:
    """Return the generations of each region above ``in_force``, without regions that have none."""
    indexes = context.indexes.read(regions)
    newest = {region: index.newest for region, index in indexes.items()}
    return {
        region: _behind(context, indexes[region], in_force.generation(region))
        for region, record in newest.items()
        if record is not None and record.generation != in_force.generation(region)
    }


def _behind(context: RepairContext, index: RegionState, merged: Generation) -> list[GenerationRecord]:
    region = index.region
    try:
        return generations_behind(context, region, index, merged)
    except OutsideHistoryWindow as error:
        raise region.error(
            RepairRefused,
            f"what was merged behind generation {merged} cannot be merged again. It is trimmed: generations are kept "
            f"{context.contract.history_window_s} s (history_window_s of the table) after their merge. Only --rows-since "
            "drop is possible. Nothing was changed",
        ) from error


def _check_readable(context: RepairContext, region: Region, records: list[GenerationRecord]) -> None:
    for record in records:
        if record.flush is None:
            continue
        state = flush_state(context, region, record)
        if state.lost:
            raise region.error(
                RepairRefused,
                f"generation {record.generation} is not to be had any more: {state.problem}; {state.log_problem}. Only "
                "--rows-since drop is possible. Nothing was changed",
            )


def _revive(context: RepairContext, regions: Collection[Region], in_force: InForce) -> None:
    """Step 3; repeated if a collector has moved generations to a page meanwhile."""
    for attempt in range(_TRIES):
        records = _above(context, regions, in_force)

        def decide(index: RegionState | None, above: Above = records) -> RegionState | None:
            if index is None:
                return None
            merged = [r for r in above.get(index.region, ()) if r.state is GenerationState.MERGED]
            return revived(index, in_force.generation(index.region), merged, context.new_id())

        try:
            context.indexes.swap(dict.fromkeys(regions, decide))
            return
        except (StoreInconsistent, PlanStale):
            if attempt == _TRIES - 1:
                raise
