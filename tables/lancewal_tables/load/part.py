"""Bulk load: insert rows into a table that also gets records from Kafka.  All records from Kafka count as newer.

Guarantees
 1. A loaded row never replaces a row from Kafka.  A key that has a row stays as it is.  A key whose records are unmerged or
    come later is settled by the merge of these records, as if the loaded row were older than all of them.
 2. A key that a merge, or a person's decision about keys in conflict, has deleted since the load *began* does not come back.
    Deletes from before the beginning are not known: such rows come back, except those of keys that have an owner
    (``keys.conflicts``).  A delete that waits for a decision has deleted nothing.
 3. A load never makes a key occur twice, whichever commits first: the load, a merge, another load or a user's append.
 4. Each part is committed as a whole or not at all.  Loading again, also after a crash at any point, adds the missing rows
    and no row twice.  Under the same name, guarantee 2 counts from the first beginning.
 5. A load changes no row that exists.  It affects merges only as a commit in between: a merge that is under way is
    planned again.

A load *begins* when its name is first recorded (``load_record``), with the watermarks of that moment.  Unmerged generations
need not be read: a merge looks for its keys in all fragments, loaded ones too, and completes patches from them.

Steps of ``load_part``, for a part of the rows with distinct keys
 1. Finish the newest merge, pin V, check that it is the contract's table, read W(V).
 2. Leave out keys that have a live row in V: the key index names candidates, fragments that it does not cover are scanned.
 3. Leave out keys that were deleted by generations merged after the load began, up to W(V) (``deletes``).
 4. Write the other rows as data files.
 5. ONE commit from V with the unchanged sentinel and without watermarks.  It conflicts with every merge, follow-up and load
    in between, and they conflict with it.  In a table without fragments, the commit is strict.
 6. If the commit landed, go on.  If it conflicts, go back to step 1, and use the files again if the same rows are left.
    If its outcome is unknown, look for the part's uuid in the versions above V.  If these versions are gone, raise
    ``CommitUnknown``, since step 7 cannot be done.
 7. If the commit landed above V + 1, a user may have appended the same keys.  If a key has live rows in two of the fragments
    newer than V, hide the load's row, in a commit with the sentinel.  Then prove that no merge came in between unseen, since
    a clean-up can hide one from Lance.  Without the proof, raise ``MergeUnproven``.  If a column was renamed or dropped, raise
    ``ContractMismatch``.
 8. Check that the files exist: a clean-up with ``delete_unverified`` may have deleted them before the commit.

After a crash between steps 5 and 7, or ``CommitUnknown``, a key that a user appended meanwhile occurs twice.  Kafka's next
row for the key mends that.  ``lancewal verify`` names such keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.errors import CommitUnknown, ObjectMissing, PlanRetriesExhausted, VersionGone
from lancewal_core.keys.conflicts import read_conflicts
from lancewal_core.keys.live import find_live
from lancewal_core.keys.scan import find_keys
from lancewal_core.names.ids import TableVersion
from lancewal_core.process.failpoints import point
from lancewal_core.rows.equal_cells import row_texts
from lancewal_core.rows.key_set import KeySet
from lancewal_core.table.columns.restored import check_fit
from lancewal_core.table.protocol import PinnedTable, files_of, rows_by_fragment
from lancewal_core.table.watermarks import InForce
from lancewal_flusher.commit.other_commits import send_load
from lancewal_flusher.commit.send import Refused, hide, lost_files, prove
from lancewal_flusher.commit.widened import check_version
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.event_table import FlusherEvents
from lancewal_flusher.merge.finish import finish_newest
from lancewal_tables.load.deletes import DeletesSince

REFUSALS_MAX = 30
PAUSE_S = 0.2
_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class PartLoaded:
    """The result of one part: how many of its rows were inserted or left out."""

    version: TableVersion | None
    """Version of the part's commit; None if no row was left to insert, or nothing was to be written."""
    inserted: int
    present: int
    """Number of rows left out because their key had a row."""
    deleted: int
    """Number of rows left out because a record has deleted their key since the load began."""
    appended: int = 0
    """Number of rows that were inserted and hidden again, because another program appended the key meanwhile."""
    refusals: int = 0

    def log(self, events: FlusherEvents) -> None:
        events.load_part_landed(
            version=self.version,
            inserted_rows=self.inserted,
            present_rows=self.present,
            deleted_rows=self.deleted,
            appended_rows=self.appended,
            refusals=self.refusals,
        )


