"""The delta of a plan: folding snapshots and WAL entries, completing patches from the table.

Guarantees
 1. ``load`` is the fold of everything the deltas name, restricted to the columns asked for.
 2. A snapshot whose files are gone is read from its WAL entries; if these are gone too, ``ObjectMissing``: trimmed since it
    was planned, or, if a new plan names it again, lost.
 3. A corrupt object is an error that names it.
 4. Of a table keyed by bytes (``keys.origin``) what conflicts is left out, and counted (``left_out``).
 5. More keys than ``keys_max`` are ``TooManyUnmerged``.  Until then memory is that of the keys and of one portion of their
    records (``portions``).
 6. A fold that is remembered is gone on with: only what is behind its cuts is read and folded, and snapshots that a cut
    divides.  What a merge has moved into the table since leaves it: all keys of those regions, whose deltas are folded anew;
    where that is more than the whole delta, or can be read no more, all is.  Not gone on with where a repair has made a
    snapshot since (a person may have given up some of its records), or where the table has less than it had.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from threading import Lock
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.errors import LOG_LOST, Corrupt, ObjectMissing, PlanStale
from lancewal_core.ids import Generation, Position, Region
from lancewal_core.keys.scan import find_keys
from lancewal_core.region.flushes.manifest import by_flush, read_flush
from lancewal_core.region.generation_entries import entries_of
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.snapshot import read_parts
from lancewal_core.rows.fold import Folded, complete, divide, extend, fold, fold_onto, side_by_side
from lancewal_core.rows.key_set import KeySet
from lancewal_core.rows.projection import project, project_rows
from lancewal_core.rows.schema import OFFSET, RowSchema
from lancewal_core.table.conflicts_ref import ConflictsRef
from lancewal_core.table.contract import Contract
from lancewal_core.table.protocol import PinnedTable
from lancewal_core.wal.entry import Entry
from lancewal_core.wal.segment import Fence, Segment, decode_segment
from lancewal_core.wal.walk import SegmentCache, read_segment
from lancewal_reader.left_out import InForceCache, OnConflict, leave_out
from lancewal_reader.plan.hidden import HiddenRows
from lancewal_reader.plan.log_entries import EntryRef
from lancewal_reader.plan.strong import ReadPlan, RegionDelta, SnapshotRef
from lancewal_reader.portions import UNMERGED_KEYS_MAX, Groups, Portions, check_keys, records_of

FlushedPart = tuple[str, Region, Generation]
"""The manifest of a flush, and which of its generations."""


class SnapshotCache:
    """Folded snapshots by what they are of and columns; immutable, so what was read stays true.  ``bytes_max`` bounds it."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._found: OrderedDict[tuple[FlushedPart, tuple[str, ...]], Folded] = OrderedDict()
        self._lock = Lock()

    def get(self, key: FlushedPart, columns: tuple[str, ...]) -> Folded | None:
        with self._lock:
            found = self._found.get((key, columns))
            if found is not None:
                self._found.move_to_end((key, columns))
            return found

    def add(self, key: FlushedPart, columns: tuple[str, ...], folded: Folded) -> None:
        with self._lock:
            if (key, columns) in self._found:
                return
            self._found[(key, columns)] = folded
            self._bytes += folded.nbytes
            while self._bytes > self._bytes_max and self._found:
                self._bytes -= self._found.popitem(last=False)[1].nbytes


class Loaded:
    """A folded delta, its mask, and what of keys in conflict is not in it.

    ``met``: keys that several regions have; ``unmerged``, ``partitions``: as of ``LeftOut``.
    """

    def __init__(
        self,
        folded: Folded,
        schema: RowSchema,
        met: pa.Table | None = None,
        unmerged: int = 0,
        partitions: tuple[int, ...] = (),
        wider: Loaded | None = None,
    ) -> None:
        """``wider``: the same with more columns, if it was made of that."""
        self.folded = folded
        self.met = met
        self.unmerged = unmerged
        self.partitions = partitions
        self._schema = schema
        self._wider = wider

    @cached_property
    def mask(self) -> KeySet:
        """Keys of the whole delta."""
        return KeySet(self.folded.keys(self._schema)) if self._wider is None else self._wider.mask

    def of_columns(self, schema: RowSchema) -> Loaded:
        """The same with these columns alone; it has them."""
        names = schema.table.names
        if names == self._schema.table.names:
            return self
        partials = project_rows(self.folded.partials, self._schema, schema)
        narrow = Folded(self.folded.rows.select(names), self.folded.gone, partials)
        return Loaded(narrow, schema, self.met, self.unmerged, self.partitions, self._wider or self)


