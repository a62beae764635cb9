"""Finish: what remains to be done after a merge landed, before anything else may build on it.

Guarantees
 1. After it, no key of the merge shows twice because a user appended it between plan and commit: Kafka's row wins.
 2. Every adopted data file exists: one that a clean-up took between check and commit is rebuilt from the WAL, and the
    broken fragment is removed.
 3. ``merges/<version>.finished`` is written only after that; the step is repeated until then, and repeating is harmless.

Steps of ``finish_newest``
 1. Which merge set the watermarks in force, and is it finished?
 2. If it landed above its read version + 1: look its keys up in the fragments that others added in between.
 3. Check the files of the fragments that the merge added.
 4. One follow-up commit, if there is anything to do: deletion vectors, rebuilt rows, the sentinel,
    ``lancewal.followup`` = the merge's uuid, no watermarks.  A conflict: again from the newest version.
 5. Write the ``finished`` object.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

import numpy as np
import pyarrow as pa

from lancewal_core import paths
from lancewal_core.errors import ObjectMissing, StoreUnavailable, VersionGone
from lancewal_core.failpoints import point
from lancewal_core.flush import entries_of
from lancewal_core.fold import fold
from lancewal_core.ids import Region, TableVersion
from lancewal_core.key_lookup import find_keys
from lancewal_core.key_match import KeySet
from lancewal_core.region_index import GenerationRecord, RegionIndex
from lancewal_core.snapshot import read_gone, read_partials, read_rows, read_snapshot
from lancewal_core.store import Done, Lost, Unknown, put_once
from lancewal_core.table import Fragment, PinnedTable, TableCommit, TransactionInfo, fragment_files
from lancewal_core.watermarks import PROPERTY_FOLLOWUP, InForce
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.merge import PROPERTY_READ_VERSION, Refused, send, sentinel

_TRIES = 10


@dataclass(frozen=True, slots=True)
class Finished:
    """What finishing found: rows of others hidden, adopted files rebuilt."""

    rows_hidden: int
    fragments_rebuilt: int


def finish_newest(context: FlusherContext, indexes: dict[Region, RegionIndex]) -> Finished | None:
    """Finish the newest merge; None if it was finished already (or there is none)."""
    # Step 1
    newest = context.table.newest()
    in_force = context.watermarks.at(newest.version)
    if in_force.version == 0 or in_force.merge is None:
        return None
    key = paths.merge_finished(in_force.version)
    if context.store.get(key) is not None:
        return None
    merge = context.table.transaction(in_force.version)
    finished = Finished(0, 0)
    if isinstance(merge, TransactionInfo):
        for _ in range(_TRIES):
            done = _follow_up(context, indexes, in_force, merge)
            if done is not None:
                finished = done
                break
        else:
            raise StoreUnavailable(f"the follow-up of table version {in_force.version} lost every race; tried {_TRIES}")
    # Step 5
    outcome = put_once(context.store, key, in_force.merge.encode())
    match outcome:
        case Done() | Lost() | Unknown():
            return finished  # lost: another flusher finished it; unknown: done again by the next round
        case _:
            assert_never(outcome)


def _follow_up(
    context: FlusherContext, indexes: dict[Region, RegionIndex], in_force: InForce, merge: TransactionInfo
) -> Finished | None:
    """Steps 2 to 4; None when another commit came first."""
    current = context.table.newest()
    live = {f.fragment_id: f for f in current.fragments()}
    before = _fragments(context, in_force.version - 1)
    # Step 2
    hidden: dict[int, list[int]] = {}
    read_version = int(merge.properties.get(PROPERTY_READ_VERSION, merge.read_version))
    read = _fragments(context, read_version)
    if read_version + 1 != in_force.version and before is not None and read is not None:
        between = sorted((before.keys() - read.keys()) & live.keys())
        if between:
            found = find_keys(current, KeySet(_merged_keys(context, indexes, in_force)), between)
            for address in found.addresses:
                hidden.setdefault(int(address >> np.uint64(32)), []).append(int(address & np.uint64(0xFFFFFFFF)))
    # Step 3
    after = _fragments(context, in_force.version)
    added = [] if after is None or before is None else [after[i] for i in after.keys() - before.keys() if i in live]
    missing = set(context.table.files_missing([name for f in added for name in f.files]))
    broken = [f for f in added if missing.intersection(f.files)]
    if not hidden and not broken:
        return Finished(0, 0)
    # Step 4
    rebuilt = _rebuild(context, indexes, in_force, missing) if broken else ()
    return _commit(context, current, hidden, broken, rebuilt, in_force)


def _commit(
    context: FlusherContext,
    current: PinnedTable,
    hidden: dict[int, list[int]],
    broken: list[Fragment],
    rebuilt: tuple[str, ...],
    in_force: InForce,
) -> Finished | None:
    updated: list[str] = []
    removed = [f.fragment_id for f in broken]
    for fragment_id, rows in sorted(hidden.items()):
        changed = current.hide_rows(fragment_id, rows)
        if changed is None:
            removed.append(fragment_id)
        else:
            updated.append(changed)
    guard = sentinel(current.fragments())
    if guard is not None and guard.fragment_id not in {*hidden, *removed}:
        updated.append(guard.json)
    followup = context.new_id()
    commit = TableCommit(
        read_version=current.version,
        new_fragments=rebuilt,
        updated_fragments=tuple(updated),
        removed_fragment_ids=tuple(removed),
        properties={PROPERTY_FOLLOWUP: in_force.merge or "", "lancewal.followup_id": followup},
        strict=False,
    )
    with point("followup.commit", version=in_force.version):
        landed = send(context, commit, followup)
    if isinstance(landed, Refused):
        return None
    return Finished(sum(len(rows) for rows in hidden.values()), len(broken))


def _fragments(context: FlusherContext, version: int) -> dict[int, Fragment] | None:
    """Fragments of a version by id; None if the version is gone."""
    try:
        return {f.fragment_id: f for f in context.table.at(version).fragments()}
    except VersionGone:
        return None


def _merged_generations(
    context: FlusherContext, indexes: dict[Region, RegionIndex], in_force: InForce
) -> list[tuple[Region, GenerationRecord]]:
    """The generations that the merge in force took, as far as the indexes still name them."""
    earlier = context.watermarks.at(TableVersion(in_force.version - 1))
    return [
        (region, record)
        for region, index in sorted(indexes.items())
        for record in index.generations
        if earlier.generation(region) < record.generation <= in_force.generation(region)
    ]


def _merged_keys(context: FlusherContext, indexes: dict[Region, RegionIndex], in_force: InForce) -> pa.Table:
    rows = context.contract.rows
    names = list(rows.primary_key)
    keys = [rows.key.empty_table()]
    for region, record in _merged_generations(context, indexes, in_force):
        try:
            if record.snapshot is None:
                continue
            snapshot = read_snapshot(context.store, record.snapshot)
            keys.append(read_rows(context.table, snapshot, names, rows))
            keys.append(read_gone(context.store, snapshot, rows))
            keys.append(read_partials(context.store, snapshot, rows).select(names))
        except ObjectMissing:
            entries = entries_of(context.store, context.tasks, region, record)
            keys.append(fold([e.rows for e in entries], rows).keys(rows))
    table = pa.concat_tables(keys).combine_chunks()
    return table.group_by(names).aggregate([]).select(names).cast(rows.key)


def _rebuild(
    context: FlusherContext, indexes: dict[Region, RegionIndex], in_force: InForce, missing: set[str]
) -> tuple[str, ...]:
    """Write the rows of adopted snapshots whose files are missing anew, from their WAL entries."""
    tables: list[pa.Table] = []
    names: set[str] = set()
    for region, record in _merged_generations(context, indexes, in_force):
        if record.snapshot is None:
            continue
        snapshot = read_snapshot(context.store, record.snapshot)
        files = {name for fragment in snapshot.fragments for name in fragment_files(fragment)}
        if files & missing:
            names |= files
            entries = entries_of(context.store, context.tasks, region, record)
            tables.append(fold([e.rows for e in entries], context.contract.rows).rows)
    if missing - names:
        raise ObjectMissing(
            f"table version {in_force.version} refers to data files that are gone and that no snapshot explains: "
            f"{sorted(missing - names)[:3]}; run `lancewal verify`",
            version=in_force.version,
        )
    return context.table.write_rows(pa.concat_tables(tables))
