"""Merge FLUSHED generations into the table, in one commit that also moves the watermarks.

Guarantees
 1. The commit lands whole or not at all, and a generation is merged once.  The commit itself has the watermarks of all
    regions, and any two merges from one version conflict.  (Each changes the *sentinel*, the live fragment with the
    lowest id; a table without fragments takes a strict commit.)
 2. After the commit, the table equals the fold of each region up to its watermark, for keys that only Kafka writes.
    ``finish`` hides users' rows that were appended in between.
 3. A crash at any point leaves the table at a correct version, plus files that no version names.

Steps of ``merge_next``
 1. Pin version V and check that it is the contract's table.  Read its watermarks W(V), and all region states; no
    state is older than W(V) (``look``).  Refuse while the merge that set W(V) is not finished.  Choose generations of
    each region (``plan``, ``inputs``).
 2. Read the flushes.  A flush with missing files is first rebuilt from its WAL entries.
 3. In a table keyed by bytes, set aside keys that came through another region (``set_aside``).  Ask the key index
    which rows of V the keys may replace; scan fragments that it does not cover.  If more bytes of deletion vectors
    than of rows would be written, wait up to ``defer_s`` for more generations.  In each fragment, find the live rows,
    write deletion vectors, and read the rows that patches apply to (``changes``).  Write one set of new rows:
    completed patches, and the survivors of combined generations.  Write an object with the records that are set
    aside, if there are any.
 4. Send ONE commit from V.
 5. Committed: go on.  Conflict: nothing landed, plan again.  Unknown: search the versions above V for the merge's
    uuid.
 6. Landed above V + 1: no version in between may be a merge, else ``MergeUnproven``.
 7. Record the watermarks under ``merges/``.  At the same time check, for ``finish``, that the files added exist.
 8. Landed above V + 1: raise ``ContractMismatch`` if a column was renamed or dropped in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lancewal_core.errors import Corrupt, MergeUnproven, ObjectMissing, RegionConflict, VersionGone
from lancewal_core.keys.index import KeyRows
from lancewal_core.names.ids import Region, TableVersion
from lancewal_core.process.tasks import together
from lancewal_core.region.state import RegionState
from lancewal_core.table.columns.restored import check_fit
from lancewal_core.table.protocol import (
    Fragment,
    PinnedTable,
    TableCommit,
    files_of,
    fragment_bytes,
    fragment_rows,
    raise_file_lost,
)
from lancewal_core.table.watermarks import PROPERTY_MERGE, InForce, Watermark, merge_properties
from lancewal_flusher.commit.facts import MergeFacts
from lancewal_flusher.commit.send import Refused, Why, fenced, is_finished, lost_files, prove, send
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.merge.changes import write_changes
from lancewal_flusher.merge.first_seen import FirstSeen
from lancewal_flusher.merge.inputs import MergeInputs, read_inputs
from lancewal_flusher.merge.look import Look, look
from lancewal_flusher.merge.origin_conflict import regions_of_merge
from lancewal_flusher.merge.plan import MergeLimits, deletion_bytes
from lancewal_flusher.merge.region_input import RegionInput, adopted_files
from lancewal_flusher.merge.set_aside import put_conflicts, sort_out
from lancewal_flusher.origins import origins_of
from lancewal_flusher.upkeep.adopted_keys import AdoptedKeys


@dataclass(frozen=True, slots=True)
class Proven:
    """A merge that this process has just committed, proven and recorded, but not finished yet."""

    pinned: PinnedTable
    """The table version that the merge has made."""
    in_force: InForce
    facts: MergeFacts
    states: Mapping[Region, RegionState]
    """Region states that the merge's inputs were chosen from.  They still list the generations that the merge took."""
    missing: frozenset[str]
    """Names of data files of the merge that were missing after the commit, although the newest version needs them."""


@dataclass(frozen=True, slots=True)
class Merged:
    """A merge that landed.  Other versions may lie between ``read_version``, from which it was computed, and its own
    ``version``.
    """

    version: TableVersion
    read_version: TableVersion
    generations: Mapping[Region, tuple[int, ...]]
    rows_adopted: int
    rows_written: int
    rows_replaced: int
    keys_deleted: int
    fragments_scanned: int
    """Number of fragments that were scanned for keys, because the key index does not cover them."""
    index_faults: tuple[str, ...]
    """Errors of the key index: a text for each part that could not be read."""
    rows_in_place: int = 0
    """Number of replaced rows that were patched in place: only some columns were written again."""
    bytes_adopted: int = 0
    """Bytes of adopted data files: files of flushes that became part of the table unchanged."""
    bytes_written: int = 0
    """Bytes of data files that the merge wrote; deletion vectors are not counted."""
    worn: tuple[int, ...] = ()
    """Ids of fragments that now hide so many rows that compaction should rewrite them at once (``Changes.worn``)."""
    regions_not_known: int = 0
    """Number of rows, hidden ones included, that have a key of the merge and whose region is unknown.  Only counted
    in tables whose rows do not tell their partition."""
    set_aside: int = 0
    """Number of keys with records that this merge set aside: they wait for a person's decision (``set_aside``)."""
    set_aside_of: tuple[int, ...] = ()
    """Partitions whose records this merge set aside."""
    left: Mapping[Region, Corrupt | RegionConflict] = field(default_factory=dict)
    """Error of each region that the merge has left out (``MergeInputs.left``)."""
    proven: Proven | None = None
    """The merge's results that ``finish`` uses.  None if Lance did not return the version.  Reports have None too, so
    that they do not keep the version in memory."""


