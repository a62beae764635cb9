"""How many of a partition's newest records became rows, and why the others did not: from the trailers of WAL segments.

What is unmerged is counted where it is counted anyway.  Of a partition that has nothing there, the newest ended generation is
looked at as long as the WAL has it (``table.history_window_s``): its last ``SEGMENTS_MAX`` segments, of at most
``REGIONS_MAX`` partitions.  So nothing seen is no proof that nothing was rejected.

What the contract ignores by now is not rejected: the policy was changed because of these records, or made for them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from lancewal_core.ids import Region, Sequence
from lancewal_core.process.status.facts import Rejections
from lancewal_core.region.index import RegionIndex, State
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.table.contract import Contract
from lancewal_core.wal.segment import EntryHeader
from lancewal_core.wal.walk import walk_trailers

SEGMENTS_MAX = 8
REGIONS_MAX = 16


@dataclass(slots=True)
class RejectionCounts:
    """Of one region."""

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


def add_newest(opened: OpenedTable, region: Region, index: RegionIndex | None, counts: RejectionCounts) -> None:
    """Add what the newest ended generation's last segments have of the region."""
    ended = [r for r in (() if index is None else index.generations) if r.state is not State.OPEN and r.next != r.first]
    if not ended:
        return
    newest = ended[-1]
    if newest.end_sequence is None:
        return
    first = Sequence(max(newest.first_sequence, newest.end_sequence - SEGMENTS_MAX))
    walked = walk_trailers(opened.store, opened.tasks, newest.log, first, before=newest.end_sequence)
    for trailer in walked.segments:
        for header in trailer.entries:
            if header.region == region and header.first >= newest.first:
                counts.add(header)
