"""A person's decision about keys in conflict: which region's records stand.

Guarantees
 1. One commit, whole or not: what waits of the chosen region is applied over the rows of the table, as a merge would (where it
    is the owner, they stay as they are); what waits of the others is dropped; from then on the region is the owner.  Later
    records through others are conflicts again.
 2. It is a merge without generations: the watermarks in force, a uuid, the sentinel.  Beside a flusher one of the two lands,
    and the other plans again; whoever comes next finishes it.
 3. Keys that were not asked for, or of which the region has no say, stay as they are.

Steps of ``settle``
 1. Finish the newest merge.  Pin V, W(V), the object in force.
 2. Which keys?  Of each something of the region waits, or the region is the owner.
 3. Look up their rows, write deletion vectors, complete patches, write rows.
 4. Write the next object, and ONE commit from V that names it.  Conflict: again from 1.
 5. Finish it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import structlog

from lancewal_core.errors import InvalidInput, PlanRetriesExhausted
from lancewal_core.ids import Position, Region, TableVersion
from lancewal_core.keys.conflicts import NEXT, REGION, Conflicts, read_conflicts
from lancewal_core.keys.index import KeyRows
from lancewal_core.keys.origin import MergedFrom, counting
from lancewal_core.rows.key_set import KeySet, distinct
from lancewal_core.table.checks import check_table
from lancewal_core.table.protocol import PinnedTable, TableCommit, files_of
from lancewal_core.table.watermarks import PROPERTY_MERGE, InForce, merge_properties
from lancewal_flusher.commit.facts import MergeFacts, Settled
from lancewal_flusher.commit.row_origins import divided, region_properties
from lancewal_flusher.commit.send import Refused, prove, send
from lancewal_flusher.context import FlusherContext, check_contract
from lancewal_flusher.merge.finish import finish_newest
from lancewal_flusher.merge.merge import next_fragment_id, removed_fragments, run_tasks, updated_fragments, write_rows
from lancewal_flusher.merge.set_aside import put_conflicts

_TRIES = 10
Choice = Callable[[Conflicts], pa.Table]
"""The keys that are asked for, of those in conflict."""


@dataclass(frozen=True, slots=True)
class SettlePlan:
    """What is decided."""

    pinned: PinnedTable
    in_force: InForce
    held: Conflicts
    region: Region
    keys: pa.Table
    applied: int
    """Of the keys, those of which something of the region waits: their rows change."""
    dropped: Mapping[Region, int]
    """By region of how many keys what waits is dropped."""

    def lines(self) -> list[str]:
        """For people."""
        kept = self.keys.num_rows - self.applied
        found = [
            f"{self.keys.num_rows} keys: the records of partition {self.region.partition} ({self.region.name}) stand",
            f"{self.applied} of them are changed by what waits, {kept} stay as the table has them",
        ]
        for region, keys in sorted(self.dropped.items()):
            found.append(f"{region.name}: what waits of {keys} keys is dropped")
        return found


def plan_settle(context: FlusherContext, region: Region, choice: Choice) -> SettlePlan:
    """Steps 1 and 2; changes nothing but that a merge under way is finished.  ``InvalidInput`` where the region has no say."""
    # Step 1
    check_contract(context)
    finish_newest(context)
    pinned, in_force = context.watermarks.newest()
    check_table(pinned, context.contract)
    held = read_conflicts(context.store, in_force.conflicts, context.contract.rows)
    # Step 2
    rows = context.contract.rows
    names = list(rows.primary_key)
    keys = choice(held)
    own = held.owners.filter(pa.array([name == region.name for name in held.owners[REGION].to_pylist()], pa.bool_()))
    say = KeySet(distinct(pa.concat_tables([held.waiting_of(region).select(names), own.select(names)]), rows))
    without = ~say.contains([keys[name] for name in names])
    if without.any():
        raise InvalidInput(
            f"of {int(without.sum())} of the keys nothing came through {region.name}: `lancewal conflicts list` shows whose "
            "records wait. Nothing was changed"
        )
    chosen = KeySet(keys)
    applied = chosen.contains([held.waiting_of(region)[name] for name in names])
    dropped = {
        other: int(chosen.contains([held.waiting_of(other)[name] for name in names]).sum())
        for other in held.regions
        if other != region
    }
    return SettlePlan(pinned, in_force, held, region, keys, int(applied.sum()), {r: n for r, n in dropped.items() if n})


def settle(context: FlusherContext, region: Region, choice: Choice) -> SettlePlan:
    """Steps 1 to 5; what was decided."""
    reason = ""
    for _ in range(_TRIES):
        plan = plan_settle(context, region, choice)
        if not plan.keys.num_rows:
            return plan
        landed = _commit(context, plan)
        if not isinstance(landed, Refused):
            # Step 5
            finish_newest(context)
            structlog.get_logger("lancewal.flusher").info(
                "conflicts settled",
                version=landed,
                region=region.name,
                keys=plan.keys.num_rows,
                applied=plan.applied,
                dropped={other.name: keys for other, keys in plan.dropped.items()},
            )
            return plan
        reason = landed.reason
    raise PlanRetriesExhausted(f"the decision lost every race; tried {_TRIES} times, the last reason: {reason}")


def _commit(context: FlusherContext, plan: SettlePlan) -> TableVersion | Refused:
    """Steps 3 and 4."""
    rows, pinned, before = context.contract.rows, plan.pinned, plan.in_force.conflicts
    assert before is not None, "there are keys"
    names = list(rows.primary_key)
    # Step 3
    folded = plan.held.folded(plan.region, KeySet(plan.keys))
    keys = pa.concat_tables([folded.partials.select(names), folded.gone, folded.rows.select(names)]).combine_chunks()
    asked = counting(context.contract)
    lookup = context.keys.find(pinned, keys, asked) if keys.num_rows else KeyRows({}, ())
    results = run_tasks(context, pinned, keys, folded.partials.num_rows, lookup, {}) if keys.num_rows else []
    written = write_rows(context, [folded.rows], folded.partials, results)
    rows_written = folded.rows.num_rows + folded.partials.num_rows
    source = MergedFrom(plan.region, _position(plan))
    # Step 4
    merge = context.new_id()
    conflicts = put_conflicts(context.store, plan.held.decided(source, plan.keys).that_counts(asked), merge)
    fragments = pinned.fragments()
    facts = MergeFacts(
        read_version=pinned.version,
        fragments_below=next_fragment_id(fragments),
        files=files_of(written),
        adopted={},
        generations={},
        rows_adopted=0,
        rows_replaced=sum(r.hits for r in results),
        settled=Settled(plan.region, plan.keys.num_rows, plan.dropped, before),
    )
    commit = TableCommit(
        read_version=pinned.version,
        new_fragments=written,
        updated_fragments=updated_fragments(pinned, results),
        removed_fragment_ids=removed_fragments(results),
        properties={
            **merge_properties(plan.in_force.regions, merge, conflicts),
            **facts.properties(),
            **region_properties(divided(written, [(source, rows_written)])),
        },
        strict=not fragments,
    )
    version = send(context, commit, PROPERTY_MERGE)
    if isinstance(version, Refused):
        return version
    prove(context, pinned.version, version)
    context.watermarks.record(InForce(version, merge, plan.in_force.regions, conflicts), version, "merge")
    return version


def _position(plan: SettlePlan) -> Position:
    """Up to where the region is merged."""
    ends = plan.held.waiting_of(plan.region)[NEXT].to_pylist()
    owned = plan.held.owners
    ends += [
        at for name, at in zip(owned[REGION].to_pylist(), owned[NEXT].to_pylist(), strict=True)
        if name == plan.region.name
    ]  # fmt: skip
    return plan.in_force.position(plan.region) or Position(max(ends))
