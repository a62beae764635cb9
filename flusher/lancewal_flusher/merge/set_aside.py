"""Set aside records of keys that came through two regions.  They wait for a person's decision; all other records are
merged.  The terms *stray* and *meeting* are explained in ``origin_conflict``.

Guarantees
 1. For a key in conflict, a merge writes only what the owner's records give.  It writes the *operations* (rows,
    patches and deletes) of all other regions into the next object of ``conflicts``.  Without an owner these are the
    operations of all regions.  The merge's commit names the object, and also moves the watermarks.  So no operation
    is lost, and none counts twice.
 2. No merge takes a key through two regions, in one commit or in two, as far as the region of the live row is known
    and counts (``keys.origin``).
 3. At most ``MergeLimits.conflict_keys_max`` keys may wait, and an object has a largest size.  If a merge would
    exceed one of these limits, it leaves out the regions with the most keys to set aside, each with a
    ``RegionConflict``, until the rest fits.  A person's decision makes room for such a region.  If a region's records
    exceed the limits even without those that wait already, the merge takes half of the region's generations, and so
    on.  If one generation alone exceeds them, the region stays left out (decision 0053).
 4. In a table whose rows tell their partition nothing is checked, because keys of different regions always differ.

Steps of ``sort_out``
 1. For keys already in conflict, set aside the operations of all regions but the owner.
 2. Find keys that two of the merge's regions have, and keys with a live row that came through another region.  The
    region of the live row is the owner, and operations of other regions are set aside.  If there is no such row, all
    operations are set aside.  If a key already has an owner, its row is not looked up: after a compaction or a
    clean-up, the ``conflicts`` object knows more about its regions than the table.
 3. Take these operations out of the merge.  Files that hold such rows are not adopted, but rewritten without them: a
    new fragment must not carry a deletion file.  If several regions have rows in such files, the rows of all these
    regions are rewritten, and everything is decided again.  If something is found damaged then, its region is left,
    and everything is decided again too.
 4. Look up the remaining keys in the key index.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.errors import FLUSH_DAMAGED, Corrupt, ObjectCorrupt, ObjectMissing, RegionConflict
from lancewal_core.keys.conflicts import ConflictKeys, Conflicts, encode_conflicts
from lancewal_core.keys.index import KeyRows
from lancewal_core.keys.origin import Meeting, MergedFrom, counting, meeting
from lancewal_core.names.ids import Position, Region
from lancewal_core.process.failpoints import point
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.rows.fold import Folded, divide
from lancewal_core.rows.key_set import KeySet, distinct
from lancewal_core.store.object_store import ObjectStore, put_own
from lancewal_core.table.conflicts_ref import ConflictsRef
from lancewal_core.table.protocol import PinnedTable
from lancewal_flusher.context import FlusherContext, check_contract
from lancewal_flusher.merge.inputs import MergeInputs
from lancewal_flusher.merge.origin_conflict import (
    MET,
    Strays,
    find_strays,
    too_many_in_force,
    too_many_replaced,
    too_many_waiting,
)
from lancewal_flusher.merge.plan import MergeLimits, RegionMerge
from lancewal_flusher.merge.region_input import RegionInput, read_region_inputs

_REWRITE_BYTES = 64 << 20
"""Bytes of rows that are collected in memory before they are written to a fragment, while files are rewritten."""
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class SortedOut:
    """Inputs of a merge, without the operations that are set aside.  ``lookup``: the result of looking up ``keys``.
    ``regions_not_known``: number of rows of the keys whose region is unknown.
    """

    inputs: MergeInputs
    """The merge's inputs, without the operations that are set aside."""
    keys: pa.Table
    """Keys of the regions in ``inputs`` (``MergeInputs.keys``)."""
    lookup: KeyRows
    conflicts: Conflicts | None = None
    """Content of the next object of ``conflicts``; None if the object in force stays."""
    set_aside: int = 0
    """Number of keys of which operations were set aside."""
    set_aside_of: tuple[int, ...] = ()
    """Partitions whose operations were set aside."""
    regions_not_known: int = 0