@dataclass(frozen=True, slots=True)
class _Plan:
    pinned: PinnedTable
    present: _Mask
    deleted: _Mask

    @property
    def left(self) -> _Mask:
        return ~(self.present | self.deleted)

    @property
    def counts(self) -> tuple[int, int]:
        """The number of keys that have a row, and the number of other keys that Kafka has deleted."""
        return int(self.present.sum()), int((self.deleted & ~self.present).sum())


def load_part(context: FlusherContext, rows: pa.Table, deletes: DeletesSince) -> PartLoaded:
    """Load one part (steps 1 to 8), and return its counts.  ``rows`` has the contract's columns, and distinct keys
    without nulls.

    Raises ``PlanRetriesExhausted`` if merges come faster than this part can be planned.  Other errors: see the steps.
    """
    names = list(context.contract.primary_key)
    keys = rows.select(names).combine_chunks()
    key_set = KeySet(keys)
    written: tuple[_Mask, tuple[str, ...]] | None = None
    reason = ""
    for refusals in range(REFUSALS_MAX):
        if refusals:
            context.clock.sleep(PAUSE_S)
        try:
            # Steps 1 to 3
            finish_newest(context)
            plan = _plan(context, keys, key_set, deletes)
            check_version(context, plan.pinned)
            present, deleted = plan.counts
            if not plan.left.any():
                return PartLoaded(None, 0, present, deleted, refusals=refusals)
            # Step 4
            if (
                written is None
                or (written[0] != plan.left).any()
                or context.table.files_missing(sorted(files_of(written[1])))
            ):
                written = (plan.left, _write(context, rows, plan.left))
        except VersionGone as error:
            reason = f"the version read was cleaned up: {error}"
            continue
        # Steps 5 and 6
        landed = send_load(context, plan.pinned, deletes.name, written[1], {})
        if isinstance(landed, Refused):
            if landed.perhaps_landed:
                raise CommitUnknown(landed.reason)
            reason = landed.reason
            continue
        # Step 7
        hidden = 0
        if landed != plan.pinned.version + 1:
            hidden = _settle(context, plan.pinned, rows.filter(pa.array(plan.left)), deletes.name)
            prove(context, plan.pinned.version, landed, "part of a load")
            check_fit(context.store, context.table.newest(), context.contract)
        # Step 8
        _check_files(context, written[1], landed)
        return PartLoaded(landed, int(plan.left.sum()) - hidden, present, deleted, hidden, refusals)
    raise PlanRetriesExhausted(
        f"{REFUSALS_MAX} tries in a row to load one part were refused, the last time: {reason}. Pause merges meanwhile, "
        "with `lancewal pause flusher --for 10m`, and load again: rows that were inserted stay"
    )


def look_at_part(context: FlusherContext, rows: pa.Table, deletes: DeletesSince) -> PartLoaded:
    """Return what ``load_part`` would do at the newest version; write nothing.

    Raises ``VersionGone`` if a clean-up removed that version meanwhile.
    """
    keys = rows.select(list(context.contract.primary_key)).combine_chunks()
    plan = _plan(context, keys, KeySet(keys), deletes)
    return PartLoaded(None, int(plan.left.sum()), plan.counts[0], plan.counts[1])


def _plan(context: FlusherContext, keys: pa.Table, key_set: KeySet, deletes: DeletesSince) -> _Plan:
    with point("plan.pin"):
        pinned, in_force = context.watermarks.newest()
        check_fit(context.store, pinned, context.contract)
    return _Plan(pinned, _present(context, pinned, keys, key_set), _deleted(context, in_force, key_set, deletes))


