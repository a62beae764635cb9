"""Compaction: fragments of the table are rewritten, as fewer ones, without the rows that are hidden in them.

Guarantees
 1. No row changes.  The commit conflicts with every commit in between that changed one of these fragments.  So rows
    that a merge has hidden there never come back.  After a conflict the written files are part of no version.
 2. A compaction conflicts with merges only by the fragments that it rewrites.  It rewrites the sentinel only if the
    caller allows it, between two merges of its own process, and only if the sentinel is no larger than
    ``round_bytes``.
 3. Each task reads at most ``round_bytes`` and needs far less memory (``table.lance.rewrite``).  The exceptions are a
    single large fragment with ``oversize``, and the first one of ``write_anew``.  Tasks run where those of merges run
    (``runner``).  No version names a task's files before step 4, however often the task runs.
 4. Nothing is rewritten while a merge is not finished, because ``finish`` finds the merge's fragments by their files.
 5. The commit carries no watermarks.  If the reply is lost, the commit is found by its uuid.
 6. The files that a compaction wrote exist.  If a clean-up (`delete_unverified`) removed some before the commit, they
    are written again from V, which has their rows.  If a clean-up has removed V too, ``ObjectMissing`` is raised.  If
    the process dies between the commit and this check, the files stay lost: the next merge stops with
    ``ObjectMissing``, and V still has the rows.
 7. Queries by a secondary index find the same rows before and after a compaction.  ``indexes`` makes these queries
    fast again.
 8. Fragments of which an index may hold old values are left to ``indexes``.
 9. In a table keyed by bytes, files are left alone if only a commit says through which regions their rows came.  If
    compaction rewrote them, their rows would count as rows of the regions that the key index has for their keys.

Steps of ``compact_next``
 1. Pin V, check that it is the contract's table, read W(V); refuse while the merge that set it is not finished.
 2. Choose the fragments (``compaction_plan``).
 3. Rewrite their live rows: a task for each group, and the first error is that of the round.
 4. ONE commit of all groups, from V, by URI, as Lance's ``Rewrite``.  Lance's own compaction commits by an open data
    set.  Lance compares such a commit only with versions that still exist.  It could bring back rows that were hidden
    in a version that was cleaned up.
 5. Committed: go on.  Conflict: nothing landed, plan again.  Unknown: look for the uuid in the versions above V.
 6. Files are missing: replace these fragments by what step 3 writes now, as in step 4.

Rounds of requests to the store (docs/reference/requests.md), as counted: 9 ("round of compaction").
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from lancewal_core.errors import ObjectMissing, VersionGone
from lancewal_core.names.ids import TableVersion
from lancewal_core.process.tasks import Tasks
from lancewal_core.table.protocol import Fragment, PinnedTable, RewriteBounds, StoredTable, files_of, fragment_bytes
from lancewal_flusher.commit.other_commits import send_compaction
from lancewal_flusher.commit.send import Refused, Why, lost_files, newest_finished
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.event_table import FlusherEvents
from lancewal_flusher.origins import origins_of
from lancewal_flusher.tasks.rewrite_task import RewriteTask
from lancewal_flusher.tasks.runner import Runner
from lancewal_flusher.upkeep.compaction_plan import (
    Choice,
    CompactionLimits,
    Group,
    Reason,
    Round,
)
from lancewal_flusher.upkeep.index_doubt import doubted_fragments
from lancewal_flusher.upkeep.index_plan import fitting

_TRIES = 3
BATCH_BYTES = 2 << 20
BUFFER_BYTES = 32 << 20
COPIED_BYTES_MIN = 16 << 20
"""If the fragments of a group have at least this many bytes on average, their pages are copied unchanged.  Pages of
small files are small, and would stay small."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """A round of compaction that landed."""

    version: TableVersion
    reason: Reason
    fragments_before: int
    fragments_after: int
    rows: int
    rows_dropped: int
    """Number of hidden rows that the new fragments no longer have."""
    bytes_read: int
    bytes_written: int

    def log(self, events: FlusherEvents) -> None:
        events.compaction_landed(
            version=self.version,
            reason=self.reason,
            fragments_before=self.fragments_before,
            fragments_after=self.fragments_after,
            rows=self.rows,
            dropped_rows=self.rows_dropped,
            read_bytes=self.bytes_read,
            written_bytes=self.bytes_written,
        )


CompactionResult = Compacted | Refused | None
"""Result of a round of compaction; None: no fragments are worth rewriting."""


@dataclass(slots=True)
class FileSizes:
    """Cache of the sizes of data files whose sizes the table does not record.  Lance records no size if pages were
    copied.
    """

    known: dict[str, int] = field(default_factory=dict)


def compact_next(
    context: FlusherContext, limits: CompactionLimits, sizes: FileSizes, *, with_sentinel: bool
) -> CompactionResult:
    """Run one round of compaction.  ``with_sentinel``: the sentinel may be rewritten, because no merge of this process
    is running.
    """
    # Step 1
    pinned = newest_finished(context)
    if isinstance(pinned, Refused):
        return pinned
    try:
        # Step 2
        chosen = choice_of(context, pinned, sizes, with_sentinel=with_sentinel).next_round(limits)
        if chosen is None:
            return None
    except VersionGone as error:
        return _files_gone(pinned, error)
    return _do(context, pinned, chosen, limits)


def _do(context: FlusherContext, pinned: PinnedTable, chosen: Round, limits: CompactionLimits) -> Compacted | Refused:
    """Rewrite the chosen fragments, commit, and write lost files again (steps 3 to 6 of ``compact_next``)."""
    # Step 3
    try:
        tasks = [_task(pinned, group, limits) for group in chosen.groups]
        written = _write(context.runner, tasks)
    except VersionGone as error:
        return _files_gone(pinned, error)
    # Step 4, 5
    ids = [f.fragment_id for f in chosen.fragments]
    landed = send_compaction(context, pinned, ids, written)
    if isinstance(landed, Refused):
        return landed
    # Step 6
    written, landed = _mend(context, tasks, written, landed)
    return Compacted(
        landed,
        chosen.reason,
        len(ids),
        len(written),
        rows=chosen.live_rows,
        rows_dropped=chosen.deleted_rows,
        bytes_read=chosen.nbytes,
        bytes_written=sum(fragment_bytes(text) for text in written),
    )


def write_anew(context: FlusherContext, fragment_ids: Collection[int], limits: CompactionLimits) -> CompactionResult:
    """Rewrite these fragments in one round, each by itself, the smallest first, up to ``round_bytes``.

    The first one is rewritten whatever its size, even if it is the sentinel.  Files whose regions only a commit records
    are left alone (guarantee 9).
    """
    pinned = newest_finished(context)
    if isinstance(pinned, Refused):
        return pinned
    try:
        wanted = set(fragment_ids) - origins_of(context).only_in_commits(pinned) - pinned.unrewritable_fragments()
        free = stored(
            context.table, context.tasks, [f for f in pinned.fragments() if f.fragment_id in wanted], FileSizes()
        )
        free.sort(key=lambda f: (f.nbytes, f.fragment_id))
        taken = free[: fitting([f.nbytes for f in free], limits.round_bytes)]
    except VersionGone as error:
        return _files_gone(pinned, error)
    groups = tuple((f,) for f in taken)
    return _do(context, pinned, Round(Reason.INDEXED, groups), limits) if groups else None


def choice_of(context: FlusherContext, pinned: PinnedTable, sizes: FileSizes, *, with_sentinel: bool) -> Choice:
    """Return the fragments from which step 2 chooses, also for a dry run.  Raises ``VersionGone`` if a clean-up has
    removed the version's files.
    """
    left_alone = pinned.unrewritable_fragments() | origins_of(context).only_in_commits(pinned)
    left_alone |= frozenset[int]().union(*doubted_fragments(pinned).values())
    return Choice(tuple(stored(context.table, context.tasks, pinned.fragments(), sizes)), left_alone, with_sentinel)


def _files_gone(pinned: PinnedTable, error: VersionGone) -> Refused:
    return Refused(
        f"files of table version {pinned.version} were deleted while they were being rewritten: {error}", Why.CLEANED_UP
    )


def _mend(
    context: FlusherContext, tasks: Sequence[RewriteTask], written: tuple[str, ...], landed: TableVersion
) -> tuple[tuple[str, ...], TableVersion]:
    """Write files again that a clean-up took (step 6).  Return the fragments that are in the table now, and the version
    that has them.

    Version V still has their rows.  The commit that landed proves that no other commit had changed the fragments
    before.  The commit that replaces the lost files proves it for the time since.  Raises ``ObjectMissing`` if the
    files cannot be written again.
    """
    cause, lost = "", lost_files(context, files_of(written))
    for _ in range(_TRIES):
        if not lost:
            break
        try:
            again = _write(context.runner, tasks)
            broken = context.table.at(landed)
        except VersionGone as error:
            cause = str(error)
            break
        files = files_of(written)
        ids = [f.fragment_id for f in broken.fragments() if files & {*f.files}]
        done = send_compaction(context, broken, ids, again)
        if isinstance(done, Refused):
            cause = done.reason
        else:
            written, landed, cause = again, done, "a clean-up took them again"
        lost = lost_files(context, files_of(written))
    if lost:
        raise ObjectMissing(
            f"table version {landed} refers to data files that a compaction had written and a clean-up (delete_unverified) "
            f"has taken: {sorted(lost)[:3]}; they cannot be written again: {cause}. Restore version {landed - 1}, before a "
            "clean-up takes it too; then `lancewal repair restored --rows-since replay`",
            version=landed,
        )
    return written, landed


def stored(table: StoredTable, tasks: Tasks, fragments: Sequence[Fragment], sizes: FileSizes) -> list[Fragment]:
    """Return the fragments with their sizes.  The store is asked for sizes that the table does not record."""
    unknown = [f for f in fragments if f.nbytes == 0]
    live = {name for f in unknown for name in f.files}
    names = sorted(live - sizes.known.keys())
    found = tasks.map(lambda name: table.file_bytes([name])[0], names)
    sizes.known |= dict(zip(names, found, strict=True))
    sizes.known = {name: size for name, size in sizes.known.items() if name in live}
    return [replace(f, nbytes=f.nbytes or sum(sizes.known[name] for name in f.files)) for f in fragments]


def _write(runner: Runner, tasks: Sequence[RewriteTask]) -> tuple[str, ...]:
    """Run the tasks, and return the JSON of the fragments that they wrote (step 3).  Raises ``VersionGone``."""
    return tuple(text for done in runner.rewrite(tasks) for text in done)


def _task(pinned: PinnedTable, group: Group, limits: CompactionLimits) -> RewriteTask:
    bounds = RewriteBounds(
        batch_bytes=BATCH_BYTES,
        buffer_bytes=BUFFER_BYTES,
        file_rows=limits.target_rows,
        file_bytes=limits.target_bytes,
        copy=sum(f.nbytes for f in group) >= COPIED_BYTES_MIN * len(group),
    )
    return RewriteTask(pinned.version, tuple(f.fragment_id for f in group), bounds)
