"""Carry out a person's decision about keys in conflict: the records of one region count.

Guarantees
 1. The decision is one commit, which lands whole or not at all.  The commit applies waiting records of the chosen
    region to the rows of the table, as a merge would.  If the region is the owner already, the rows stay as they are.
    Waiting records of other regions are dropped.  Afterwards the region is the owner.  Later records of these keys
    through other regions are in conflict again.
 2. The commit is a merge without generations: it has the watermarks in force, a uuid, the sentinel.  If a flusher
    merges at the same time, one of the two commits lands, and the other process plans again.  The next process that
    merges finishes the commit.
 3. Keys that were not asked for stay as they are.  If the region has no waiting record of a key and is not its owner,
    nothing is changed.
 4. ``seen`` names the object of keys in conflict that the person has looked at.  If the keys' waiting records or
    owners have changed since, nothing is changed.

Steps of ``settle``
 1. Finish the newest merge, and repeat if another merge has landed.  Pin version V with its watermarks, and read its
    object of keys in conflict.
 2. Choose the keys.  For each of them, a record of the region must wait, or the region must be the owner.  Compare
    them with the object ``seen``.
 3. Look up their rows, write deletion vectors, complete patches, write rows.
 4. Write the next object, and send ONE commit from V that names it.  Conflict: again from 1.
 5. Finish the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from lancewal_core.errors import InvalidInput, PlanRetriesExhausted, VersionGone, counted
from lancewal_core.keys.conflicts import MERGED, NEXT, Conflicts, decode_as, read_conflicts
from lancewal_core.keys.index import KeyRows
from lancewal_core.keys.origin import MergedFrom, counting
from lancewal_core.names import paths
from lancewal_core.names.ids import Position, Region, TableVersion
from lancewal_core.rows.key_set import KeySet
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.contract import Contract
from lancewal_core.table.protocol import PinnedTable, files_of, raise_file_lost
from lancewal_core.table.watermarks import PROPERTY_MERGE, InForce, merge_properties
from lancewal_flusher.commit.facts import KeyDecision, MergeFacts
from lancewal_flusher.commit.row_origins import divided, region_properties
from lancewal_flusher.commit.send import Refused, Why, fenced, is_finished, prove, send
from lancewal_flusher.commit.widened import check_version
from lancewal_flusher.context import FlusherContext, check_contract, with_newer_contract
from lancewal_flusher.merge.changes import run_tasks, write_rows
from lancewal_flusher.merge.finish import finish_newest
from lancewal_flusher.merge.merge import next_fragment_id
from lancewal_flusher.merge.set_aside import put_conflicts

_TRIES = 10
Choice = Callable[[Conflicts], pa.Table]
"""Function that returns the keys to decide, from all keys in conflict."""


@dataclass(frozen=True, slots=True)
class SettlePlan:
    """Plan to carry out a person's decision about keys in conflict."""

    pinned: PinnedTable
    in_force: InForce
    held: Conflicts
    next: Conflicts
    """Content of the object of keys in conflict that the decision's commit will name."""
    region: Region
    position: Position
    """Position up to which the region is merged."""
    keys: pa.Table
    applied: int
    """Number of keys with a waiting record of ``region``: their rows change."""
    dropped: Mapping[Region, int]
    """Number of keys, by region, whose waiting records are dropped."""

    def lines(self) -> list[str]:
        """Return the plan as lines for people."""
        kept = self.keys.num_rows - self.applied
        seen = "" if self.in_force.conflicts is None else f", as of {self.in_force.conflicts.merge}"
        found = [
            f"{counted(self.keys.num_rows, 'key')}{seen}: the records of partition {self.region.partition} "
            f"({self.region.name}) count",
            f"changed by waiting records: {self.applied}; as the table has them: {kept}",
        ]
        for region, keys in sorted(self.dropped.items()):
            found.append(f"{region.name}: waiting records of {counted(keys, 'key')} are dropped")
        return found


def plan_settle(context: FlusherContext, region: Region, choice: Choice, seen: str | None = None) -> SettlePlan:
    """Plan a decision about keys in conflict (steps 1 and 2).  Nothing is changed, except that an unfinished merge is
    finished.

    ``seen``: the name of the object that the person saw (``ConflictsRef.merge``).  Raises ``InvalidInput`` if the
    region has none of the keys, or if the waiting keys have changed since the person saw them.  Any number of keys may
    be decided, because an owner takes less room than the waiting records of its key.
    """
    # Step 1
    check_contract(context)
    while True:
        finish_newest(context)
        pinned, in_force = context.watermarks.newest()
        if is_finished(context, in_force):
            break  # else another merge has landed in between: built upon, it would stay unfinished for good
    check_version(context, pinned)
    held = read_conflicts(context.store, in_force.conflicts, context.contract)
    # Step 2
    keys = choice(held)
    without = ~held.keys_of(region).contains(keys.columns)
    if without.any():
        raise InvalidInput(
            f"keys without records through {region.name}: {int(without.sum())}. `lancewal conflict list` shows whose "
            "records wait. Nothing was changed"
        )
    chosen = KeySet(keys)
    if seen is not None and in_force.conflicts is not None and seen != in_force.conflicts.merge:
        _check_seen(context.store, context.contract, held, chosen, seen)
    waits = {
        other: held.folded(other, context.contract.rows, chosen).keys(context.contract.rows).num_rows
        for other in held.regions
    }
    applied = waits.pop(region, 0)
    ends = held.waiting_of(region)[NEXT].to_pylist() + held.owned_by(region)[MERGED].to_pylist()
    position = in_force.position(region) or Position(max(ends, default=0))
    next_ = held.decided(MergedFrom(region, position), keys).that_counts(counting(context.contract))
    dropped = {other: keys for other, keys in waits.items() if keys}
    return SettlePlan(pinned, in_force, held, next_, region, position, keys, applied, dropped)