def _present(context: FlusherContext, pinned: PinnedTable, keys: pa.Table, key_set: KeySet) -> _Mask:
    """Return a mask of the keys that have a live row in the pinned version (step 2)."""
    found = np.zeros(len(key_set), np.bool_)
    for rows in find_live(pinned, key_set, context.keys.find(pinned, keys)).values():
        found[rows.places] = True
    return found


def _deleted(context: FlusherContext, in_force: InForce, key_set: KeySet, deletes: DeletesSince) -> _Mask:
    """Return a mask of the keys that were deleted since the load began, and of all keys that have an owner (step 3).

    If a key has an owner and no row, the owner's records have deleted the row."""
    found = np.zeros(len(key_set), np.bool_)
    conflicts = read_conflicts(context.store, in_force.conflicts, context.contract)
    owned = conflicts.owners.select(key_set.names)
    for gone in [owned, *deletes.keys(in_force, conflicts)]:
        places = key_set.places(gone.columns)
        found[places[places >= 0]] = True
    return found


def _write(context: FlusherContext, rows: pa.Table, left: _Mask) -> tuple[str, ...]:
    with point("fragment.write"):
        return context.table.write_rows(rows if left.all() else rows.filter(pa.array(left)), context.contract.fields_of)


def _settle(context: FlusherContext, before: PinnedTable, ours: pa.Table, name: str) -> int:
    """Hide rows of the load whose keys another program appended, and return how many were hidden (step 7).

    The load's rows are recognised by their values, since a compaction may have moved them.
    """
    known = {f.fragment_id for f in before.fragments()}
    keys = KeySet(ours.select(list(context.contract.primary_key)).combine_chunks())
    for _ in range(REFUSALS_MAX):
        current, _ = context.watermarks.newest()
        check_fit(context.store, current, context.contract)
        newer = [f.fragment_id for f in current.fragments() if f.fragment_id not in known]
        try:
            named = {own[0]: name for name, own in current.field_ids.items()}
            names = [named[context.contract.fields_of[name][0]] for name in ours.column_names]
            hidden = _second_rows(current, ours, names, keys, newer)
            changed = hide(current, hidden)
        except VersionGone:
            continue  # a clean-up deleted this version, so there is a newer one
        if not hidden:
            return 0
        if not isinstance(send_load(context, current, name, (), changed), Refused):
            return sum(len(places) for places in hidden.values())
    raise PlanRetriesExhausted(
        "another program appended keys of the load at the same time. The load's rows of these keys could not be hidden, "
        "because other commits always came first. The keys may occur twice: `lancewal verify` names them"
    )


def _second_rows(
    current: PinnedTable, ours: pa.Table, names: Sequence[str], keys: KeySet, newer: Sequence[int]
) -> dict[int, list[int]]:
    """Return the load's row of each key with several live rows in the fragments ``newer``: physical row numbers, by
    fragment.  ``names``: the names that the columns of ``ours`` have in this version."""
    found = find_keys(current, keys, newer)
    often = np.bincount(found.places, minlength=len(keys))
    twice = np.flatnonzero(often[found.places] > 1)
    if not len(twice):
        return {}
    addresses, places = found.addresses[twice], found.places[twice]
    shown = row_texts(current.take(pa.array(addresses), list(names)).rename_columns(ours.column_names))
    mine = dict(zip(places.tolist(), row_texts(ours.take(pa.array(places))), strict=True))
    hidden: dict[int, int] = {}
    for address, place, text in zip(addresses.tolist(), places.tolist(), shown, strict=True):
        if text == mine[place]:
            hidden.setdefault(place, address)
    return rows_by_fragment(hidden.values())


def _check_files(context: FlusherContext, written: Sequence[str], landed: TableVersion) -> None:
    """Raise ``ObjectMissing`` if a data file of the load does not exist (step 8)."""
    lost = lost_files(context, files_of(written))
    if lost:
        raise ObjectMissing(
            f"table version {landed} refers to data files that a load had written and a clean-up (delete_unverified) has "
            f"taken: {sorted(lost)[:3]}. Restore version {landed - 1}, then `lancewal repair restored --rows-since replay`, "
            "and load again",
            version=landed,
        )
