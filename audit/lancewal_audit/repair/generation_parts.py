"""The parts of a generation whose log is damaged: entries that can be read, and positions that cannot.

Guarantees
 1. The parts cover the generation from its first position to its end, each position once.  A part is an entry that a segment
    holds undamaged, or a gap.  An OPEN generation ends with the last of its entries that a trailer lists.
 2. ``rows_of`` decodes Kafka's records of a gap by ingest's decoder, under the contract that was in force.  Bad and
    misrouted records are left out, as they were before: each became a dead letter before its offset became durable, or was
    ignored by the policy in force.
 3. Offsets that a person accepted as lost are not read from anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from lancewal_audit.repair.context import RepairContext
from lancewal_audit.repair.log_survey import LogSurvey, Piece
from lancewal_audit.repair.topic_records import TopicRecords
from lancewal_core.errors import ObjectCorrupt, RetentionLost
from lancewal_core.names import paths
from lancewal_core.names.ids import Position, Region
from lancewal_core.region.loss_record import behind_losses, read_losses, replaced_below
from lancewal_core.region.state import GenerationRecord
from lancewal_core.wal.entry import Entry
from lancewal_core.wal.segment import Segment, decode_segment
from lancewal_ingest.append.prepare import Consumed, Preparer, lenient


@dataclass(frozen=True, slots=True)
class Gap:
    """Positions whose records are in no readable segment."""

    first: Position
    next: Position
    contract_version: int


Part = Entry | Gap


def parts_of(
    context: RepairContext, region: Region, record: GenerationRecord, survey: LogSurvey | None
) -> tuple[Part, ...]:
    """Return the parts of a generation, in order (guarantee 1).  ``survey``: its log, None if no object of it is left."""
    parts: list[Part] = []
    at = record.first
    version = context.contract.version
    for piece in () if survey is None else survey.pieces[region]:
        outside = piece.first < at or (record.next is not None and piece.first >= record.next)
        if outside or piece.sequence < record.first_sequence:
            continue
        version = piece.contract_version
        if piece.first > at:
            parts.append(Gap(at, piece.first, version))
        parts.append(_entry(context, region, piece) or Gap(piece.first, piece.next, version))
        at = piece.next
    if record.next is not None and at < record.next:
        parts.append(Gap(at, record.next, version))
    return tuple(parts)


def rows_of(context: RepairContext, topic: TopicRecords, region: Region, part: Part) -> pa.RecordBatch | None:
    """Return the rows of a part (guarantee 2), or None if it has none.

    ``RetentionLost``: Kafka does not have the records of a gap any more."""
    if isinstance(part, Entry):
        return part.rows
    losses = read_losses(context.store, region, context.contract.making)
    first = behind_losses(losses, part.first)
    if first >= part.next:
        return None
    if first < (below := replaced_below(losses)):
        raise RetentionLost(
            f"offsets {first} to {part.next - 1} of partition {region.partition} cannot be read again: the topic lost its "
            f"tail once, and below {below} Kafka may have other records",
            **region.place,
        )
    records = topic.read(region, first, part.next)
    if not len(records):
        return None
    contract = context.contract_of(part.contract_version)
    entry, _, _ = Preparer(lenient(contract)).prepare(Consumed(region, first, part.next, records))
    return None if entry is None else entry.rows


def _entry(context: RepairContext, region: Region, piece: Piece) -> Entry | None:
    key = paths.wal_segment(piece.log, piece.sequence)
    try:
        data = context.store.get(key)
        found = None if data is None else decode_segment(data, key, (region,))
    except ObjectCorrupt:
        return None
    entries = found.entries if isinstance(found, Segment) else ()
    return next((entry for entry in entries if entry.first == piece.first), None)
