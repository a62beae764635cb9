"""Distances of float vectors as Lance defines them.  One code computes them for merged and unmerged rows.

``l2`` is the squared Euclidean distance, ``cosine`` is 1 - cosine, ``dot`` is 1 - dot product.

Among many rows, ``KeptVectors`` first excludes all but some by one product in float32.  The error of such a distance is
bounded.  Every row that lies within the error of the last wanted one is compared exactly.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Self, TypeVar, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_reader.search.options import FloatMetric, Metric, Vectors

DISTANCE = "_distance"
Float32s = npt.NDArray[np.float32]
AnyVectors = TypeVar("AnyVectors", Vectors, Float32s)
DISTANCE_FIELD = pa.field(DISTANCE, pa.float32())


def distances(stored: Vectors, query: Vectors, metric: FloatMetric) -> Vectors:
    """Return the distance from one query to each row of ``stored``; NaN where it is undefined (cosine of a zero
    vector).
    """
    with np.errstate(all="ignore"):
        match metric:
            case "l2":
                apart = stored - query
                found: Vectors = np.einsum("ij,ij->i", apart, apart)
                return found
            case "dot":
                return 1.0 - _products(stored, query)
            case "cosine":
                lengths = np.linalg.norm(stored, axis=1) * np.linalg.norm(query)
                cosines: Vectors = _products(stored, query) / lengths
                return 1.0 - cosines
            case _:
                assert_never(metric)


def of_length_one(query: Vectors) -> Vectors:
    """Scale a query for ``cosine`` to length 1.  Results do not change, and squares of very large or small numbers are
    not lost.
    """
    largest = np.abs(query).max()
    if not largest:
        return query
    scaled: Vectors = query / largest
    return scaled / np.linalg.norm(scaled)


def _products(stored: AnyVectors, other: AnyVectors) -> AnyVectors:
    """Return the product of each row, computed by one thread.  A product of a matrix by BLAS wakes other threads.  They
    then wait for more work at full speed, for 10 ms or more of CPU."""
    found: AnyVectors = np.vecdot(stored, other)
    return found


def matrix(column: pa.ChunkedArray) -> Vectors:
    """Return a column without nulls as a matrix, one row a vector."""
    size = column.type.list_size
    parts = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks]
    return np.concatenate([np.zeros(0), *parts]).astype(np.float64).reshape(-1, size)


def _singles(column: pa.ChunkedArray) -> Float32s:
    """Return the column as a float32 matrix, one row a vector.  A column that is float32 in one piece is not copied."""
    parts = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks if len(chunk)]
    flat = parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, np.float32), *parts])
    return flat.astype(np.float32, copy=False).reshape(-1, column.type.list_size)


def nearest(rows: pa.Table, column: str, query: Vectors, metric: FloatMetric, limit: int) -> pa.Table:
    """Return the ``limit`` nearest rows, nearest first, with their distance.  Rows with a null vector, or with a
    distance that is not a finite float32, are left out.
    """
    rows = rows.filter(rows[column].is_valid())
    found = distances(matrix(rows[column]), query, metric)
    order: npt.NDArray[np.int64] = np.argsort(found, kind="stable")
    with np.errstate(over="ignore"):
        shown = found.astype(np.float32)
    order = order[np.isfinite(shown[order])][:limit]
    return rows.take(pa.array(order)).append_column(DISTANCE_FIELD, pa.array(shown[order]))


def farthest(best: pa.Table, limit: int) -> float:
    """Return the largest distance that another row may have to be among the ``limit`` nearest; infinite while there are
    fewer rows.

    ``best``: the best rows so far, nearest first.
    """
    return float(best[DISTANCE][-1].as_py()) if best.num_rows == limit else np.inf


_FEW = 1_000
"""Up to this many rows are all compared exactly.  Among more rows, float32 distances first exclude most."""
_ERROR = 4.0 * float(np.finfo(np.float32).eps)
"""Error bound of a sum of float32 products, to be multiplied by the number of summands and by both lengths.  The bound
is twice the error that rounding can make."""

_FIRST = 3
"""A vector's first numbers are compared first: its size divided by this.  They often show that the vector is farther
than others already known.
"""

_LEAST = float(np.finfo(np.float32).tiny)
"""Error bound of a summand that is too small for float32; the true error is much smaller."""
_SQUARE_MIN = 1e-30
"""Smallest squared length that float32 holds precisely; the length of a shorter vector is unknown."""


@dataclass(slots=True)
class _First:
    """The first numbers of each vector, side by side, and an upper bound of the length of its other numbers.

    Most of the time of a comparison goes into reading the vectors.  These values are made at the second comparison,
    since making them costs as much as they save in one.
    """

    wanted: bool = False
    numbers: Float32s | None = None
    lengths: Float32s | None = None
    """Upper bounds of the lengths of the other numbers."""

    def of(self, vectors: Float32s) -> tuple[Float32s, Float32s] | None:
        numbers, lengths = self.numbers, self.lengths
        if numbers is None or lengths is None:
            if not self.wanted:
                self.wanted = True
                return None
            split = vectors.shape[1] // _FIRST
            rest = vectors[:, split:]
            # What float32 loses of a square is less than ``_LEAST``.
            self.lengths = lengths = np.sqrt(_products(rest, rest) + _LEAST * rest.shape[1])
            self.numbers = numbers = np.ascontiguousarray(vectors[:, :split])
        return numbers, lengths


class PreparedVectors:
    """Rows with vectors.  A copy may leave out some of them."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows
        """The rows that have a vector."""
        self._left_out: npt.NDArray[np.bool_] | None = None

    def without(self, left_out: npt.NDArray[np.bool_]) -> Self:
        """Return the same vectors without those of some ``rows``, given as a mask."""
        found = copy(self)
        found._left_out = left_out if left_out.any() else None
        return found


