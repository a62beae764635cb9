"""The entries of logs by region: a log is gone over once for all its regions, and by the plans of an open table once at all.

A later plan goes over the segments that the one before has not met, and lets go of those before its own once they are most.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock

from lancewal_core import paths
from lancewal_core.ids import LogId, Position, Region, Sequence
from lancewal_core.region.index import GenerationRecord
from lancewal_core.wal.segment import Segment, Trailer
from lancewal_core.wal.walk import Walk


@dataclass(frozen=True, slots=True)
class EntryRef:
    """One entry of a region, by the segment that holds it.  ``next`` below the entry's own: only its rows below that."""

    log: LogId
    sequence: Sequence
    first: Position
    next: Position
    rows: int

    @property
    def key(self) -> str:
        return paths.wal_segment(self.log, self.sequence)


class LogEntries:
    """Those of one walk, perhaps of others too: of these none is told."""

    def __init__(self, walked: Walk[Segment | Trailer], known: LogEntries | None = None) -> None:
        """``known``: of another walk of this log; what both have is not gone over again."""
        self.walked = walked
        begin = walked.segments[0].sequence if walked.segments else walked.end
        self._of: dict[Region, list[EntryRef]] = {}
        self._begin, self._end = begin, begin
        if known is not None and known._reaches(begin) and begin - known._begin <= len(walked.segments):
            self._of, self._begin, self._end = known._of, known._begin, known._end
        for segment in walked.segments[max(0, self._end - begin) :]:
            for entry in segment.entries:
                ref = EntryRef(walked.log, segment.sequence, entry.first, entry.next, entry.row_count)
                self._of.setdefault(entry.region, []).append(ref)
        self._end = max(self._end, walked.end)

    def _reaches(self, begin: Sequence) -> bool:
        return self._begin <= begin <= self._end

    def of_generation(self, region: Region, record: GenerationRecord) -> list[EntryRef]:
        """In order."""
        end = self.walked.end if record.end_sequence is None else min(self.walked.end, record.end_sequence)
        return [
            ref
            for ref in self._of.get(region, ())
            if record.first_sequence <= ref.sequence < end and ref.first >= record.first
        ]


class KnownEntries:
    """Of the logs that were asked for last; threads may share it."""

    def __init__(self) -> None:
        self._logs: Mapping[LogId, LogEntries] = {}
        self._lock = Lock()

    def of(self, walks: Mapping[LogId, Walk[Segment | Trailer]]) -> Mapping[LogId, LogEntries]:
        with self._lock:
            self._logs = {log: LogEntries(walked, self._logs.get(log)) for log, walked in walks.items()}
            return self._logs