@dataclass(frozen=True, slots=True)
class NothingToMerge:
    """There is nothing to merge now.  Either no region has a FLUSHED generation above its watermark, apart from those
    in ``left``, or a merge is ``deferred``.

    ``version``: the newest version, whose watermarks are ``in_force``.
    """

    version: TableVersion
    in_force: InForce
    states: Mapping[Region, RegionState]
    deferred: bool = False
    left: Mapping[Region, Corrupt | RegionConflict] = field(default_factory=dict)
    """Error of each region that is left out (``MergeInputs.left``)."""


MergeResult = Merged | Refused | NothingToMerge


_NOT_LANDED = TableVersion(0)


@dataclass(frozen=True, slots=True)
class _Planned:
    """A merge that is ready to be committed.  The versions in ``in_force`` and ``merged`` are 0 until the commit has
    landed.
    """

    commit: TableCommit
    in_force: InForce
    facts: MergeFacts
    inputs: MergeInputs
    merged: Merged


def merge_next(
    context: FlusherContext,
    limits: MergeLimits,
    first_seen: FirstSeen | None = None,
    adopted_keys: AdoptedKeys | None = None,
    seen: Look | None = None,
) -> MergeResult:
    """Merge the next unmerged generations.  Earlier merges must be finished.  Pass the same ``first_seen`` to each
    call.  Otherwise a merge that is deferred would be deferred at every call.

    If the merge lands, the keys of its files are added to ``adopted_keys``.  ``seen``: the state that the caller has
    just read.
    """
    seen = seen or look(context)
    pinned = seen.pinned
    try:
        plan = _plan(context, seen, limits, first_seen or FirstSeen())
    except VersionGone as error:
        raise_file_lost(context.table, error, pinned.version)  # returns if the version itself is gone
        return Refused(f"version {pinned.version} was cleaned up while the merge was planned", Why.CLEANED_UP)
    if not isinstance(plan, _Planned):
        return plan
    # Step 4, 5
    sent = send(context, plan.commit, PROPERTY_MERGE)
    if isinstance(sent, Refused):
        return sent
    version, inputs = sent.version, plan.inputs
    landed = replace(plan.in_force, version=version)
    proven = None
    if adopted_keys is not None:
        for files in adopted_files(inputs.region_inputs):
            adopted_keys.add(files.fragments, files.row_keys)
        for taken in inputs.region_inputs:
            if taken.rewritten:
                adopted_keys.add(taken.rewritten, taken.row_keys)
    try:
        # Step 6
        prove(context, pinned.version, version)
        # Step 7.  If it is unknown whether the record was stored, ``finish`` stores it again.
        _, missing = together(
            context.tasks,
            lambda: context.watermarks.record(landed, version, "merge"),
            lambda: lost_files(context, () if sent.pinned is None else plan.facts.files),
        )
        # Step 8
        if version != pinned.version + 1:
            check_fit(context.store, sent.pinned or context.table.at(version), context.contract)
        if sent.pinned is not None:
            proven = Proven(sent.pinned, landed, plan.facts, inputs.states, frozenset(missing))
    except (MergeUnproven, VersionGone):
        if not is_finished(context, landed):
            raise
        # else another flusher was faster: it has proven and finished this merge, and a clean-up has come since
    return replace(plan.merged, version=version, proven=proven)