Flushed = Sequence[tuple[Region, SnapshotRef]]
"""Generations that are read from their flushes."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A remembered fold to go on from: first without the keys of ``left``, then with what ``behind`` folds to."""

    loaded: Loaded
    behind: Sequence[RegionDelta]
    left: Sequence[RegionDelta] = ()
    """As they were folded: those of regions of which something has been merged since."""


_Known = tuple[tuple[RegionDelta, ...], tuple[str, ...], ConflictsRef | None]


class LoadedCache:
    """The last deltas that were folded, the newest last: a reader that looks again often finds the same one, one with a
    few more entries, or one of few columns.  Threads may share it.

    Of more than ``count_max`` the newest of each choice of columns stay, of ``choices_max`` choices: scans, searches by vector
    and by text, in turns, go on from their own.  ``bytes_max`` bounds what is kept; None: nothing does.
    """

    def __init__(self, count_max: int = 2, bytes_max: int | None = None, choices_max: int = 4) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._choices_max = choices_max
        self._found: tuple[tuple[_Known, Loaded], ...] = ()
        """Compared and not hashed: plans that follow one another share most of their sources, tens of thousands of them."""
        self._lock = Lock()

    def get(
        self, deltas: Sequence[RegionDelta], columns: Sequence[str], conflicts: ConflictsRef | None = None
    ) -> Loaded | None:
        """With these columns or with more (``Loaded.of_columns``)."""
        wanted = (tuple(deltas), conflicts)
        found = [(names, loaded) for (of, names, in_force), loaded in self._found if (of, in_force) == wanted]
        same = next((loaded for names, loaded in found if names == tuple(columns)), None)
        return same or next((loaded for names, loaded in found if _has(names, columns)), None)

    def begun(
        self, deltas: Sequence[RegionDelta], columns: Sequence[str], repaired: Callable[[Flushed], bool]
    ) -> Begun | None:
        """The newest with these columns or more that ``deltas`` go on from at less than what they fold to anew."""
        for (known, names, _), loaded in reversed(self._found):
            if _has(names, columns):
                begun = _begun(loaded, deltas, known)
                if begun is not None and not repaired(_made_since(deltas, known)):
                    return begun
        return None

    def add(
        self,
        deltas: Sequence[RegionDelta],
        columns: Sequence[str],
        loaded: Loaded,
        conflicts: ConflictsRef | None = None,
    ) -> None:
        known = (tuple(deltas), tuple(columns), conflicts)
        with self._lock:
            others = [found for found in self._found if found[0] != known]
            self._found = self._kept_of([*others, (known, loaded)])
            while self._bytes_max is not None and self._found and self._nbytes() > self._bytes_max:
                self._found = self._found[1:]

    def _kept_of(self, found: Sequence[tuple[_Known, Loaded]]) -> tuple[tuple[_Known, Loaded], ...]:
        over, newest = len(found) - self._count_max, {names: at for at, ((_, names, _), _) in enumerate(found)}
        older = [at for at, ((_, names, _), _) in enumerate(found) if newest[names] != at]
        dropped = set(older[: max(over, 0)])
        kept = [some for at, some in enumerate(found) if at not in dropped]
        return tuple(kept[-max(self._count_max, self._choices_max) :])

    def _nbytes(self) -> int:
        return sum(loaded.folded.nbytes for _, loaded in self._found)


def _has(names: Sequence[str], columns: Sequence[str]) -> bool:
    return set(names).issuperset(columns)


def _begun(loaded: Loaded, deltas: Sequence[RegionDelta], known: Sequence[RegionDelta]) -> Begun | None:
    """How ``deltas`` go on from ``loaded``, which ``known`` folded to; None: they do not, or at no less than anew.

    The records of a region's positions are the same for ever, whether an entry or a snapshot holds them; but for those that
    a person gives up in a repair.  So a snapshot on both sides of a cut may be taken whole: what it says of a key, behind what
    ``known`` has of the same records, comes to what all of them come to.  A row, or that it is gone, is said anew; of patches
    alone the last value of each column is.
    """
    if [d.region for d in deltas] != [k.region for k in known]:
        return None
    behind, left = [], []
    for delta, before in zip(deltas, known, strict=True):
        if delta.cut < before.cut or delta.start < before.start:
            return None
        if delta.start > before.start:
            left.append(before)
            behind.append(delta)
            continue
        divided = [source for source in delta.sources if source.first < before.cut < source.next]
        if not all(isinstance(source, SnapshotRef) for source in divided):
            return None
        sources = tuple(source for source in delta.sources if source.next > before.cut)
        behind.append(RegionDelta(delta.region, sources, delta.cut))
    if left and _records([*left, *behind]) >= _records(deltas):
        return None
    return Begun(loaded, behind, left)


def _records(deltas: Sequence[RegionDelta]) -> int:
    return sum(records_of(source) for delta in deltas for source in delta.sources)


