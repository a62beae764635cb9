"""The records that the WAL still has: the entries of all generations that are not trimmed.

Guarantees
 1. Each segment that a kept generation may lie in is read once, for all its regions together.
 2. Rows count only if their entry belongs to a kept generation, as in a read.  If a generation lacks positions, because a
    segment is gone or cannot be read, they are a gap of the region, and the range that counts begins after the gap.
 3. Positions that were trimmed meanwhile are not a gap.
 4. No entries are missed of a generation that ``lancewal repair segment`` has flushed: its flush, which is marked, has its
    records.
 5. A damaged segment loses no rows of a generation that is MERGED or FLUSHED.  The table or the flush holds these rows, and
    the read that is verified has just read them.  A segment that is gone counts as missed all the same: something deletes
    objects that must stay.

Steps
 1. ``ranges``: read each region's state and history pages.  The range begins at the trimmed position.
 2. ``read``: read the segments, log by log.
 3. ``close``: check that the entries of each region follow each other up to the cut.  A gap below the present trimmed
    position was trimmed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial

from lancewal_audit.taken_versions import versions_between
from lancewal_audit.verify.records.by_ids import by_ids, fields_of
from lancewal_audit.verify.records.source import EntryPlaces, Range, RegionRecords, rows_of_columns
from lancewal_core.errors import Corrupt, PlanStale
from lancewal_core.names import paths
from lancewal_core.names.ids import LogId, Position, Region, Sequence
from lancewal_core.region.flushes.manifest import Flush, FlushedGeneration, read_flush
from lancewal_core.region.history import generations_behind
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.state import GenerationRecord, GenerationState, RegionState
from lancewal_core.table.contract import Contract
from lancewal_core.wal.entry import Entry, EntryHeader
from lancewal_core.wal.segment import Fence, Segment, Trailer, decode_segment, decode_trailer

_AT_ONCE = 8
"""Number of segments that are held in memory at the same time."""
_READS = 3
_TRIMMED = "the WAL before it is trimmed"


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A segment that is damaged, and the entries that its trailer lists."""

    sequence: Sequence
    reason: str
    entries: tuple[EntryHeader, ...]


