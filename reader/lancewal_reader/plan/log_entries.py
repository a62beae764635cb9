"""Find the entries of WAL logs, by region.  Each segment of a log is processed once for all regions and for all plans
of an open table.

A later plan processes only the segments that no earlier plan has read.  It keeps the entries of earlier segments as
long as these are no more than its own segments; otherwise it drops all known entries.  Entries are found by binary
search, since a log of hundreds of regions has hundreds of thousands of them.

Precondition: the entries of a region in a log ascend, by segment as by position (``wal.entry.is_chain``).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from threading import Lock
from typing import NamedTuple, TypeAlias

from lancewal_core.names import paths
from lancewal_core.names.ids import LogId, Position, Region, Sequence
from lancewal_core.region.state import GenerationRecord
from lancewal_core.store.versioned import FIRST_VERSION
from lancewal_core.wal.segment import Segment, Trailer
from lancewal_core.wal.walk import Walk

SegmentPlace: TypeAlias = tuple[LogId, Sequence]


@dataclass(frozen=True, slots=True)
class EntryRef:
    """Reference to one entry of a region in a segment.  If ``next`` is below the entry's own end, only the rows below
    ``next`` count."""

    log: LogId
    sequence: Sequence
    first: Position
    next: Position
    rows: int
    contract_version: int = FIRST_VERSION

    @property
    def segment(self) -> SegmentPlace:
        """Log and number of the segment, which identify it at less cost than the object's key."""
        return self.log, self.sequence

    @property
    def key(self) -> str:
        return paths.wal_segment(self.log, self.sequence)


_SEQUENCE, _FIRST = attrgetter("sequence"), attrgetter("first")


class EntryRun(NamedTuple):
    """Consecutive entries of one region, in order."""

    refs: list[EntryRef]
    chained: bool
    """Whether each entry begins at the position where the previous one ends."""


@dataclass(slots=True)
class _Entries:
    """Entries of one region.  The lists only grow, also if a plan is interrupted in between (Ctrl-C, an alarm)."""

    refs: list[EntryRef] = field(default_factory=list)
    breaks: list[int] = field(default_factory=list)
    """Indexes in ``refs`` of the entries that do not begin where the entry before them ends."""

    def append(self, ref: EntryRef) -> None:
        if self.refs and self.refs[-1].sequence >= ref.sequence:
            return  # a plan that was interrupted has met it
        if self.refs and self.refs[-1].next != ref.first:
            self.breaks.append(len(self.refs))
        self.refs.append(ref)

    def between(self, begin: int, end: int) -> EntryRun:
        broken = bisect_right(self.breaks, begin) < bisect_left(self.breaks, end)
        return EntryRun(self.refs[begin:end], not broken)


class LogEntries:
    """Entries found in one log, by region.  Entries of earlier walks may be kept as a cache, but are not returned.

    The value outlives the plan and holds no rows.  Only a ``SegmentCache`` holds rows of segments.
    """

    def __init__(self, walked: Walk[Segment | Trailer], known: LogEntries | None = None) -> None:
        """``known``: entries of an earlier walk of this log.

        They are used if they reach the beginning of this walk and start no earlier than this walk's segments.  Then
        only the segments after them are processed.  Otherwise they are dropped.
        """
        self.end = walked.end
        self.fenced = walked.fence is not None
        begin = walked.segments[0].sequence if walked.segments else walked.end
        self._of: dict[Region, _Entries] = {}
        self._begin, self._known_end = begin, begin
        self.contract_version: int = FIRST_VERSION if known is None else known.contract_version
        """Newest contract version that an entry of this log names."""
        if known is not None and known._reaches(begin) and begin - known._begin <= len(walked.segments):
            self._of, self._begin, self._known_end = known._of, known._begin, known._known_end
        for segment in walked.segments[max(0, self._known_end - begin) :]:
            for entry in segment.entries:
                found = self._of.get(entry.region)
                if found is None:
                    found = self._of[entry.region] = _Entries()
                version = entry.contract_version
                found.append(EntryRef(walked.log, segment.sequence, entry.first, entry.next, entry.row_count, version))
                self.contract_version = max(self.contract_version, version)
        self._known_end = max(self._known_end, walked.end)

    def _reaches(self, begin: Sequence) -> bool:
        return self._begin <= begin <= self._known_end

    def of_generation(self, region: Region, record: GenerationRecord) -> EntryRun:
        found = self._of.get(region)
        if found is None:
            return EntryRun([], True)
        end = self.end if record.end_sequence is None else min(self.end, record.end_sequence)
        begin = max(
            bisect_left(found.refs, record.first_sequence, key=_SEQUENCE),
            bisect_left(found.refs, record.first, key=_FIRST),
        )
        return found.between(begin, bisect_left(found.refs, end, key=_SEQUENCE))


class KnownEntries:
    """Cache of the entries of the most recently used logs.  Threads may share it."""

    def __init__(self) -> None:
        self._logs: Mapping[LogId, LogEntries] = {}
        self._lock = Lock()

    def next_segments(self) -> tuple[str, ...]:
        """Return for each log without a fence the key of the segment that would come next."""
        with self._lock:
            return tuple(paths.wal_segment(log, known.end) for log, known in self._logs.items() if not known.fenced)

    def of(self, walks: Mapping[LogId, Walk[Segment | Trailer]]) -> Mapping[LogId, LogEntries]:
        with self._lock:
            self._logs = {log: LogEntries(walked, self._logs.get(log)) for log, walked in walks.items()}
            return self._logs
