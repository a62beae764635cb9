"""The files of a compaction: written by its tasks, brought into the table by its commit, and there.

A clean-up with ``delete_unverified`` takes files that no version refers to yet, also those of a compaction before its commit.

Guarantees
 1. ``mend`` returns only if the files are there.  It writes those that were taken again, from the version that the compaction
    read, and replaces the broken fragments; it is asked right behind each commit.
 2. ``mend_left`` does so for a process that died in between.  It is asked by whoever meets a file that is not there: a round
    of the flusher, which reads the keys of every new file, and the next compaction that reads it.
 3. What cannot be written again, because that version is gone too or others have changed the fragments: ``ObjectMissing``.

Steps of ``mend_left``
 1. Which files does the newest version lack?
 2. Find the newest compaction whose fragments have one of them.
 3. The version right below it has the rows: the commit conflicted with whoever had changed these fragments.  As ``mend``.
"""

from __future__ import annotations

from collections.abc import Sequence

from lancewal_core.errors import ObjectMissing, VersionGone
from lancewal_core.ids import TableVersion
from lancewal_core.table import PinnedTable, RewriteBounds, TableCommit, TransactionGone, TransactionInfo, files_of
from lancewal_flusher.commit import Refused, lost_files, send
from lancewal_flusher.compaction_plan import CompactionLimits
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.rewrite_task import RewriteTask

PROPERTY_COMPACTION = "lancewal.compaction"
BATCH_BYTES = 2 << 20
BUFFER_BYTES = 32 << 20
VERSIONS_MAX = 1_000
"""So many transactions are read, at most, to find what brought a file."""
_TRIES = 3


def write_anew(context: FlusherContext, tasks: Sequence[RewriteTask]) -> tuple[str, ...]:
    """Run these tasks; fragments that no version refers to, as JSON.  Raises ``VersionGone``."""
    return tuple(text for done in context.runner.rewrite(tasks) for text in done.fragments)


def bounds(limits: CompactionLimits, *, copy: bool) -> RewriteBounds:
    """Of one task."""
    return RewriteBounds(BATCH_BYTES, BUFFER_BYTES, limits.target_rows, limits.target_bytes, copy=copy)


def replace_fragments(
    context: FlusherContext, pinned: PinnedTable, ids: Sequence[int], written: Sequence[str]
) -> TableVersion | Refused:
    """Commit that these fragments of ``pinned`` are the ones ``written`` now."""
    commit = TableCommit(
        read_version=pinned.version,
        new_fragments=tuple(written),
        updated_fragments=(),
        removed_fragment_ids=(),
        properties={PROPERTY_COMPACTION: context.new_id()},
        strict=False,
        rewritten=tuple(pinned.fragment_json(number) for number in sorted(ids)),
    )
    return send(context, commit, PROPERTY_COMPACTION)


def mend(
    context: FlusherContext, tasks: Sequence[RewriteTask], written: tuple[str, ...], landed: TableVersion
) -> tuple[tuple[str, ...], TableVersion]:
    """The fragments that are in the table now, and since when.

    The version that the tasks read has their rows: the commit that landed says that nobody had touched them before, and the
    next one that nobody has since.
    """
    cause, lost = "", lost_files(context, written)
    for _ in range(_TRIES):
        if not lost:
            return written, landed
        try:
            again = write_anew(context, tasks)
            broken = context.table.at(landed)
        except VersionGone as error:
            cause = str(error)
            break
        files = files_of(written)
        done = replace_fragments(
            context, broken, [f.fragment_id for f in broken.fragments() if files & {*f.files}], again
        )
        if isinstance(done, Refused):
            cause = done.reason
        else:
            written, landed = again, done
        lost = lost_files(context, written)
    if not lost:
        return written, landed
    raise ObjectMissing(
        f"table version {landed} refers to data files that a compaction had written and a clean-up (delete_unverified) has "
        f"taken: {lost[:3]}; they cannot be written again: {cause}. Restore version {landed - 1}, before a clean-up takes it "
        "too; then `lancewal repair restored --after-restore replay`",
        version=landed,
    )


def mend_left(context: FlusherContext) -> TableVersion | None:
    """The version since which files are there again that a compaction left lost; None if no compaction did."""
    # Step 1
    pinned = context.table.newest()
    live = sorted({name for f in pinned.fragments() for name in f.files})
    lost = {
        name for found in context.tasks.map(lambda name: context.table.files_missing([name]), live) for name in found
    }
    # Step 2
    for version in range(pinned.version, max(pinned.version - VERSIONS_MAX, 1) if lost else pinned.version, -1):
        info = context.table.transaction(version)
        if isinstance(info, TransactionGone):
            break
        if not isinstance(info, TransactionInfo) or PROPERTY_COMPACTION not in info.properties:
            continue
        try:
            below, landed = context.table.at(version - 1), context.table.at(version)
        except VersionGone:
            break
        before, after = ({f.fragment_id for f in at.fragments()} for at in (below, landed))
        written = tuple(landed.fragment_json(number) for number in sorted(after - before))
        # Step 3
        if lost & files_of(written):
            task = RewriteTask(below.version, tuple(sorted(before - after)), bounds(CompactionLimits(), copy=False))
            return mend(context, [task], written, landed.version)[1]
    return None