class WalRecords:
    """Reader of one table's WAL.  Rows have the columns of ``contract``.

    After ``read``, ``places`` says which segment holds each offset, and ``damaged`` lists unreadable segments."""

    def __init__(self, opened: OpenedTable, contract: Contract) -> None:
        self._opened = opened
        self._contract = contract
        self._store = opened.store
        self._states = opened.states
        self._kept: dict[Region, list[GenerationRecord]] = {}
        self._ends: dict[Region, Position] = {}
        """End of the range of each region.  Entries after it may have columns that ``contract`` does not have."""
        self.places: dict[Region, EntryPlaces] = {}
        self.damaged: dict[str, str] = {}
        """Keys of segments that cannot be read, each with the reason."""
        self._gone: set[str] = set()
        """Keys of segments that must exist and do not."""
        self._flushes: dict[str, Flush] = {}
        """Manifests that were read, by their keys.  They never change."""
        self._between = cache(partial(versions_between, opened))
        """Cached ``versions_between``.  Each call reads contracts, and several batches may lie in one gap."""

    def contract_of(self, version: int) -> Contract:
        """Return the contract of the version ``version``, which an entry names."""
        return self._opened.contracts.of(self._opened.contract, version)

    def versions(
        self, region: Region, first: Position, end: Position
    ) -> Iterator[tuple[tuple[int, ...], Position, Position]]:
        """Divide positions by the contract versions, newest first, under which their records may have been taken."""
        return self.places[region].versions(first, end, self._between)

    # -- step 1 --------------------------------------------------------------------------------------------------

    def ranges(self, cut: Mapping[Region, Position]) -> dict[Region, Range]:
        """Return the range of each region that the WAL should have below the cut (step 1)."""
        found = {}
        states = self._states.read(cut)
        for region, end in cut.items():
            trimmed, records = self._generations(region, states.get(region))
            self._kept[region] = [record for record in records if record.first < end]
            self._ends[region] = end
            self.places[region] = EntryPlaces()
            begin = records[0].first if records else Position(max(trimmed, end))
            whole = bool(records) and records[0].generation == 1
            found[region] = Range(region, begin, end, whole, "" if whole else _TRIMMED)
        return found

    def beginning(self, region: Region) -> Position | None:
        """Return the region's first position if its first generation is still kept, else None."""
        records = self._kept.get(region)
        return records[0].first if records and records[0].generation == 1 else None

    def _generations(self, region: Region, state: RegionState | None) -> tuple[Position, list[GenerationRecord]]:
        """Return the trimmed position and all generations after it.  ``state``: the region's state, just read."""
        for attempt in range(_READS):
            if attempt:
                state = self._states.read([region]).get(region)
            if state is None or state.newest is None:
                return Position(0), []
            if state.newest.generation <= state.trimmed_generation:
                return state.trimmed, []
            try:
                records = generations_behind(self._opened, region, state, state.trimmed_generation)
            except PlanStale:
                if attempt == _READS - 1:
                    raise
                continue  # the boundary has moved in between
            return state.trimmed, records
        raise AssertionError("the loop returns or raises")

    # -- step 2 --------------------------------------------------------------------------------------------------

    def read(self) -> Iterator[RegionRecords]:
        """Yield the entries of the kept generations below the ends of the ranges (step 2)."""
        by_log: dict[LogId, list[tuple[Region, GenerationRecord]]] = {}
        for region, records in self._kept.items():
            for record in records:
                by_log.setdefault(record.log, []).append((region, record))
        for log, held in by_log.items():
            yield from self._read_log(log, held)

    def _read_log(self, log: LogId, held: list[tuple[Region, GenerationRecord]]) -> Iterator[RegionRecords]:
        regions = frozenset(region for region, _ in held)
        by_region: dict[Region, list[GenerationRecord]] = {}
        for region, record in held:
            by_region.setdefault(region, []).append(record)
        for segment in self._segments(log, [record for _, record in held], regions):
            for entry in segment.entries:
                if entry.first >= self._ends[entry.region] or not any(
                    _belongs(entry, segment.sequence, record) for record in by_region[entry.region]
                ):
                    continue
                version, places = entry.contract_version, self.places[entry.region]
                if isinstance(entry, EntryHeader):
                    places.add_named(entry.first, entry.next, version)
                else:
                    places.add(log, segment.sequence, entry.first, entry.next, version)
                    by, where = self.contract_of(version), paths.wal_segment(log, segment.sequence)
                    written = rows_of_columns(entry.rows, by.rows.table, where)
                    rows = by_ids(written, fields_of(by), fields_of(self._contract))
                    yield RegionRecords(entry.region, rows, [r.offset for r in entry.rejected])

    def _segments(
        self, log: LogId, records: list[GenerationRecord], regions: frozenset[Region]
    ) -> Iterator[Segment | Unreadable]:
        """Yield the segments in which these generations may have entries; for an OPEN generation up to the log's tail."""

        def read(number: int) -> Segment | Fence | Unreadable | None:
            key, data = paths.wal_segment(log, Sequence(number)), None
            try:
                data = self._store.get(key)
                return None if data is None else decode_segment(data, key, regions)
            except Corrupt as error:
                return Unreadable(Sequence(number), str(error), _listed(data or b"", key, regions))

        wanted: list[tuple[int, int | None]] = sorted(
            ((int(r.first_sequence), None if r.end_sequence is None else int(r.end_sequence)) for r in records),
            key=lambda span: span[0],
        )
        at = 0
        for first, end in wanted:
            at = max(at, first)
            tail = False
            while not tail and (end is None or at < end):
                stop = at + _AT_ONCE if end is None else min(at + _AT_ONCE, end)
                for found in self._opened.tasks.map(read, range(at, stop)):
                    match found:
                        case Segment():
                            yield found
                        case Unreadable():
                            self.damaged[paths.wal_segment(log, found.sequence)] = found.reason
                            yield found
                        case Fence():
                            return
                        case None if end is None:
                            tail = True
                            break
                        case None:
                            self._gone.add(
                                paths.wal_segment(log, Sequence(at))
                            )  # ``close`` finds the missing positions
                    at += 1

    # -- step 3 --------------------------------------------------------------------------------------------------

    def close(self, ranges: Mapping[Region, Range]) -> None:
        """Add the gaps to the ranges, and let each range begin after its last gap (step 3)."""
        lacking = {
            region: gaps
            for region, range_ in ranges.items()
            if (gaps := _gaps(range_.begin, range_.end, self.places[region].in_order()))
        }
        states = self._states.read(lacking)
        for region, gaps in lacking.items():
            range_, state = ranges[region], states.get(region)
            trimmed = Position(0) if state is None else state.trimmed
            if trimmed > range_.begin:
                range_.starts_at(min(trimmed, range_.end), _TRIMMED)
            for first, end in gaps:
                if end > trimmed:
                    range_.gaps.append((max(first, trimmed), end))
                    range_.starts_at(end, f"the WAL lacks {max(first, trimmed)} to {end - 1}")

    # -- gaps that nothing needs -----------------------------------------------------------------------------------

    def missed(self, region: Region, first: Position, end: Position) -> bool:
        """Return whether the entries of a gap are needed (guarantees 4 and 5)."""
        at = first
        for record in self._kept[region]:
            if record.next is None or not record.first <= at < record.next:
                continue
            if self._repaired(region, record) or (
                self._in_damaged(region, record, at, min(end, record.next)) and self._held(region, record)
            ):
                at = record.next
        return at < end

    def _in_damaged(self, region: Region, record: GenerationRecord, first: int, end: int) -> bool:
        """Return whether the offsets from ``first`` to before ``end`` of a generation were in segments that exist and
        cannot be read."""
        before, behind = self.places[region].around(record.log, first, end)
        low = record.first_sequence if before is None else max(Sequence(before + 1), record.first_sequence)
        part = replace(
            record, first_sequence=low, end_sequence=record.end_sequence if behind is None else Sequence(behind)
        )
        damaged, gone = (any(_spans(part, key) for key in keys) for keys in (self.damaged, self._gone))
        return damaged and not gone

    def is_repaired(self, key: str) -> bool:
        """Return whether all generations that may have entries in the segment ``key`` were repaired (guarantee 4)."""
        return all(self._repaired(region, record) for region, record in self._in(key))

    def holders(self, key: str) -> list[str] | None:
        """Return for each generation that may have entries in a damaged segment where its rows are kept (guarantee 5).

        None if the rows of some generation are kept nowhere else.
        """
        records = self._in(key)
        return [_holder(record) for _, record in records] if all(self._held(*one) for one in records) else None

    def _in(self, key: str) -> list[tuple[Region, GenerationRecord]]:
        return [(region, record) for region, records in self._kept.items() for record in records if _spans(record, key)]

    def _held(self, region: Region, record: GenerationRecord) -> bool:
        return record.state is GenerationState.MERGED or self._flush(region, record) is not None

    def _repaired(self, region: Region, record: GenerationRecord) -> bool:
        flushed = self._flush(region, record)
        return flushed is not None and flushed.repaired

    def _flush(self, region: Region, record: GenerationRecord) -> FlushedGeneration | None:
        """Return the generation's part of its flush; None if it has no flush, or one that cannot be read."""
        try:
            if record.flush is None:
                return None
            if record.flush not in self._flushes:
                self._flushes[record.flush] = read_flush(self._store, record.flush)
            return self._flushes[record.flush].generation_of(region, record.generation)
        except Corrupt:
            return None


