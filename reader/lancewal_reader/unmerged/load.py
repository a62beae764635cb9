"""Load the delta of a plan: flushes and WAL entries, folded.

Guarantees
 1. ``load`` is the fold of everything the deltas name, restricted to the columns asked for.
 2. A corrupt object is an error that names it; for objects that are gone see ``flushed`` and ``entries``.
 3. If rows do not tell their partition (``keys.origin``), keys in conflict are left out, and counted (``left_out``).
 4. If the delta has more than ``keys_max`` keys, ``load`` raises ``TooManyUnmerged``.  It holds one state of each key
    and one portion of the records in memory (``portions``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from lancewal_core.errors import Corrupt, ObjectMissing, PlanStale
from lancewal_core.keys.conflicts import ConflictKeys, read_conflicts
from lancewal_core.keys.origin import counting
from lancewal_core.names.ids import Region
from lancewal_core.rows.fold import Folded, divide, extend, fold_onto
from lancewal_core.rows.key_set import KeySet
from lancewal_core.rows.projection import project, project_rows
from lancewal_core.rows.schema import RowSchema
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.conflicts_ref import ConflictsRef
from lancewal_core.table.contract import Contract
from lancewal_reader.plan.kept import Kept
from lancewal_reader.plan.log_entries import EntryRef, SegmentPlace
from lancewal_reader.plan.python_collector import many_objects_made
from lancewal_reader.plan.strong import FlushRef, PlanContext, ReadPlan, RegionDelta
from lancewal_reader.unmerged.entries import few_slices, reduced, remembered
from lancewal_reader.unmerged.flushed import FlushCache, read_flushed, repaired
from lancewal_reader.unmerged.hidden import HiddenRows
from lancewal_reader.unmerged.left_out import OnConflict, leave_out
from lancewal_reader.unmerged.loaded import Begun, Loaded, LoadedCache
from lancewal_reader.unmerged.portions import UNMERGED_KEYS_MAX, Groups, Portions, check_keys


@dataclass(frozen=True, slots=True)
class DeltaContext(PlanContext):
    """An open table, with the caches for planning reads and loading deltas, and the rule for folding several regions."""

    flushes: FlushCache
    loaded: LoadedCache
    folding: Folding
    keys_max: int = UNMERGED_KEYS_MAX
    hidden: HiddenRows = field(default_factory=HiddenRows)
    shown: RowSchema | None = None
    """Columns of the results of one read; None: those of the contract."""

    @property
    def rows(self) -> RowSchema:
        return self.contract.rows if self.shown is None else self.shown

    def showing(self, rows: RowSchema) -> DeltaContext:
        """Return the context for results with these columns."""
        return self if rows is self.rows else replace(self, shown=rows)


class Folding:
    """Rule that combines the deltas of several regions.  This class is for regions that share no key."""

    by_regions = True
    """Whether the deltas of some regions can be folded without those of the other regions."""

    def __init__(self, on_conflict: OnConflict) -> None:
        self.on_conflict = on_conflict

    def fold(
        self,
        context: DeltaContext,
        deltas: Sequence[RegionDelta],
        projected: RowSchema,
        conflicts: ConflictsRef | None,
        met: pa.Table | None,
    ) -> Loaded:
        """Fold the deltas, as ``load`` does.  The fold may extend a cached one."""
        begun = context.loaded.begun(deltas, projected.signature, partial(repaired, context))
        kept = None if begun is None else _kept(context, begun, projected)
        if begun is None or kept is None:
            (folded,) = _folds(context, [deltas], projected)
        else:
            (more,) = _folds(context, [begun.behind], projected)
            folded = extend(kept, more, projected)
            check_keys(keys_in([folded]), context.keys_max)
        return Loaded(folded, projected)

    def met(self, keys: Callable[[], Loaded]) -> pa.Table | None:
        """Return the keys that several regions have (``Loaded.met``); None if regions share no key.  ``keys`` loads the
        keys of the whole delta, and is called only if needed.
        """
        return None

    def may_leave_out(self, plan: ReadPlan) -> bool:
        """Whether a read by this plan may leave out unmerged records of keys in conflict.  Only loading the delta
        shows whether there are such keys.
        """
        return False


class SideBySide(Folding):
    """Rule that folds each region separately, and leaves out keys in conflict.  It is needed if the columns of a row
    do not tell its partition.

    A cached fold is never extended, because it does not say which key came from which region.
    """

    by_regions = False

    def __init__(self, on_conflict: OnConflict) -> None:
        super().__init__(on_conflict)
        self._in_force = Kept(1)
        """Cache of the keys in conflict that the most recently read table version records."""

    def fold(
        self,
        context: DeltaContext,
        deltas: Sequence[RegionDelta],
        projected: RowSchema,
        conflicts: ConflictsRef | None,
        met: pa.Table | None,
    ) -> Loaded:
        in_force = self.in_force(context.store, conflicts, context.contract)
        folds = _folds(context, [[delta] for delta in deltas], projected)
        of_regions = {delta.region: fold for delta, fold in zip(deltas, folds, strict=True)}
        return leave_out(context.contract, in_force, of_regions, projected, met, self.on_conflict)

    def in_force(self, store: ObjectStore, conflicts: ConflictsRef | None, contract: Contract) -> ConflictKeys:
        """Return the decided and undecided keys in conflict.  They depend on their object and on
        ``Contract.row_terms``, and are cached by both.
        """
        return self._in_force.get(
            (conflicts, contract.row_terms),
            lambda: ConflictKeys(read_conflicts(store, conflicts, contract), counting(contract)),
        )

    def met(self, keys: Callable[[], Loaded]) -> pa.Table | None:
        return keys().met

    def may_leave_out(self, plan: ReadPlan) -> bool:
        unmerged = sum(1 for delta in plan.deltas if delta.sources)
        return unmerged > 1 or (unmerged == 1 and plan.in_force.conflicts is not None)


def folding_of(contract: Contract, on_conflict: OnConflict = "leave-out") -> Folding:
    """Return the folding that the contract requires."""
    return (Folding if contract.rows_tell_partition else SideBySide)(on_conflict)


@many_objects_made()
def load(
    context: DeltaContext,
    deltas: Sequence[RegionDelta],
    projected: RowSchema,
    conflicts: ConflictsRef | None = None,
    met: pa.Table | None = None,
) -> Loaded:
    """Fold these regions' deltas, without keys in conflict.

    Raises ``RegionConflict`` if keys in conflict may not be left out, and ``TooManyUnmerged`` if there are too many
    keys.  ``conflicts``: reference to the keys in conflict that the plan's version records.  ``met``: the keys that
    several regions of the plan have, if ``deltas`` covers only some regions.
    """
    columns = projected.signature
    # The cache does not compare ``met``.  Only Spark's tasks give it, and then each plan has its own cache (``spark.task``).
    known = context.loaded.get(deltas, columns, conflicts)
    if known is None:
        known = context.folding.fold(context, deltas, projected, conflicts, met)
        context.loaded.add(deltas, columns, known, conflicts)
    return known.of_columns(projected)


def _kept(context: DeltaContext, begun: Begun, projected: RowSchema) -> Folded | None:
    """Return the fold to extend, without keys of regions in ``begun.left``.  None: the records of these keys can no
    longer be read, because they are merged and trimmed."""
    folded = begun.loaded.of_columns(projected).folded
    if not begun.left:
        return folded
    try:
        (left,) = _folds(context, [begun.left], project(context.rows, ()))
    except (Corrupt, ObjectMissing, PlanStale):
        return None
    return divide(folded, KeySet(left.keys(projected)))[1]


def _folds(context: DeltaContext, groups: Groups, projected: RowSchema) -> list[Folded]:
    """Return the fold of each group, made portion by portion.  Raises ``TooManyUnmerged`` if there are too many keys."""
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
    """Return the number of keys of the folds; a key in several folds counts for each."""
    return sum(fold.rows.num_rows + fold.gone.num_rows + fold.partials.num_rows for fold in folds)


def _folds_at_once(context: DeltaContext, groups: Groups, projected: RowSchema) -> list[Folded]:
    deltas = [delta for group in groups for delta in group]
    refs = [(d.region, s) for d in deltas for s in d.sources if isinstance(s, FlushRef)]
    parts = read_flushed(context, context.flushes, refs, projected)
    of_segments: dict[SegmentPlace, list[tuple[Region, EntryRef]]] = {}
    for delta in deltas:
        for source in delta.sources:
            if isinstance(source, EntryRef) and source.rows:
                of_segments.setdefault(source.segment, []).append((delta.region, source))
    wanted = {entries[0][1].key: entries for entries in of_segments.values()}
    whole = context.rows
    if context.cache is not None:
        rows, schema = remembered(context, context.cache, wanted), whole.wal
    else:
        rows, schema = reduced(context, wanted, projected), projected.wal

    def folded(some: Sequence[RegionDelta]) -> Folded:
        regions = {delta.region for delta in some}
        # In each region's order; between regions there is none to keep, since no two regions of a group share a key.
        of_regions = [
            [rows[delta.region, s.first] for s in delta.sources if isinstance(s, EntryRef) and s.rows] for delta in some
        ]
        operations = pa.Table.from_batches(few_slices(of_regions), schema)
        if schema is not projected.wal:
            operations = project_rows(operations, whole, projected)
        mine = [part for (region, _), part in zip(refs, parts, strict=True) if region in regions]
        return fold_onto(mine, operations, projected)

    return [folded(group) for group in groups]
