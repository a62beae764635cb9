"""Merge: FLUSHED snapshots become part of the table, in one commit that also says so.

Guarantees
 1. The commit lands whole or not at all, and a generation is merged once: the watermarks of all regions stand in the
    commit itself, and any two merges from one version conflict (the *sentinel*: the live fragment with the lowest id is
    always among the changed ones; a table without fragments takes a strict commit).
 2. After it the table equals the fold of each region up to its watermark, for keys that only Kafka writes; keys that a
    user appended in between are settled by ``finish``.
 3. A crash at any point leaves the table at a version that is right, plus files that no version names.

Steps of ``merge_next``
 1. Pin V, check that it is the contract's table, read W(V); refuse while the merge that set it is not finished.  Then
    read all indexes (after W, so that they are not older) and choose per region (``plan``).
 2. Read the snapshots; one whose files are missing is rebuilt from its WAL entries first.
 3. Ask the key index which rows of V the keys may replace; fragments that it does not cover are scanned.  Would more
    bytes of deletion vectors be written than of rows?  Then wait, up to ``defer_s``, for more to come.  Per fragment
    keep the live ones, write deletion vectors, and fetch what patches apply to.
    Write one set of new rows: completed patches, and the survivors of combined generations.
 4. ONE commit from V.
 5. Committed: go on.  Conflict: nothing landed, plan again.  Unknown: look for our merge uuid in the versions above V.
 6. Landed above V + 1: no version in between may be a merge, else ``MergeUnproven``.
 7. Record the watermarks under ``merges/``.
 8. Landed above V + 1: a column may have been renamed or dropped in between; ``ContractMismatch`` says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lancewal_core.errors import (
    INDEX_LOST,
    LOG_LOST,
    MergeUnproven,
    ObjectMissing,
    PlanStale,
    StoreInconsistent,
    VersionGone,
)
from lancewal_core.failpoints import point
from lancewal_core.flush import rebuild_snapshot
from lancewal_core.fold import Folded, complete, compose
from lancewal_core.ids import Region, TableVersion
from lancewal_core.key_index import KeyRows
from lancewal_core.key_match import KeySet
from lancewal_core.open_checks import check_table
from lancewal_core.region_index import GenerationRecord, RegionIndex
from lancewal_core.snapshot import Snapshot, read_folded, read_gone, read_partials, read_rows, read_snapshot
from lancewal_core.table import (
    PinnedTable,
    TableCommit,
    fragment_files,
)
from lancewal_core.watermarks import PROPERTY_MERGE, InForce, Watermark, merge_properties
from lancewal_flusher.commit import Refused, is_finished, prove, send, sentinel
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.first_seen import FirstSeen
from lancewal_flusher.fragment_task import Candidates, FragmentResult, FragmentTask, Scan
from lancewal_flusher.merge_facts import MergeFacts
from lancewal_flusher.plan import MergeLimits, RegionMerge, choose, deletion_bytes, shall_wait, unmerged


@dataclass(frozen=True, slots=True)
class Merged:
    """A merge that landed.  ``landed_behind`` is False when it landed right above the version it read."""

    version: TableVersion
    read_version: TableVersion
    generations: Mapping[Region, tuple[int, ...]]
    rows_adopted: int
    rows_written: int
    rows_replaced: int
    keys_deleted: int
    fragments_scanned: int
    """Fragments that the key index does not cover."""
    index_faults: tuple[str, ...]
    """What of the key index could not be read."""

    @property
    def landed_behind(self) -> bool:
        return self.version != self.read_version + 1


@dataclass(frozen=True, slots=True)
class NothingToMerge:
    """No region has a FLUSHED generation above its watermark, or a merge of them is put off: what was seen at ``version``."""

    version: TableVersion
    in_force: InForce
    indexes: Mapping[Region, RegionIndex]
    deferred: bool = False


MergeResult = Merged | Refused | NothingToMerge


@dataclass(frozen=True, slots=True)
class _Work:
    """One region's part of a merge."""

    merge: RegionMerge
    adopted: tuple[str, ...]
    """Fragments taken as they are."""
    rows: pa.Table
    """Rows to write anew: survivors of combined generations."""
    partials: pa.Table
    keys: pa.Table
    """All keys it touches, those of ``partials`` first."""
    gone: int