def _listed(data: bytes, key: str, regions: frozenset[Region]) -> tuple[EntryHeader, ...]:
    """Return the entries that the trailer of a damaged segment lists; none if the trailer is damaged too."""
    try:
        trailer = decode_trailer(data, key, len(data))
    except Corrupt:
        return ()
    return tuple(e for e in trailer.entries if e.region in regions) if isinstance(trailer, Trailer) else ()


def _spans(record: GenerationRecord, key: str) -> bool:
    """Return whether entries of the generation may lie in the segment ``key``."""
    log, number = paths.parse_wal_segment(key) or (None, 0)
    return record.log == log and record.may_lie_in(number)


def _holder(record: GenerationRecord) -> str:
    return "the table" if record.state is GenerationState.MERGED else f"flush {record.flush}"


def _belongs(entry: Entry | EntryHeader, number: int, record: GenerationRecord) -> bool:
    inside = record.first <= entry.first and (record.next is None or entry.next <= record.next)
    return inside and record.may_lie_in(number)


def _gaps(begin: Position, end: Position, entries: list[tuple[Position, Position]]) -> list[tuple[Position, Position]]:
    """Return the parts of [begin, end) that no entry covers."""
    gaps = []
    at = begin
    for first, next_ in entries:
        if first > at and at < end:
            gaps.append((at, min(first, end)))
        at = max(at, next_)
    if at < end:
        gaps.append((at, end))
    return gaps
