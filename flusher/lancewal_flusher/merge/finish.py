"""Finish a merge: the work after its commit landed, before another merge may build on it.

Guarantees
 1. Once the merge is finished, no key of the merge has a second row because a user appended one between plan and
    commit: Kafka's row stays, the user's is hidden.
 2. Every adopted data file exists.  If a clean-up took one between check and commit, its rows are rebuilt from the
    WAL, for all regions that have rows in it, and the broken fragment is removed.
 3. ``merges/<version>.finished`` is written last: after 1 and 2, after the proof that the merge did not land on top
    of another merge, and after the merge's own record.  Until then finishing is repeated, and repeating is harmless.
    The record must come before the ``finished`` object.  After a merge is finished, a clean-up may leave only two
    later commits of others.  Without the record, the watermarks would then be unknown.
 4. Finishing needs only two versions, the merge's own and the newest.  The merge's transaction says what must be
    known of the version that the merge was computed from (``commit.facts``).

Steps of ``finish_newest``
 1. Find the merge that set the watermarks in force, and whether it is finished.
 2. Prove again that no other merge came between the version that the merge read and its own.  Write its record, if it
    is missing.  For a merge that this process has just made, steps 1 and 2 and the check of step 4 are done, and
    ``Proven`` has their results.
 3. Pin the newest version.  After a restore or an overwrite since the merge, finishing ends here with an error.  Right
    after a merge of this process, the merge's own version is pinned.  If others have changed a fragment since then,
    the follow-up conflicts; rows that they have added since then stay.  If the merge landed above its read version
    + 1: find the rows with its keys that others added in between (``foreign_rows``).
 4. Check the files of the fragments that the merge added.
 5. Send one follow-up commit, if there is anything to change: deletion vectors, rebuilt rows, the sentinel, and
    ``lancewal.followup`` = the merge's uuid.  It has no watermarks.  After a conflict: step 3 again, from the newest
    version.
 6. Write the merge's record, if it may be missing, then the ``finished`` object.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import assert_never

import pyarrow as pa

from lancewal_core.errors import (
    ATTACH_A_COPY,
    Corrupt,
    MergeUnproven,
    ObjectMissing,
    PlanStale,
    StoreUnavailable,
    VersionGone,
    or_raised,
)
from lancewal_core.keys.conflicts import read_conflicts
from lancewal_core.keys.origin import MergedFrom
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, Region, TableVersion
from lancewal_core.region.flush_files import read_each, read_parts
from lancewal_core.region.flushes.manifest import FlushedGeneration
from lancewal_core.region.generation_entries import kept_entries
from lancewal_core.region.state import GenerationRecord
from lancewal_core.region.states import RegionStates
from lancewal_core.rows.fold import Folded, fold
from lancewal_core.rows.key_set import KeySet, distinct
from lancewal_core.store.object_store import put_new
from lancewal_core.table.protocol import (
    PinnedTable,
    StoredTable,
    TransactionGone,
    TransactionInfo,
    TransactionUnreadable,
    raise_file_lost,
)
from lancewal_core.table.watermarks import PROPERTY_FOLLOWUP, InForce
from lancewal_flusher.commit.facts import MergeFacts, facts_of
from lancewal_flusher.commit.other_commits import send_follow_up
from lancewal_flusher.commit.row_origins import Span, Spans, divided
from lancewal_flusher.commit.send import (
    Refused,
    check_nothing_undone,
    hide,
    is_finished,
    missing_files,
    prove,
    remember_finished,
)
from lancewal_flusher.commit.widened import check_version
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.merge.foreign_rows import foreign_rows
from lancewal_flusher.merge.look import Look
from lancewal_flusher.merge.merge import Proven
from lancewal_flusher.origins import origins_of

_TRIES = 10


@dataclass(frozen=True, slots=True)
class Finished:
    """Result of finishing a merge.  ``version``: the merge's.  ``rows_hidden``: rows of other commits that were
    hidden.  ``fragments_rebuilt``: adopted fragments with missing files that were replaced.
    """

    version: TableVersion
    rows_hidden: int
    fragments_rebuilt: int


@dataclass(frozen=True, slots=True)
class SettledMerge:
    """The watermarks of the newest merge, which is finished.  ``finished`` is None if it was finished before the
    call.
    """

    in_force: InForce
    finished: Finished | None


def finish_newest(context: FlusherContext, seen: Look | Proven | None = None) -> SettledMerge:
    """Finish the newest merge if it is not finished.  Raises ``MergeUnproven`` or ``ObjectMissing`` if a person must
    look at the table.

    ``seen``: the state that the caller has just read, or the merge that it has just made.  None: the newest version
    is read.
    """
    # Step 1
    in_force = context.watermarks.newest()[1] if seen is None else seen.in_force
    proven = seen if isinstance(seen, Proven) else None
    if proven is None and is_finished(context, in_force):
        return SettledMerge(in_force, None)
    try:
        finished = _finish(context, in_force, proven)
    except (MergeUnproven, ObjectMissing, PlanStale):
        if is_finished(context, in_force):
            # Another flusher was faster, and has trimmed the generations since.
            return SettledMerge(in_force, None)
        raise
    # Step 6
    context.watermarks.recorded(in_force, in_force.version, "merge")
    key = paths.merge_finished(in_force.version, context.contract.making)
    put_new(context.store, key, (in_force.merge or "").encode())  # lost: another flusher finished it
    remember_finished(context, in_force)
    return SettledMerge(in_force, finished)


def _finish(context: FlusherContext, in_force: InForce, proven: Proven | None) -> Finished:
    """Prove and record the merge, and send its follow-up if there is anything to do (steps 2 to 5 of ``finish_newest``)."""
    facts = _facts(context.table, in_force) if proven is None else proven.facts
    # Step 2
    if proven is None:
        check_nothing_undone(context, facts.read_version, in_force.version)
        prove(context, facts.read_version, in_force.version)
        context.watermarks.record(in_force, in_force.version, "merge")
    for attempt in range(_TRIES):
        finished = _follow_up(context, in_force, facts, None if attempt else proven)
        if finished is not None:
            return finished
    raise StoreUnavailable(
        f"the follow-up of table version {in_force.version} was refused {_TRIES} times, since other commits landed "
        "first: try again"
    )


def _facts(table: StoredTable, in_force: InForce) -> MergeFacts:
    found = table.transaction(in_force.version)
    match found:
        case TransactionInfo():
            return facts_of(found, in_force.version)
        case TransactionGone() | TransactionUnreadable():
            raise MergeUnproven(
                f"table version {in_force.version} is a merge that was never finished, and the version is gone. Whether users "
                "appended the same keys, or files of the merge were lost, is no longer known: `lancewal verify` names "
                f"such keys. To go on, {ATTACH_A_COPY}",
                version=in_force.version,
            )
        case _:
            assert_never(found)


def _follow_up(context: FlusherContext, in_force: InForce, facts: MergeFacts, proven: Proven | None) -> Finished | None:
    """Look for work left by the merge, and do it in one follow-up commit (steps 3 to 5 of ``finish_newest``).

    ``proven``: begin at the version of this merge.  None: begin at the newest version.  Return None if another
    commit, or a clean-up, came first.
    """
    # Nothing of a restored or an overwritten table is ours to hide.
    current = context.watermarks.newest()[0] if proven is None else proven.pinned
    check_version(context, current)  # keys are looked up by the names of their columns
    ours = [f for f in current.fragments() if facts.files.intersection(f.files)]
    # Step 3
    try:
        hidden = _hidden(context, in_force, facts, current)
    except VersionGone as error:
        raise_file_lost(context.table, error, in_force.version, current.version)
        return None
    # Step 4
    missing = proven.missing if proven is not None else missing_files(context, {n for f in ours for n in f.files})
    if not hidden and not missing:
        return Finished(in_force.version, 0, 0)
    # Step 5
    rebuilt = _rebuild(context, in_force, facts, missing) if missing else _Rebuilt()
    broken = [f.fragment_id for f in ours if rebuilt.replaced.intersection(f.files)]
    changed = {**hide(current, hidden), **dict.fromkeys(broken)}
    origins = origins_of(context).properties(lambda: divided(rebuilt.fragments, rebuilt.spans))
    landed = send_follow_up(context, current, in_force, changed, rebuilt.fragments, origins)
    if isinstance(landed, Refused):
        return None
    return Finished(in_force.version, sum(map(len, hidden.values())), len(broken))


def _hidden(
    context: FlusherContext, in_force: InForce, facts: MergeFacts, current: PinnedTable
) -> dict[int, list[int]]:
    """Return the physical rows of other commits that must be hidden because the merge has their keys, by live
    fragment."""
    if in_force.version == facts.read_version + 1 or _followed_up(context.table, in_force, current):
        return {}
    try:
        landed = context.table.at(in_force.version)
    except VersionGone as error:
        raise MergeUnproven(
            f"table version {in_force.version} is a merge that was never finished, and the version is gone: "
            f"{error}. To go on, {ATTACH_A_COPY}",
            version=in_force.version,
        ) from error
    return foreign_rows(landed, current, facts, lambda: _merged_keys(context, in_force, facts), context.contract.rows)


def _followed_up(table: StoredTable, in_force: InForce, current: PinnedTable) -> bool:
    """Whether a follow-up of this merge has landed already.  If so, users' rows from before the follow-up are hidden.
    Equal rows that a user has appended since must stay."""
    for version in range(in_force.version + 1, current.version + 1):
        found = table.transaction(version)
        if isinstance(found, TransactionInfo) and found.properties.get(PROPERTY_FOLLOWUP) == in_force.merge:
            return True
    return False


@dataclass(frozen=True, slots=True)
class _Rebuilt:
    """Adopted flushes with missing files, whose rows were written again from the log."""

    replaced: frozenset[str] = frozenset()
    """Names of all data files of these flushes."""
    fragments: tuple[str, ...] = ()
    spans: Spans = ()
    """Regions of the rows in ``fragments``, in the order of the rows."""


def _taken(states: RegionStates, facts: MergeFacts) -> list[tuple[Region, GenerationRecord]]:
    """Return the generations that the merge took; each has a flush.  Raises ``MergeUnproven`` if one was trimmed.

    The region states normally have them: generations of an unfinished merge are not marked MERGED, and only MERGED ones
    are trimmed.
    """
    indexes = states.read(list(facts.generations))
    found = []
    for region, (first, last) in sorted(facts.generations.items()):
        records = {r.generation: r for r in (indexes[region].generations if region in indexes else ())}
        for generation in range(first, last + 1):
            record = records.get(Generation(generation))
            if record is None or record.flush is None:
                raise MergeUnproven(
                    f"a merge computed at table version {facts.read_version} was never finished, and generation "
                    f"{generation} of partition {region.name}, which it took, is trimmed already. To go on, "
                    f"{ATTACH_A_COPY}",
                    region=region.name,
                )
            found.append((region, record))
    return found


def _merged_keys(context: FlusherContext, in_force: InForce, facts: MergeFacts) -> pa.Table:
    """Return the keys of the merge, without keys of which records were set aside."""
    rows = context.contract.rows
    names = list(rows.primary_key)
    keys = [rows.key.empty_table()]
    conflicts = context.conflicts_of(in_force.conflicts)
    if facts.settled is not None:
        still = KeySet(conflicts.waiting_keys)
        waited = read_conflicts(context.store, facts.settled.before, context.contract).waiting_keys
        keys.append(waited.filter(pa.array(~still.contains(waited.columns))))
    for region, found in _taken_keys(context, facts):
        aside = KeySet(conflicts.waiting_of(region).select(names))
        keys.append(found.filter(pa.array(~aside.contains(found.columns))))
    table = pa.concat_tables(keys).combine_chunks()
    return distinct(table, rows)


def _taken_keys(context: FlusherContext, facts: MergeFacts) -> list[tuple[Region, pa.Table]]:
    """Return the keys of each generation that the merge took.  They come from its flush, or from the log if a part of
    the flush is gone."""
    rows = context.contract.rows
    taken = _taken(context.states, facts)

    def read(parts: Sequence[FlushedGeneration]) -> list[Folded | Corrupt]:
        written = context.columns_of(parts[0])
        return read_parts(context.store, context.table, parts, list(rows.primary_key), written)

    contents = read_each(context, taken, read)
    keys = []
    for (region, record), content in zip(taken, contents, strict=True):
        if content is None or isinstance(content, ObjectMissing):
            content = fold([context.rows_of(e) for e in kept_entries(context, region, record)], rows)
        keys.append((region, or_raised(content).keys(rows)))
    return keys


def _rebuild(context: FlusherContext, in_force: InForce, facts: MergeFacts, missing: Collection[str]) -> _Rebuilt:
    """Write the rows of adopted flushes with missing files again, from their WAL entries.  Raises ``ObjectMissing`` if
    a missing file was not adopted.
    """
    tables: list[pa.Table] = []
    spans: list[Span] = []
    replaced: set[str] = set()
    for region, record in _taken(context.states, facts):
        files = facts.adopted.get(region, frozenset())
        if files.intersection(missing):
            replaced |= files
            entries = kept_entries(context, region, record)
            tables.append(fold([context.rows_of(e) for e in entries], context.contract.rows).rows)
            spans.append((MergedFrom(region, entries[-1].next), tables[-1].num_rows))
    left = set(missing) - replaced
    if left:
        raise ObjectMissing(
            f"table version {in_force.version} refers to data files that are gone and that it did not adopt: "
            f"{sorted(left)[:3]}. Put them back, from a backup or the store's own versions",
            version=in_force.version,
        )
    written = context.table.write_rows(pa.concat_tables(tables), context.contract.fields_of)
    return _Rebuilt(frozenset(replaced), written, spans)
