"""Matching keys against rows: which of these rows have one of those keys.

Both directions are vectorised hash lookups of Arrow.  A kernel builds its hash table anew at every call, so callers match
large groups of rows at once, not small batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

GROUP_ROWS = 262_144
"""Rows to gather before matching them: building the hash table is then a small part."""

Column: TypeAlias = Any
"""``pyarrow.Array`` or ``pyarrow.ChunkedArray``."""


class KeySet:
    """A set of primary keys, each at a place 0..n-1.  ``keys`` has one column per key column, rows distinct.

    Several columns are matched one after the other, fixed-width ones first because they are cheap, each only for the
    rows that are still candidates: the place found so far and the next column's code make a number, which is looked up
    among the numbers that occur.
    """

    def __init__(self, keys: pa.Table) -> None:
        self.names: list[str] = list(keys.column_names)
        self._size = int(keys.num_rows)
        self._order = sorted(range(len(self.names)), key=lambda i: (_variable_width(keys.schema.field(i).type), i))
        columns = [keys.column(i).combine_chunks() for i in self._order]
        self._first = columns[0]
        self._more: list[tuple[pa.Array, pa.Array]] = []
        codes = columns[0]
        for at, column in enumerate(columns[1:]):
            if at == 0:
                encoded = codes.dictionary_encode()
                self._first, codes = encoded.dictionary, _numpy(encoded.indices)
            more = column.dictionary_encode()
            mixed = pa.array(codes * np.int64(max(len(more.dictionary), 1)) + _numpy(more.indices))
            combined = mixed.dictionary_encode()
            self._more.append((more.dictionary, combined.dictionary))
            codes = _numpy(combined.indices)

    def __len__(self) -> int:
        return self._size

    def places(self, columns: Sequence[Column]) -> npt.NDArray[np.int64]:
        """Per row the place of its key, -1 where the key is not in the set.  ``columns`` in the order of ``names``."""
        if self._size == 0:
            return np.full(len(columns[0]), -1, np.int64)
        codes = _places(columns[self._order[0]], self._first)
        if not self._more:
            return codes
        rows = np.flatnonzero(codes >= 0)
        codes = codes[rows]
        for at, (distinct, combined) in zip(self._order[1:], self._more, strict=True):
            more = _places(columns[at].take(pa.array(rows)), distinct)
            mixed = codes * np.int64(len(distinct)) + more
            mixed[more < 0] = -1
            codes = _places(pa.array(mixed), combined)
            rows, codes = rows[codes >= 0], codes[codes >= 0]
        found = np.full(len(columns[0]), -1, np.int64)
        found[rows] = codes
        return found

    def contains(self, columns: Sequence[Column]) -> pa.Array:
        """Per row whether its key is in the set (boolean)."""
        if self._more:
            return pa.array(self.places(columns) >= 0)
        found = pc.is_in(columns[0], self._first)
        return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _variable_width(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_binary(type_))


def _places(column: Column, distinct: pa.Array) -> npt.NDArray[np.int64]:
    return _numpy(pc.fill_null(pc.index_in(column, distinct), -1))


def _numpy(column: Column) -> npt.NDArray[np.int64]:
    if isinstance(column, pa.ChunkedArray):
        return np.asarray(column.to_numpy()).astype(np.int64)
    return np.asarray(column.to_numpy(zero_copy_only=False)).astype(np.int64)