@dataclass(frozen=True, slots=True)
class _Planned:
    """A merge that is ready to be committed."""

    commit: TableCommit
    merge: str
    marks: Mapping[Region, Watermark]
    works: Sequence[_Work]
    facts: MergeFacts
    lookup: KeyRows


def merge_next(context: FlusherContext, limits: MergeLimits, first_seen: FirstSeen | None = None) -> MergeResult:
    """One merge of what waits; the caller has finished the merges before it and keeps ``first_seen`` between calls."""
    pinned = context.table.newest()
    try:
        plan = _plan(context, pinned, limits, first_seen or FirstSeen())
    except VersionGone as error:
        if _exists(context, pinned.version):
            raise ObjectMissing(f"table version {pinned.version} refers to a file that is gone: {error}") from error
        return Refused(f"version {pinned.version} was cleaned up while the merge was planned")
    if not isinstance(plan, _Planned):
        return plan
    # Step 4, 5
    version = send(context, plan.commit, PROPERTY_MERGE)
    if isinstance(version, Refused):
        return version
    landed = InForce(version, plan.merge, plan.marks)
    try:
        # Step 6
        prove(context, pinned.version, version)
        # Step 7
        context.watermarks.record(landed, version, "merge")
        # Step 8
        if version != pinned.version + 1:
            check_table(context.table.at(version), context.contract)
    except (MergeUnproven, VersionGone):
        if not is_finished(context, landed):
            raise
        # else another flusher was faster: it has proven and finished this merge, and a clean-up has come since
    return Merged(
        version,
        pinned.version,
        {w.merge.region: tuple(int(s.generation) for s in w.merge.snapshots) for w in plan.works},
        rows_adopted=plan.facts.rows_adopted,
        rows_written=sum(w.rows.num_rows + w.partials.num_rows for w in plan.works),
        rows_replaced=plan.facts.rows_replaced,
        keys_deleted=sum(w.gone for w in plan.works),
        fragments_scanned=len(plan.lookup.uncovered),
        index_faults=plan.lookup.faults,
    )


def _plan(
    context: FlusherContext, pinned: PinnedTable, limits: MergeLimits, first_seen: FirstSeen
) -> _Planned | Refused | NothingToMerge:
    """Steps 1 to 3."""
    # Step 1
    with point("plan.pin"):
        check_table(pinned, context.contract)
        in_force = context.watermarks.at(pinned.version)
        if not is_finished(context, in_force):
            # Only the newest merge is ever finished: building on this one would leave it as it is for good.
            return Refused(f"the merge of table version {in_force.version} is not finished yet")
        indexes = context.read_indexes()
        _check_complete(context, indexes, in_force)
        waiting = unmerged(indexes, in_force)
        keys_waiting = [(region, record.generation) for region, records in waiting.items() for record in records]
        waited_s = max(first_seen.ages_s(keys_waiting, context.clock.monotonic()).values(), default=0.0)
    # Step 2
    snapshots = _snapshots(context, waiting)
    share = limits.share(len(snapshots))
    works = [work for region, found in sorted(snapshots.items()) if (work := _prepare(context, region, found, share))]
    if not works:
        return NothingToMerge(pinned.version, in_force, indexes)
    # Step 3
    fragments = pinned.fragments()
    keys = _keys(works)
    lookup = context.keys.find(pinned, keys)
    if _shall_wait(pinned, lookup, works, waited_s, limits):
        return NothingToMerge(pinned.version, in_force, indexes, deferred=True)
    results = _run_tasks(context, pinned, works, keys, lookup)
    written = _write_rows(context, works, results)
    merge = context.new_id()
    marks = dict(in_force.regions)
    for work in works:
        last = work.merge.snapshots[-1]
        marks[work.merge.region] = Watermark(last.generation, last.next)
    adopted = tuple(fragment for work in works for fragment in work.adopted)
    facts = MergeFacts(
        read_version=pinned.version,
        fragments_below=max((f.fragment_id + 1 for f in fragments), default=0),
        files=frozenset(name for fragment in (*adopted, *written) for name in fragment_files(fragment)),
        adopted={
            w.merge.region: frozenset(name for fragment in w.adopted for name in fragment_files(fragment))
            for w in works
            if w.adopted
        },
        generations={
            w.merge.region: (w.merge.snapshots[0].generation, w.merge.snapshots[-1].generation) for w in works
        },
        rows_adopted=sum(w.merge.snapshots[0].rows for w in works if w.adopted),
        rows_replaced=sum(r.hits for r in results),
    )
    commit = TableCommit(
        read_version=pinned.version,
        new_fragments=(*adopted, *written),
        updated_fragments=_updated(pinned, results),
        removed_fragment_ids=tuple(r.fragment_id for r in results if r.hits and r.updated is None),
        properties={**merge_properties(marks, merge), **facts.properties()},
        strict=not fragments,
    )
    return _Planned(commit, merge, marks, works, facts, lookup)


