"""Both sides of one state: the merged table's rows that unmerged records hide, and the unmerged rows.

They are kept from one search to the next, which often finds the same state, or one with a few records more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.table.lance.pinned import LancePinnedTable
from lancewal_reader.plan.kept import Kept
from lancewal_reader.reading.filter import passing
from lancewal_reader.reading.reads import Chosen
from lancewal_reader.reading.scan import OpenState, loaded_columns
from lancewal_reader.search.bits import KeptRows, kept_rows
from lancewal_reader.search.merged import Unindexed, UnindexedVectors
from lancewal_reader.search.texts.indexed_texts import mask_of, row_ids
from lancewal_reader.search.texts.words import Numbers
from lancewal_reader.unmerged.completed import complete_rows


@dataclass(frozen=True, slots=True)
class SearchState(OpenState):
    """State that is searched."""

    pinned: LancePinnedTable
    chosen: Chosen
    """The columns that are returned or ranked by, and the filter."""
    schema: pa.Schema
    """Schema of the columns in ``chosen``, with the receipt."""


class SearchSides:
    """The two parts of a state to search: merged rows, some of which are ``hidden``, and unmerged rows.  ``fresh``: all
    unmerged rows, without the filter.
    """

    def __init__(self, hidden: npt.NDArray[np.uint64], fresh: pa.Table, filter: str | None) -> None:
        self.hidden = hidden
        """Addresses of the merged rows that unmerged records replace or delete, ascending, each once."""
        self.fresh = fresh
        self.filter = filter
        self._mask: bytes | None = None
        self._vectors: dict[str, KeptRows] = {}
        self._unindexed: dict[str, Unindexed | None] = {}

    def mask(self, pinned: LancePinnedTable) -> bytes | None:
        """Return the hidden rows as a mask for Lance; None if there are none."""
        if self._mask is None and len(self.hidden):
            self._mask = mask_of(np.sort(row_ids(pinned, self.hidden)))
        return self._mask

    def vectors(self, column: str) -> KeptRows:
        """Return the vectors of the unmerged rows that pass the filter."""
        if column not in self._vectors:
            self._vectors[column] = kept_rows(self.matching, column)
        return self._vectors[column]

    def unindexed(
        self, kept: UnindexedVectors, state: SearchState, column: str, covered: frozenset[int]
    ) -> Unindexed | None:
        """Return the vectors of merged rows that the column's index does not cover; None if they are too many to
        keep."""
        if column not in self._unindexed:
            self._unindexed[column] = kept.of(state.context, state.pinned, column, covered, self.hidden)
        return self._unindexed[column]

    @cached_property
    def passing(self) -> Numbers:
        """Indexes of the unmerged rows that pass the filter."""
        return passing(self.fresh, self.filter)

    @cached_property
    def matching(self) -> pa.Table:
        """The unmerged rows that pass the filter."""
        return self.fresh if self.filter is None else self.fresh.take(pa.array(self.passing))


def sides_of(kept: Kept, state: SearchState, more: Sequence[str] = ()) -> SearchSides:
    """Return both parts of a state, with the columns of the result, those that the filter may name, and ``more``.

    Parts that ``kept`` has cached are not loaded again.
    """
    context, pinned, plan = state.context, state.pinned, state.plan
    filter = state.chosen.filter
    columns = tuple(dict.fromkeys((*state.chosen.columns, *more)))
    rows_of = (pinned.version, plan.deltas, plan.in_force.conflicts)
    projected = loaded_columns(context.rows, columns, filter)

    def made() -> SearchSides:
        if not plan.has_delta:
            return SearchSides(np.zeros(0, np.uint64), projected.table.empty_table(), filter)
        loaded = state.load(projected)
        hidden = state.hidden(loaded.mask)
        rows = complete_rows(loaded.folded, pinned, projected, state.find).cast(projected.table)
        # Some of them are taken by their places again and again, which is slow out of many pieces.
        return SearchSides(hidden, rows.combine_chunks(), filter)

    return kept.get((rows_of, projected.signature, columns, filter), made)
