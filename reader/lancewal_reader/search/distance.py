"""Distances as Lance defines them, computed from the stored vectors: merged and unmerged rows get theirs by the same lines.

``l2`` is the squared Euclidean distance, ``cosine`` is 1 - cosine, ``dot`` is 1 - dot product.
"""

from __future__ import annotations

from typing import assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_reader.search.options import Metric, Vectors

DISTANCE = "_distance"
_DISTANCE_FIELD = pa.field(DISTANCE, pa.float32())


def distances(stored: Vectors, query: Vectors, metric: Metric) -> Vectors:
    """From one query to each row of ``stored``; NaN where there is none (cosine with a vector of zeros)."""
    with np.errstate(all="ignore"):
        match metric:
            case "l2":
                apart = stored - query
                found: Vectors = np.einsum("ij,ij->i", apart, apart)
                return found
            case "dot":
                return 1.0 - stored @ query
            case "cosine":
                lengths = np.linalg.norm(stored, axis=1) * np.linalg.norm(query)
                cosines: Vectors = (stored @ query) / lengths
                return 1.0 - cosines
            case _:
                assert_never(metric)


def matrix(column: pa.ChunkedArray) -> Vectors:
    """One row a vector; of a column without nulls."""
    size = column.type.list_size
    parts = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks]
    return np.concatenate([np.zeros(0), *parts]).astype(np.float64).reshape(-1, size)


def nearest(rows: pa.Table, column: str, query: Vectors, metric: Metric, limit: int) -> pa.Table:
    """The ``limit`` nearest of ``rows``, nearest first, with their distance; none whose vector is null, or whose distance is
    no finite float32."""
    rows = rows.filter(rows[column].is_valid())
    found = distances(matrix(rows[column]), query, metric)
    order: npt.NDArray[np.int64] = np.argsort(found, kind="stable")
    with np.errstate(over="ignore"):
        shown = found.astype(np.float32)
    order = order[np.isfinite(shown[order])][:limit]
    return rows.take(pa.array(order)).append_column(_DISTANCE_FIELD, pa.array(shown[order]))
