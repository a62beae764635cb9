"""Find the records that count, in a table whose rows do not tell their partition (``keys.origin``).

In such a table one key may come through two partitions, and is then in conflict.  A record *counts* if reads show it.

A record that reads leave out, because its key is in conflict, gives no change.  A person's later decision about the
key is a step, which gives the change.

Guarantee: if no step lies between two states, records that count lead from the rows of the first state to those of the
second.  Otherwise the error is ``RegionConflict``.  It is raised if a conflict arises between the two.  A read of the second
state then leaves out records that a read of an earlier state has shown, and no record says so.

Three checks find that.
 1. The two versions record different keys in conflict, or different owners: a merge has set records aside.
 2. Keys *meet*: unmerged records of them, from the first state's version to the second state's positions, came through two
    regions.  No record of such a key may lie between the two states.
 3. Rows of keys that meet must be the same in both states.  A merge that took the records of one region ends a meeting.
"""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from lancewal_core.errors import RegionConflict, counted
from lancewal_core.keys.conflicts import REGION, Conflicts, read_conflicts
from lancewal_core.keys.origin import counting
from lancewal_core.names.ids import Region
from lancewal_core.rows.equal_cells import Mask, row_texts
from lancewal_core.rows.key_set import KeySet
from lancewal_core.rows.projection import project
from lancewal_core.table.conflicts_ref import ConflictsRef
from lancewal_reader.changes.records import Counting
from lancewal_reader.changes.side import Side
from lancewal_reader.plan.at_receipt import plan_at
from lancewal_reader.point.receipt import Receipt
from lancewal_reader.unmerged.load import DeltaContext, SideBySide, load


def counting_of(start: Side, end: Side) -> Counting | None:
    """Return the rule that tells which records change rows between two states; None if all records do.  Raises
    ``RegionConflict`` if a conflict arises between the states.
    """
    context = start.context
    if not isinstance(context.folding, SideBySide):
        return None
    here, there = start.plan.in_force.conflicts, end.plan.in_force.conflicts
    if here != there:
        arisen = _states_of_keys(context, here) ^ _states_of_keys(context, there)
        if arisen:
            raise _arisen(start, len({key for key, _ in arisen}))
    receipt = Receipt(context.contract.uuid, start.receipt.version, end.receipt.positions, start.receipt.place)
    plan = plan_at(context, receipt)
    met = load(context, plan.deltas, project(context.rows, ()), plan.in_force.conflicts).met
    in_force = context.folding.in_force(context.store, here, context.contract)
    meeting = None if met is None or not met.num_rows else KeySet(met)
    if meeting is not None:
        rows = [Counter(row_texts(side.rows_of(meeting.table, start.rows.table.names))) for side in (start, end)]
        if rows[0] != rows[1]:
            raise _arisen(start, len(meeting))

    def counts(region: Region, keys: pa.Table) -> Mask:
        """Return a mask of the records that count: all whose key is not in conflict, or that came through the key's
        owner.
        """
        counted: Mask = ~in_force.left_out(region, keys)
        if meeting is not None and (meeting.contains([keys[name] for name in meeting.names]) & counted).any():
            raise _arisen(start, len(meeting))
        return counted

    return counts


def _states_of_keys(context: DeltaContext, ref: ConflictsRef | None) -> set[tuple[str, str]]:
    """Return the keys in force, as texts, each with the name of its owner's region.  The name is empty if no record counts.

    Whether records of others wait for a key that has an owner makes no difference to reads."""
    contract = context.contract
    held: Conflicts = read_conflicts(context.store, ref, contract).that_counts(counting(contract))
    names = list(contract.primary_key)
    owned = dict(zip(row_texts(held.owners.select(names)), held.owners[REGION].to_pylist(), strict=True))
    return {*owned.items(), *((key, "") for key in row_texts(held.waiting_keys) if key not in owned)}


def _arisen(start: Side, keys: int) -> RegionConflict:
    topic = start.context.contract.topic
    return RegionConflict(
        f"topic {topic}: after table version {start.receipt.version}, {counted(keys, 'primary key')} came through two "
        "partitions. Reads now leave out records of them that earlier reads have shown, and no record says so. Use mode "
        "'net', or begin the feed after a decision (`lancewal conflict list`, `lancewal conflict settle`)",
        topic=topic,
        keys=keys,
    )
