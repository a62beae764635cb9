"""The MemTable of one region: the durable entries of its OPEN generation, in memory.

Rows may lie in a batch with those of other regions (``append.shared_rows``).  They are the MemTable's own only after
``own``.  Until then the whole batch is in memory for as long as this MemTable is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from lancewal_core.names.ids import Generation, Position, Region, Sequence
from lancewal_core.wal.entry import Entry
from lancewal_ingest.append.shared_rows import SharedPart, own_rows_of


@dataclass(slots=True)
class MemTable:
    """Mutable; only durable entries get in.  ``position`` is the region's durable position."""

    region: Region
    generation: Generation
    first_sequence: Sequence
    position: Position
    opened_at: float
    """Monotonic seconds."""
    first_length: float
    """Length of its log when the generation began in it."""
    first: Position | None = None
    """First position of its oldest entry.  None while it has no entry."""
    entries: int = 0
    """Number of entries."""
    batches: list[pa.RecordBatch] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    """Contract version of each batch."""
    rows: int = 0
    nbytes: int = 0
    last_entry_at: float = 0.0
    _shared: list[SharedPart] = field(default_factory=list)
    """Parts that follow ``batches``, all of one contract version."""
    _shared_version: int = 0

    def apply(self, entry: Entry, now: float, shared: SharedPart | None = None) -> None:
        """Add the next durable entry.  ``shared``: where its rows lie among others."""
        if entry.first != self.position:
            raise RuntimeError(
                f"region {self.region.name}: entry starts at {entry.first}, the durable position is {self.position}"
            )
        self.first = entry.first if self.first is None else self.first
        self.entries += 1
        self.position = entry.next
        self.last_entry_at = now
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
    """Keep no rows of others in memory from now on: these MemTables have all of theirs in ``batches``."""
    for memtable in memtables:
        parts = memtable._shared
        if parts:
            rows = own_rows_of(parts)
            memtable.nbytes += rows.get_total_buffer_size() - sum(part.nbytes for part in parts)
            memtable.batches.append(rows)
            memtable.versions.append(memtable._shared_version)
            parts.clear()