def _plan(
    context: FlusherContext, seen: Look, limits: MergeLimits, first_seen: FirstSeen
) -> _Planned | Refused | NothingToMerge:
    """Choose and read the inputs of the next merge, and write its files (steps 1 to 3 of ``merge_next``)."""
    pinned = seen.pinned
    inputs = read_inputs(context, seen, limits, first_seen)
    if isinstance(inputs, Refused):
        return inputs
    if not inputs.region_inputs:
        return NothingToMerge(pinned.version, inputs.in_force, inputs.states, left=inputs.left)
    # Step 3
    held = context.conflicts_of(inputs.in_force.conflicts)
    try:
        found = sort_out(context, pinned, inputs, held, limits)
    except ObjectMissing as error:
        return Refused(
            f"an object of a flush was deleted while the merge was planned: {error}", Why.CLEANED_UP
        )  # the next look says what that means
    inputs, region_inputs = found.inputs, found.inputs.region_inputs
    if not region_inputs:
        return NothingToMerge(pinned.version, inputs.in_force, inputs.states, left=inputs.left)
    if not found.set_aside and shall_defer(pinned, found.lookup, inputs, limits):
        return NothingToMerge(pinned.version, inputs.in_force, inputs.states, deferred=True, left=inputs.left)
    changes = write_changes(context, pinned, found, limits)
    merge_id = context.new_id()
    conflicts = inputs.in_force.conflicts
    if found.conflicts is not None:
        conflicts = put_conflicts(context.store, found.conflicts, merge_id)
    marks = {
        **inputs.in_force.regions,
        **{taken.merge.region: _mark(taken, inputs.in_force) for taken in region_inputs},
    }
    adopted = tuple(fragment for files in adopted_files(region_inputs) for fragment in files.fragments)
    rewritten = tuple(fragment for taken in region_inputs for fragment in taken.rewritten)
    facts = MergeFacts(
        read_version=pinned.version,
        fragments_below=next_fragment_id(pinned.fragments()),
        files=files_of((*adopted, *rewritten, *changes.new)) | changes.column_files(pinned),
        adopted={w.merge.region: files_of(w.adopted) for w in region_inputs if w.adopted},
        generations={
            w.merge.region: (w.merge.flushes[0].generation, w.merge.flushes[-1].generation) for w in region_inputs
        },
        # A merge that adopts files of a region takes one generation of it.
        rows_adopted=sum(w.merge.flushes[0].rows for w in region_inputs if w.adopted),
        rows_replaced=sum(r.hits for r in changes.results),
    )
    properties = {
        **merge_properties(marks, merge_id, conflicts),
        **facts.properties(),
        **origins_of(context).properties(lambda: regions_of_merge(region_inputs, changes.as_rows, changes.new)),
    }
    changed = {r.fragment_id: r.updated for r in changes.results if r.hits}
    commit = fenced(pinned, (*adopted, *rewritten, *changes.new), changed, properties)
    commit = replace(commit, columns_written=changes.columns)
    written = sum(w.rows.num_rows for w in region_inputs) + changes.rows_completed + sum(map(fragment_rows, rewritten))
    merged = Merged(
        _NOT_LANDED,
        pinned.version,
        {w.merge.region: tuple(int(s.generation) for s in w.merge.flushes) for w in region_inputs},
        rows_adopted=facts.rows_adopted,
        rows_written=written,
        rows_replaced=facts.rows_replaced,
        keys_deleted=sum(w.gone for w in region_inputs),
        fragments_scanned=len(found.lookup.uncovered),
        index_faults=found.lookup.faults,
        rows_in_place=changes.rows_in_place,
        bytes_adopted=sum(map(fragment_bytes, adopted)),
        bytes_written=sum(map(fragment_bytes, (*rewritten, *changes.new))) + changes.column_bytes(pinned),
        worn=changes.worn(pinned, limits),
        regions_not_known=found.regions_not_known,
        set_aside=found.set_aside,
        set_aside_of=found.set_aside_of,
        left=inputs.left,
    )
    return _Planned(commit, InForce(_NOT_LANDED, merge_id, marks, conflicts), facts, inputs, merged)


def shall_defer(pinned: PinnedTable, found: KeyRows, inputs: MergeInputs, limits: MergeLimits) -> bool:
    """Whether to defer the merge.  Later generations can then share the deletion vectors that it would write."""
    hidden = {fragment_id: len(rows.rows) for fragment_id, rows in found.covered.items()}
    return inputs.waited_s < limits.defer_s and deletion_bytes(pinned.fragments(), hidden) > inputs.nbytes


def _mark(taken: RegionInput, in_force: InForce) -> Watermark:
    """Return the region's watermark after this merge.  ``perhaps``: ``Watermark.perhaps``, a person's upper bound of the
    merged generations.  It is kept while it is above the generations that this merge takes."""
    last = taken.merge.flushes[-1]
    before = in_force.regions.get(taken.merge.region)
    perhaps = None if before is None or (before.perhaps or 0) <= last.generation else before.perhaps
    return Watermark(last.generation, last.next, perhaps)


def next_fragment_id(fragments: Sequence[Fragment]) -> int:
    """Return an id that is higher than the ids of all these fragments."""
    return max((f.fragment_id + 1 for f in fragments), default=0)
