"""The records with which a table is compared: Kafka's, the WAL's, or both.

For each region the table is compared with the source that begins earlier.  Kafka is used if it has all records, or if
both begin together.  Positions that both sources have are also compared with each other.

Kafka never has all records of a compacted topic.  If a key has newer records, or was deleted long ago, its older records
are gone without a trace.  For such a topic the WAL is used if it begins no later than Kafka.  A row without a record is
then unchecked, never foreign.  If rows do not tell their partition, a removed delete may have left an older record of its
row, under another text of the key.  A record without a row is then unchecked, too.

If a person decided after a restore that merged rows are dropped, records up to the restore say nothing about the
rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from lancewal_audit.verify.key_fold import RowOperation, plain_rows
from lancewal_audit.verify.records.source import Range
from lancewal_audit.verify.records.topic import TopicReader
from lancewal_audit.verify.records.wal import WalRecords
from lancewal_audit.verify.report import WAL, Finding, Findings
from lancewal_audit.verify.scope import Scope
from lancewal_audit.verify.shares.by_share import PARTITION, ShareWriter
from lancewal_audit.verify.shares.on_disk import Shares
from lancewal_core.names.ids import Position, Region
from lancewal_core.process.progress import step
from lancewal_core.rows.murmur2 import NO_PARTITION
from lancewal_core.rows.schema import OFFSET, OP, PRESENT, TIMESTAMP
from lancewal_core.table.contract import Contract

_COMPACTED = "the topic is compacted: Kafka may have removed older records"
_REPLACED = "the topic once lost its tail: records at earlier offsets may not be those that ingest read"
_COLUMNS_UNKNOWN = "columns were changed, and the part of the WAL that shows the columns of earlier records is trimmed"
_DROPPED = "a restore dropped what was merged before (`lancewal repair restored --rows-since drop`)"


class Evidence:
    """Records of both sources, and the ranges of positions that they have.

    If ``topic`` is None, only the WAL is read.  If ``from_wal`` is false, only Kafka is read.  The ranges are final
    once ``gather`` has read all records.
    """

    def __init__(self, scope: Scope, wal: WalRecords, topic: TopicReader | None, *, from_wal: bool) -> None:
        self._scope = scope
        self._topic = topic
        self.wal_records = wal
        # Needed even if only Kafka is read: the region's state may know where the region began.
        ranges = wal.ranges(scope.cut)
        self.wal: dict[Region, Range] = ranges if from_wal else {}
        self.topic: dict[Region, Range] = {}
        if topic is not None:
            beginnings = {r: _beginning(scope, wal, r) for r in scope.cut}
            self.topic = topic.ranges(scope.cut, beginnings, scope.losses)
        self._columns_changed = scope.eras.newest.format > 1
        for region, range_ in self.topic.items() if self._columns_changed else ():
            range_.starts_at(min(ranges[region].begin, range_.end), _COLUMNS_UNKNOWN)
        for range_ in self.topic.values() if self.compacted else ():
            range_.whole, range_.why_not_whole = False, range_.why_not_whole or _COMPACTED
        for side in (self.wal, self.topic):
            for region, range_ in side.items():
                range_.starts_at(min(scope.dropped.get(region, range_.begin), range_.end), _DROPPED)
        for region, range_ in self.topic.items():
            range_.starts_at(min(scope.replaced[region], range_.end), _REPLACED)
        self._shares: dict[str, Shares] = {}

    @property
    def compacted(self) -> bool:
        """Whether Kafka may have removed records that the WAL has."""
        return self._topic is not None and self._topic.compacted

    @property
    def records_max(self) -> int:
        """Number of offsets in the source that has more of them, summed over all regions."""
        return max(sum(max(r.end - r.begin, 0) for r in side.values()) for side in (self.topic, self.wal))

    def gather(self, writer: ShareWriter, findings: Findings) -> None:
        """Read both sources, and report damage and gaps of the WAL."""
        if self.wal:
            with step("reading the WAL", unit="entries") as told:
                self._shares["wal"] = writer.records("wal", told.counting(self.wal_records.read()), self.wal)
            self.wal_records.close(self.wal)
            _tell_gaps(self.wal_records, self.wal, findings)
        if self._topic is not None:
            if self._columns_changed:
                if not self.wal:
                    for _ in self.wal_records.read():
                        pass  # for the versions alone
                self._topic.versions = self._versions
            read = self._topic.read(self.topic, self._scope.losses)
            self._shares["topic"] = writer.records("topic", read, self.topic)

    def _versions(
        self, region: Region, first: Position, end: Position
    ) -> Iterator[tuple[list[Contract], Position, Position]]:
        for versions, low, high in self.wal_records.versions(region, first, end):
            yield [self.wal_records.contract_of(version) for version in versions], low, high

    def chosen(self, region: Region) -> Range:
        """Return the range of the source with which the region is compared."""
        kafka, log = self.topic.get(region), self.wal.get(region)
        if kafka is None or log is None:
            found = kafka or log
            assert found is not None
            return found
        if self.compacted:
            return log if log.begin <= kafka.begin else kafka
        return kafka if kafka.whole or kafka.begin <= log.begin else log

    def both(self, region: Region) -> tuple[Position, Position]:
        """The positions [first, end) whose records both sources have."""
        kafka, log = self.topic.get(region), self.wal.get(region)
        if kafka is None or log is None:
            return Position(0), Position(0)
        # Below Kafka's first offset there are only accepted losses, so Kafka lacks nothing there.
        first = max(kafka.begin, log.begin)
        return (first, log.end) if first < log.end else (Position(0), Position(0))

    def whole_partitions(self) -> frozenset[int]:
        """Return the partitions whose records are complete and whose keys had no row before the first record.

        If all partitions are complete, the result also has -1, the partition of rows that do not tell theirs.
        """
        whole = frozenset(region.partition for region in self._scope.cut if self.chosen(region).whole)
        incomplete = len(whole) < len(self._scope.cut)
        if not self._scope.empty_before or (self._scope.eras.altered and incomplete):
            return frozenset()
        return whole if incomplete else whole | {NO_PARTITION}

    def without_deletes(self) -> frozenset[int]:
        """Return the partitions whose source may lack deletes."""
        if not self.compacted or self._scope.contract.rows_tell_partition:
            return frozenset()
        return frozenset(
            region.partition for region in self._scope.cut if self.chosen(region) is self.topic.get(region)
        )

    def load(self, number: int) -> tuple[list[RowOperation], list[RowOperation], list[RowOperation]]:
        """Return the records of one share: those to compare the table with, Kafka's, and the WAL's."""
        sides = {"topic": self.topic, "wal": self.wal}
        found: dict[str, list[RowOperation]] = {"topic": [], "wal": []}
        compared: list[RowOperation] = []
        for name, shares in self._shares.items():
            by_partition = {region.partition: range_ for region, range_ in sides[name].items()}
            found[name] = _records_of(shares.load(number), self._scope.contract.rows.table, by_partition)
            ours = {r.partition for r, range_ in sides[name].items() if self.chosen(r) is range_}
            compared += [record for record in found[name] if record.partition in ours]
        return compared, found["topic"], found["wal"]


def _beginning(scope: Scope, wal: WalRecords, region: Region) -> Position | None:
    start = scope.contract.start_of(region.partition)
    return wal.beginning(region) if start is None else start


def _tell_gaps(wal: WalRecords, ranges: dict[Region, Range], findings: Findings) -> None:
    for key, problem in wal.damaged.items():
        if wal.is_repaired(key):
            continue
        holders = wal.holders(key)
        if holders is None:
            findings.add(Finding("wal_damaged", WAL, problem, object=key))
        else:
            text = (
                f"{problem}. Its rows are held by {', '.join(sorted(set(holders)))}: nothing is lost but reads at "
                "receipts from before these rows were merged. The object goes with the trim after the history window"
            )
            findings.add(Finding("wal_held", WAL, text, object=key))
    for region, range_ in ranges.items():
        for first, end in range_.gaps:
            if wal.missed(region, first, end):
                text = f"offsets {first} to {end - 1}"
                findings.add(Finding("wal_missing", WAL, text, None, region.partition, first))


def _records_of(table: pa.Table, columns: pa.Schema, ranges: Mapping[int, Range]) -> list[RowOperation]:
    """Return the records of a share that lie in the range of their region."""
    found = []
    system = (table[name].cast(pa.int64()).to_pylist() for name in (PARTITION, OFFSET, OP, TIMESTAMP))
    for partition, offset, op, timestamp, present, values in zip(
        *system, table[PRESENT].to_pylist(), plain_rows(table, columns.names), strict=True
    ):
        range_ = ranges.get(partition)
        if range_ is not None and range_.begin <= offset < range_.end:
            found.append(RowOperation(partition, offset, op, present, values, timestamp))
    return found
