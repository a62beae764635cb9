"""Bulk load: rows from elsewhere come into a table that is streamed to, and whatever came through Kafka is newer.

Guarantees
 1. A loaded row is never over a row of Kafka: a key that has a row stays as it is; a key that Kafka brings, changes or
    deletes later, or that waits unmerged, is settled by its merge as if the loaded row had been there before everything.
 2. A key that a merge, or a person's decision about keys in conflict, has deleted since the load *began* does not come back.
    What was deleted before that is not known: such rows come back, but those of keys that have an owner (``keys.conflicts``).
    A delete that waits for a decision has deleted nothing.
 3. No key is there twice because of a load, whichever of it, a merge, another load or somebody's append commits first.
 4. Each part lands whole or not.  Loading again, also after a crash at any point, adds what is missing and nothing twice,
    and under the same name guarantee 2 reaches back to the first beginning.
 5. It changes no row, and stands in no merge's way but by being a commit: a merge under way is planned again.

A load *begins* when its name is first recorded (``load_record``), with the watermarks of then.  Unmerged generations need
not be asked: a merge looks for its keys in all fragments, a loaded one too, and completes patches from it.

Steps of ``load_part``, for a part of the rows with distinct keys
 1. Finish the newest merge, pin V, check that it is the contract's table, read W(V).
 2. Leave out keys that have a live row in V: the key index names candidates, fragments that it does not cover are scanned.
 3. Leave out keys that generations between the beginning and W(V) have deleted (``deletes``).
 4. Write the others as data files.
 5. ONE commit from V with the sentinel, unchanged, and no watermarks: it conflicts with every merge, follow-up and load in
    between, and they with it.  A table without fragments: a strict commit.
 6. Committed: go on.  Conflict: again from step 1; the files are taken as they are if the same rows are left.  Unknown: look
    for the part's uuid in the versions above V; where these are gone, ``CommitUnknown``: step 7 would be left out.
 7. Landed above V + 1: somebody may have appended the same keys.  Keys with a live row in two of the fragments that are newer
    than V: ours is hidden, in a commit with the sentinel.  Then prove that no merge came in between unseen (a clean-up can
    hide one from Lance), else ``MergeUnproven``; and a column may have been renamed or dropped: ``ContractMismatch``.
 8. Look whether the files exist: a clean-up with ``delete_unverified`` may have taken them before the commit.

A crash between 5 and 7, or ``CommitUnknown``, leaves a key that somebody appended meanwhile twice, until Kafka's next row
for it; ``lancewal verify`` names it.
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
from lancewal_core.rows.key_set import KeySet
from lancewal_core.rows.row_text import row_texts
from lancewal_core.table.checks import check_table
from lancewal_core.table.protocol import PinnedTable, files_of, rows_by_fragment
from lancewal_core.table.watermarks import InForce
from lancewal_flusher.commit.other_commits import send_load
from lancewal_flusher.commit.send import Hidden, Refused, hide, lost_files, prove
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.event_table import FlusherEvents
from lancewal_flusher.merge.finish import finish_newest
from lancewal_tables.load.deletes import DeletesSince

REFUSALS_MAX = 30
PAUSE_S = 0.2
_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class PartLoaded:
    """Counts of what became of a part's rows."""

    version: TableVersion | None
    """Version of the part's commit; None if no row was left to insert, or nothing was to be written."""
    inserted: int
    present: int
    """Keys that had a row."""
    deleted: int
    """Keys that Kafka has deleted since the load began."""
    appended: int = 0
    """Rows, of the inserted, that were hidden again: somebody appended the key meanwhile."""
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
        """Numbers of keys that have a row, and of other keys that Kafka has deleted."""
        return int(self.present.sum()), int((self.deleted & ~self.present).sum())


