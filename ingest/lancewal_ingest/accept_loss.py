"""``lancewal offsets accept-loss``: go on behind offsets that Kafka deleted before they became durable.

Guarantees
 1. Only offsets that Kafka no longer has are passed over: from the region's durable position to the first that it has.
 2. No loss without its record (``lancewal_core.loss_record``).
 3. Where nothing is lost, nothing is touched.

Steps
 1. Compare the durable position with Kafka's first.
 2. Record the loss, then write an entry without rows over it (``operator_entry``).
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from lancewal_core.durable_position import durable_position
from lancewal_core.errors import InvalidInput
from lancewal_core.ids import OwnerId, Position, Region
from lancewal_core.loss_record import LossRecord, write_loss
from lancewal_core.segment import Entry
from lancewal_ingest.context import IngestContext
from lancewal_ingest.operator_entry import write_entry
from lancewal_ingest.source import Offsets


def accept_loss(context: IngestContext, owner: OwnerId, region: Region, offsets: Callable[[], Offsets]) -> LossRecord:
    """Steps 1 and 2; what was accepted.  ``InvalidInput`` where nothing is lost."""
    # Step 1
    position = durable_position(context.store, context.tasks, context.indexes, context.contract, region)
    low = offsets().low
    if position is None or low <= position:
        raise _nothing_lost(region, low if position is None else position, low)
    # Step 2
    accepted: list[LossRecord] = []

    def make(first: Position) -> Entry:
        reached = offsets().low
        if reached <= first:
            raise _nothing_lost(region, first, reached)
        loss = LossRecord(first=first, next=reached, accepted_at_ms=context.clock.now_ms(), accepted_by=owner)
        write_loss(context.store, region, loss)
        accepted.append(loss)
        return Entry(region, first, reached, context.contract.version, _no_rows(context.contract.rows.wal), ())

    # What Kafka lost is what this is about: opening the region must not stop at it.
    write_entry(context, owner, region, lambda: Offsets(Position(0), offsets().high), make)
    return accepted[0]


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def _nothing_lost(region: Region, position: Position, low: Position) -> InvalidInput:
    return InvalidInput(
        f"topic {region.topic} partition {region.partition}: nothing is lost: durable up to position {position}, and "
        f"Kafka begins at {low}. Nothing was changed",
        topic=region.topic,
        partition=region.partition,
    )
