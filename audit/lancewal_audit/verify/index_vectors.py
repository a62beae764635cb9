"""Checks of a vector index that hold although its results are approximate.

Each search is limited to sampled rows and probes all partitions, so its results must be right:

 1. Each sampled row is found once.
 2. A row is nearer to its present vector than to a former one.  A segment that still holds the former vector breaks this.
 3. If the index stores vectors unchanged (FLAT), each distance is that of the row's present vector.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from lance.dataset import serialize_row_addrs

from lancewal_core.table.lance.index_build import IndexBuild

Vector = npt.NDArray[np.float64]
_ROW_ID = "_rowid"


@dataclass(frozen=True, slots=True)
class VectorRow:
    """A sampled row: the number of its key in the sample, its row id, its vector, and its former vectors."""

    key: int
    row_id: int
    vector: Vector
    before: Sequence[Vector]


@dataclass(slots=True)
class VectorAnswer:
    """Result for one index.  ``asked`` counts searches; the lists have numbers of keys in the sample.

    ``wrong``: the row is found by a vector that it does not have.  ``missing``: it is not found.  ``twice``: found twice.
    """

    wrong: list[int]
    missing: list[int]
    twice: list[int]
    asked: int


def uses_vector_index(dataset: Any, build: IndexBuild, vector: Vector) -> bool:
    """Return whether Lance answers queries of the column by this index."""
    plan = dataset.scanner(columns=[_ROW_ID], nearest=_nearest(build, vector, 1)).explain_plan()
    return f"name={build.name}," in plan


def ask_vectors(dataset: Any, build: IndexBuild, rows: Sequence[VectorRow]) -> VectorAnswer:
    """Search for the rows in the index, make the checks of the module docstring, and return their result."""
    answer = VectorAnswer([], [], [], len(rows))
    if not rows:
        return answer
    metric = build.parameters["metric"]
    by_id = {row.row_id: row for row in rows}
    # 1 and 3
    found = _found(dataset, build, rows[0].vector, list(by_id))
    for row_id, row in by_id.items():
        distances = found.get(row_id) or _found(dataset, build, row.vector, [row_id]).get(row_id, [])
        if not distances:
            answer.missing.append(row.key)
        elif len(distances) > 1:
            answer.twice.append(row.key)
        elif build.kind.endswith("FLAT") and row_id in found:
            expected = distance(metric, rows[0].vector, row.vector)
            if expected is not None and abs(distances[0] - expected) > 1e-3 * max(abs(expected), 1.0):
                answer.wrong.append(row.key)
    # 2
    usual = _usual(metric, [row.vector for row in rows])
    for row in rows:
        if row.key in answer.wrong or row.key in answer.missing:
            continue
        for before in row.before:
            apart = distance(metric, before, row.vector)
            answer.asked += 1
            # Two vectors that are closer than the error of quantisation prove nothing.
            if apart is not None and apart > usual / 20 and _is_stale(dataset, build, row, before, apart):
                answer.wrong.append(row.key)
                break
    return answer


def _is_stale(dataset: Any, build: IndexBuild, row: VectorRow, before: Vector, apart: float) -> bool:
    by_old, by_new = (
        min(_found(dataset, build, vector, [row.row_id]).get(row.row_id, [np.inf])) for vector in (before, row.vector)
    )
    return abs(by_old) < apart / 2 < by_new


def _found(dataset: Any, build: IndexBuild, vector: Vector, row_ids: Sequence[int]) -> dict[int, list[float]]:
    """Search for a vector among the rows ``row_ids``, and return the distances of the rows found, by row id."""
    rows = dataset.scanner(
        columns=[_ROW_ID, "_distance"],
        nearest=_nearest(build, vector, 2 * len(row_ids) + 10),
        row_addr_allowlist=serialize_row_addrs(list(row_ids)),
    ).to_table()
    found: dict[int, list[float]] = {}
    for row_id, apart in zip(rows[_ROW_ID].to_pylist(), rows["_distance"].to_pylist(), strict=True):
        found.setdefault(row_id, []).append(apart)
    return found


def _nearest(build: IndexBuild, vector: Vector, count: int) -> Mapping[str, Any]:
    return {"column": build.column, "q": vector.astype(np.float32), "k": count, "search_effort": 1.0}


def distance(metric: str, one: Vector, other: Vector) -> float | None:
    """Return the distance as Lance computes it; None if the distance does not show whether two vectors are equal."""
    match metric:
        case "l2":
            return float(((one - other) ** 2).sum())
        case "cosine":
            lengths = float(np.linalg.norm(one) * np.linalg.norm(other))
            return 1.0 - float(one @ other) / lengths if lengths else None
        case "hamming":
            return float(np.bitwise_count(one.astype(np.uint8) ^ other.astype(np.uint8)).sum())
        case _:
            return None


def _usual(metric: str, vectors: Sequence[Vector]) -> float:
    """Return the usual distance of two unrelated rows: the median over neighbours in the sample."""
    pairs = pairwise(vectors)
    found = [apart for one, other in pairs if (apart := distance(metric, one, other)) is not None]
    return float(np.median(found)) if found else 0.0
