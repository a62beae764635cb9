"""The MemTable of one region: the durable entries of its OPEN generation, in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from lancewal_core.ids import Generation, Position, Region, Sequence
from lancewal_core.wal.entry import Entry


@dataclass(slots=True)
class MemTable:
    """Mutable; only durable entries get in.  ``position`` is the region's durable position."""

    region: Region
    generation: Generation
    first_sequence: Sequence
    position: Position
    opened_at: float
    """Monotonic seconds."""
    entries: list[Position] = field(default_factory=list)
    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    nbytes: int = 0
    last_entry_at: float = 0.0

    def apply(self, entry: Entry, now: float) -> None:
        """Add the next durable entry."""
        if entry.first != self.position:
            raise RuntimeError(
                f"region {self.region.name}: entry starts at {entry.first}, the durable position is {self.position}"
            )
        self.entries.append(entry.first)
        self.position = entry.next
        self.last_entry_at = now
        if entry.rows.num_rows:
            self.batches.append(entry.rows)
            self.rows += entry.rows.num_rows
            self.nbytes += entry.rows.get_total_buffer_size()  # ``nbytes`` takes a hundred times as long
