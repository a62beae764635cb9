"""Changes that records of the WAL made, each with the row of its key before and after it.

Guarantees
 1. Each record between two positions of its region gives one change, except a delete of an absent row.  Changes of a region
    are in offset order.  Rejected records have no row, and give none.
 2. Records are read from WAL entries, also those that were flushed or merged since: a flush has no offsets.  Entries of an
    older contract have the columns of the feed (``rows_as``).  So the same records give the same changes, whatever was merged
    or compacted since.  If records are gone, the error says which.
 3. Memory holds one portion of records, and the rows of the keys so far.  If these are more than ``keys_max`` keys,
    the error is ``TooManyUnmerged``.

Steps
 1. Take the generations of each region from state and history pages, and walk their logs to the last position, as a read at
    a receipt does (``plan.at_receipt``).
 2. Portion by portion, read the entries.  Look up the keys that no portion before had in the state at the start.
 3. Replay the portion (``replay``), and keep the rows of its keys for the next one.

The error is ``OutsideHistoryWindow`` if records are trimmed, and ``RecordsGivenUp`` if a person gave some up.  It is
``ObjectMissing`` if a segment is lost, and ``ContractChanged`` if entries name a newer contract.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.errors import DuplicateKeys, PlanRetriesExhausted, PlanStale, counted
from lancewal_core.names.ids import Position, Region
from lancewal_core.rows.equal_cells import Mask
from lancewal_core.rows.fold import Indices, divide, key_codes, side_by_side
from lancewal_core.rows.key_set import KeySet
from lancewal_core.rows.projection import project, project_rows
from lancewal_core.rows.row_range import slices
from lancewal_core.rows.schema import OFFSET, TIMESTAMP, RowSchema
from lancewal_core.table.watermarks import InForce
from lancewal_reader.changes.pairs import Pairs
from lancewal_reader.changes.replay import Images, Replay, cells_at
from lancewal_reader.changes.side import Side
from lancewal_reader.plan.at_receipt import GenerationPart, entries_of_part, parts_between, walk_parts
from lancewal_reader.plan.breaks import Cut, kept_of
from lancewal_reader.plan.log_entries import EntryRef, LogEntries
from lancewal_reader.plan.strong import PAUSE_S, PlanContext, RegionDelta, check_entries, looked_again
from lancewal_reader.point.receipt import Receipt
from lancewal_reader.unmerged.entries import batch_by_batch, reduced, remembered
from lancewal_reader.unmerged.load import DeltaContext, keys_in
from lancewal_reader.unmerged.portions import Portions, check_keys

PORTION_BYTES = 256 << 20
"""About the most bytes of records that are replayed at once."""
_KEYS_PER_RECORD = 4
"""Largest number of keys held for each record of a portion.  With more keys portions become larger, since each portion
visits all keys.
"""
_READS = 3
"""Largest number of times that a portion is read, if segments vanish."""
MORE = pa.schema(
    [
        pa.field("_sequence", pa.int64(), nullable=False),
        pa.field("_partition", pa.int32()),
        pa.field("_offset", pa.int64()),
        pa.field("_record_time", pa.timestamp("us", tz="UTC")),
        pa.field("_source", pa.string()),
    ]
)
"""Columns of ``Pairs.more`` in the mode ``all``."""

Entries = Mapping[Region, Sequence[EntryRef]]
Counting: TypeAlias = Callable[[Region, pa.Table], Mask]
"""Function of a region and the keys of some of its records.  It returns a mask: True for each record that counts
(``meetings``).
"""


def reached(receipt: Receipt) -> int:
    """Return a number that orders the states of a table: the sum of all positions and the version.

    Versions and positions only grow, and positions of former topics are kept.  Each record advances a position by at
    least one.  So the records between two states can be numbered within the gap between the states' numbers.
    """
    return sum(receipt.positions.values()) + receipt.version


def entries_between(context: PlanContext, in_force: InForce, begin: Cut, end: Cut) -> dict[Region, list[EntryRef]]:
    """Return the entries with records from ``begin`` to ``end``, by region (step 1).

    The first and the last entry of a region may be used in part.  A reference to the last one names only its rows below
    the end.

    ``in_force``: watermarks at or below ``begin``.  Only generations after them are looked up.
    """
    return looked_again(context, lambda: _entries_once(context, in_force, begin, end), "no consistent view of the log")


def _entries_once(context: PlanContext, in_force: InForce, begin: Cut, end: Cut) -> dict[Region, list[EntryRef]]:
    behind = {r: (begin.get(r, Position(0)), at) for r, at in sorted(end.items()) if at > begin.get(r, 0)}
    states = context.states.read(list(behind))

    def parts(region: Region) -> list[GenerationPart]:
        with kept_of(context.contract, region):
            return parts_between(context, in_force, region, states.get(region), behind[region])

    found = context.tasks.map(parts, list(behind))
    walks = walk_parts(context, [part for some in found for part in some])
    logs = {log: LogEntries(walked) for log, walked in walks.items()}
    check_entries(context.contract, logs)
    entries: dict[Region, list[EntryRef]] = {}
    for region, some in zip(behind, found, strict=True):
        with kept_of(context.contract, region):
            refs = [ref for part in some for ref in entries_of_part(part, logs[part.record.log])]
        entries[region] = [ref for ref in refs if ref.next > behind[region][0]]
    return entries


@dataclass(frozen=True, slots=True)
class RecordStretch:
    """Records from one state of the table to a later one.  Nothing but these records changed rows in between."""

    start: Side
    deltas: tuple[RegionDelta, ...]
    """Entries that hold these records, by region.  The first entry of a region may begin before ``begin``."""

    @staticmethod
    def of(start: Side, entries: Entries, end: Cut) -> RecordStretch:
        """Return the entries' records from ``start`` to ``end``."""
        begin, deltas = start.receipt.positions, []
        for region, refs in entries.items():
            first, last = begin.get(region, Position(0)), end.get(region, Position(0))
            some = [replace(r, next=min(r.next, last)) for r in refs if r.next > first and r.first < last]
            if some:
                deltas.append(RegionDelta(region, tuple(some), last))
        return RecordStretch(start, tuple(deltas))

    @property
    def begin(self) -> Cut:
        return self.start.receipt.positions

    @property
    def end(self) -> Cut:
        return {**self.begin, **{delta.region: delta.cut for delta in self.deltas}}


