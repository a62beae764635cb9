"""Check whether a strong read would find what it needs: region states, logs, flushes and data files.

Guarantees
 1. Each reported problem stops strong reads now, and names the command that helps.  Absence is proven by a GET or HEAD.
    State that services may have changed meanwhile is read again first.
 2. The check reads at most ``BYTES_MAX`` bytes to verify checksums, lists the data files once, and asks for at most
    ``FILES_MAX`` single files that the listing does not show.  The report says what was not checked.

Steps
 1. Check that each region's state covers what the table has merged, and lists what follows, as a read plan requires.
 2. Verify the checksums of segments of generations without a flush, the newest first.  Their trailers were read before.
 3. For each unmerged flush, verify the checksums of the side files, and check that the data files exist.  If some are
    missing, a read uses the log instead, so its segments must exist.
 4. Check that the data files and deletion vectors of the table's newest version exist, with the sizes that were written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from lancewal_core.errors import (
    FLUSH_DAMAGED,
    LancewalError,
    ObjectCorrupt,
    ObjectMissing,
    PlanStale,
    Refresh,
    StoreInconsistent,
    VersionGone,
    counted,
    or_error,
)
from lancewal_core.names import paths
from lancewal_core.names.ids import Region
from lancewal_core.region.flush_files import check_sides
from lancewal_core.region.flushes.manifest import FlushedGeneration, by_flush
from lancewal_core.region.generation_entries import entries_of
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.state import GenerationRecord
from lancewal_core.table.protocol import PinnedTable, StoredTable, fragment_objects
from lancewal_core.table.watermarks import InForce
from lancewal_core.wal.segment import Trailer, decode_segment
from lancewal_tables.status.unmerged_counts import UnmergedCounts

BYTES_MAX = 64 << 20
"""Upper bound of the bytes that ``look`` reads in all checks: some seconds from an object store."""
FILES_MAX = 1_000
LISTED_MAX = 100_000
"""Upper bound of the number of objects that are listed: a hundred requests to a store that lists a thousand at a time."""

Check = Callable[[], Iterable[LancewalError]]
"""A check of some stored objects.  Returns an error for each problem, or raises the error."""


@dataclass(slots=True)
class Readability:
    """Result of ``look``: problems of strong reads, and what was not checked."""

    problems: Sequence[str] = ()
    not_looked_at: list[str] = field(default_factory=list)
    _left: int = BYTES_MAX

    def take(self, nbytes: int) -> bool:
        """Return whether ``nbytes`` more bytes may be read (``BYTES_MAX``).  If so, count them as read."""
        if nbytes > self._left:
            return False
        self._left -= nbytes
        return True


def look(
    opened: OpenedTable,
    pinned: PinnedTable,
    in_force: InForce,
    counted: Sequence[UnmergedCounts],
    segments: Sequence[Trailer],
) -> Readability:
    """Check everything that a strong read needs (steps 1 to 4).  ``segments``: trailers of the segments with entries
    that no flush has."""
    found = Readability()
    checks: list[Check] = [
        *(partial(_check_index, opened, in_force, counts) for counts in counted if counts.index_read),
        *_of_segments(opened, segments, found),
        *_of_flushes(opened, counted, found),
        partial(_wrong_files, opened, pinned, found),
    ]
    answers = opened.tasks.map(or_error, checks)
    wrong = (error for some in answers for error in ((some,) if isinstance(some, LancewalError) else some))
    found.problems = tuple(dict.fromkeys(f"{error.kind}: {error}" for error in wrong))
    return found


def _check_index(opened: OpenedTable, in_force: InForce, counts: UnmergedCounts) -> tuple[()]:
    """Raise ``StoreInconsistent`` if the region's state does not fit what the table has merged (step 1)."""
    from lancewal_reader.plan.strong import unmerged_generations

    region = counts.region
    try:
        unmerged_generations(region, counts.index, in_force)
    except Refresh:  # perhaps only because the region was merged and trimmed since the states were read
        _, now = opened.watermarks.newest()
        state = opened.states.read([region]).get(region)
        try:
            unmerged_generations(region, state, now)
        except Refresh as error:
            command = f"`lancewal repair region {region.topic}-{region.partition}`"
            raise StoreInconsistent(f"{error}: {command}", region=region.name) from error
    return ()


def _of_segments(opened: OpenedTable, segments: Sequence[Trailer], found: Readability) -> list[Check]:
    """Return a check for each segment, as far as ``BYTES_MAX`` allows (step 2)."""
    checks, left = list[Check](), list[int]()
    for segment in sorted(segments, key=lambda segment: segment.written_at_ms, reverse=True):
        nbytes = sum(batch.section.length for batch in segment.batches)
        if found.take(nbytes):
            checks.append(partial(_check_segment, opened, paths.wal_segment(segment.log, segment.sequence)))
        else:
            left.append(nbytes)
    if left:
        found.not_looked_at.append(f"the rows of {counted(len(left), 'unmerged segment')}, {sum(left)} bytes")
    return checks


