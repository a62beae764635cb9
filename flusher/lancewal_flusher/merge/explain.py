"""Show what the next merge would do to each fragment, and what that costs, without writing anything.

Guarantee: the decisions come from the functions that ``merge`` uses, from the same version and the same flushes.
There are two exceptions.  A merge would first rebuild a flush with missing files; here the region's generations end
before such a flush.  A merge would set aside keys in conflict; here all keys are merged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lancewal_core.keys.index import KeyRows
from lancewal_core.keys.live import find_live
from lancewal_core.rows.key_set import KeySet
from lancewal_core.settings.sections import FlusherSettings
from lancewal_core.table.columns.restored import check_fit
from lancewal_core.table.protocol import Fragment, PinnedTable
from lancewal_flusher.commit.send import Refused
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.merge.first_seen import FirstSeen
from lancewal_flusher.merge.inputs import MergeInputs, read_inputs
from lancewal_flusher.merge.look import look
from lancewal_flusher.merge.merge import shall_defer
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_flusher.tasks.cost import (
    COMMIT_S,
    KEY_ENTRY_BYTES,
    KEY_S,
    NEW_ROW_S,
    SCANNED_ROW_S,
    Cost,
    FragmentChange,
    Strategy,
    costs,
)
from lancewal_flusher.tasks.in_place import InPlace, change_of, choose_in_place
from lancewal_flusher.upkeep.compaction import FileSizes, stored
from lancewal_flusher.upkeep.compaction_plan import Choice, CompactionLimits

_DEFAULTS = FlusherSettings()


@dataclass(frozen=True, slots=True)
class FragmentExplanation:
    """Effect of the next merge on one fragment.  ``rows``: physical rows.  ``replaced``: number of live rows that are
    replaced, deleted or patched.  ``in_place``: number of these that are patched in place."""

    fragment: int
    rows: int
    deleted_rows: int
    replaced: int
    in_place: int
    strategy: Strategy
    bytes_written: int
    seconds: float
    bytes_of: Mapping[Strategy, int]
    """Bytes written now plus bytes owed later (``Cost.weight``), for each strategy that was compared."""
    indexed_by: tuple[str, ...] = ()
    """Names of the indexes over columns that many patches set.  They keep the fragment from being patched in place."""


@dataclass(frozen=True, slots=True)
class MergeExplanation:
    """The next merge.  ``bytes_written`` and ``seconds`` include the compaction right after it; ``seconds_merge`` does
    not."""

    version: int
    generations: Mapping[str, tuple[int, int]]
    """First and last generation of each region, by the region's name."""
    keys: int
    rows_adopted: int
    rows_written: int
    """Rows that the merge writes: survivors of combined generations, and completed patches."""
    rows_in_place: int
    fragments_scanned: int
    deferred: bool
    """Whether a running flusher would wait for more generations first."""
    fragments: tuple[FragmentExplanation, ...]
    bytes_written: int
    seconds_merge: float
    seconds: float
    damaged: Mapping[str, str]
    """Damage that makes the merge leave a region, by the region's name.  Lost files are not listed: a merge may
    rebuild them from the log."""


def explain(
    context: FlusherContext, limits: MergeLimits, compaction: CompactionLimits | None, threads: int = _DEFAULTS.threads
) -> MergeExplanation | Refused:
    """Return what the next merge would do, or ``Refused`` if it cannot be planned now.

    ``compaction``: the limits of compaction, None if it is turned off.
    """
    seen = look(context, lambda context, pinned: check_fit(context.store, pinned, context.contract))
    pinned = seen.pinned
    inputs = read_inputs(context, seen, limits, FirstSeen(), rebuild=False)
    if isinstance(inputs, Refused):
        return inputs
    keys = inputs.keys() if inputs.region_inputs else context.contract.rows.key.empty_table()
    lookup = context.keys.find(pinned, keys) if inputs.region_inputs else KeyRows({}, ())
    partials = inputs.partials(context.contract.rows)
    choice = choose_in_place(context, pinned, lookup, partials, limits.in_place_rows, limits.deleted_share)
    replaced = {i: len(rows.rows) for i, rows in find_live(pinned, KeySet(keys), lookup).items()}
    left_alone = _left_alone(
        stored(context.table, context.tasks, pinned.fragments(), FileSizes()), pinned, compaction, limits
    )
    indexes = pinned.indexes()
    found = [
        _explained(
            change_of(pinned, i, count, choice.chosen.get(i), indexes, rewritable=i not in left_alone), limits, choice
        )
        for i, count in sorted(replaced.items())
        if count
    ]
    return _sum(pinned, inputs, lookup, found, threads, limits)


