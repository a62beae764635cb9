"""The MemTable of one region: the durable entries of its OPEN generation, in memory.

Rows may be part of a batch that other regions share (``append.shared_rows``).  ``own`` copies such rows.  Until then
the whole shared batch stays in memory as long as this MemTable does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from lancewal_core.names.ids import Generation, Position, Region, Sequence
from lancewal_core.wal.entry import Entry, NoRowYet
from lancewal_ingest.append.shared_rows import SharedPart, own_rows_of


@dataclass(slots=True)
class MemTable:
    """Rows of one generation of a region; holds durable entries only.  ``position`` is the region's durable
    position."""

    region: Region
    generation: Generation
    first_sequence: Sequence
    position: Position
    opened_at: float
    """Monotonic time in seconds at which this process began the MemTable."""
    first_length: float
    """Length of the log when the generation began.  The unit is that of ``LogWriter.length``: about a segment."""
    first: Position | None = None
    """Position where the oldest entry begins; None without entries."""
    entries: int = 0
    """Number of entries."""
    batches: list[pa.RecordBatch] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    """Contract version of each batch."""
    contract_version: int = 0
    """The newest contract version that an entry names, also one without rows; 0 without entries."""
    before: NoRowYet | None = None
    """Rejected records of the region's earlier generations; None if one of these has a row, or if that is unknown."""
    no_row: NoRowYet | None = field(default_factory=NoRowYet)
    """Rejected records of this MemTable's entries; None once one of the entries has a row."""
    rows: int = 0
    nbytes: int = 0
    last_entry_at: float = 0.0
    _shared: list[SharedPart] = field(default_factory=list)
    """Rows in shared batches, which follow those of ``batches``; all of one contract version."""
    _shared_version: int = 0

    @property
    def no_row_yet(self) -> NoRowYet | None:
        """The rejected records of the region up to ``position``; None if the region has had a row, or if that is
        unknown.
        """
        return self.before and self.before.joined(self.no_row)

    def apply(self, entry: Entry, now: float, shared: SharedPart | None = None) -> None:
        """Add the next durable entry, at the monotonic time ``now``.

        ``shared``: where the entry's rows lie in a batch that several regions share; None if they have their own.
        """
        if entry.first != self.position:
            raise RuntimeError(
                f"region {self.region.name}: entry starts at {entry.first}, the durable position is {self.position}"
            )
        self.first = entry.first if self.first is None else self.first
        self.entries += 1
        self.position = entry.next
        self.last_entry_at = now
        self.contract_version = max(self.contract_version, entry.contract_version)
        self.no_row = self.no_row and self.no_row.then(entry)
        count = entry.row_count
        if not count:
            return
        self.rows += count
        if shared is not None:
            if entry.contract_version != self._shared_version:
                own([self])
                self._shared_version = entry.contract_version
            self._shared.append(shared)
            self.nbytes += shared.nbytes
        else:
            own([self])
            rows = entry.rows
            self.batches.append(rows)
            self.versions.append(entry.contract_version)
            self.nbytes += rows.get_total_buffer_size()  # ``nbytes`` takes a hundred times as long


def own(memtables: Iterable[MemTable]) -> None:
    """Copy the rows that these MemTables have in shared batches into ``batches``, and release the shared batches."""
    for memtable in memtables:
        parts = memtable._shared
        if parts:
            rows = own_rows_of(parts)
            memtable.nbytes += rows.get_total_buffer_size() - sum(part.nbytes for part in parts)
            memtable.batches.append(rows)
            memtable.versions.append(memtable._shared_version)
            parts.clear()
