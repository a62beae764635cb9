"""The delta of a plan: folding snapshots and WAL entries, completing patches from the table.

Guarantees
 1. ``load`` is the fold of everything the deltas name, restricted to the columns asked for.
 2. A snapshot whose files are gone is read from its WAL entries; if these are gone too, ``ObjectMissing``: trimmed since it
    was planned, or, if a new plan names it again, lost.
 3. A corrupt object is an error that names it.
 4. Of a table keyed by bytes (``keys.origin``) no key is in the deltas of two regions: ``RegionConflict``.
 5. A fold that is remembered is gone on with where the new plan begins at the same positions: only what is behind its
    cuts is read and folded.  Not where a repair has made a snapshot since: a person may have given up some of its records.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core import paths
from lancewal_core.errors import LOG_LOST, Corrupt, ObjectMissing, PlanStale
from lancewal_core.ids import Position, Region
from lancewal_core.keys.origin import conflict, meeting
from lancewal_core.keys.scan import find_keys
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.snapshot import Snapshot, read_gone, read_partials, read_rows, read_snapshot
from lancewal_core.rows.fold import Folded, complete, extend, fold, fold_onto, partial_schema
from lancewal_core.rows.key_set import KeySet
from lancewal_core.rows.projection import project_rows
from lancewal_core.rows.schema import OFFSET, RowSchema
from lancewal_core.table.contract import Contract
from lancewal_core.table.protocol import PinnedTable
from lancewal_core.wal.segment import Entry, Fence, Segment, decode_segment
from lancewal_core.wal.walk import SegmentCache, read_segment, walk
from lancewal_reader.plan.strong import EntryRef, RegionDelta, SnapshotRef


class SnapshotCache:
    """Folded snapshots by key and columns; immutable, so what was read stays true.  ``bytes_max`` bounds it."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._found: OrderedDict[tuple[str, tuple[str, ...]], Folded] = OrderedDict()
        self._lock = Lock()

    def get(self, key: str, columns: tuple[str, ...]) -> Folded | None:
        with self._lock:
            found = self._found.get((key, columns))
            if found is not None:
                self._found.move_to_end((key, columns))
            return found

    def add(self, key: str, columns: tuple[str, ...], folded: Folded) -> None:
        with self._lock:
            if (key, columns) in self._found:
                return
            self._found[(key, columns)] = folded
            self._bytes += folded.nbytes
            while self._bytes > self._bytes_max and self._found:
                self._bytes -= self._found.popitem(last=False)[1].nbytes


class Loaded:
    """A folded delta and its mask."""

    def __init__(self, folded: Folded, schema: RowSchema) -> None:
        self.folded = folded
        self._schema = schema

    @cached_property
    def mask(self) -> KeySet:
        """Keys of the whole delta."""
        return KeySet(self.folded.keys(self._schema))


class LoadedCache:
    """The last deltas that were folded, the newest last: a reader that looks again often finds the same one, one with a
    few more entries, or one of few columns."""

    def __init__(self, count_max: int = 2) -> None:
        self._count_max = count_max
        self._found: OrderedDict[tuple[tuple[RegionDelta, ...], tuple[str, ...]], Loaded] = OrderedDict()

    def get(self, deltas: Sequence[RegionDelta], columns: Sequence[str]) -> Loaded | None:
        return self._found.get((tuple(deltas), tuple(columns)))

    def begun(
        self, deltas: Sequence[RegionDelta], columns: Sequence[str], repaired: Callable[[SnapshotRef], bool]
    ) -> tuple[Loaded, Sequence[RegionDelta]] | None:
        """The newest that ``deltas`` go on from, and what of them comes behind it."""
        for (known, known_columns), loaded in reversed(self._found.items()):
            if known_columns == tuple(columns):
                behind = _behind(deltas, known)
                if behind is not None and not any(repaired(ref) for ref in _made_since(deltas, known)):
                    return loaded, behind
        return None

    def add(self, deltas: Sequence[RegionDelta], columns: Sequence[str], loaded: Loaded) -> None:
        self._found[(tuple(deltas), tuple(columns))] = loaded
        while len(self._found) > self._count_max:
            self._found.popitem(last=False)