def _check_seen(store: ObjectStore, contract: Contract, held: Conflicts, chosen: KeySet, seen: str) -> None:
    key = paths.conflicts_object(seen) if paths.is_conflicts_name(seen) else None
    data = None if key is None else store.get(key)
    if key is None or data is None:
        raise InvalidInput(
            f"--seen {seen[:100]!r} does not name a known object of keys in conflict: `lancewal conflict list` shows "
            "what waits now. Nothing was changed"
        )
    if decode_as(data, key, store, contract).stand_of(chosen) != held.stand_of(chosen):
        raise InvalidInput(
            f"the keys asked for no longer wait as in {seen}: records have come in since, or somebody has decided. "
            "`lancewal conflict list` shows what waits now. Nothing was changed"
        )


def settle(context: FlusherContext, region: Region, choice: Choice, seen: str | None = None) -> SettlePlan:
    """Plan a decision about keys in conflict, commit and finish it (steps 1 to 5).  Return the plan that landed."""
    reason = ""
    for _ in range(_TRIES):
        context = with_newer_contract(context) or context
        plan = plan_settle(context, region, choice, seen)
        if not plan.keys.num_rows:
            return plan
        landed = _commit(context, plan)
        if not isinstance(landed, Refused):
            # Step 5
            finish_newest(context)
            context.events.conflicts_settled(
                version=landed,
                topic=region.topic,
                partition=region.partition,
                keys=plan.keys.num_rows,
                applied=plan.applied,
                dropped={other.name: keys for other, keys in plan.dropped.items()},
            )
            return plan
        reason = landed.reason
    raise PlanRetriesExhausted(
        f"the decision was refused {_TRIES} times, since other commits landed first; the last reason: {reason}. Run "
        "the command again"
    )


def _commit(context: FlusherContext, plan: SettlePlan) -> TableVersion | Refused:
    """Write the decision's rows and send its commit (steps 3 and 4).  Return the version at which it landed, or
    ``Refused``.
    """
    rows, pinned, before = context.contract.rows, plan.pinned, plan.in_force.conflicts
    assert before is not None, "there are keys"
    names = list(rows.primary_key)
    # Step 3
    folded = plan.held.folded(plan.region, context.contract.rows, KeySet(plan.keys))
    keys = pa.concat_tables([folded.partials.select(names), folded.gone, folded.rows.select(names)]).combine_chunks()
    try:
        lookup = context.keys.find(pinned, keys, counting(context.contract)) if keys.num_rows else KeyRows({}, ())
        results = run_tasks(context, pinned, keys, folded.partials.num_rows, lookup, {}) if keys.num_rows else []
    except VersionGone as error:
        raise_file_lost(context.table, error, pinned.version)
        return Refused(f"version {pinned.version} was cleaned up while the decision was planned", Why.CLEANED_UP)
    written = write_rows(context.table, context.contract, pinned, [folded.rows], folded.partials, results)
    rows_written = folded.rows.num_rows + folded.partials.num_rows
    source = MergedFrom(plan.region, plan.position)
    # Step 4
    merge = context.new_id()
    conflicts = put_conflicts(context.store, plan.next, merge)
    fragments = pinned.fragments()
    facts = MergeFacts(
        read_version=pinned.version,
        fragments_below=next_fragment_id(fragments),
        files=files_of(written),
        adopted={},
        generations={},
        rows_adopted=0,
        rows_replaced=sum(r.hits for r in results),
        settled=KeyDecision(plan.region, plan.keys.num_rows, plan.dropped, before),
    )
    properties = {
        **merge_properties(plan.in_force.regions, merge, conflicts),
        **facts.properties(),
        **region_properties(divided(written, [(source, rows_written)])),
    }
    changed = {r.fragment_id: r.updated for r in results if r.hits}
    landed = send(context, fenced(pinned, written, changed, properties), PROPERTY_MERGE)
    if isinstance(landed, Refused):
        return landed
    version = landed.version
    prove(context, pinned.version, version)
    context.watermarks.record(InForce(version, merge, plan.in_force.regions, conflicts), version, "merge")
    return version
