"""Distances of floats as Lance defines them, from the stored vectors: merged and unmerged rows get theirs by the same lines.

``l2`` is the squared Euclidean distance, ``cosine`` is 1 - cosine, ``dot`` is 1 - dot product.

Of many rows ``KeptVectors`` throws out by one product in float32 all but some; how far such a distance can be off is known,
and whatever is as near as that to the last wanted one is compared exactly.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import TypeVar, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_reader.search.options import FloatMetric, Metric, Vectors
from lancewal_reader.search.private_views import Content, Float32s, Held, PrivateViews, hashed

DISTANCE = "_distance"
AnyVectors = TypeVar("AnyVectors", Vectors, Float32s)
DISTANCE_FIELD = pa.field(DISTANCE, pa.float32())


def distances(stored: Vectors, query: Vectors, metric: FloatMetric) -> Vectors:
    """From one query to each row of ``stored``; NaN where there is none (cosine with a vector of zeros)."""
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
    """For ``cosine``, which looks at no lengths: squares of very large or small numbers are lost, in float32 or at all."""
    largest = np.abs(query).max()
    if not largest:
        return query
    scaled: Vectors = query / largest
    return scaled / np.linalg.norm(scaled)


def _products(stored: AnyVectors, other: AnyVectors) -> AnyVectors:
    """Row by row, by one thread: a product of a matrix by BLAS wakes others, which go on to wait for more at full speed, for
    10 ms or more of CPU."""
    found: AnyVectors = np.vecdot(stored, other)
    return found


def matrix(column: pa.ChunkedArray) -> Vectors:
    """One row a vector; of a column without nulls."""
    size = column.type.list_size
    parts = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks]
    return np.concatenate([np.zeros(0), *parts]).astype(np.float64).reshape(-1, size)


def _singles(column: pa.ChunkedArray) -> Float32s:
    """The same in float32; what is that already, in one piece, stays where it is."""
    parts = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks if len(chunk)]
    flat = parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, np.float32), *parts])
    return flat.astype(np.float32, copy=False).reshape(-1, column.type.list_size)


def nearest(rows: pa.Table, column: str, query: Vectors, metric: FloatMetric, limit: int) -> pa.Table:
    """The ``limit`` nearest of ``rows``, nearest first, with their distance; none whose vector is null, or whose distance is
    no finite float32."""
    rows = rows.filter(rows[column].is_valid())
    found = distances(matrix(rows[column]), query, metric)
    order: npt.NDArray[np.int64] = np.argsort(found, kind="stable")
    with np.errstate(over="ignore"):
        shown = found.astype(np.float32)
    order = order[np.isfinite(shown[order])][:limit]
    return rows.take(pa.array(order)).append_column(DISTANCE_FIELD, pa.array(shown[order]))


_FEW = 1_000
"""Rows that are compared at once as they are."""
_ERROR = 4.0 * float(np.finfo(np.float32).eps)
"""Of a sum of float32 products, by the number of summands and the product of both lengths: twice what rounding can make."""

_LEAST = float(np.finfo(np.float32).tiny)
"""How far off a summand may be that is too small for float32, much more than that."""
_SQUARE_MIN = 1e-30
"""Of a shorter vector float32 does not know the length."""


@dataclass(frozen=True, slots=True)
class _ByView:
    """Which of some rows a view held when it was asked last, and the rows that it did not."""

    held: Held
    rest: KeptVectors


class KeptVectors:
    """A column of rows that are searched again and again; threads may share it."""

    def __init__(self, rows: pa.Table, column: str) -> None:
        self._rows = rows.filter(rows[column].is_valid()) if rows[column].null_count else rows
        self._column = column
        with np.errstate(over="ignore", invalid="ignore"):
            self._matrix = _singles(self._rows[column])
            self._squares = _products(self._matrix, self._matrix)
        self._longest = float(np.sqrt(self._squares[np.isfinite(self._squares)].max(initial=0)))
        """Of those whose length float32 knows."""
        self._left_out: npt.NDArray[np.bool_] | None = None
        self._held: _ByView | None = None

    @property
    def rows(self) -> pa.Table:
        """Those that have a vector."""
        return self._rows

    def without(self, left_out: npt.NDArray[np.bool_]) -> KeptVectors:
        """The same vectors, but for those of some ``rows``."""
        found = copy(self)
        found._left_out = left_out if left_out.any() else None
        return found

    def held(self, content: Content) -> _ByView:
        """One value: another thread may ask by another view meanwhile, whose rest is not this one's."""
        found = self._held
        if found is None or found.held.content is not content:
            held = Held(content, hashed(self._matrix))
            rest = KeptVectors(self._rows.take(pa.array(held.rest)), self._column)
            self._held = found = _ByView(held, rest)
        return found

    def nearest_by(self, views: PrivateViews, query: Vectors, metric: Metric, limit: int) -> tuple[pa.Table, int]:
        """The nearest, and of how many rows a view chose the candidates."""
        assert metric != "hamming"
        view = views.get(self._column, metric)
        by_view = None if view is None else self.held(view.content)
        rest, held = (self, None) if by_view is None else (by_view.rest, by_view.held)
        views.compared((self._column, metric), len(rest), rest._usable, held)
        if held is not None and len(held.places):
            try:
                places = held.nearest(query, limit)
            except (OSError, RuntimeError, ValueError):  # it was removed meanwhile, by whomever
                return self.nearest(query, metric, limit), 0
            shown = nearest(self._rows.take(pa.array(places)), self._column, query, metric, limit)
            found = pa.concat_tables([shown, rest.nearest(query, metric, limit)])
            order = np.argsort(found[DISTANCE].to_numpy(), kind="stable")[:limit]
            if len(order) == min(limit, len(self)):
                return found.take(pa.array(order)), len(held.places)
        return self.nearest(query, metric, limit), 0

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    def _usable(self) -> Float32s:
        """Vectors that are near to something."""
        usable: Float32s = self._matrix[np.isfinite(self._squares) & (self._squares > _SQUARE_MIN)]
        return usable

    def nearest(self, query: Vectors, metric: Metric, limit: int) -> pa.Table:
        """As the function ``nearest`` over the rows."""
        assert metric != "hamming"
        rows, left_out = self._rows, self._left_out
        if rows.num_rows > max(_FEW, limit):
            places = self._may_be_nearest(query, metric, limit)
            rows = rows.take(pa.array(places if left_out is None else places[~left_out[places]]))
        elif left_out is not None:
            rows = rows.filter(pa.array(~left_out))
        return nearest(rows, self._column, query, metric, limit)

    def _may_be_nearest(self, query: Vectors, metric: FloatMetric, limit: int) -> npt.NDArray[np.int64]:
        """Places, ascending, perhaps of rows that are left out."""
        longest, length = self._longest, float(np.linalg.norm(query))
        told = np.isfinite(self._squares)  # of the others float32 knows no distance: each may be among the nearest
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            products = _products(self._matrix, query.astype(np.float32))
            error = _ERROR * (len(query) + 2)
            least = _LEAST * (len(query) + 2) * (1.0 + longest + length)
            match metric:
                case "l2":
                    found = self._squares - 2 * products
                    error = error * (longest + length) ** 2 + least
                case "dot":
                    found = -products
                    error = error * longest * length + least
                case "cosine":
                    found = -products / (np.sqrt(self._squares) * np.float32(length))
                    told &= self._squares >= _SQUARE_MIN
                    error = error if length**2 >= _SQUARE_MIN else np.inf
                case _:
                    assert_never(metric)
        told &= np.isfinite(found)
        if not np.isfinite(error):
            return np.arange(self._rows.num_rows)
        found[~told] = np.inf
        if self._left_out is not None:
            found[self._left_out] = np.inf
        last = float(np.partition(found, limit - 1)[limit - 1])
        return np.flatnonzero((found <= last + 2 * error) | ~told)