def _left_alone(
    fragments: Sequence[Fragment], pinned: PinnedTable, compaction: CompactionLimits | None, limits: MergeLimits
) -> frozenset[int]:
    """Return the ids of the fragments that no compaction may rewrite right after the merge."""
    if compaction is None:
        return frozenset(f.fragment_id for f in fragments)
    others = frozenset(
        f.fragment_id for f in fragments if not limits.rewrite_bytes <= f.nbytes <= compaction.round_bytes
    )
    return others | Choice(tuple(fragments), pinned.unrewritable_fragments(), with_sentinel=True).excluded(compaction)


def _explained(change: FragmentChange, limits: MergeLimits, choice: InPlace) -> tuple[FragmentExplanation, Cost]:
    found = costs(change, limits.deleted_share)
    taken = found[-1 if change.fragment_id in choice.chosen else 0]
    explanation = FragmentExplanation(
        change.fragment_id,
        change.rows,
        change.deleted_rows,
        change.replaced,
        change.patched,
        taken.strategy,
        taken.bytes_written,
        taken.seconds + taken.seconds_behind,
        {cost.strategy: cost.weight for cost in found},
        choice.barred.get(change.fragment_id, ()),
    )
    return explanation, taken


def _entry_bytes(inputs: MergeInputs) -> float:
    """Return the bytes of one row in the key index.  A key that is not one integer is stored there next to its number."""
    keys = inputs.keys() if inputs.region_inputs else None
    if keys is None or (keys.num_columns == 1 and pa.types.is_integer(keys.schema.field(0).type)):
        return KEY_ENTRY_BYTES
    return float(KEY_ENTRY_BYTES + keys.nbytes / max(keys.num_rows, 1))


def _sum(
    pinned: PinnedTable,
    inputs: MergeInputs,
    lookup: KeyRows,
    found: list[tuple[FragmentExplanation, Cost]],
    threads: int,
    limits: MergeLimits,
) -> MergeExplanation:
    fragments = {f.fragment_id: f for f in pinned.fragments()}
    region_inputs = inputs.region_inputs
    adopted = sum(w.merge.flushes[0].rows for w in region_inputs if w.adopted)
    combined = sum(w.rows.num_rows for w in region_inputs)
    patched = sum(explanation.in_place for explanation, _ in found)
    written = combined + sum(w.partials.num_rows for w in region_inputs) - patched
    rows = sum(f.physical_rows for f in fragments.values())
    row_bytes = sum(f.nbytes for f in fragments.values()) / max(rows, 1)
    keys = sum(w.keys.num_rows for w in region_inputs)
    scanned = sum(fragments[i].physical_rows for i in lookup.uncovered)
    tasks = sum(cost.seconds for _, cost in found) + SCANNED_ROW_S * scanned
    seconds = COMMIT_S + KEY_S * keys + NEW_ROW_S * written + tasks / max(1, min(threads, len(found)))
    return MergeExplanation(
        int(pinned.version),
        {
            w.merge.region.name: (int(w.merge.flushes[0].generation), int(w.merge.flushes[-1].generation))
            for w in region_inputs
        },
        keys,
        adopted,
        written,
        patched,
        len(lookup.uncovered),
        bool(region_inputs) and shall_defer(pinned, lookup, inputs, limits),
        tuple(explanation for explanation, _ in found),
        int(
            sum(cost.bytes_written for _, cost in found)
            + written * row_bytes
            + _entry_bytes(inputs) * (adopted + written)
        ),
        seconds if region_inputs else 0.0,
        (seconds if region_inputs else 0.0) + sum(cost.seconds_behind for _, cost in found),
        {region.name: f"{error.kind}: {error}" for region, error in sorted(inputs.left.items())},
    )
