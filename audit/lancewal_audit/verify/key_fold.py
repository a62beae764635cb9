"""An independent implementation of the fold: the records of a key one by one, over plain Python values.

Nothing is shared with ``lancewal_core.rows.fold``, which this module verifies.  Rules, in the order of the records:

 * an upsert sets every column; a column that the record leaves out is null;
 * a delete removes the row;
 * a patch sets the columns that it carries: of the row, or of a row of nulls if the key is known to have no row.  If the
   former state is unknown, only these columns are known afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from lancewal_core.rows.column_types import stored_type
from lancewal_core.rows.schema import Op

Values = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class RowOperation:
    """One record: the values of all columns, and for a patch in ``present`` the bits of the columns that it carries."""

    partition: int
    offset: int
    op: int
    present: bytes | None
    values: Values
    timestamp: int = 0

    def carries(self, column: int) -> bool:
        """Return whether a patch sets this column."""
        return self.present is not None and bool(self.present[column >> 3] >> (column & 7) & 1)


@dataclass(slots=True)
class KeyState:
    """State of a key as far as it is known, with the partition and offset of its newest record."""

    partition: int
    offset: int
    exists: bool
    """Whether there is a row."""
    values: Values
    known: list[bool] | None
    """For each column whether its value is known; None: all are known."""

    def differing(self, values: Values) -> list[int]:
        """Return the numbers of the columns that are known to have another value than in ``values``."""
        if self.values == values:
            return []
        return [
            i
            for i, (ours, theirs) in enumerate(zip(self.values, values, strict=True))
            if (self.known is None or self.known[i]) and not same(ours, theirs)
        ]


def apply(state: KeyState | None, record: RowOperation, *, began_without_row: bool) -> KeyState:
    """Return the key's state after one more record.

    ``began_without_row``: if ``state`` is None, the key is known to have no row; otherwise its row is unknown."""
    width = len(record.values)
    if record.op == Op.UPSERT:
        return KeyState(record.partition, record.offset, True, record.values, None)
    if record.op == Op.DELETE:
        return KeyState(record.partition, record.offset, False, (None,) * width, None)
    if state is None:
        known = None if began_without_row else [False] * width
        state = KeyState(record.partition, record.offset, True, (None,) * width, known)
    values = list(state.values)
    known = None if state.known is None else list(state.known)
    for i in range(width):
        if record.carries(i):
            values[i] = record.values[i]
            if known is not None:
                known[i] = True
    return KeyState(record.partition, record.offset, True, tuple(values), known)


def same(ours: object, theirs: object) -> bool:
    """Return whether two values are equal, at any depth.  NaN equals NaN, and 0.0 equals -0.0."""
    return ours == theirs or repr(ours) == repr(theirs)


def plain_rows(table: pa.Table | pa.RecordBatch, names: Sequence[str]) -> list[Values]:
    """Return rows as tuples of Python values.  Dates and times become the integers that Arrow stores, without bounds,
    and uuids their bytes."""
    if table.num_rows == 0:
        return []
    columns = [table.column(name) for name in names]
    return list(zip(*(column.cast(stored_type(column.type)).to_pylist() for column in columns), strict=True))