def _check_segment(opened: OpenedTable, key: str) -> tuple[()]:
    data = opened.store.get(key)
    if data is None:
        return ()  # flushed and trimmed since: that it is missing was looked at before
    try:
        decode_segment(data, key)
    except ObjectCorrupt as error:
        advice = f"If Kafka still has the records, run `lancewal repair segment {key}`"
        raise ObjectCorrupt(f"{error}. {advice}", object=key) from error
    return ()


def _of_flushes(opened: OpenedTable, counted: Sequence[UnmergedCounts], found: Readability) -> list[Check]:
    """Return a check for each flush (step 3).  Each object is requested once, however many generations share it."""
    records = {(part.region, part.generation): record for counts in counted for record, part in counts.snapshots}
    flushes = [part for counts in counted for _, part in counts.snapshots]
    wanted = {
        (part.region, part.generation)
        for part in flushes
        if found.take(sum(side.size for side in (part.deletes, part.patches) if side is not None))
    }
    if len(wanted) < len(flushes):
        found.not_looked_at.append(f"deletes and patches of unmerged flushes ({len(flushes) - len(wanted)})")

    def check(parts: Sequence[FlushedGeneration]) -> list[LancewalError]:
        rows = or_error(lambda: _check_rows(opened.table, parts[0]))
        looked = [part for part in parts if (part.region, part.generation) in wanted]
        # Else what lies between them would be fetched too.
        runs = [looked] if len(looked) == len(parts) else [[part] for part in looked]
        sides = {
            (part.region, part.generation): error
            for run in runs
            for part, error in zip(run, check_sides(opened.store, run, opened.columns_of(run[0])), strict=True)
        }
        errors: list[LancewalError | None] = []
        for part in parts:
            of = part.region, part.generation
            error = sides.get(of) or (rows if part.rows else None)
            if isinstance(error, ObjectMissing):
                error = or_error(partial(_check_log, opened, part.region, records[of], error))
            errors.append(error)
        return [error for error in errors if error is not None]

    return [partial(check, parts) for parts in by_flush(flushes)]


def _check_rows(table: StoredTable, flushed: FlushedGeneration) -> None:
    objects = [found for fragment in flushed.fragments for found in fragment_objects(fragment).items()]
    for key, size in objects:
        name = key.removeprefix(paths.DATA)
        try:
            (found,) = table.file_bytes([name])
        except VersionGone as error:
            raise ObjectMissing(f"data file {name} of {flushed.key} is missing", object=flushed.key) from error
        if size and found != size:
            raise ObjectCorrupt(
                f"data file {name} of {flushed.key} has {found} bytes, not {size}; {FLUSH_DAMAGED}",
                object=flushed.key,
            )


def _check_log(opened: OpenedTable, region: Region, record: GenerationRecord, missing: ObjectMissing) -> None:
    """Raise ``ObjectMissing`` if the log does not have all entries of a generation whose flush is missing."""
    try:
        entries_of(opened, region, record)
    except PlanStale:
        state = opened.states.read([region]).get(region)
        if state is None or record not in state.generations:
            return  # merged or rebuilt since
        raise ObjectMissing(
            f"{missing}, and its log does not have the rows any more. Put the file back; or, if Kafka still has the "
            f"records: `lancewal repair segment {paths.wal_segment(record.log, record.first_sequence)}`",
            object=str(missing.where.get("object", "")),
        ) from missing


def _wrong_files(opened: OpenedTable, pinned: PinnedTable, found: Readability) -> list[LancewalError]:
    """Return an error for each file of the table's version that is missing or has the wrong size (step 4)."""
    wanted, folders = _files_of(pinned), (paths.DATA, paths.DELETIONS)
    listings = opened.tasks.map(lambda folder: opened.store.list(folder, limit=LISTED_MAX), folders)
    listed = {info.key: info.size for listing in listings for info in listing}
    absent = [key for key in wanted if key not in listed]
    asked = absent[:FILES_MAX]
    parts = opened.tasks.map(lambda key: opened.store.get_range(key, 0, 1), asked)
    wrong: dict[str, tuple[type[LancewalError], str]] = {
        key: (ObjectMissing, "is missing") for key, part in zip(asked, parts, strict=True) if part is None
    }
    if len(absent) > FILES_MAX:
        found.not_looked_at.append(f"data files that a listing does not show ({len(absent) - FILES_MAX})")
    for key, size in wanted.items():
        if size and listed.get(key, size) != size:
            wrong[key] = (ObjectCorrupt, f"has {listed[key]} bytes, not {size}")
    found.not_looked_at.append("what the data files hold (`lancewal verify` does)")
    if not wrong:
        return []
    # A clean-up may have taken what only older versions need.
    newest = opened.table.newest()
    needed = wanted if newest.version == pinned.version else _files_of(newest)
    return [
        error(
            f"{key} of table version {pinned.version} {what}: put it back (an object store with versioning has it); "
            "no command can rebuild it",
            object=key,
        )
        for key, (error, what) in wrong.items()
        if key in needed
    ]


def _files_of(pinned: PinnedTable) -> Mapping[str, int]:
    """Return the objects that the version refers to, with their sizes in bytes, or 0 if the size is not recorded."""
    found: dict[str, int] = {}
    for fragment in pinned.fragments():
        found |= fragment_objects(pinned.fragment_json(fragment.fragment_id))
    return found
