"""Whether a strong read would find what it needs: indexes, logs, flushes and data files, looked at from outside.

Guarantees
 1. What is named stops strong reads now, and is named with the command that helps.  Absence is proven by a GET or HEAD, and
    what services may have changed meanwhile is read again first.
 2. It costs at most ``BYTES_MAX`` bytes of checksums, one listing of data files, and ``FILES_MAX`` questions for single ones
    that it does not show.  What was not looked at is said.

Steps
 1. Each index reaches as far as the table has merged, and names what lies behind.
 2. Segments of generations without a flush, by their checksums, the newest first.  Their trailers were read before.
 3. Of each unmerged flush the side files, by their checksums, and that the data files are there.  Where some are
    missing, a read goes to the log: its segments must be there.
 4. The data files and deletion vectors of the table's newest version are there, as large as they were written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from lancewal_core.errors import (
    FLUSH_DAMAGED,
    LOG_LOST,
    LancewalError,
    ObjectCorrupt,
    ObjectMissing,
    PlanStale,
    StoreInconsistent,
    VersionGone,
)
from lancewal_core.names import paths
from lancewal_core.names.ids import Region
from lancewal_core.region.flush_files import check_sides
from lancewal_core.region.flushes.manifest import FlushedGeneration, by_flush
from lancewal_core.region.generation_entries import entries_of
from lancewal_core.region.history import check_reaches
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.state import GenerationRecord, RegionState
from lancewal_core.table.protocol import PinnedTable, Table, fragment_objects
from lancewal_core.table.watermarks import InForce
from lancewal_core.wal.segment import decode_segment

BYTES_MAX = 64 << 20
"""Some seconds from an object store."""
FILES_MAX = 1_000
LISTED_MAX = 100_000
"""Objects; a hundred requests of a store that lists a thousand at a time."""


@dataclass(slots=True)
class Unmerged:
    """Generations of a region that wait to be merged."""

    region: Region
    index: RegionState | None
    flushes: Sequence[tuple[GenerationRecord, FlushedGeneration]]


@dataclass(frozen=True, slots=True)
class SegmentSize:
    """A segment of a generation without a flush."""

    key: str
    nbytes: int
    written_at_ms: int


@dataclass(slots=True)
class Readability:
    """Findings of the look."""

    problems: list[str] = field(default_factory=list)
    not_looked_at: list[str] = field(default_factory=list)
    _left: int = BYTES_MAX

    def take(self, nbytes: int) -> bool:
        """Whether so many more bytes may be read."""
        if nbytes > self._left:
            return False
        self._left -= nbytes
        return True


Check = Callable[[], list[str]]
"""A check of chosen objects.  Returns one message per problem; empty if all is sound."""


def _tried(call: Callable[[], object]) -> LancewalError | None:
    try:
        call()
    except LancewalError as error:
        return error
    return None


def _problems(errors: Iterable[LancewalError | None]) -> list[str]:
    return [f"{error.kind}: {error}" for error in errors if error is not None]


def look(
    opened: OpenedTable,
    pinned: PinnedTable,
    in_force: InForce,
    unmerged: Sequence[Unmerged],
    segments: Sequence[SegmentSize],
) -> Readability:
    """Steps 1 to 4."""
    found = Readability()
    found.problems += _problems(_tried(partial(_check_index, opened, in_force, region)) for region in unmerged)
    checks = [
        _check_segments(opened, segments, found),
        _check_flushes(opened, unmerged, found),
        _check_files(opened, pinned, found),
    ]
    for problems in opened.tasks.map(lambda check: check(), checks):
        found.problems += dict.fromkeys(problems)
    return found


def _check_index(opened: OpenedTable, in_force: InForce, unmerged: Unmerged) -> None:
    """Step 1."""
    region = unmerged.region
    try:
        _check_leads_on(region, unmerged.index, in_force)
    except StoreInconsistent:  # or merged, and trimmed, since these were read
        _, now = opened.watermarks.newest()
        index = opened.indexes.read([region]).get(region)
        try:
            _check_leads_on(region, index, now)
        except StoreInconsistent as error:
            command = f"`lancewal repair region {region.topic}-{region.partition}`"
            raise StoreInconsistent(f"{error}: {command}", region=region.name) from error


def _check_leads_on(region: Region, index: RegionState | None, in_force: InForce) -> None:
    """The index names what follows the watermark."""
    check_reaches(region, index, in_force)
    merged = in_force.generation(region)
    above = [] if index is None else [r for r in index.generations if r.generation > merged]
    if index is not None and (index.trimmed_generation > merged or (above and above[0].generation != merged + 1)):
        raise StoreInconsistent(
            f"region {region.name}: generations behind {merged} are not merged, and have left the index",
            region=region.name,
        )


def _check_segments(opened: OpenedTable, segments: Sequence[SegmentSize], found: Readability) -> Check:
    """Step 2."""
    order = sorted(segments, key=lambda segment: segment.written_at_ms, reverse=True)
    wanted = [segment for segment in order if found.take(segment.nbytes)]
    left = len(order) - len(wanted)
    if left:
        nbytes = sum(segment.nbytes for segment in order) - sum(segment.nbytes for segment in wanted)
        found.not_looked_at.append(f"the rows of {left} unmerged segments, {nbytes} bytes")

    def check(segment: SegmentSize) -> None:
        data = opened.store.get(segment.key)
        if data is None:
            return  # flushed and trimmed since: that it is missing was looked at before
        try:
            decode_segment(data, segment.key)
        except ObjectCorrupt as error:
            raise ObjectCorrupt(
                f"{error}. {LOG_LOST.replace('of the object that is lost or damaged', segment.key)}",
                object=segment.key,
            ) from error

    return lambda: _problems(opened.tasks.map(lambda segment: _tried(lambda: check(segment)), wanted))


def _check_flushes(opened: OpenedTable, unmerged: Sequence[Unmerged], found: Readability) -> Check:
    """Step 3; each object is asked for once, whatever the number of generations that have something in it."""
    records = {(one.region, record.generation): record for one in unmerged for record, _ in one.flushes}
    flushes = [flushed for one in unmerged for _, flushed in one.flushes]
    wanted = {
        (s.region, s.generation): found.take(sum(side.size for side in (s.deletes, s.patches) if side is not None))
        for s in flushes
    }
    if not all(wanted.values()):
        found.not_looked_at.append(f"deletes and patches of {[*wanted.values()].count(False)} unmerged flushes")

    def in_log(part: FlushedGeneration, missing: ObjectMissing) -> LancewalError | None:
        return _tried(lambda: _check_log(opened, part.region, records[part.region, part.generation], missing))

    def check(parts: Sequence[FlushedGeneration]) -> list[str]:
        rows = _tried(lambda: _check_rows(opened.table, parts[0]))
        looked = [part for part in parts if wanted[part.region, part.generation]]
        # Else what lies between them would be fetched too.
        runs = [looked] if len(looked) == len(parts) else [[part] for part in looked]
        sides = {
            (part.region, part.generation): error
            for run in runs
            for part, error in zip(run, check_sides(opened.store, run, opened.contract.rows), strict=True)
        }
        errors: list[LancewalError | None] = []
        for part in parts:
            error = sides.get((part.region, part.generation)) or (rows if part.rows else None)
            missing = error if isinstance(error, ObjectMissing) else None
            errors.append(error if missing is None else in_log(part, missing))
        return _problems(errors)

    return lambda: [problem for some in opened.tasks.map(check, by_flush(flushes)) for problem in some]


def _check_rows(table: Table, flushed: FlushedGeneration) -> None:
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
    """A flush that is missing is read from the log, which must have all of it."""
    try:
        entries_of(opened, region, record)
    except PlanStale:
        index = opened.indexes.read([region]).get(region)
        if index is None or record not in index.generations:
            return  # merged or rebuilt since
        raise ObjectMissing(
            f"{missing}, and its log does not have the rows any more. Put the file back; or, where Kafka still has the "
            f"records: `lancewal repair segment {paths.wal_segment(record.log, record.first_sequence)}`",
            object=str(missing.where.get("object", "")),
        ) from missing


def _check_files(opened: OpenedTable, pinned: PinnedTable, found: Readability) -> Check:
    """Step 4."""

    def check() -> list[str]:
        try:
            return _wrong_files(opened, pinned, found)
        except LancewalError as error:
            return _problems([error])

    return check


def _wrong_files(opened: OpenedTable, pinned: PinnedTable, found: Readability) -> list[str]:
    wanted, folders = _files_of(pinned), (paths.DATA, paths.DELETIONS)
    listings = opened.tasks.map(lambda folder: opened.store.list(folder, limit=LISTED_MAX), folders)
    listed = {info.key: info.size for listing in listings for info in listing}
    absent = [key for key in wanted if key not in listed]
    asked = absent[:FILES_MAX]
    parts = opened.tasks.map(lambda key: opened.store.get_range(key, 0, 1), asked)
    wrong = {key: ("object_missing", "is missing") for key, part in zip(asked, parts, strict=True) if part is None}
    if len(absent) > FILES_MAX:
        found.not_looked_at.append(f"{len(absent) - FILES_MAX} data files that a listing does not show")
    for key, size in wanted.items():
        if size and listed.get(key, size) != size:
            wrong[key] = ("object_corrupt", f"has {listed[key]} bytes, not {size}")
    found.not_looked_at.append("what the data files hold (`lancewal verify` does)")
    if not wrong:
        return []
    # A clean-up may have taken what only older versions need.
    newest = opened.table.newest()
    needed = wanted if newest.version == pinned.version else _files_of(newest)
    return [
        f"{kind}: {key} of table version {pinned.version} {what}: put it back (an object store with versioning has it); "
        "no command makes it anew"
        for key, (kind, what) in wrong.items()
        if key in needed
    ]


def _files_of(pinned: PinnedTable) -> Mapping[str, int]:
    """Objects that the version refers to, and their sizes, 0 where that is not recorded."""
    found: dict[str, int] = {}
    for fragment in pinned.fragments():
        found |= fragment_objects(pinned.fragment_json(fragment.fragment_id))
    return found