def sort_out(
    context: FlusherContext, pinned: PinnedTable, inputs: MergeInputs, held: Conflicts, limits: MergeLimits
) -> SortedOut:
    """Set aside the operations of keys in conflict, and look up all other keys (steps 1 to 4).  ``held``: the keys in
    conflict that wait or have an owner already.

    Raises ``ObjectMissing`` if a flush's files have been deleted meanwhile.
    """
    if context.contract.rows_tell_partition:
        keys = inputs.keys()
        return SortedOut(inputs, keys, context.keys.find(pinned, keys))
    while True:
        if not inputs.region_inputs:  # what there was is damaged
            return SortedOut(inputs, context.contract.rows.key.empty_table(), KeyRows({}, ()))
        found = _decide(context, pinned, inputs, held)
        if not found.any:
            return SortedOut(inputs, found.keys, found.lookup, regions_not_known=found.not_known)
        check_contract(context)
        fewer = _too_many_keys(context, found, limits)
        if fewer is not None:
            inputs = fewer
            continue
        # Step 3
        shared = _shared(inputs.region_inputs, found.masks)
        if shared:
            inputs = _without_adopting(context, inputs, shared)
            continue
        region_inputs: list[RegionInput] = []
        aside: dict[Region, Folded] = {}
        damaged: dict[Region, Corrupt] = {}
        for taken, mask in zip(inputs.region_inputs, found.masks, strict=True):
            region = taken.merge.region
            try:
                left, aside[region] = _split(context, taken, mask)
            except ObjectCorrupt as error:
                damaged[region] = error
            else:
                region_inputs.append(left)
        if damaged:
            inputs = _without(inputs, damaged)
            continue
        conflicts = _next(context, found, aside)
        if isinstance(conflicts, Conflicts):
            break
        inputs = conflicts
    # Step 4
    left_over = replace(inputs, region_inputs=region_inputs)
    keys = left_over.keys()
    lookup = context.keys.find(pinned, keys, counting(context.contract)) if keys.num_rows else KeyRows({}, ())
    parts = {region.partition: part.keys(context.contract.rows) for region, part in aside.items()}
    partitions = tuple(sorted(partition for partition, part in parts.items() if part.num_rows))
    set_aside = distinct(pa.concat_tables(parts.values()), context.contract.rows).num_rows
    return SortedOut(left_over, keys, lookup, conflicts, set_aside, partitions, found.not_known)


def put_conflicts(store: ObjectStore, conflicts: Conflicts, merge: str) -> ConflictsRef | None:
    """Write the object of a merge's ``conflicts``, and return a reference to it.  None if there are no conflicts and no
    decisions.
    """
    if not conflicts:
        return None
    data, ref = encode_conflicts(conflicts, merge)
    put_own(store, ref.key, data)
    return ref


@dataclass(frozen=True, slots=True)
class _Decision:
    """The keys to set aside, as a mask over the keys of each region's input, and what was found about them.  ``met``:
    keys that several regions of the merge have; None if there are none.
    """

    pinned: PinnedTable
    inputs: MergeInputs
    held: Conflicts
    masks: Sequence[Mask]
    keys: pa.Table
    """The merge's keys that were looked up in the key index, without those set aside in step 1."""
    lookup: KeyRows
    owners: Mapping[int, pa.Table]
    """Keys that this merge finds in conflict and that have an owner, by the owner's partition."""
    met: Meeting | None
    strays: Strays
    partitions: npt.NDArray[np.int32]
    """Partition of each key in ``keys``; ``MET`` if several partitions have the key."""
    not_known: int

    @property
    def any(self) -> bool:
        return any(mask.any() for mask in self.masks)


def _decide(context: FlusherContext, pinned: PinnedTable, inputs: MergeInputs, held: Conflicts) -> _Decision:
    """Decide which keys of each region are set aside (steps 1 and 2)."""
    rows, counts = context.contract.rows, counting(context.contract)
    in_force = ConflictKeys(held, counts)
    # Step 1
    masks = [in_force.left_out(taken.merge.region, taken.keys) for taken in inputs.region_inputs]
    # Step 2
    parts = [taken.keys.filter(pa.array(~mask)) for taken, mask in zip(inputs.region_inputs, masks, strict=True)]
    of_parts = np.repeat(
        np.array([taken.merge.region.partition for taken in inputs.region_inputs], np.int32),
        np.array([part.num_rows for part in parts], np.int64),
    )
    left = pa.concat_tables([rows.key.empty_table(), *parts]).combine_chunks()
    met = meeting(left, of_parts)
    keys = left if met is None else distinct(left, rows)
    key_set = None if met is None else KeySet(keys)
    partitions = of_parts
    if key_set is not None:
        places = key_set.places([left[name] for name in key_set.names])
        partitions = np.zeros(keys.num_rows, np.int32)
        partitions[places] = of_parts
        partitions[np.bincount(places, minlength=keys.num_rows) > 1] = MET
    if not any(mask.any() for mask in masks) and met is None:
        keys, partitions = inputs.keys(), _partitions(inputs.region_inputs)
    lookup = context.keys.find(pinned, keys, counts) if keys.num_rows else KeyRows({}, ())
    strays, not_known = find_strays(context, pinned, keys, partitions, lookup)
    strays = strays[~in_force.owned(keys)[strays[:, 2]]]  # the object goes before what the index has
    owner = np.full(keys.num_rows, MET, np.int64)
    owner[strays[:, 2]] = strays[:, 1]
    contested = partitions == MET
    contested[strays[:, 2]] = True
    if contested.any():
        disputed = KeySet(keys.filter(pa.array(contested)))
        owner = owner[contested]
        for at, taken in enumerate(inputs.region_inputs):
            places = disputed.places([taken.keys[name] for name in disputed.names])
            others = np.append(owner != taken.merge.region.partition, False)
            masks[at] = masks[at] | others[places]
    owners = {int(p): keys.filter(pa.array(contested)).filter(pa.array(owner == p)) for p in set(strays[:, 1].tolist())}
    return _Decision(pinned, inputs, held, masks, keys, lookup, owners, met, strays, partitions, not_known)


