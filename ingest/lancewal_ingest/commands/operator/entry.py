"""Write one entry of a region in the place of ingest, to move the region's position past offsets that stopped it.

Guarantees
 1. The entry starts at the region's durable position, or nothing is written.
 2. The region is taken from its owner by a fence and a compare-and-swap, as in any takeover.  An owner that is alive
    begins a new log for its other regions.
 3. A crash at any point leaves the same state as a crash of ingest there: the next owner goes on from the log.

Steps
 1. Open the region, as ingest does.
 2. Make the entry for the region's durable position, and write it as the only segment of a log of our own.
 3. Hand over: the generation is SEALED after the entry, and no other is opened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

import pyarrow as pa

from lancewal_core.errors import OwnershipLost, StoreUnavailable, or_raised
from lancewal_core.names.ids import LogId, OwnerId, Position, Region
from lancewal_core.wal.entry import Entry
from lancewal_core.wal.writer import Durable, FencedOut, LogWriter, Occupied, Unsettled
from lancewal_ingest.context import IngestContext
from lancewal_ingest.kafka.source import Offsets
from lancewal_ingest.regions.memtable import MemTable
from lancewal_ingest.regions.open import open_region
from lancewal_ingest.regions.seal import hand_over, to_seal

_SETTLE_S = 30.0
_RETRY_S = 0.5


def write_entry(
    context: IngestContext,
    owner: OwnerId,
    region: Region,
    offsets: Callable[[], Offsets],
    make: Callable[[Position], Entry],
) -> None:
    """Claim the region, write the entry that ``make`` returns for its durable position, and hand the region over.

    If ``make`` raises an error, the region is handed over without an entry, and the error is raised.
    """
    writer = LogWriter(context.store, context.clock, LogId(context.new_id()), owner, context.contract.rows.wal)
    # Step 1
    record = open_region(context, writer, region, offsets).record
    now = context.clock.monotonic()
    memtable = MemTable(region, record.generation, record.first_sequence, record.first, now, writer.length)
    # Step 2
    try:
        entry = make(record.first)
        _store(context, writer, entry)
        memtable.apply(entry, now)
    finally:
        # Step 3
        if writer.settled:
            or_raised(hand_over(context, to_seal(context, writer, [memtable]))[region])


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch without rows, for an entry that only moves the position."""
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def _store(context: IngestContext, writer: LogWriter, entry: Entry) -> None:
    until = context.clock.monotonic() + _SETTLE_S
    result = writer.put([entry])
    while isinstance(result, Unsettled):
        if context.clock.monotonic() >= until:
            raise entry.region.error(
                StoreUnavailable,
                f"the store did not say whether the entry is written: {result.cause}. Once ingest has opened the partition, "
                "run the command again if `lancewal status` shows the old position",
            )
        context.clock.sleep(_RETRY_S)
        result = writer.put_again()
    match result:
        case Durable():
            return
        case FencedOut():
            raise entry.region.error(
                OwnershipLost,
                "another process took it over during the command. Check `lancewal status`, and run the command again",
            )
        case Occupied(error=error):
            raise error
        case _:
            assert_never(result)
