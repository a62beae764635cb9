"""Read the rows of WAL entries that a plan names; ``PlanStale`` if an entry is gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from graphlib import CycleError
from itertools import chain, pairwise
from operator import attrgetter

import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.errors import PlanStale
from lancewal_core.names.ids import Position, Region
from lancewal_core.region.opened_table import OpenedTable, entry_name
from lancewal_core.rows.projection import project_rows
from lancewal_core.rows.row_range import RowRange, slices
from lancewal_core.rows.schema import OFFSET, RowSchema
from lancewal_core.wal.entry import Entry
from lancewal_core.wal.segment import Fence, Segment, decode_segment
from lancewal_core.wal.segment_cache import SegmentCache, read_segment
from lancewal_reader.plan.log_entries import EntryRef
from lancewal_reader.unmerged.one_order import one_order

Wanted = Mapping[str, Sequence[tuple[Region, EntryRef]]]
"""Entries by the key of the segment that holds them."""
Rows = dict[tuple[Region, Position], RowRange]
"""Rows of entries, by the region and first position of each."""
_BEGIN = attrgetter("begin")


def remembered(opened: OpenedTable, cache: SegmentCache, wanted: Wanted) -> Rows:
    """Return the rows of these entries with all columns.  Only segments that the cache does not have are read."""
    segments: dict[str, Segment | Fence | None] = {key: cache.get(key) for key in wanted}
    unknown = [key for key, segment in segments.items() if segment is None]
    if unknown:
        read = opened.tasks.map(lambda key: read_segment(opened.store, key, cache), unknown)
        segments.update(zip(unknown, read, strict=True))
    return {
        place: lie for key, refs in wanted.items() for place, lie in _entries(opened, key, segments[key], refs).items()
    }


def reduced(opened: OpenedTable, wanted: Wanted, projected: RowSchema) -> Rows:
    """Return the projected columns of these entries.

    Each segment is reduced to the wanted columns at once: the segments of a large delta need not fit into memory.
    """

    def of_segment(key: str) -> Rows:
        refs = wanted[key]
        data = opened.store.get(key)
        segment = None if data is None else decode_segment(data, key, {region for region, _ in refs})
        found = _entries(opened, key, segment, refs)
        return {place: RowRange.whole(project_rows(lie.rows, opened.rows, projected)) for place, lie in found.items()}

    read = opened.tasks.map(of_segment, list(wanted))
    return {place: lie for segment in read for place, lie in segment.items()}


def _entries(
    opened: OpenedTable, key: str, segment: Segment | Fence | None, wanted: Sequence[tuple[Region, EntryRef]]
) -> Rows:
    """Return the rows of these entries with the columns of ``opened.rows``.  Raises ``PlanStale`` if the segment lacks
    one.
    """
    if not isinstance(segment, Segment):
        raise PlanStale(f"{key} has vanished since the read was planned: plan the read again", object=key)
    by_place = {(entry.region, entry.first): entry for entry in segment.entries}
    for region, ref in wanted:
        if (region, ref.first) not in by_place:
            raise PlanStale(f"{key} does not hold the entry {ref.first} of region {region.name}", object=key)
    carried: dict[tuple[int, int], tuple[pa.RecordBatch, pa.RecordBatch]] = {}
    """Batches as they were written, each with a copy in the columns of ``opened.rows``.  Many entries may share a
    batch.
    """
    found: Rows = {}
    for region, ref in wanted:
        entry = by_place[region, ref.first]
        batch, begin, row_count = _below(entry, ref.next)
        of = id(batch), entry.contract_version
        if of not in carried:
            carried[of] = batch, opened.rows_as_wanted(batch, entry.contract_version, partial(entry_name, entry))
        found[region, ref.first] = RowRange(carried[of][1], begin, row_count)
    return found


def _below(entry: Entry, next_: Position) -> RowRange:
    """Return the rows of an entry below a position: the cut of a receipt may divide the entry."""
    if entry.next <= next_:
        return entry.range
    rows = entry.rows
    return RowRange.whole(rows.filter(pc.less(rows[OFFSET], next_)))


def few_slices(sequences: Sequence[Sequence[RowRange]]) -> list[pa.RecordBatch]:
    """Return all rows batch by batch, and keep each sequence's order (``batch_by_batch``).  Adjacent rows of a batch
    become one slice.
    """
    return slices(batch_by_batch(sequences))


def batch_by_batch(sequences: Sequence[Sequence[RowRange]]) -> list[RowRange]:
    """Sort ranges so that those of one batch are together where possible.  Each sequence keeps its order.

    If this is impossible, because sequences order batches or rows differently, the sequences follow one after the
    other.
    """
    held: dict[int, list[RowRange]] = {}
    for one in chain.from_iterable(sequences):
        held.setdefault(id(one.batch), []).append(one)
    pairs = chain.from_iterable(map(pairwise, sequences))
    if any(one.batch is before.batch and one.begin < before.end for before, one in pairs):
        return list(chain.from_iterable(sequences))
    try:
        batches = one_order((id(one.batch) for one in ranges) for ranges in sequences)
    except CycleError:
        return list(chain.from_iterable(sequences))
    return [one for batch in batches for one in sorted(held[batch], key=_BEGIN)]
