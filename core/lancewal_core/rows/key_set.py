"""Match rows against a set of keys: which rows have one of the keys.

There are two ways, both vectorised.  If the keys have an integer-like column whose values are all different, that
column is the *pivot*.  A table of hash bits throws out most rows.  A binary search then finds the one key that a row
can have, and the other columns are compared with those of that key.  This way keeps its structures between calls, so
small batches are cheap.  Otherwise the columns are looked up by Arrow's hash kernels.  These build their tables again
at every call, so callers match large groups at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.rows.column_types import Column, integer_like, storage, storage_rows, stored_type
from lancewal_core.rows.schema import RowSchema

GROUP_ROWS = 262_144
"""Rows to gather for one match against keys without a pivot column.  Building the hash tables is then a small part of
the work."""

Places = npt.NDArray[np.int64]


class KeySet:
    """A set of primary keys, numbered from 0.  ``keys`` has one column per key column, with distinct rows.

    Only the keys are pickled.  The structures built from them need as much memory again, and building them is faster
    than sending them.
    """

    def __init__(self, keys: pa.Table) -> None:
        self._keys = pa.table([column.combine_chunks() for column in keys.columns], keys.column_names)
        self.names: list[str] = list(keys.column_names)
        self._size = int(keys.num_rows)

    @cached_property
    def _matching(self) -> _Pivot | _Kernels:
        """Structures for matching, built when rows are first matched: many sets are never matched against a row."""
        columns = [storage(column.combine_chunks()) for column in self._keys.columns]
        return _Pivot.of(columns) or _Kernels(columns)

    def __len__(self) -> int:
        return self._size

    @property
    def table(self) -> pa.Table:
        """The keys.  Row i is the key with number i."""
        return self._keys

    @property
    def columns(self) -> list[Column]:
        """Key columns, in the form and order that ``places`` takes."""
        return list(self._keys.columns)

    def __reduce__(self) -> tuple[Callable[[bytes], KeySet], tuple[bytes]]:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._keys.schema) as writer:  # of a slice, its rows alone
            writer.write_table(self._keys)
        return _unpickled, (sink.getvalue().to_pybytes(),)

    @property
    def group_rows(self) -> int:
        """Number of rows for which one call of ``places`` or ``contains`` is efficient: callers gather so many."""
        return 1 if isinstance(self._matching, _Pivot) else GROUP_ROWS

    def places(self, columns: Sequence[Column]) -> Places:
        """Return for each row the index of its key in the set; -1 if the set does not have the key.  ``columns`` are in
        the order of ``names``.
        """
        found = np.full(len(columns[0]), -1, np.int64)
        if self._size:
            rows, places = self._matching.match([storage(column) for column in columns])
            found[rows] = places
        return found

    def contains(self, columns: Sequence[Column]) -> npt.NDArray[np.bool_]:
        """Return for each row whether its key is in the set."""
        return self.places(columns) >= 0


def distinct(keys: pa.Table, schema: RowSchema) -> pa.Table:
    """Return each key of these rows once, in the columns of the primary key."""
    names = list(schema.primary_key)
    if not keys.num_rows:
        return schema.key.empty_table()
    return (
        storage_rows(keys.select(names)).group_by(names).aggregate([]).select(names).cast(schema.key).combine_chunks()
    )


def _unpickled(keys: bytes) -> KeySet:
    with pa.ipc.open_stream(keys) as reader:
        return KeySet(reader.read_all())


class NumberFilter:
    """Filter over a set of numbers: it recognises most numbers that are not in the set, by a table of hash bits."""

    def __init__(self, numbers: Places) -> None:
        bits = min(max(len(numbers).bit_length() + 4, 10), 24)
        self._shift = np.uint64(64 - bits)
        self._bits = np.zeros(1 << bits, np.bool_)
        self._bits[self._hash(numbers)] = True

    def may_hold(self, numbers: Places) -> npt.NDArray[np.bool_]:
        """Return a mask that is True for all numbers of the filter, and False for most others."""
        return self._bits[self._hash(numbers)]

    def _hash(self, numbers: Places) -> npt.NDArray[np.uint64]:
        return (numbers.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> self._shift


class _Pivot:
    """Matching by an integer-like column in which every key differs."""

    def __init__(self, at: int, values: Places, order: Places, columns: Sequence[pa.Array]) -> None:
        self._at = at
        self._order = order
        self._sorted = values[order]
        self._columns = columns
        self._filter = NumberFilter(values)

    @staticmethod
    def of(columns: Sequence[pa.Array]) -> _Pivot | None:
        """Return a pivot of the first column that can be one; None if there is none."""
        for at, column in enumerate(columns):
            if integer_like(column.type):
                values = integers(column)
                order = np.argsort(values)
                if (np.diff(values[order]) != 0).all():
                    return _Pivot(at, values, order, columns)
        return None

    def match(self, columns: Sequence[Column]) -> tuple[Places, Places]:
        """Return the indexes of the rows whose key is in the set, and the numbers of their keys."""
        values = integers(columns[self._at])
        rows = np.flatnonzero(self._filter.may_hold(values))
        values = values[rows]
        near = np.minimum(np.searchsorted(self._sorted, values), len(self._sorted) - 1)
        same = self._sorted[near] == values
        rows, places = rows[same], self._order[near[same]]
        for at, mine in enumerate(self._columns):
            if at == self._at or len(rows) == 0:
                continue
            equal = _numpy(pc.equal(_taken(columns[at], rows), mine.take(pa.array(places))))
            rows, places = rows[equal], places[equal]
        return rows, places


class _Kernels:
    """Matching by hash kernels, column after column.  Each column is looked up only for the rows that are still
    candidates.

    The place found so far and the next column's code make a number.  This number is looked up among the numbers that
    occur."""

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        self._order = sorted(range(len(columns)), key=lambda i: (_variable_width(columns[i].type), i))
        ordered = [columns[i] for i in self._order]
        self._first = ordered[0]
        self._more: list[tuple[pa.Array, pa.Array]] = []
        codes = ordered[0]
        for at, column in enumerate(ordered[1:]):
            if at == 0:
                encoded = codes.dictionary_encode()
                self._first, codes = encoded.dictionary, _numpy(encoded.indices).astype(np.int64)
            more = column.dictionary_encode()
            radix = np.int64(max(len(more.dictionary), 1))
            combined = pa.array(codes * radix + _numpy(more.indices)).dictionary_encode()
            self._more.append((more.dictionary, combined.dictionary))
            codes = _numpy(combined.indices).astype(np.int64)

    def match(self, columns: Sequence[Column]) -> tuple[Places, Places]:
        """Return the indexes of the rows whose key is in the set, and the numbers of their keys."""
        codes = _index_in(columns[self._order[0]], self._first)
        rows = np.flatnonzero(codes >= 0)
        codes = codes[rows]
        for at, (distinct, combined) in zip(self._order[1:], self._more, strict=True):
            more = _index_in(_taken(columns[at], rows), distinct)
            mixed = codes * np.int64(len(distinct)) + more
            mixed[more < 0] = -1
            codes = _index_in(pa.array(mixed), combined)
            rows, codes = rows[codes >= 0], codes[codes >= 0]
        return rows, codes


def _taken(column: Column, rows: Places) -> Column:
    return column.take(pa.array(rows))


def integers(column: Column) -> Places:
    """Return an integer-like column as int64.  A uint64 column keeps its bits."""
    values = _numpy(column.cast(stored_type(column.type)))
    return values.view(np.int64) if values.dtype == np.uint64 else values.astype(np.int64, copy=False)


def _variable_width(type_: pa.DataType) -> bool:
    return not (integer_like(type_) or pa.types.is_boolean(type_))


def _index_in(column: Column, distinct: pa.Array) -> Places:
    return _numpy(pc.fill_null(pc.index_in(column, distinct), -1)).astype(np.int64)


def _numpy(column: Column) -> npt.NDArray[Any]:
    if isinstance(column, pa.ChunkedArray):
        return np.asarray(column.to_numpy())
    return np.asarray(column.to_numpy(zero_copy_only=False))
