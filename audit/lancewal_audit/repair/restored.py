"""``lancewal repair restored --rows-since drop|replay``: after a user's restore, decide about rows merged since.

* ``drop``: the restored version counts as the state with everything that was ever merged.  Rows of the later merges are
  dropped, and so are records that these merges set aside: keys in conflict are as the restored version had them.
* ``replay``: the table is again at the watermarks of the restored version; all later generations are merged again.

Guarantees
 1. One put-if-absent decides: the record of the restore's own version under ``merges/``.  If two persons decide at once,
    one wins, and the other gets an error.  No commit is needed: a merge from before the restore conflicts with it, and no
    merge is planned after it until that record exists.
 2. Until then strong reads and merges stop, and nothing is trimmed.  Afterwards the record also holds for later versions
    that have no record of their own.
 3. After ``replay`` every generation above the watermarks is FLUSHED again and can be read, from its flush or its
    log.  If one cannot (its history window is over, or its objects are lost), ``replay`` is refused beforehand, and the
    error names the generation.
 4. A crash at any point leaves the decision open.  If the decision is then ``drop``, the next round marks generations that
    are FLUSHED again as MERGED.  The command may be repeated.

Steps
 1. Find the restores without a decision, oldest first, and the watermarks that the choice gives each.
 2. For each region, find the generations above the watermarks, in its state and history pages; check that each can be read.
 3. Compare-and-swap each region's state: MERGED generations above become FLUSHED (``transitions.revived``).
 4. Put the records, oldest first.
 5. Bring the table to the newest contract, if the restored version has the columns of an earlier one
    (``lancewal_core.table.columns.restored``).  This is done also if no restore is undecided.
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
from lancewal_core.table.columns.restored import Brought, bring_back
from lancewal_core.table.conflicts_ref import ConflictsRef
from lancewal_core.table.protocol import TransactionInfo
from lancewal_core.table.watermarks import Decision, InForce, kind_of

Choice = Literal["drop", "replay"]
_STORED: Mapping[Choice, Decision] = {"drop": "keep", "replay": "replay"}
"""Stored words of the choices: the version keeps its rows, or later ones are replayed."""
_CHOICES = {stored: choice for choice, stored in _STORED.items()}
_TRIES = 5
_LOOKED_AT = 1_000
"""Number of the newest merge records that are searched for a decision.  A table that merges all the time makes more in
about a day."""


@dataclass(frozen=True, slots=True)
class Restore:
    """A table version that is a restore, and the version that it restored."""

    version: TableVersion
    restored: int


@dataclass(frozen=True, slots=True)
class RestoredPlan:
    """Plan of the decision.  ``records``: the watermarks to record for each undecided restore, oldest first."""

    choice: Choice
    restores: tuple[Restore, ...]
    records: tuple[InForce, ...]
    again: Mapping[Region, tuple[GenerationRecord, ...]]
    """Generations that are to be merged again."""
    columns: Brought | None = None
    """Change that gives the table the columns of the newest contract; None if the table has them already."""
    decided: tuple[TableVersion, str] | None = None
    """If no restore is undecided: the newest restore with a decision, and the choice."""

    @property
    def in_force(self) -> InForce:
        return self.records[-1]

    def lines(self) -> list[Told]:
        """Return sentences about the undecided restores, and about the effect of the choice."""
        columns = self._columns()
        nothing = "" if columns else ", nothing to do"
        if self.decided is not None:
            version, choice = self.decided
            said = (
                f"the restore at table version {version} is decided: {choice}. No other restore is undecided{nothing}"
            )
            return [told(said, version=version, rows_since=choice), *columns]
        if not self.records:
            return [told(f"no restore is undecided: what is merged is known{nothing}"), *columns]
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
                f"keys in conflict that wait for a decision, as the restored version has them: {conflicts.keys}. Later "
                "decisions on them and their later records count no more"
                + ("" if self.choice == "drop" else ", until they are merged again")
            )
            found.append(told(said, keys_in_conflict=conflicts.keys))
        return [*found, *columns]

    def _columns(self) -> list[Told]:
        if self.columns is None:
            return []
        version, again = self.columns.before, list(self.columns.wider)
        wider = f"; {', '.join(again)} become wider, and are written again" if again else ""
        said = (
            f"the table has the columns of version {version} of the contract, and gets those of the newest one{wider}"
        )
        return [told(said, contract_version=version, columns=again)]


def plan_restored(context: RepairContext, choice: Choice) -> RestoredPlan:
    """Return the plan for a choice (steps 1 and 2).

    Raises ``RepairRefused`` if the newest restore is decided otherwise, or if rows cannot be merged again.  Raises
    ``MergedPositionUnknown`` if the merged positions of a needed version are unknown.
    """
    # Step 1
    restores = _undecided(context)
    if not restores:
        told = _decision(context)
        if told is not None and told[1] != choice:
            raise RepairRefused(
                f"the restore at table version {told[0]} is decided: {told[1]}, which the flusher follows. "
                f"{choice} is no longer possible. Nothing was changed",
                version=told[0],
            )
        return RestoredPlan(choice, (), (), {}, _bring(context, look_only=True), told)
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
    return RestoredPlan(choice, restores, records, again, _bring(context, look_only=True))


def repair_restored(context: RepairContext, plan: RestoredPlan) -> list[Told]:
    """Carry out the plan (steps 3 to 5), and return what was done.

    Raises ``RepairRefused`` if another process recorded another decision meanwhile.
    """
    # Step 3
    if plan.again:
        _revive(context, sorted(plan.again), plan.in_force)
    # Step 4
    for record in plan.records:
        found = context.watermarks.decide(record, _STORED[plan.choice])
        if (found.regions, found.conflicts) != (record.regions, record.conflicts):
            raise RepairRefused(
                f"another decision was recorded about the restore at table version {record.version}: look at `lancewal "
                "status`",
                version=record.version,
            )
    # Step 5
    brought = _bring(context)
    done = []
    if brought is not None:
        said = f"the table has the columns of version {brought.after} of the contract"
        done.append(told(said, contract_version=brought.after))
    if plan.records:
        version = plan.in_force.version
        said = f"table version {version}: {plan.choice} is recorded; start the flusher, and open readers again"
        done.append(told(said, version=version, rows_since=plan.choice))
    return done


def _bring(context: RepairContext, *, look_only: bool = False) -> Brought | None:
    return bring_back(context.store, context.table, context.tasks, look_only=look_only)


def _undecided(context: RepairContext) -> tuple[Restore, ...]:
    found: list[Restore] = []
    at = int(context.table.newest().version)
    while at > 0:
        try:
            context.watermarks.at(at)
            break
        except MergedPositionUnknown:
            break  # ``replay`` may not need older versions
        except TableRestored as error:
            version = TableVersion(int(str(error.where["version"])))
        info = context.table.transaction(version)
        if not isinstance(info, TransactionInfo) or info.restored is None:
            raise RepairRefused(f"table version {version} is a restore, and what it restored cannot be read any more")
        found.append(Restore(version, info.restored))
        at = version - 1
    return tuple(reversed(found))


def _decision(context: RepairContext) -> tuple[TableVersion, str] | None:
    """Return the newest restore that a person has decided about, and the choice; None if no newest record has one."""
    for version in sorted(context.watermarks.recorded_versions(_LOOKED_AT), reverse=True)[:_LOOKED_AT]:
        key = paths.merge_record(version, context.contract.making)
        data = context.store.get(key)
        kind = None if data is None else kind_of(data, key)
        if kind in _CHOICES:
            return version, _CHOICES[kind]
    return None


def _in_force(context: RepairContext, version: int, decided: Mapping[int, InForce]) -> InForce:
    """Return the watermarks of table version ``version``.  ``decided``: the planned watermarks of undecided restores,
    by their version."""
    try:
        return context.watermarks.at(version)
    except TableRestored as error:
        planned = decided.get(int(str(error.where["version"])))
        if planned is None:
            raise
        return planned
    except MergedPositionUnknown as error:
        raise MergedPositionUnknown(
            f"the merged positions of table version {version} are not known: {error}. Perhaps the other choice of "
            "--rows-since does not need them",
            version=version,
        ) from error


def _conflicts(context: RepairContext, restore: Restore, decided: Mapping[int, InForce]) -> ConflictsRef | None:
    """Return the keys in conflict of the restored version, which describe its rows.

    Raises ``MergedPositionUnknown`` if they are unknown, unless the table never had keys in conflict.
    """
    if context.contract.rows_tell_partition:
        return None
    try:
        return _in_force(context, restore.restored, decided).conflicts
    except MergedPositionUnknown:
        if not context.store.list(paths.CONFLICTS, limit=1):
            return None
        raise


def _check_contract(context: RepairContext, before: InForce, after: InForce) -> None:
    """Raise ``RepairRefused`` if keys have moved to other regions since the restored version (``before``).  Merging
    again would not follow the order of their records."""
    ours = set(context.contract.regions)
    moved = [r.name for r in before.regions if r not in ours and before.generation(r) != after.generation(r)]
    moved += before_alteration(context, after)
    if moved:
        raise RepairRefused(
            f"since the restored version the table's contract has changed, and with it the partitions of keys. {moved[:3]} "
            "would be merged again after rows that are newer. Only --rows-since drop is possible. Nothing was changed"
        )


def before_alteration(context: RepairContext, in_force: InForce) -> list[str]:
    """Return the names of regions whose watermark is below the position at which ``alter --partitions`` moved keys away."""
    altered = context.contract.altered_at
    regions = context.contract.regions[: len(altered)]
    return [r.name for r in regions if (in_force.position(r) or 0) < altered[r.partition]]


Above = dict[Region, list[GenerationRecord]]


def _above(context: RepairContext, regions: Collection[Region], in_force: InForce) -> Above:
    """Return the generations of each region above ``in_force``, without regions that have none."""
    states = context.states.read(regions)
    newest = {region: state.newest for region, state in states.items()}
    return {
        region: _behind(context, states[region], in_force.generation(region))
        for region, record in newest.items()
        if record is not None and record.generation != in_force.generation(region)
    }


def _behind(context: RepairContext, state: RegionState, merged: Generation) -> list[GenerationRecord]:
    region = state.region
    try:
        return generations_behind(context, region, state, merged)
    except OutsideHistoryWindow as error:
        raise region.error(
            RepairRefused,
            f"what was merged after generation {merged} cannot be merged again. It is trimmed: generations are kept "
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
                f"generation {record.generation} cannot be read any more: {state.problem}; {state.log_problem}. Only "
                "--rows-since drop is possible. Nothing was changed",
            )


def _revive(context: RepairContext, regions: Collection[Region], in_force: InForce) -> None:
    """Make the MERGED generations above the watermarks FLUSHED again (step 3).

    The swap is repeated if garbage collection has moved generations to a history page meanwhile."""
    for attempt in range(_TRIES):
        records = _above(context, regions, in_force)

        def decide(state: RegionState | None, above: Above = records) -> RegionState | None:
            if state is None:
                return None
            merged = [r for r in above.get(state.region, ()) if r.state is GenerationState.MERGED]
            return revived(state, in_force.generation(state.region), merged, context.new_id())

        try:
            context.states.swap(dict.fromkeys(regions, decide))
            return
        except (StoreInconsistent, PlanStale):
            if attempt == _TRIES - 1:
                raise