def _made_since(deltas: Sequence[RegionDelta], known: Sequence[RegionDelta]) -> Flushed:
    """Snapshots that begin before the cuts of ``known`` and are not in it."""
    return [
        (delta.region, source)
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
    folding: Folding
    keys_max: int = UNMERGED_KEYS_MAX
    hidden: HiddenRows = field(default_factory=HiddenRows)


class Folding:
    """How deltas of several regions become one; as here where regions share no key (``canonical``)."""

    on_conflict: OnConflict = "leave-out"
    by_regions = True
    """What some regions' deltas fold to follows from them alone, whatever the others have."""

    def fold(
        self,
        context: DeltaContext,
        deltas: Sequence[RegionDelta],
        projected: RowSchema,
        conflicts: ConflictsRef | None,
        met: pa.Table | None,
    ) -> Loaded:
        """As ``load``, of what is not remembered; it may go on from what is."""
        begun = context.loaded.begun(deltas, projected.table.names, partial(_repaired, context))
        kept = None if begun is None else _kept(context, begun, projected)
        if begun is None or kept is None:
            (folded,) = _folds(context, [deltas], projected)
        else:
            (more,) = _folds(context, [begun.behind], projected)
            folded = extend(kept, more, projected)
            check_keys(keys_in([folded]), context.keys_max)
        return Loaded(folded, projected)

    def met(self, keys: Callable[[], Loaded]) -> pa.Table | None:
        """``Loaded.met`` of the whole delta, whose ``keys`` are loaded only where regions may share some."""
        return None

    def may_leave_out(self, plan: ReadPlan) -> bool:
        """Whether tasks may leave out unmerged records of keys in conflict, which only they will know."""
        return False


class SideBySide(Folding):
    """Each region by itself, without what conflicts (``format.key: bytes``).

    Nothing goes on from what is remembered: that does not say which key came through which region.
    """

    by_regions = False

    def __init__(self, on_conflict: OnConflict) -> None:
        self.on_conflict = on_conflict
        self._in_force = InForceCache()

    def fold(
        self,
        context: DeltaContext,
        deltas: Sequence[RegionDelta],
        projected: RowSchema,
        conflicts: ConflictsRef | None,
        met: pa.Table | None,
    ) -> Loaded:
        in_force = self._in_force.get(context.store, conflicts, context.contract)
        folds = _folds(context, [[delta] for delta in deltas], projected)
        of_regions = {delta.region: fold for delta, fold in zip(deltas, folds, strict=True)}
        sides = leave_out(context.contract, in_force, of_regions, projected, met, self.on_conflict)
        return Loaded(side_by_side(sides.folds, projected), projected, sides.met, sides.unmerged, sides.partitions)

    def met(self, keys: Callable[[], Loaded]) -> pa.Table | None:
        return keys().met

    def may_leave_out(self, plan: ReadPlan) -> bool:
        unmerged = sum(1 for delta in plan.deltas if delta.sources)
        return unmerged > 1 or (unmerged == 1 and plan.in_force.conflicts is not None)


def folding_of(contract: Contract, on_conflict: OnConflict = "leave-out") -> Folding:
    """By the contract's ``key_format``."""
    return {"canonical": Folding(), "bytes": SideBySide(on_conflict)}[contract.key_format]


def load(
    context: DeltaContext,
    deltas: Sequence[RegionDelta],
    projected: RowSchema,
    conflicts: ConflictsRef | None = None,
    met: pa.Table | None = None,
) -> Loaded:
    """The fold of these regions' deltas without what conflicts; ``RegionConflict`` where that is not to be left out,
    ``TooManyUnmerged`` where it has too many keys.

    ``conflicts``: what is in force at the plan's version.  ``met``: keys that meet in the deltas of all regions, where these
    are some of them.
    """
    names = projected.table.names
    known = context.loaded.get(deltas, names, conflicts)
    if known is None:
        known = context.folding.fold(context, deltas, projected, conflicts, met)
        context.loaded.add(deltas, names, known, conflicts)
    return known.of_columns(projected)


def _repaired(context: DeltaContext, made: Flushed) -> bool:
    """Whether a repair made one of them; also where that cannot be read: then what can is folded anew.

    One round, each flush once: behind a hand-over they are those of hundreds of regions.
    """

    def one(parts: Flushed) -> bool:
        try:
            flush = read_flush(context.store, parts[0][1].key)
            return any(flush.snapshot(region, ref.generation).repaired for region, ref in parts)
        except Corrupt:
            return True

    return bool(made) and any(context.tasks.map(one, _by_manifest(made)))


def _kept(context: DeltaContext, begun: Begun, projected: RowSchema) -> Folded | None:
    """What is gone on from; None where what has left it can be read no more, as it need not: it is merged."""
    folded = begun.loaded.of_columns(projected).folded
    if not begun.left:
        return folded
    try:
        (left,) = _folds(context, [begun.left], project(context.contract.rows, ()))
    except (Corrupt, ObjectMissing, PlanStale):
        return None
    return divide(folded, KeySet(left.keys(projected)))[1]


def _by_manifest(refs: Flushed) -> list[Flushed]:
    """Those of one flush together."""
    found: dict[str, list[tuple[Region, SnapshotRef]]] = {}
    for region, ref in refs:
        found.setdefault(ref.key, []).append((region, ref))
    return list(found.values())


def _folds(context: DeltaContext, groups: Groups, projected: RowSchema) -> list[Folded]:
    """The fold of each group, portion by portion."""
    folds: list[Folded] | None = None
    portions = Portions(groups)
    for portion in portions:
        more = _folds_at_once(context, portion, projected)
        folds = more if folds is None else [extend(*both, projected) for both in zip(folds, more, strict=True)]
        held = keys_in(folds)
        check_keys(held, context.keys_max)
        portions.hold(held)
    assert folds is not None  # there is one portion at least
    return folds


def keys_in(folds: Sequence[Folded]) -> int:
    """Keys of folds; one that is in several counts for each."""
    return sum(fold.rows.num_rows + fold.gone.num_rows + fold.partials.num_rows for fold in folds)


def _folds_at_once(context: DeltaContext, groups: Groups, projected: RowSchema) -> list[Folded]:
    deltas = [delta for group in groups for delta in group]
    refs = [(d.region, s) for d in deltas for s in d.sources if isinstance(s, SnapshotRef)]
    parts = _snapshots(context, refs, projected)
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

    return [folded(group) for group in groups]


class FindAddresses(Protocol):
    def __call__(self, pinned: PinnedTable, keys: pa.Table) -> npt.NDArray[np.uint64]:
        """Addresses of the live rows with these keys, which are distinct; in no order."""


def by_scan(pinned: PinnedTable, keys: pa.Table) -> npt.NDArray[np.uint64]:
    """``FindAddresses`` without a key index."""
    return find_keys(pinned, KeySet(keys)).addresses


def complete_rows(folded: Folded, pinned: PinnedTable, projected: RowSchema, find: FindAddresses = by_scan) -> pa.Table:
    """All rows of the delta: those in state Row, and Partial ones completed from the table."""
    if folded.partials.num_rows == 0:
        return folded.rows
    addresses = find(pinned, folded.partials.select(list(projected.primary_key)))
    base = pinned.take(pa.array(addresses), projected.table.names).cast(projected.table)
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


def _snapshots(context: DeltaContext, refs: Flushed, projected: RowSchema) -> list[Folded]:
    """Each of these; what is remembered of none is read, together with others of its flush."""
    columns = tuple(projected.table.names)
    found = {of: context.snapshots.get(_of(*of), columns) for of in refs}
    unknown = _by_manifest([of for of, folded in found.items() if folded is None])
    read = context.tasks.map(lambda some: _of_flush(context, some, projected), unknown) if unknown else []
    for some, contents in zip(unknown, read, strict=True):
        for of, folded in zip(some, contents, strict=True):
            context.snapshots.add(_of(*of), columns, folded)
            found[of] = folded
    return [folded for folded in (found[of] for of in refs) if folded is not None]


def _of(region: Region, ref: SnapshotRef) -> FlushedPart:
    return ref.key, region, ref.generation


def _of_flush(context: DeltaContext, refs: Flushed, projected: RowSchema) -> list[Folded]:
    """Parts of one flush; what of it is gone is folded from the log."""
    whole = context.contract.rows
    try:
        flush = read_flush(context.store, refs[0][1].key)
        (parts,) = by_flush([flush.snapshot(region, ref.generation) for region, ref in refs])
        contents = read_parts(context.store, context.table, parts, projected.table.names, whole)
        read = {(p.region, p.generation): content for p, content in zip(parts, contents, strict=True)}
        found = [read[region, ref.generation] for region, ref in refs]
    except ObjectMissing as error:
        found = [error] * len(refs)
    folds = []
    for (region, ref), content in zip(refs, found, strict=True):
        if isinstance(content, ObjectMissing):
            content = _from_log(context, region, ref, projected)
        elif isinstance(content, Corrupt):
            raise content
        else:
            partials = project_rows(content.partials, whole, projected)
            content = Folded(content.rows, content.gone, partials)
        folds.append(content)
    return folds


def _from_log(context: DeltaContext, region: Region, ref: SnapshotRef, projected: RowSchema) -> Folded:
    try:
        entries = entries_of(context, region, ref)
    except PlanStale as error:
        raise ObjectMissing(
            f"{ref.key} is gone, and so are its WAL entries: {error}. {LOG_LOST}", object=ref.key
        ) from error
    return fold([project_rows(e.rows, context.contract.rows, projected) for e in entries], projected)
