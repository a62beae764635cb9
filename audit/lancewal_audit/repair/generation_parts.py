"""The parts of a generation whose log is damaged: entries that can be read, and positions that cannot.

Guarantees
 1. The parts cover the generation from its first position to its end, each position once.  A part is an entry that a segment
    holds undamaged, or a gap.  An OPEN generation ends with the last of its entries that a trailer lists.
 2. ``rows_of`` decodes Kafka's records of a gap by ingest's decoder, under the contract version of that time.  If
    columns were changed, the version that decoded a record may be unknown.  Then the newest version counts under which
    the record is a row.  Bad and misrouted records are left out, as they were before: each became a dead letter before
    its offset became durable, or was ignored by the policy in force.
 3. Offsets that a person accepted as lost are not read from anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from lancewal_audit.repair.context import RepairContext
from lancewal_audit.repair.log_survey import LogSurvey, Piece
from lancewal_audit.repair.topic_records import TopicRecords
from lancewal_audit.taken_versions import rows_by_newest, versions_between
from lancewal_core.errors import ObjectCorrupt, RetentionLost
from lancewal_core.names import paths
from lancewal_core.names.ids import Position, Region
from lancewal_core.region.loss_record import behind_losses, read_losses, replaced_below
from lancewal_core.region.state import GenerationRecord
from lancewal_core.rows.projection import rows_as
from lancewal_core.wal.entry import Entry
from lancewal_core.wal.segment import Segment, decode_segment
from lancewal_core.wal.writer_schemas import WriterSchemas
from lancewal_ingest.append.prepare import Consumed, Preparer


@dataclass(frozen=True, slots=True)
class Gap:
    """Positions whose records are in no readable segment."""

    first: Position
    next: Position
    versions: tuple[int, ...]
    """Contract versions by which ingest may have decoded the records, newest first (``versions_between``)."""

    @property
    def contract_version(self) -> int:
        """Contract version whose columns the rows of the gap get: the newest possible one."""
        return self.versions[0]


Part = Entry | Gap


def parts_of(
    context: RepairContext, region: Region, record: GenerationRecord, survey: LogSurvey | None
) -> tuple[Part, ...]:
    """Return the parts of a generation, in order (guarantee 1).  ``survey``: survey of the generation's log, None if no
    object of the log is left."""
    parts: list[Part] = []
    at, before, after = record.first, None, None
    for piece in () if survey is None else survey.pieces[region]:
        version, earlier = piece.contract_version, piece.sequence < record.first_sequence
        if not earlier and record.next is not None and piece.first >= record.next:
            after = version
            break
        if piece.first < record.first:
            before = version
        if earlier or piece.first < at:
            continue
        if piece.first > at:
            parts.append(Gap(at, piece.first, versions_between(context, before, version)))
        parts.append(_entry(context, region, piece) or Gap(piece.first, piece.next, (version,)))
        at, before = piece.next, version
    if record.next is not None and at < record.next:
        parts.append(Gap(at, record.next, versions_between(context, before, after)))
    return tuple(parts)


def rows_of(context: RepairContext, topic: TopicRecords, region: Region, part: Part) -> pa.RecordBatch | None:
    """Return the rows of a part (guarantee 2), or None if the part has none.  Raises ``RetentionLost`` if Kafka does
    not have the records of a gap any more."""
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
    consumed = Consumed(region, first, part.next, records)
    return rows_by_newest(_taken(context, consumed, part))


def _taken(context: RepairContext, consumed: Consumed, gap: Gap) -> Iterator[pa.RecordBatch]:
    """Yield the rows that each contract version gives for a gap's records, newest version first.  Versions that give no
    row are left out."""
    schemas = WriterSchemas(context.store, context.contract.making)
    for version in gap.versions:
        entry, _, _ = Preparer(context.contract_of(version), schemas=schemas, reads_again=True).prepare(consumed)
        if entry is not None:
            yield _as_newest(context, entry.rows, version, gap)


def _as_newest(context: RepairContext, rows: pa.RecordBatch, version: int, gap: Gap) -> pa.RecordBatch:
    written, wanted = context.contract_of(version).rows, context.contract_of(gap.contract_version).rows
    return rows_as(rows, written, wanted, lambda: f"records read again at offset {gap.first}")


def _entry(context: RepairContext, region: Region, piece: Piece) -> Entry | None:
    key = paths.wal_segment(piece.log, piece.sequence)
    try:
        data = context.store.get(key)
        found = None if data is None else decode_segment(data, key, (region,))
    except ObjectCorrupt:
        return None
    entries = found.entries if isinstance(found, Segment) else ()
    return next((entry for entry in entries if entry.first == piece.first), None)