def _exists(context: FlusherContext, version: TableVersion) -> bool:
    try:
        return context.table.at(version).version == version
    except VersionGone:
        return False


def _check_complete(context: FlusherContext, indexes: Mapping[Region, RegionIndex], in_force: InForce) -> None:
    for region in context.contract.regions:
        if in_force.generation(region) > 0 and region not in indexes:
            raise StoreInconsistent(
                f"region {region.name}: no index is found, though generation {in_force.generation(region)} is merged; "
                f"{INDEX_LOST}",
                region=region.name,
            )


def _snapshots(
    context: FlusherContext, waiting: Mapping[Region, Sequence[GenerationRecord]]
) -> dict[Region, list[Snapshot]]:
    """Step 2: per region the snapshots that wait, up to the first that somebody else is rebuilding."""
    named = [(region, record) for region, records in sorted(waiting.items()) for record in records]
    intact = context.tasks.map(lambda item: _intact(context, item[1]), named)
    found: dict[Region, list[Snapshot]] = {}
    ended: set[Region] = set()
    for (region, record), snapshot in zip(named, intact, strict=True):
        if region in ended:
            continue
        if snapshot is None:
            snapshot = _rebuild(context, region, record)
        if snapshot is None:
            ended.add(region)  # the next round reads what the other one has written
        else:
            found.setdefault(region, []).append(snapshot)
    return found


def _rebuild(context: FlusherContext, region: Region, record: GenerationRecord) -> Snapshot | None:
    """None when somebody else rebuilt, or merged, it first."""
    try:
        return rebuild_snapshot(
            context.store,
            context.table,
            context.indexes,
            context.tasks,
            context.contract,
            region,
            record,
            context.new_id,
        )
    except PlanStale as error:
        index = context.indexes.read(region)
        if index is None or record not in index.generations:
            return None
        raise ObjectMissing(
            f"{record.snapshot} cannot be rebuilt: {error}. {LOG_LOST}", object=record.snapshot
        ) from error


def _intact(context: FlusherContext, record: GenerationRecord) -> Snapshot | None:
    """The snapshot, or None if any of its objects and files is missing."""
    if record.snapshot is None:
        return None
    try:
        snapshot = read_snapshot(context.store, record.snapshot)
    except ObjectMissing:
        return None
    sides = [side.key for side in (snapshot.deletes, snapshot.patches) if side is not None]
    if any(context.store.get_range(key, 0, 1) is None for key in sides):
        return None
    files = [name for fragment in snapshot.fragments for name in fragment_files(fragment)]
    return None if context.table.files_missing(files) else snapshot