def _partitions(region_inputs: Sequence[RegionInput]) -> npt.NDArray[np.int32]:
    """Return the partition of each key, in the order of ``MergeInputs.keys``."""
    of_inputs = np.array([taken.merge.region.partition for taken in region_inputs], np.int32)
    partials = [taken.partials.num_rows for taken in region_inputs]
    others = [taken.keys.num_rows - taken.partials.num_rows for taken in region_inputs]
    return np.concatenate([np.repeat(of_inputs, partials), np.repeat(of_inputs, others)])


def _too_many_keys(context: FlusherContext, found: _Decision, limits: MergeLimits) -> MergeInputs | None:
    """Return smaller inputs to try again with if more keys would wait than the limit allows; None if the limit is
    kept.
    """
    before = KeySet(found.held.waiting_keys)
    parts = [
        taken.keys.filter(pa.array(mask)) for taken, mask in zip(found.inputs.region_inputs, found.masks, strict=True)
    ]
    set_aside = distinct(pa.concat_tables(parts), context.contract.rows)
    new = int((~before.contains(set_aside.columns)).sum())
    if len(before) + new > limits.conflict_keys_max:
        return _held_back(context, found, len(before) + new, decisions_help=new <= limits.conflict_keys_max)
    return None


def _held_back(context: FlusherContext, found: _Decision, waiting: int, *, decisions_help: bool) -> MergeInputs:
    """Return the inputs without the region that has the most keys to set aside, or with half of that region's
    generations.

    ``waiting``: number of keys that would wait.  ``decisions_help``: whether a person's decision about the keys that
    wait already may make room.  If so, the region is left out as a whole.  Raises ``ObjectMissing`` if files are
    gone.
    """
    counts = [int(mask.sum()) for mask in found.masks]
    taken = found.inputs.region_inputs[counts.index(max(counts))]
    region, flushes = taken.merge.region, taken.merge.flushes
    if not decisions_help and len(flushes) > 1:
        return _rewriting(context, found.inputs, [RegionMerge(region, flushes[: len(flushes) // 2])])
    inputs = _without(found.inputs, {region: _too_many(context, found, waiting, decisions_help)})
    # Files that it shares with others are adopted by all, or by none.
    return inputs if taken.shared is None else _without_adopting(context, inputs, {taken.shared})


def _without(inputs: MergeInputs, left: Mapping[Region, Corrupt | RegionConflict]) -> MergeInputs:
    others = [taken for taken in inputs.region_inputs if taken.merge.region not in left]
    return replace(inputs, region_inputs=others, left={**inputs.left, **left})


def _too_many(context: FlusherContext, found: _Decision, waiting: int, decisions_help: bool) -> RegionConflict:
    region_inputs = found.inputs.region_inputs
    if not decisions_help and found.met is not None:
        return too_many_waiting(context, region_inputs, found.met)
    if not decisions_help and len(found.strays):
        return too_many_replaced(context, found.pinned, region_inputs, found.strays, found.partitions)
    here = next(w.merge.region.partition for w, m in zip(region_inputs, found.masks, strict=True) if m.any())
    others = [region.partition for region in found.held.regions if region.partition != here]
    return too_many_in_force(context, region_inputs, Meeting(waiting, (min(others, default=here), here)))


def _next(context: FlusherContext, found: _Decision, aside: Mapping[Region, Folded]) -> Conflicts | MergeInputs:
    """Return the content of the next object of ``conflicts``, or smaller inputs to try again with if the object is
    too large.
    """
    inputs, conflicts = found.inputs, found.held.that_counts(counting(context.contract))
    for taken in inputs.region_inputs:
        first, last = taken.merge.flushes[0], taken.merge.flushes[-1]
        conflicts = conflicts.with_waiting(taken.merge.region, aside[taken.merge.region], first.first, last.next)
    for partition, keys in sorted(found.owners.items()):
        region = context.contract.regions[partition]
        # It counts, so what was merged of its region counts.
        at = inputs.in_force.position(region) or Position(0)
        conflicts = conflicts.with_owner(MergedFrom(region, at), keys)
    try:
        encode_conflicts(conflicts, "0" * 8)
    except ObjectCorrupt:
        waiting = conflicts.waiting_keys.num_rows
        return _held_back(context, found, waiting, decisions_help=bool(found.held.waiting.num_rows))
    return conflicts


def _shared(region_inputs: Sequence[RegionInput], masks: Sequence[Mask]) -> frozenset[str]:
    """Return the keys of flushes whose files several regions adopt although a row in the files is set aside."""
    found = (
        taken.shared
        for taken, mask in zip(region_inputs, masks, strict=True)
        if mask[taken.partials.num_rows + taken.gone :].any()
    )
    return frozenset(key for key in found if key is not None)


def _without_adopting(context: FlusherContext, inputs: MergeInputs, flushes: Collection[str]) -> MergeInputs:
    """Return these inputs, with the rows of these flushes read to be written as new rows, instead of adopting the
    files.  Raises ``ObjectMissing`` if files are gone.
    """
    return _rewriting(context, inputs, [taken.merge for taken in inputs.region_inputs if taken.shared in flushes])


def _rewriting(context: FlusherContext, inputs: MergeInputs, merges: Sequence[RegionMerge]) -> MergeInputs:
    """Return these inputs, with other inputs for the regions of ``merges``.  Their generations are read, and their
    rows will be written as new rows.  Raises ``ObjectMissing`` if files are gone.
    """
    regions = [merge.region for merge in merges]
    read = dict(zip(regions, read_region_inputs(context, merges, regions), strict=True))
    region_inputs: list[RegionInput] = []
    damaged: dict[Region, Corrupt] = {}
    for taken in inputs.region_inputs:
        match read.get(taken.merge.region, taken):
            case RegionInput() as found:
                region_inputs.append(found)
            case ObjectMissing() as error:
                raise error
            case error:
                damaged[taken.merge.region] = error
    return replace(inputs, region_inputs=region_inputs, left={**inputs.left, **damaged})


def _split(opened: OpenedTable, taken: RegionInput, mask: Mask) -> tuple[RegionInput, Folded]:
    """Divide one region's input by ``mask`` (step 3).  Return the input that stays in the merge, and the operations
    that are set aside.
    """
    rows = opened.contract.rows
    patched, gone = taken.partials.num_rows, taken.gone
    sides = Folded(taken.rows, taken.keys.slice(patched, gone), taken.partials)
    if not mask.any():
        return taken, Folded(sides.rows.slice(0, 0), sides.gone.slice(0, 0), sides.partials.slice(0, 0))
    aside = KeySet(taken.keys.filter(pa.array(mask)).combine_chunks())
    out, left = divide(sides, aside)
    keys = taken.keys.filter(pa.array(~mask))
    if not taken.adopted or not mask[patched + gone :].any():
        return RegionInput(taken.merge, taken.adopted, left.rows, left.partials, keys, left.gone.num_rows), out
    rewritten, rows_out = _rewritten(opened, taken, aside)
    found = RegionInput(taken.merge, (), rows.table.empty_table(), left.partials, keys, left.gone.num_rows, rewritten)
    return found, Folded(rows_out, out.gone, out.partials)


def _rewritten(opened: OpenedTable, taken: RegionInput, aside: KeySet) -> tuple[tuple[str, ...], pa.Table]:
    """Write the rows of an adopted flush again, without rows whose keys are in ``aside``.  Return the new fragments
    as JSON, and the rows left out."""
    schema = opened.contract.rows.table
    (flushed,) = taken.merge.flushes
    written = opened.columns_of(flushed).table
    fragments: list[str] = []
    out, kept = [schema.empty_table()], list[pa.Table]()

    def write() -> None:
        if sum(part.num_rows for part in kept):
            with point("fragment.write"):
                fragments.extend(opened.table.write_rows(pa.concat_tables(kept), opened.contract.fields_of))
        kept.clear()

    try:
        for batch in opened.table.read_unadopted(taken.adopted, written.names):
            found = pa.Table.from_batches([batch]).cast(written)
            part = opened.rows_as_wanted(found, flushed.contract_version, lambda: flushed.key).cast(schema)
            wanted = aside.contains([part[name] for name in aside.names])
            out.append(part.filter(pa.array(wanted)))
            kept.append(part.filter(pa.array(~wanted)))
            if sum(part.nbytes for part in kept) >= _REWRITE_BYTES:
                write()
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise ObjectCorrupt(
            f"data files of {flushed.key} do not hold the table's columns; {FLUSH_DAMAGED}", object=flushed.key
        ) from error
    write()
    return tuple(fragments), pa.concat_tables(out).combine_chunks()
