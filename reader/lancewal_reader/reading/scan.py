"""Merge on read: the table under a mask, then the delta's rows.

Guarantees
 1. The result is the fold of each region's prefix up to the plan's cut.  Base rows of *all* delta keys are masked,
    also of deleted ones and before any filter.  Then filter and projection apply to both sides alike.
 2. Batches have exactly the requested columns, types and nullability of the contract.
 3. A read of an open table finds the masked rows by the key index if all of the index is open (``lookup``), and keeps
    their addresses for the next read of the state (``hidden``).  Key columns that nobody wants are then not read.

Spark's tasks run the same pieces (``base_batches`` of some fragments, ``delta_rows`` of some regions).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.keys.scan import groups
from lancewal_core.process.tasks import Tasks
from lancewal_core.rows.key_set import KeySet
from lancewal_core.rows.projection import project
from lancewal_core.rows.schema import RowSchema
from lancewal_core.table.protocol import AllBut, PinnedTable
from lancewal_reader.plan.strong import ReadPlan
from lancewal_reader.reading.filter import filter_rows
from lancewal_reader.unmerged.completed import FindAddresses, complete_rows
from lancewal_reader.unmerged.left_out import LeftOut, left_out_of_plan
from lancewal_reader.unmerged.load import DeltaContext, load
from lancewal_reader.unmerged.loaded import Loaded
from lancewal_reader.unmerged.portions import has_more_than

BATCH_ROWS = 65_536
"""Largest number of rows of a batch; fewer where rows are wide (``batch_rows``)."""
BATCH_BYTES = 32 << 20
AtHand: TypeAlias = Callable[[PinnedTable, Sequence[str]], bool]
"""Function of a table version and its key columns.  It tells whether the key index finds every row of the version
without reading anything.
"""
_LOOKED_UP_ONE_OF = 16
"""Keys are looked up if there is at most one unmerged record for this many merged rows.  To look up a key costs about as
much as to compare fifty keys."""


def row_bytes(schema: pa.Schema) -> int:
    """Estimate the bytes of a row in memory.  Sizes of texts, binaries and lists are guesses."""
    return sum(_type_bytes(field.type) for field in schema)


def batch_rows(schema: pa.Schema) -> int:
    """Return the number of rows per batch, chosen so that batches with vectors stay near ``BATCH_BYTES``."""
    return max(min(BATCH_ROWS, BATCH_BYTES // max(row_bytes(schema), 1)), 512)


def _type_bytes(type_: pa.DataType) -> int:
    if pa.types.is_fixed_size_list(type_):
        return int(type_.list_size) * _type_bytes(type_.value_type)
    if pa.types.is_struct(type_):
        return sum(_type_bytes(member.type) for member in type_)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return 8 * _type_bytes(type_.value_type)
    try:
        return max(int(type_.bit_width) // 8, 1)
    except ValueError:  # texts, binaries, and what other programs have
        return 32


def result_schema(schema: RowSchema, columns: Sequence[str]) -> pa.Schema:
    """Return the schema of a result with these columns, without a receipt."""
    return pa.schema([schema.table.field(name) for name in columns])


@dataclass(frozen=True, slots=True)
class OpenState:
    """A planned state that is open, with the columns of one result."""

    context: DeltaContext
    """The open table; its ``rows`` are the columns of the result."""
    pinned: PinnedTable
    """The plan's table version, which shows the columns of the result."""
    plan: ReadPlan
    find: FindAddresses
    """Lookup of keys in ``pinned``, by the key index where that covers them."""

    def load(self, projected: RowSchema) -> Loaded:
        """Return the fold of the delta, with these columns."""
        return load(self.context, self.plan.deltas, projected, self.plan.in_force.conflicts)

    def hidden(self, keys: KeySet) -> npt.NDArray[np.uint64]:
        """Return the addresses of the merged rows that the delta hides.  ``keys``: all keys of the delta."""
        return self.context.hidden.addresses(self.find, self.pinned, self.plan, keys)