class KeptVectors(PreparedVectors):
    """Float vectors of rows, prepared for many searches.  Threads may share it."""

    def __init__(self, rows: pa.Table, column: str) -> None:
        super().__init__(rows.filter(rows[column].is_valid()) if rows[column].null_count else rows)
        self._column = column
        with np.errstate(over="ignore", invalid="ignore"):
            self._matrix = _singles(self.rows[column])
            self._squares = _products(self._matrix, self._matrix)
        squared = float(self._squares[np.isfinite(self._squares)].max(initial=0))
        self._longest = float(np.sqrt(squared + _LEAST * self._matrix.shape[1]))
        """Upper bound of the lengths of vectors whose squares float32 holds; some of the squares may be lost as too small."""
        self._first = _First()

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def nearest(self, query: Vectors, metric: Metric, limit: int, within: float = np.inf) -> pa.Table:
        """Return the rows that the function ``nearest`` would return.  Rows farther than ``within`` may be missing."""
        assert metric != "hamming"
        rows, left_out = self.rows, self._left_out
        if rows.num_rows > max(_FEW, limit):
            places = self._may_be_nearest(query, metric, limit, within)
            rows = rows.take(pa.array(places if left_out is None else places[~left_out[places]]))
        elif left_out is not None:
            rows = rows.filter(pa.array(~left_out))
        return nearest(rows, self._column, query, metric, limit)

    def _may_be_nearest(
        self, query: Vectors, metric: FloatMetric, limit: int, within: float = np.inf
    ) -> npt.NDArray[np.int64]:
        """Return places of rows that include all the nearest, ascending.  Some may be of rows that are left out."""
        longest, length = self._longest, float(np.linalg.norm(query))
        told = np.isfinite(self._squares)  # of the others float32 knows no distance: each may be among the nearest
        error = _ERROR * (len(query) + 2)
        least = _LEAST * (len(query) + 2) * (1.0 + longest + length)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            match metric:
                case "l2":
                    error = error * (longest + length) ** 2 + least
                    within -= length**2
                case "dot":
                    error = error * longest * length + least
                    within -= 1.0
                case "cosine":
                    told &= self._squares >= _SQUARE_MIN
                    error = error if length**2 >= _SQUARE_MIN else np.inf
                    within -= 1.0
                case _:
                    assert_never(metric)
            if not np.isfinite(error):
                return np.arange(self.rows.num_rows)
            found = self._compared(query, metric, within + 4 * error)
            told &= ~np.isnan(found)
            found[~told] = np.inf
            if self._left_out is not None:
                found[self._left_out] = np.inf
            near = found[found <= within + 2 * error]
            if len(near) > limit:
                within = float(np.partition(near, limit - 1)[limit - 1])
            return np.flatnonzero((found <= within + 2 * error) | ~told)

    def _compared(self, query: Vectors, metric: FloatMetric, within: float) -> Float32s:
        """Return distances in float32, without the term that all rows have in common.

        NaN: float32 does not know the distance.  ``inf``: the first numbers show that it is more than ``within``.
        The product of the other numbers is at most the product of their lengths."""
        single = query.astype(np.float32)
        first = self._first.of(self._matrix) if np.isfinite(within) else None
        if first is not None:
            split = first[0].shape[1]
            products = _products(first[0], single[:split])
            least = self._apart(products + first[1] * np.float32(np.linalg.norm(query[split:])), query, metric)
            near = np.flatnonzero(~np.isfinite(least) | (least <= within))
            if len(near) < len(self._matrix) // _FIRST:
                found = np.full(len(self._matrix), np.inf, np.float32)
                found[near] = _known(self._apart(_products(self._matrix[near], single), query, metric, near))
                return found
        return _known(self._apart(_products(self._matrix, single), query, metric))

    def _apart(
        self, products: Float32s, query: Vectors, metric: FloatMetric, places: npt.NDArray[np.int64] | None = None
    ) -> Float32s:
        squares = self._squares if places is None else self._squares[places]
        match metric:
            case "l2":
                found: Float32s = squares - 2 * products
                return found
            case "dot":
                return -products
            case "cosine":
                lengths: Float32s = np.sqrt(squares)
                return -(products / lengths / np.float32(np.linalg.norm(query)))
            case _:
                assert_never(metric)


def _known(found: Float32s) -> Float32s:
    found[~np.isfinite(found)] = np.nan
    return found