def _behind(deltas: Sequence[RegionDelta], known: Sequence[RegionDelta]) -> list[RegionDelta] | None:
    """What of ``deltas`` lies behind the cuts of ``known``; None where they do not begin at the same positions or a source
    lies on both sides of a cut.

    The records of a region's positions are the same for ever, whether an entry or a snapshot holds them; but for those that
    a person gives up in a repair.
    """
    if [(d.region, d.start) for d in deltas] != [(k.region, k.start) for k in known]:
        return None
    behind = []
    for delta, cut in zip(deltas, (k.cut for k in known), strict=True):
        if delta.cut < cut or any(source.first < cut < source.next for source in delta.sources):
            return None
        behind.append(RegionDelta(delta.region, tuple(s for s in delta.sources if s.first >= cut), delta.cut))
    return behind


def _made_since(deltas: Sequence[RegionDelta], known: Sequence[RegionDelta]) -> list[SnapshotRef]:
    """Snapshots before the cuts of ``known`` that are not in it."""
    return [
        source
        for delta, before in zip(deltas, known, strict=True)
        for source in delta.sources
        if isinstance(source, SnapshotRef) and source.first < before.cut and source not in before.sources
    ]


@dataclass(frozen=True, slots=True)
class DeltaContext(OpenedTable):
    """What loading uses."""

    segments: SegmentCache | None
    """None: segments are decoded for the entries wanted of them and not remembered."""
    snapshots: SnapshotCache
    loaded: LoadedCache


def load(context: DeltaContext, deltas: Sequence[RegionDelta], projected: RowSchema) -> Loaded:
    """The fold of these regions' deltas; keys of different regions never meet, or ``RegionConflict`` says so."""
    known = context.loaded.get(deltas, projected.table.names)
    if known is None:
        begun = context.loaded.begun(deltas, projected.table.names, lambda ref: _repaired(context, ref))
        # What is remembered does not say which key came through which region.
        if begun is None or context.contract.keyed_by_bytes:
            folded = _fold(context, deltas, projected)
        else:
            folded = extend(begun[0].folded, _fold(context, begun[1], projected), projected)
        known = Loaded(folded, projected)
        context.loaded.add(deltas, projected.table.names, known)
    return known


def _repaired(context: DeltaContext, ref: SnapshotRef) -> bool:
    """Whether a repair made it; also where that cannot be read: then what can is folded anew."""
    try:
        return read_snapshot(context.store, ref.key).repaired
    except Corrupt:
        return True


def _fold(context: DeltaContext, deltas: Sequence[RegionDelta], projected: RowSchema) -> Folded:
    refs = [(d.region, s) for d in deltas for s in d.sources if isinstance(s, SnapshotRef)]
    parts = context.tasks.map(lambda item: _snapshot(context, item[0], item[1], projected), refs) if refs else []
    wanted: dict[str, list[tuple[Region, EntryRef]]] = {}
    for delta in deltas:
        for source in delta.sources:
            if isinstance(source, EntryRef) and source.rows:
                wanted.setdefault(source.key, []).append((delta.region, source))
    whole = context.contract.rows
    if context.segments is not None:
        rows, schema = _remembered(context, context.segments, wanted), whole.wal
    else:
        # Each segment is reduced to what is wanted of it at once: those of a large delta need not fit into memory.
        read = (
            context.tasks.map(lambda item: _reduced(context, *item, projected), list(wanted.items())) if wanted else []
        )
        rows, schema = {place: found for segment in read for place, found in segment.items()}, projected.wal

    def folded(some: Sequence[RegionDelta]) -> Folded:
        regions = {delta.region for delta in some}
        batches = [
            rows[delta.region, source.first]
            for delta in some
            for source in delta.sources
            if isinstance(source, EntryRef) and source.rows
        ]
        operations = pa.Table.from_batches(batches, schema)
        if schema is not projected.wal:
            operations = project_rows(operations, whole, projected)
        mine = [part for (region, _), part in zip(refs, parts, strict=True) if region in regions]
        return fold_onto(mine, operations, projected)

    if not context.contract.keyed_by_bytes:
        return folded(deltas)
    return _side_by_side(context.contract, deltas, [folded([delta]) for delta in deltas], projected)


def _side_by_side(
    contract: Contract, deltas: Sequence[RegionDelta], folds: Sequence[Folded], projected: RowSchema
) -> Folded:
    """The folds of the regions as one; ``RegionConflict`` if they have a key in common."""
    keys = [fold.keys(projected) for fold in folds]
    counts = np.array([some.num_rows for some in keys], np.int64)
    partitions = np.repeat(np.array([delta.region.partition for delta in deltas], np.int32), counts)
    met = meeting(pa.concat_tables([projected.key.empty_table(), *keys]), partitions)
    if met is not None:
        raise conflict(
            contract.topic,
            met,
            "is not merged yet",
            "Until the flusher has merged what conflicts, which it does not by itself, only the merged table can be read "
            '(consistency="eventual")',
        )
    return Folded(
        pa.concat_tables([projected.table.empty_table(), *(fold.rows for fold in folds)]),
        pa.concat_tables([projected.key.empty_table(), *(fold.gone for fold in folds)]),
        pa.concat_tables([partial_schema(projected).empty_table(), *(fold.partials for fold in folds)]),
    )


