"""Count a partition's newest records that became rows, and those that were rejected, by reason.

``unmerged_counts`` counts the unmerged records.  If a partition has no unmerged records, its newest ended generation is
read, as long as the WAL has it (``table.history_window_s``).  The trailers of its last ``SEGMENTS_MAX`` segments are
read, for at most ``REGIONS_MAX`` partitions.  So counts of zero do not prove that nothing was rejected.

Records that the contract now ignores do not count as rejected: the policy was chosen for such records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from lancewal_core.names.ids import LogId, Region, Sequence
from lancewal_core.process.status.facts import Rejections
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.state import GenerationRecord, GenerationState, RegionState
from lancewal_core.table.contract import Contract
from lancewal_core.wal.entry import EntryHeader
from lancewal_core.wal.segment import Trailer
from lancewal_core.wal.walk import walk_trailers

SEGMENTS_MAX = 8
REGIONS_MAX = 16


@dataclass(slots=True)
class RejectionCounts:
    """Counts of one region: rows, rejected records by kind, and the offset of one example of each kind."""

    rows: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    examples: dict[str, int] = field(default_factory=dict)

    def add(self, header: EntryHeader) -> None:
        self.rows += header.row_count
        for rejected in header.rejected:
            self.kinds[rejected.kind] += 1
            self.examples[rejected.kind] = rejected.offset

    @property
    def seen(self) -> bool:
        return self.rows > 0 or bool(self.kinds)

    def result(self, contract: Contract) -> Rejections:
        kinds = Counter({kind: n for kind, n in self.kinds.items() if contract.policy_of(kind) != "ignore"})
        if not kinds:
            return Rejections(rows=self.rows)
        kind, _ = kinds.most_common(1)[0]
        return Rejections(kinds.total(), self.rows, kind, self.examples[kind])


@dataclass(frozen=True, slots=True)
class LogStretch:
    """Part of a log: segments from ``first`` to before ``end``.  Generations that were sealed together have the same
    part."""

    log: LogId
    first: Sequence
    end: Sequence


def newest_ended(state: RegionState | None) -> tuple[GenerationRecord, LogStretch] | None:
    """Return the newest ended generation that has records, and where its last segments lie; None if there is none."""
    ended = [
        r
        for r in (() if state is None else state.generations)
        if r.state is not GenerationState.OPEN and r.next != r.first
    ]
    if not ended or ended[-1].end_sequence is None:
        return None
    newest, end = ended[-1], ended[-1].end_sequence
    return newest, LogStretch(newest.log, Sequence(max(newest.first_sequence, end - SEGMENTS_MAX)), end)


def read_stretch(opened: OpenedTable, stretch: LogStretch) -> tuple[Trailer, ...]:
    return walk_trailers(opened.store, opened.tasks, stretch.log, stretch.first, before=stretch.end).segments


def add_newest(region: Region, newest: GenerationRecord, read: Iterable[Trailer], counts: RejectionCounts) -> None:
    """Add the entries that the segments ``read`` have of a region's newest ended generation to ``counts``."""
    for trailer in read:
        for header in trailer.entries:
            if header.region == region and header.first >= newest.first:
                counts.add(header)
