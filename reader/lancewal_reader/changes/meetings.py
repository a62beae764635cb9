"""Records that count in a table whose rows do not tell their partition, where one key may come through two (``keys.origin``).

A state is what a read at its receipt shows.  So a record that reads leave out, because its key is in conflict, gives no
change: the person's decision gives it later, as a step.

Guarantee: if no step lies between two states, records that count lead from the rows of the first state to those of the
second.  Otherwise the error is ``RegionConflict``.  It is raised if a conflict arises between the two.  A read of the second
state then leaves out records that a read of an earlier state has shown, and no record says so.

A conflict arises in two ways.
 1. A merge has set records aside.  Then the two versions have other keys in conflict.
 2. Unmerged records of a key came through two regions.  Then the key meets in the delta from the first state's version to the
    second state's positions.
"""

from __future__ import annotations

import pyarrow as pa

from lancewal_core.errors import RegionConflict, counted
from lancewal_core.keys.conflicts import REGION, ConflictKeys, Conflicts, read_conflicts
from lancewal_core.keys.origin import counting
from lancewal_core.names.ids import Region
from lancewal_core.rows.equal_cells import row_texts
from lancewal_core.rows.key_set import KeySet
from lancewal_core.rows.projection import project
from lancewal_core.table.conflicts_ref import ConflictsRef
from lancewal_reader.changes.records import Counting, Mask
from lancewal_reader.changes.side import Side
from lancewal_reader.plan.at_receipt import plan_at
from lancewal_reader.plan.breaks import Cut
from lancewal_reader.point.receipt import Receipt
from lancewal_reader.unmerged.load import DeltaContext, SideBySide, load


def counting_of(start: Side, end: Cut, conflicts: ConflictsRef | None) -> Counting | None:
    """Return which records count from ``start`` to the positions ``end``; None if all do.

    ``conflicts``: those in force at the version of the later state."""
    context = start.context
    if not isinstance(context.folding, SideBySide):
        return None
    here = start.plan.in_force.conflicts
    if here != conflicts:
        arisen = _states_of_keys(context, here) ^ _states_of_keys(context, conflicts)
        if arisen:
            raise _arisen(start, len({key for key, _ in arisen}))
    receipt = Receipt(context.contract.uuid, start.receipt.version, dict(end), start.receipt.place)
    plan = plan_at(context, receipt)
    met = load(context, plan.deltas, project(context.rows, ()), plan.in_force.conflicts).met
    in_force = context.folding.in_force(context.store, here, context.contract)
    return _OwnersOnly(start, in_force, None if met is None or not met.num_rows else KeySet(met))


class _OwnersOnly:
    """Counting without records of keys in conflict, except their owners'."""

    def __init__(self, start: Side, in_force: ConflictKeys, met: KeySet | None) -> None:
        self._start = start
        self._in_force = in_force
        self._met = met

    def mask(self, region: Region, keys: pa.Table) -> Mask:
        left_out = self._in_force.left_out(region, keys)
        if self._met is not None:
            met = self._met.contains([keys[name] for name in self._met.names]) & ~left_out
            if met.any():
                raise _arisen(self._start, len(self._met))
        counts: Mask = ~left_out
        return counts


def _states_of_keys(context: DeltaContext, ref: ConflictsRef | None) -> set[tuple[str, str]]:
    """Return the keys in conflict, each with its owner, or that it waits, as texts."""
    contract = context.contract
    held: Conflicts = read_conflicts(context.store, ref, contract).that_counts(counting(contract))
    names = list(contract.primary_key)
    owners = held.owners
    found = {(key, "waits") for key in row_texts(held.waiting_keys)}
    return found | set(zip(row_texts(owners.select(names)), owners[REGION].to_pylist(), strict=True))


def _arisen(start: Side, keys: int) -> RegionConflict:
    topic = start.context.contract.topic
    return RegionConflict(
        f"topic {topic}: after table version {start.receipt.version}, {counted(keys, 'primary key')} came through two "
        "partitions. Reads now leave out records of them that earlier reads have shown, and no record says so. Use the mode "
        "net, or begin the feed after a decision (`lancewal conflict list`, `lancewal conflict settle`)",
        topic=topic,
        keys=keys,
    )
