"""The records that Kafka still has, decoded to rows as ingest would do now.

Guarantees
 1. The committed records of [``begin``, ``end``) of each region are read in offset order, each once.  ``begin`` is Kafka's
    first offset, or the contract's start if that is later.
 2. Ingest's own decoder decodes them under the contract of their era.  If columns were changed, that is the version which
    the record's entry names in the WAL.  If the entry cannot be read, several versions are asked, as a repair asks them
    (``taken_versions``).  Every record before the cut is durable.  So a record that is not a row, or lies in the wrong
    partition, was rejected: by policy, or by ``lancewal offset reject``.
 3. Offsets of an accepted loss give no rows, even if Kafka shows records there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from lancewal_audit.taken_versions import rows_by_newest
from lancewal_audit.verify.records.by_ids import by_ids, fields_of
from lancewal_audit.verify.records.eras import Eras
from lancewal_audit.verify.records.source import Range, RegionRecords
from lancewal_core.errors import KafkaUnavailable, TopicTruncated
from lancewal_core.names.ids import Position, Region, position_after
from lancewal_core.region.loss_record import LossRecord, behind_losses
from lancewal_core.rows.schema import OFFSET
from lancewal_core.settings.load import Settings
from lancewal_core.table.contract import Contract
from lancewal_core.wal.writer_schemas import WriterSchemas
from lancewal_ingest.append.prepare import Consumed, Preparer
from lancewal_kafka.clients import unpacking_bounded
from lancewal_kafka.records import Records
from lancewal_kafka.reread import OutOfRange, between, consumed, lone_consumer
from lancewal_kafka.topic import TopicInspector, same_topic

_TRIES = 20
_Read = Callable[[Region, Position, Position], Iterator[Records]]
Versions = Callable[[Region, Position, Position], Iterator[tuple[Sequence[Contract], Position, Position]]]


class TopicReader:
    """Reads one table's topic.  Rows have the columns of the contract ``columns_of``.

    Raises ``TopicReplaced`` if the topic has another id, ``KafkaUnavailable`` if no broker answers.
    """

    def __init__(self, settings: Settings, eras: Eras, columns_of: Contract, schemas: WriterSchemas) -> None:
        contract = eras.newest
        self._eras = eras
        self._contract = contract
        # Batches that ingest could not read, and that a person made it skip, are not read here either.
        client = unpacking_bounded(settings.kafka.client(), settings.ingest.memory_bytes_max, contract.record_bytes_max)
        group = settings.kafka.group(contract.table_uuid)
        self._inspector = TopicInspector(client)
        self.compacted = same_topic(self._inspector, contract, "Compare with the WAL: --from wal").compacted
        self._open = partial(lone_consumer, client, group, contract.topic)
        self._preparers: dict[int, Preparer] = {}
        self._schemas = schemas
        self._columns_of = columns_of
        self.versions: Versions | None = None
        """Function that divides positions by the contracts, newest first, under which their records may have been taken.

        None if only eras matter, because no version has other columns."""

    def ranges(
        self,
        cut: Mapping[Region, Position],
        beginnings: Mapping[Region, Position | None],
        losses: Mapping[Region, Sequence[LossRecord]],
    ) -> dict[Region, Range]:
        """Return the range that Kafka has of each region below its cut.

        ``beginnings``: the first position of each region, or None if unknown.  Raises ``TopicTruncated`` if the topic
        ends before a cut.
        """
        partitions = [region.partition for region in cut]
        if not partitions:
            return {}
        lows = self._inspector.begins(self._contract.topic, partitions)
        ends = self._inspector.ends(self._contract.topic, partitions)
        found = {}
        for region, end in cut.items():
            if ends[region.partition] < end:
                raise region.partition_error(
                    TopicTruncated,
                    f"durable up to position {end}, but Kafka ends at {ends[region.partition]}: the topic lost its tail. "
                    "Compare with the WAL: --from wal",
                )
            beginning = beginnings[region] or Position(0)
            found[region] = Range(region, beginning, end, whole=True)
            reached = behind_losses(losses[region], beginning)
            if lows[region.partition] > reached:
                found[region].starts_at(Position(lows[region.partition]), "Kafka has deleted earlier records")
            else:
                found[region].begin = max(beginning, Position(lows[region.partition]))
        return found

    def read(
        self, ranges: Mapping[Region, Range], losses: Mapping[Region, Sequence[LossRecord]]
    ) -> Iterator[RegionRecords]:
        """Yield all records of these ranges, region by region.  A range begins later if retention overtakes the reading."""
        with self._open() as consumer:
            for region, range_ in ranges.items():
                yield from self._read_region(partial(consumed, consumer), region, range_, losses[region])

    def _read_region(
        self, read: _Read, region: Region, range_: Range, losses: Sequence[LossRecord]
    ) -> Iterator[RegionRecords]:
        at = range_.begin
        for _ in range(_TRIES):
            if at >= range_.end:
                return
            try:
                for records in read(region, at, range_.end):
                    yield from self._taken(region, records, losses)
                    at = position_after(records.offsets[-1])
                return
            except OutOfRange:
                low = self._inspector.begins(region.topic, [region.partition])[region.partition]
                if low > at:
                    range_.starts_at(low, "Kafka deleted earlier records while they were read")
                at = max(low, at)
        raise region.partition_error(
            KafkaUnavailable,
            f"records were out of range {_TRIES} times, last before position {at}: Kafka may delete them faster than they "
            "are read",
        )

    def _taken(self, region: Region, records: Records, losses: Sequence[LossRecord]) -> Iterator[RegionRecords]:
        first, end = Position(records.offsets[0]), position_after(records.offsets[-1])
        for contracts, low, high in self._contracts(region, first, end):
            part = between(records, low, high)
            if not len(part):
                continue
            taken = list(self._by_each(contracts, Consumed(region, low, high, part)))
            if (rows := rows_by_newest(rows for rows, _ in taken)) is not None:
                refused = set.intersection(*(refused for _, refused in taken))
                rejected = sorted(offset for offset in refused if not _is_lost(offset, losses))
                yield RegionRecords(region, _without_lost(rows, losses), rejected)

    def _by_each(self, contracts: Sequence[Contract], consumed: Consumed) -> Iterator[tuple[pa.RecordBatch, set[int]]]:
        """Yield the rows by each contract, and the offsets of the records that it refuses."""
        for contract in contracts:
            entry, _, _ = self._preparer(contract).prepare(consumed)
            if entry is not None:
                rows = by_ids(entry.rows, fields_of(contract), fields_of(self._columns_of))
                yield rows, {refused.offset for refused in entry.rejected}

    def _contracts(
        self, region: Region, first: Position, end: Position
    ) -> Iterator[tuple[Sequence[Contract], Position, Position]]:
        for _, contract, low, high in self._eras.parts(region.partition, first, end):
            if self.versions is None:
                yield [contract], low, high
            else:
                yield from self.versions(region, low, high)

    def _preparer(self, contract: Contract) -> Preparer:
        if contract.version not in self._preparers:
            self._preparers[contract.version] = Preparer(contract, schemas=self._schemas, reads_again=True)
        return self._preparers[contract.version]


def _is_lost(offset: int, losses: Sequence[LossRecord]) -> bool:
    return any(loss.first <= offset < loss.next for loss in losses)


def _without_lost(rows: pa.RecordBatch, losses: Sequence[LossRecord]) -> pa.RecordBatch:
    if not losses or rows.num_rows == 0:
        return rows
    offsets = rows.column(OFFSET).to_numpy()
    lost = np.full(len(offsets), False)
    for loss in losses:
        lost |= (offsets >= loss.first) & (offsets < loss.next)
    return rows.filter(pa.array(~lost)) if lost.any() else rows