def load_part(context: FlusherContext, rows: pa.Table, deletes: DeletesSince) -> PartLoaded:
    """Steps 1 to 8 for ``rows`` of the contract's columns with distinct keys, none null.

    ``PlanRetriesExhausted``: merges come faster than this part can be planned.
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
        landed = send_load(context, plan.pinned, deletes.name, written[1], Hidden())
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
            check_table(context.table.newest(), context.contract)
        # Step 8
        _check_files(context, written[1], landed)
        return PartLoaded(landed, int(plan.left.sum()) - hidden, present, deleted, hidden, refusals)
    raise PlanRetriesExhausted(
        f"{REFUSALS_MAX} tries in a row to load one part were refused, the last time: {reason}. Keep merges away meanwhile, "
        "with `lancewal pause flusher --for 10m`, and start again: what has landed stays"
    )


def look_at_part(context: FlusherContext, rows: pa.Table, deletes: DeletesSince) -> PartLoaded:
    """Return what ``load_part`` would do at the newest version; write nothing.

    ``VersionGone``: a clean-up removed that version meanwhile.
    """
    keys = rows.select(list(context.contract.primary_key)).combine_chunks()
    plan = _plan(context, keys, KeySet(keys), deletes)
    return PartLoaded(None, int(plan.left.sum()), plan.counts[0], plan.counts[1])


def _plan(context: FlusherContext, keys: pa.Table, key_set: KeySet, deletes: DeletesSince) -> _Plan:
    with point("plan.pin"):
        pinned, in_force = context.watermarks.newest()
        check_table(pinned, context.contract)
    return _Plan(pinned, _present(context, pinned, keys, key_set), _deleted(context, in_force, key_set, deletes))


def _present(context: FlusherContext, pinned: PinnedTable, keys: pa.Table, key_set: KeySet) -> _Mask:
    """Step 2."""
    found = np.zeros(len(key_set), np.bool_)
    for rows in find_live(pinned, key_set, context.keys.find(pinned, keys)).values():
        found[rows.places] = True
    return found


def _deleted(context: FlusherContext, in_force: InForce, key_set: KeySet, deletes: DeletesSince) -> _Mask:
    """Step 3.  A key of an owner that has no row has none because of that owner's records."""
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
    """Step 7: rows of ours that are hidden because somebody appended their keys; known by their values, since a compaction
    may have moved them."""
    known = {f.fragment_id for f in before.fragments()}
    keys = KeySet(ours.select(list(context.contract.primary_key)).combine_chunks())
    for _ in range(REFUSALS_MAX):
        current, _ = context.watermarks.newest()
        check_table(current, context.contract)
        newer = [f.fragment_id for f in current.fragments() if f.fragment_id not in known]
        try:
            hidden = _second_rows(current, ours, keys, newer)
            changed = hide(current, hidden)
        except VersionGone:
            continue  # cleaned up: there is a newer one
        if not hidden:
            return 0
        if not isinstance(send_load(context, current, name, (), changed), Refused):
            return sum(len(places) for places in hidden.values())
    raise PlanRetriesExhausted(
        "keys of the load were appended by somebody at the same time, and hiding the load's rows lost every race. "
        "`lancewal verify` names keys that are there twice"
    )


def _second_rows(current: PinnedTable, ours: pa.Table, keys: KeySet, newer: Sequence[int]) -> dict[int, list[int]]:
    """Return the physical row that is ours of each key with several live rows in these fragments, by fragment."""
    found = find_keys(current, keys, newer)
    often = np.bincount(found.places, minlength=len(keys))
    twice = np.flatnonzero(often[found.places] > 1)
    if not len(twice):
        return {}
    addresses, places = found.addresses[twice], found.places[twice]
    shown = row_texts(current.take(pa.array(addresses), ours.column_names))
    mine = dict(zip(places.tolist(), row_texts(ours.take(pa.array(places))), strict=True))
    hidden: dict[int, int] = {}
    for address, place, text in zip(addresses.tolist(), places.tolist(), shown, strict=True):
        if text == mine[place]:
            hidden.setdefault(place, address)
    return rows_by_fragment(hidden.values())


def _check_files(context: FlusherContext, written: Sequence[str], landed: TableVersion) -> None:
    """Step 8."""
    lost = lost_files(context, written)
    if lost:
        raise ObjectMissing(
            f"table version {landed} refers to data files that a load had written and a clean-up (delete_unverified) has "
            f"taken: {lost[:3]}. Restore version {landed - 1}, then `lancewal repair restored --rows-since replay`, and "
            "load again",
            version=landed,
        )