def _prepare(
    context: FlusherContext, region: Region, snapshots: Sequence[Snapshot], limits: MergeLimits
) -> _Work | None:
    merge = choose(region, snapshots, limits)
    if merge is None:
        return None
    rows = context.contract.rows
    names = list(rows.primary_key)
    if len(merge.snapshots) == 1:
        (only,) = merge.snapshots
        gone = read_gone(context.store, only, rows)
        partials = read_partials(context.store, only, rows)
        row_keys = read_rows(context.table, only, names, rows)
        keys = pa.concat_tables([partials.select(names), gone, row_keys])
        return _Work(merge, only.fragments, rows.table.empty_table(), partials, keys, gone.num_rows)
    folded: Folded = compose([read_folded(context.store, context.table, s, rows) for s in merge.snapshots], rows)
    keys = pa.concat_tables([folded.partials.select(names), folded.gone, folded.rows.select(names)])
    return _Work(merge, (), folded.rows, folded.partials, keys, folded.gone.num_rows)


def _keys(works: Sequence[_Work]) -> pa.Table:
    """The keys of all regions, those of patches first."""
    partials = [w.keys.slice(0, w.partials.num_rows) for w in works]
    others = [w.keys.slice(w.partials.num_rows) for w in works]
    return pa.concat_tables([*partials, *others]).combine_chunks()


def _shall_wait(
    pinned: PinnedTable, found: KeyRows, works: Sequence[_Work], waited_s: float, limits: MergeLimits
) -> bool:
    hidden = {fragment_id: len(rows.rows) for fragment_id, rows in found.covered.items()}
    data = sum(snapshot.nbytes for work in works for snapshot in work.merge.snapshots)
    return shall_wait(deletion_bytes(pinned.fragments(), hidden), data, waited_s, limits)


def _run_tasks(
    context: FlusherContext, pinned: PinnedTable, works: Sequence[_Work], keys: pa.Table, found: KeyRows
) -> list[FragmentResult]:
    """Step 3: a task per fragment that may hold a key of any region (they never meet)."""
    partial_keys = sum(w.partials.num_rows for w in works)
    columns = tuple(context.contract.rows.table.names) if partial_keys else context.contract.primary_key
    sources = _candidates(pinned, found, len(keys))
    if found.uncovered:
        sources.update(dict.fromkeys(found.uncovered, Scan(KeySet(keys))))
    tasks = [FragmentTask(pinned.version, i, source, partial_keys, columns) for i, source in sources.items()]
    return context.runner.run(tasks)


def _candidates(pinned: PinnedTable, found: KeyRows, keys: int) -> dict[int, Scan | Candidates]:
    """Rows of the covered fragments.  Where every key lies elsewhere too, it may be that none of the rows lives."""
    often = np.zeros(keys, np.int64)
    for rows in found.covered.values():
        often += np.bincount(rows.places, minlength=keys)
    live = {f.fragment_id: f.physical_rows - f.deleted_rows for f in pinned.fragments()}
    return {
        i: Candidates(rows, live[i], doubtful=bool((often[rows.places] > 1).all()))
        for i, rows in sorted(found.covered.items())
    }


def _write_rows(context: FlusherContext, works: Sequence[_Work], results: Sequence[FragmentResult]) -> tuple[str, ...]:
    rows = context.contract.rows
    parts = [w.rows for w in works if w.rows.num_rows]
    partials = [w.partials for w in works if w.partials.num_rows]
    if partials:
        found = [r.base.select(rows.table.names).cast(rows.table) for r in results if r.base is not None]
        base = pa.concat_tables(found) if found else rows.table.empty_table()
        parts.append(complete(pa.concat_tables(partials), base, rows))
    if not parts:
        return ()
    with point("fragment.write"):
        return context.table.write_rows(pa.concat_tables(parts))


def _updated(pinned: PinnedTable, results: Sequence[FragmentResult]) -> tuple[str, ...]:
    """Changed fragments, and the sentinel whether it changed or not."""
    updated = [r.updated for r in results if r.hits and r.updated is not None]
    guard = sentinel(pinned.fragments())
    touched = {r.fragment_id for r in results if r.hits}
    if guard is not None and guard.fragment_id not in touched:
        updated.append(pinned.fragment_json(guard.fragment_id))
    return tuple(updated)