def scan_plan(
    state: OpenState, columns: Sequence[str], filter: str | None, at_hand: AtHand | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield all rows of the state.  The delta is loaded before the first batch, and held until the last.

    ``at_hand``: whether the key index may find the merged rows that the delta hides (``KeyLookup.at_hand``).  Without
    it, or if a lookup would be slower, all keys are compared.
    """
    context, pinned = state.context, state.pinned
    whole, scan = context.rows, partial(pinned.scan, filter=filter)
    if not state.plan.has_delta:
        yield from base_batches(context.tasks, scan, None, whole, columns)
        return

    @cache
    def unmerged() -> Loaded:
        """Load the delta once.  Loading it again later could fail, because a merge may have removed its objects."""
        return state.load(loaded_columns(whole, columns, filter))

    def mask() -> KeySet:
        return unmerged().mask

    hidden = None if at_hand is None else _hidden(state, mask, at_hand)
    if hidden is not None:
        unmerged()
        scan = partial(pinned.scan, rows=AllBut(hidden), filter=filter)
        yield from base_batches(context.tasks, scan, None, whole, columns)
    else:
        yield from base_batches(context.tasks, scan, mask, whole, columns)
    rows = delta_rows(pinned, whole, unmerged(), columns, filter)
    yield from rows.to_batches(max_chunksize=batch_rows(rows.schema))


def _hidden(state: OpenState, mask: Callable[[], KeySet], at_hand: AtHand) -> npt.NDArray[np.uint64] | None:
    """Return the addresses of the merged rows that the delta hides, if they are cached.  Look them up if that is
    faster than reading all keys of the table.  Otherwise return None.
    """
    context, pinned, plan = state.context, state.pinned, state.plan
    known = context.hidden.known(pinned, plan)
    if known is not None:
        return known
    rows = sum(fragment.live_rows for fragment in pinned.fragments())
    if has_more_than(rows // _LOOKED_UP_ONE_OF, plan.deltas) or not at_hand(pinned, context.rows.primary_key):
        return None
    return state.hidden(mask())


def left_out(context: DeltaContext, plan: ReadPlan, columns: Sequence[str], filter: str | None) -> LeftOut:
    """Return how many keys in conflict a read by ``scan_plan`` leaves out.  If the delta must be loaded for this, it
    stays in the cache.
    """
    left = left_out_of_plan(context.contract, plan, context.folding.on_conflict)
    if not context.folding.may_leave_out(plan):
        return left
    projected = loaded_columns(context.rows, columns, filter)
    loaded = load(context, plan.deltas, projected, plan.in_force.conflicts)
    return LeftOut(left.waiting, loaded.unmerged, loaded.partitions)


def loaded_columns(whole: RowSchema, columns: Sequence[str], filter: str | None) -> RowSchema:
    """Return the columns of the delta to load.  With a filter these are all columns, because a filter may name any."""
    return whole if filter is not None else project(whole, columns)


def delta_keys(context: DeltaContext, plan: ReadPlan) -> Loaded:
    """Load the keys of the plan's delta, and no other columns."""
    return load(context, plan.deltas, project(context.rows, ()), plan.in_force.conflicts)


def delta_rows(
    pinned: PinnedTable,
    whole: RowSchema,
    loaded: Loaded,
    columns: Sequence[str],
    filter: str | None,
) -> pa.Table:
    """Return the rows of a delta, filtered and projected.  ``loaded`` must have the ``loaded_columns`` of the same
    columns and filter.
    """
    projected = loaded_columns(whole, columns, filter)
    rows = complete_rows(loaded.folded, pinned, projected)
    return filter_rows(rows, filter, columns).cast(result_schema(whole, columns))


class Scan(Protocol):
    """``PinnedTable.scan`` with the fragments and the filter already given."""

    def __call__(self, columns: Sequence[str], *, batch_rows: int) -> Iterator[pa.RecordBatch]: ...


def base_batches(
    tasks: Tasks,
    scan: Scan,
    mask: Callable[[], KeySet] | None,
    schema: RowSchema,
    columns: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """Yield the merged rows that ``scan`` returns, without those whose key is in the mask.

    The scan begins before ``mask`` is called, so that reading and folding overlap.  If ``mask`` is None, there is no
    delta.
    """
    target = result_schema(schema, columns)
    if mask is None:
        for batch in scan(columns, batch_rows=batch_rows(target)):
            yield batch.cast(target)
        return
    wanted = [*columns, *(name for name in schema.primary_key if name not in columns)]
    batches = scan(wanted, batch_rows=batch_rows(target))
    begun = tasks.start(lambda: next(batches, None))
    try:
        keys = mask()
    finally:
        first = begun.result()
    if first is None:
        return
    for group in groups(itertools.chain([first], batches), keys.group_rows):
        hidden = keys.contains([group[name] for name in keys.names])
        kept = group.select(list(columns))
        if hidden.any():
            kept = kept.filter(pa.array(~hidden))
        yield from kept.cast(target).to_batches()