def record_changes(stretch: RecordStretch, columns: Sequence[str], counting: Counting | None) -> Iterator[Pairs]:
    """Yield the changes that the records made, in portions (steps 2 and 3).

    ``columns`` must include the primary key.  ``counting``: None if all records change rows.
    """
    start, context = stretch.start, stretch.start.context
    rows = project(start.rows, columns)
    states = side_by_side([], rows)
    portions = Portions([stretch.deltas])
    for (deltas,) in portions:
        for part in _divided(_read(stretch, deltas, rows, counting)):
            keys, codes = _keys_of(part, rows)
            touched, untouched = divide(states, keys)
            unknown = np.ones(len(keys), np.bool_)
            unknown[keys.places(touched.keys(rows).columns)] = False
            new = keys.table.filter(pa.array(unknown))
            found = start.rows_of(new, rows.table.names) if new.num_rows else rows.table.empty_table()
            known = pa.concat_tables([touched.rows, found])
            places = keys.places([known[name] for name in keys.names])
            _check_once(start, places)
            replay = Replay(part.records, known, rows, np.concatenate([places, codes]))
            for images in replay.images():
                yield _pairs(stretch, part, images, columns)
            states = side_by_side([untouched, replay.states()], rows)
            held = keys_in([states])
            check_keys(held, context.keys_max)
            portions.hold(held // _KEYS_PER_RECORD)


def _check_once(side: Side, places: Indices) -> None:
    """Raise ``DuplicateKeys`` if a key has two rows in a state.  ``places``: for each row that was found, the place of its
    key."""
    twice = int((np.bincount(places) > 1).sum())
    if not twice:
        return
    raise DuplicateKeys(
        f"{counted(twice, 'key')} among those that changed have two rows at table version {side.receipt.version}, since "
        "another program has appended rows with these keys. `lancewal verify` names such keys. Begin the feed after the "
        "merge that hides these rows",
    )


@dataclass(frozen=True, slots=True)
class _Read:
    """Records that were read: WAL rows with the columns of the feed, and the index of the region of each."""

    records: pa.Table
    regions: Sequence[Region]
    of: npt.NDArray[np.int64]

    def at(self, wanted: Mask) -> _Read:
        return self if wanted.all() else _Read(self.records.filter(pa.array(wanted)), self.regions, self.of[wanted])


def _keys_of(read: _Read, rows: RowSchema) -> tuple[KeySet, Indices]:
    """Return the keys of the records, and the place of each record's key."""
    every = read.records.select(list(rows.primary_key)).combine_chunks()
    codes = key_codes(every)
    first = np.empty(int(codes.max(initial=-1)) + 1, np.int64)
    first[codes] = np.arange(len(codes))  # any record of the key
    return KeySet(every.take(pa.array(first)).cast(rows.key)), codes


def _divided(read: _Read) -> Iterator[_Read]:
    """Yield the records in parts of about ``PORTION_BYTES``, in their order."""
    count = read.records.num_rows
    parts = max(-(-read.records.nbytes // PORTION_BYTES), 1)
    step = max(-(-count // parts), 1)
    for begin in range(0, count, step):
        yield _Read(read.records.slice(begin, step), read.regions, read.of[begin : begin + step])


def _read(stretch: RecordStretch, deltas: Sequence[RegionDelta], rows: RowSchema, counting: Counting | None) -> _Read:
    """Read the records of a portion that count, those of a region in offset order."""
    context = stretch.start.context
    reason: PlanStale | None = None
    for attempt in range(_READS):
        if attempt:
            context.clock.sleep(PAUSE_S * attempt)
            # If the segment was trimmed or is lost, this says so.
            entries_between(context, stretch.start.plan.in_force, stretch.begin, stretch.end)
        try:
            read = _read_once(context, deltas, rows)
            break
        except PlanStale as error:
            reason = error
    else:
        raise PlanRetriesExhausted(f"records vanished {_READS} times, the last reason: {reason}") from reason
    read = read.at(read.records[OFFSET].to_numpy() >= _begins(stretch, read))
    return read if counting is None else read.at(_that_count(read, rows, counting))


def _begins(stretch: RecordStretch, read: _Read) -> npt.NDArray[np.int64]:
    """Return for each record the position at which the stretch begins in its region."""
    return np.array([stretch.begin.get(region, 0) for region in read.regions], np.int64)[read.of]


def _that_count(read: _Read, rows: RowSchema, counting: Counting) -> Mask:
    found = np.ones(read.records.num_rows, np.bool_)
    keys = read.records.select(list(rows.primary_key))
    for index in np.unique(read.of).tolist():
        of_region = read.of == index
        found[of_region] = counting(read.regions[index], keys.filter(pa.array(of_region)).combine_chunks())
    return found


def _read_once(context: DeltaContext, deltas: Sequence[RegionDelta], rows: RowSchema) -> _Read:
    wanted: dict[str, list[tuple[Region, EntryRef]]] = {}
    refs = [[source for source in delta.sources if isinstance(source, EntryRef) and source.rows] for delta in deltas]
    for delta, some in zip(deltas, refs, strict=True):
        for ref in some:
            wanted.setdefault(ref.key, []).append((delta.region, ref))
    whole = context.rows
    if context.cache is not None:
        held, schema = remembered(context, context.cache, wanted), whole.wal
    else:
        held, schema = reduced(context, wanted, rows), rows.wal
    of_regions = [[held[delta.region, ref.first] for ref in some] for delta, some in zip(deltas, refs, strict=True)]
    places = {
        (id(one.batch), one.begin): index for index, some in enumerate(of_regions) for one in some if one.row_count
    }
    ordered = [one for one in batch_by_batch(of_regions) if one.row_count]
    records = pa.Table.from_batches(slices(ordered), schema)
    if schema is not rows.wal:
        records = project_rows(records, whole, rows)
    of = np.repeat(
        np.array([places[id(one.batch), one.begin] for one in ordered], np.int64), [one.row_count for one in ordered]
    )
    return _Read(records, [delta.region for delta in deltas], of)


def _pairs(stretch: RecordStretch, read: _Read, images: Images, columns: Sequence[str]) -> Pairs:
    offsets = cells_at(read.records[OFFSET], images.places)
    of = read.of[images.places]
    partitions = np.array([region.partition for region in read.regions], np.int32)
    numbers = reached(stretch.start.receipt) + offsets.to_numpy() - _begins(stretch, read)[images.places] + 1
    more = pa.Table.from_arrays(
        [
            pa.array(numbers),
            pa.array(partitions[of]),
            offsets,
            cells_at(read.records[TIMESTAMP], images.places).cast(MORE.field("_record_time").type),
            pa.repeat(pa.scalar("record"), len(of)),
        ],
        schema=MORE,
    )
    names = list(columns)
    return Pairs(images.before.select(names), images.after.select(names), images.had, images.has, more)