def complete_rows(folded: Folded, pinned: PinnedTable, projected: RowSchema) -> pa.Table:
    """All rows of the delta: those in state Row, and Partial ones completed from the table."""
    if folded.partials.num_rows == 0:
        return folded.rows
    keys = KeySet(folded.partials.select(list(projected.primary_key)))
    found = find_keys(pinned, keys)
    base = pinned.take(pa.array(found.addresses), projected.table.names).cast(projected.table)
    return pa.concat_tables([folded.rows, complete(folded.partials, base, projected)])


_Place = tuple[Region, Position]


def _remembered(
    context: DeltaContext, cache: SegmentCache, wanted: Mapping[str, Sequence[tuple[Region, EntryRef]]]
) -> dict[_Place, pa.RecordBatch]:
    """These entries, whole; only segments that are not remembered are read."""
    segments: dict[str, Segment | Fence | None] = {key: cache.get(key) for key in wanted}
    unknown = [key for key, segment in segments.items() if segment is None]
    if unknown:
        read = context.tasks.map(lambda key: read_segment(context.store, key, cache), unknown)
        segments.update(zip(unknown, read, strict=True))
    return {place: rows for key, refs in wanted.items() for place, rows in _entries(key, segments[key], refs).items()}


def _reduced(
    context: DeltaContext, key: str, wanted: Sequence[tuple[Region, EntryRef]], projected: RowSchema
) -> dict[_Place, pa.RecordBatch]:
    """These entries of one segment, the projected columns of them."""
    data = context.store.get(key)
    segment = None if data is None else decode_segment(data, key, {region for region, _ in wanted})
    found = _entries(key, segment, wanted)
    return {place: project_rows(rows, context.contract.rows, projected) for place, rows in found.items()}


def _entries(
    key: str, segment: Segment | Fence | None, wanted: Sequence[tuple[Region, EntryRef]]
) -> dict[_Place, pa.RecordBatch]:
    if not isinstance(segment, Segment):
        raise PlanStale(f"{key} has vanished since it was planned", object=key)
    by_place = {(entry.region, entry.first): entry for entry in segment.entries}
    for region, ref in wanted:
        if (region, ref.first) not in by_place:
            raise PlanStale(f"{key} does not hold the entry {ref.first} of region {region.name}", object=key)
    return {(region, ref.first): _below(by_place[region, ref.first], ref.next) for region, ref in wanted}


def _below(entry: Entry, next_: Position) -> pa.RecordBatch:
    """Rows of an entry below a position: the cut of a receipt may divide it."""
    return entry.rows if entry.next <= next_ else entry.rows.filter(pc.less(entry.rows[OFFSET], next_))


def _snapshot(context: DeltaContext, region: Region, ref: SnapshotRef, projected: RowSchema) -> Folded:
    columns = tuple(projected.table.names)
    cached = context.snapshots.get(ref.key, columns)
    if cached is not None:
        return cached
    try:
        folded = _read(context, read_snapshot(context.store, ref.key), projected)
    except ObjectMissing:
        folded = _from_log(context, region, ref, projected)
    context.snapshots.add(ref.key, columns, folded)
    return folded


def _read(context: DeltaContext, snapshot: Snapshot, projected: RowSchema) -> Folded:
    whole = context.contract.rows
    partials = project_rows(read_partials(context.store, snapshot, whole), whole, projected)
    return Folded(
        read_rows(context.table, snapshot, projected.table.names, projected),
        read_gone(context.store, snapshot, whole),
        partials,
    )


def _from_log(context: DeltaContext, region: Region, ref: SnapshotRef, projected: RowSchema) -> Folded:
    walked = walk(context.store, context.tasks, ref.log, ref.first_sequence, before=ref.end_sequence, regions=(region,))
    entries = [e for s in walked.segments for e in s.entries if e.region == region and ref.first <= e.first < ref.next]
    if not ref.wal_entries.is_exactly([e.first for e in entries]):
        raise ObjectMissing(
            f"{ref.key} is gone, and so are its WAL entries, from {paths.wal_segment(ref.log, walked.end)} on. {LOG_LOST}",
            object=ref.key,
        )
    return fold([project_rows(e.rows, context.contract.rows, projected) for e in entries], projected)
