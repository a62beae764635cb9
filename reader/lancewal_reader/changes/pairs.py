"""Changes as pairs of rows, before and after, and as the rows of a feed.

Guarantees of ``change_rows``
 1. A pair without a row before it is an ``insert``, one without a row after it a ``delete``.  A pair with both is an update:
    the ``update_preimage`` and then the ``update_postimage``.  Pairs keep their order.
 2. A filter is applied to each of the two rows.  So an update that leaves the filter is a delete, one that enters it an
    insert.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.rows.equal_cells import Mask, equal_rows
from lancewal_reader.reading.filter import passing

CHANGE_TYPE = "_change_type"
_TYPES = pa.array(["insert", "delete", "update_preimage", "update_postimage"])
_INSERT, _DELETE, _PREIMAGE, _POSTIMAGE = range(4)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of the rows of a key before and after a change: parallel tables, and masks of the rows that exist."""

    before: pa.Table
    """Rows before the change; where ``had`` is False, the values mean nothing."""
    after: pa.Table
    """Rows after the change, with the same columns; where ``has`` is False, the values mean nothing."""
    had: Mask
    has: Mask
    more: pa.Table
    """Further columns of the feed, the same for both rows of a pair; may have none."""

    def __len__(self) -> int:
        return len(self.had)

    def at(self, wanted: Mask) -> Pairs:
        """Return the pairs for which ``wanted`` is true."""
        chosen = pa.array(wanted)
        more = self.more.filter(chosen) if self.more.num_columns else self.more
        return Pairs(self.before.filter(chosen), self.after.filter(chosen), self.had[wanted], self.has[wanted], more)

    def differing(self, columns: Sequence[str]) -> Pairs:
        """Return the pairs whose rows differ in one of these columns, and the pairs with only one row."""
        both = self.had & self.has
        same = np.zeros(len(both), np.bool_)
        if both.any():
            chosen, names = pa.array(both), list(columns)
            same[both] = equal_rows(self.before.select(names).filter(chosen), self.after.select(names).filter(chosen))
        return self.at((self.had | self.has) & ~same)


def aligned(rows: pa.Table, places: npt.NDArray[np.int64], count: int) -> tuple[pa.Table, Mask]:
    """Return a table of ``count`` rows in which each of ``rows`` is at its index in ``places``, and the mask of these
    indexes.
    """
    source = np.full(count, -1, np.int64)
    source[places] = np.arange(rows.num_rows)
    has = source >= 0
    return rows.take(pa.array(source, mask=~has)), has


def change_rows(pairs: Pairs, columns: Sequence[str], filter: str | None, with_same: bool = True) -> pa.Table:
    """Return the pairs as rows of a feed: ``columns``, ``_change_type`` and the columns of ``Pairs.more``.

    ``filter``: a condition for Lance on the pairs' columns; None keeps all rows.  ``with_same``: keep updates that
    leave all ``columns`` unchanged.
    """
    had = _passing(pairs.before, pairs.had, filter)
    has = _passing(pairs.after, pairs.has, filter)
    if not with_same:
        pairs = replace(pairs, had=had, has=has).differing(columns)
        had, has = pairs.had, pairs.has
    count = len(pairs)
    both = had & has
    kinds = np.stack([np.where(both, _PREIMAGE, _DELETE), np.where(both, _POSTIMAGE, _INSERT)], axis=1)
    sources = np.stack([np.arange(count), np.arange(count) + count], axis=1)
    wanted = np.stack([had, has], axis=1)
    source, kind = sources[wanted], kinds[wanted]
    names = list(columns)
    rows = pa.concat_tables([pairs.before.select(names), pairs.after.select(names)]).take(pa.array(source))
    rows = rows.append_column(pa.field(CHANGE_TYPE, pa.string(), nullable=False), _TYPES.take(pa.array(kind)))
    of_pair = pa.array(source % max(count, 1))
    for field, column in zip(pairs.more.schema, pairs.more.columns, strict=True):
        rows = rows.append_column(field, column.take(of_pair))
    return rows


def _passing(rows: pa.Table, there: Mask, filter: str | None) -> Mask:
    """Return which of the rows that are there pass the filter."""
    if filter is None or not there.any():
        return there
    places = np.flatnonzero(there)
    found = np.zeros(len(there), np.bool_)
    found[places[passing(rows.take(pa.array(places)), filter)]] = True
    return found
