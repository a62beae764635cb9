"""The entries of generations that have ended, read from their logs.

Guarantee: the result for a generation is an error, or all of its entries in their order.  They go from its first
position to its next without a gap.

``entries_of`` reads the entries of one generation.  An entry that is missing may have been trimmed meanwhile.  Only
the region's state tells, so ``kept_entries`` reads that state too.  ``headers_of`` reads only the headers of entries,
without their rows, for several generations that lie in the same segments.  ``entries_together`` reads the entries of
several generations of one log.  The latter two read each segment once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Seq
from typing import Protocol, TypeVar

from lancewal_core.errors import LOG_LOST, Corrupt, ObjectMissing, PlanStale, or_raised
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, LogId, Position, Region, Sequence
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.state import GenerationRecord
from lancewal_core.wal.entry import Described, Entry, EntryHeader, is_chain, kept_bytes
from lancewal_core.wal.walk import walk, walk_trailers

E = TypeVar("E", bound=Described)
_SEGMENTS_AT_ONCE = 32
"""Largest number of segments that are read at once.  After that the memory of their entries is measured."""
_SEGMENTS_FIRST = 2
"""Number of segments that are read first.  If the log's writer was catching up with Kafka, each segment may take half
of the allowed memory."""


class InLog(Protocol):
    """Place of a generation in a log: the generation's record, or the fields of it that a plan keeps."""

    @property
    def generation(self) -> Generation: ...

    @property
    def log(self) -> LogId: ...

    @property
    def first(self) -> Position: ...

    @property
    def next(self) -> Position | None: ...

    @property
    def first_sequence(self) -> Sequence: ...

    @property
    def end_sequence(self) -> Sequence | None: ...


def entries_of(opened: OpenedTable, region: Region, record: InLog) -> list[Entry]:
    """Return the entries of a SEALED or later generation, from its log.

    Raises ``PlanStale`` if an entry is missing: it may have been trimmed since the state was read (``kept_entries``
    finds out).
    """
    walked = walk(
        opened.store, opened.tasks, record.log, record.first_sequence, before=record.end_sequence, regions=(region,)
    )
    return or_raised(_chain(region, record, (e for s in walked.segments for e in s.entries), walked.end))


def headers_of(opened: OpenedTable, generations: Seq[tuple[Region, InLog]]) -> list[list[EntryHeader] | PlanStale]:
    """Return the headers of the entries of generations that lie in the same segments of one log, an answer for each.

    The answer is ``PlanStale`` if the log does not have all entries.  Raise ``Corrupt`` if a segment is damaged.
    """
    _, one = generations[0]
    walked = walk_trailers(opened.store, opened.tasks, one.log, one.first_sequence, before=one.end_sequence)
    headers = [header for segment in walked.segments for header in segment.entries]
    return [_chain(region, record, headers, walked.end) for region, record in generations]


def _chain(region: Region, record: InLog, found: Iterable[E], end: Sequence) -> list[E] | PlanStale:
    """Return the entries of the generation among ``found``, which are entries of its log before segment ``end``.
    Return ``PlanStale`` if one is missing."""
    entries = [e for e in found if e.region == region and _is_of(record, e)]
    if record.next is None or not is_chain(entries, record.first, record.next):
        shown = f"{entries[0].first} to {entries[-1].next} in {len(entries)} entries" if entries else "no entry"
        return region.error(
            PlanStale,
            f"generation {record.generation} has the positions {record.first} to {record.next}, but its log does not show "
            f"all of them: {shown} before {paths.wal_segment(record.log, end)}",
            log=record.log,
        )
    return entries


def _is_of(record: InLog, entry: Described) -> bool:
    """Return whether ``entry``, which is of the same region, belongs to the generation."""
    return record.next is not None and record.first <= entry.first < record.next


def kept_entries(opened: OpenedTable, region: Region, record: GenerationRecord) -> list[Entry]:
    """Return ``entries_of`` a generation whose record the caller is about to change, by a flush, a rebuild or a
    merge.

    ``PlanStale`` means that the region's state no longer has this record, since another process was faster.
    ``Corrupt`` names the damaged or lost object of the log.
    """
    try:
        return entries_of(opened, region, record)
    except (PlanStale, Corrupt) as error:
        newer = opened.states.read([region]).get(region)
        if newer is None or record not in newer.generations:
            raise region.error(
                PlanStale,
                f"generation {record.generation} was flushed, rebuilt, merged or trimmed by another process meanwhile",
            ) from error
        if isinstance(error, Corrupt):
            raise
        raise ObjectMissing(f"{error}. {LOG_LOST}", region=region.name, log=record.log) from error


def entries_together(
    opened: OpenedTable, log: LogId, records: Mapping[Region, GenerationRecord], bytes_max: int
) -> dict[Region, list[Entry] | None]:
    """Return the entries of as many of these generations of one log as ``bytes_max`` has room for, at least of the
    first.

    A generation without room is not in the result.  The answer is None for a generation that could not be read
    together with others.  The caller must read it alone (``kept_entries``).
    """
    found: dict[Region, list[Entry]] = {region: [] for region in records}
    at = 0
    step, kept = _SEGMENTS_FIRST, 0
    try:
        while len(found) > 1 and (left := _left([records[region] for region in found], at)) is not None:
            at, stop = left.start, min(left.start + step, left.stop)
            walked = walk(opened.store, opened.tasks, log, Sequence(at), before=Sequence(stop), regions=list(found))
            for entry in (e for segment in walked.segments for e in segment.entries):
                if entry.region in found and _is_of(records[entry.region], entry):
                    found[entry.region].append(entry)
            before, kept = kept, _kept(found)
            room = (bytes_max - kept) * step // max(kept - before, 1)  # for such as these were
            step = max(min(2 * step, _SEGMENTS_AT_ONCE, room), 1)
            while len(found) > 1 and kept > bytes_max:
                for region in list(found)[len(found) // 2 :]:
                    del found[region]
                kept = _kept(found)
            at = walked.end
            if at < stop:
                break
    except Corrupt:  # of a segment that another needs, perhaps
        return dict.fromkeys(found)
    chains = {region: _chain(region, records[region], of_one, Sequence(at)) for region, of_one in found.items()}
    return {region: None if isinstance(chain, PlanStale) else chain for region, chain in chains.items()}


def _left(records: Seq[GenerationRecord], at: int) -> range | None:
    """Return the range of segment numbers that are still to be read for these generations; None if there are none.

    The range begins with the first segment, from ``at`` on, that may have entries of one of them.  It ends with the end
    of the last.  So a stretch of the log between two generations, perhaps most of it, is passed over."""
    ends = [(record, record.end_sequence or record.first_sequence) for record in records]
    behind = [(first, end) for record, end in ends if end > (first := max(record.first_sequence, at))]
    return range(min(first for first, _ in behind), max(end for _, end in behind)) if behind else None


def _kept(found: Mapping[Region, Seq[Entry]]) -> int:
    return kept_bytes(e for of_one in found.values() for e in of_one)
