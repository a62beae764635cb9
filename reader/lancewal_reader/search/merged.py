"""The merged table's nearest rows, those that unmerged records replace or delete hidden before anything is ranked.

Lance hides by row id, natively: in a search by an index, in fragments that no index covers, and under a filter.  (Row ids are
addresses only where they are not stable.)  Rows are never fetched in excess and dropped, and no index is asked without the
fragments that it does not cover.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import pyarrow as pa

from lancewal_core.table.lance.errors import reading
from lancewal_core.table.lance.pinned import LancePinnedTable
from lancewal_reader.search.distance import DISTANCE, nearest
from lancewal_reader.search.indexed_texts import ROW_ID, RowIds
from lancewal_reader.search.options import Metric, VectorQuery, Vectors

FLAT_ROWS_MAX = 2_000
"""Of so few rows comparing each is about as quick as an index, which loses some of them under a narrow filter."""
NARROW = 0.1
"""A filter that takes a smaller part of the rows: all partitions are asked, for what it takes may lie anywhere."""
PROBES = 20
REFINE = 20
"""Candidates of an index for each row that is wanted."""
REFINE_OF = {"IVF_RQ": 5, "IVF_SQ": 5, "IVF_HNSW_SQ": 5, "IVF_FLAT": 1, "IVF_HNSW_FLAT": 1}
"""The same of kinds that rank by distances nearer to the right ones, or by these: as good as 20 of PQ (own measurement)."""
REFINE_MAX = REFINE * 4**3
FEW = 0.2
"""Share of the candidates that may be hidden without others being asked for."""
NEAR_PROBES = 5
"""Partitions in which it is looked how many they are."""


@dataclass(frozen=True, slots=True)
class VectorIndex:
    """Of the column searched."""

    name: str
    kind: str
    metric: Metric
    covered_rows: int


class Merged:
    """One version under one mask, which hides so many rows."""

    def __init__(
        self, pinned: LancePinnedTable, hidden: RowIds, mask: bytes | None, column: str, filter: str | None
    ) -> None:
        """``hidden``: row ids, ascending; ``mask``: the same as Lance takes it."""
        self.hidden_rows = len(hidden)
        self._hidden = hidden
        self._pinned = pinned
        self._blocked = mask
        self._column = column
        self._filter = filter

    @cached_property
    def rows(self) -> int:
        """Live rows that are not hidden."""
        return sum(f.live_rows for f in self._pinned.fragments()) - self.hidden_rows

    @cached_property
    def matching(self) -> int:
        """Rows that may be found."""
        if self._filter is None:
            return self.rows
        with self._reading():
            return int(self._pinned.dataset.scanner(filter=self._filter, **self._mask()).count_rows())

    @cached_property
    def index(self) -> VectorIndex | None:
        """That Lance would ask; None where there is none, or several of which nobody says which is meant."""
        described = [d for d in self._pinned.dataset.describe_indices() if list(d.field_names) == [self._column]]
        metrics = {d.name: str((d.details or {}).get("metric_type", "")).lower() for d in described}
        known = [d for d in described if metrics[d.name] in ("l2", "cosine", "dot")]
        if len(known) != 1:
            return None
        covered = frozenset[int]().union(*(frozenset(s.fragment_ids) for s in known[0].segments))
        rows = sum(f.live_rows for f in self._pinned.fragments() if f.fragment_id in covered)
        return VectorIndex(known[0].name, known[0].index_type, cast("Metric", metrics[known[0].name]), rows)

    def flat(self, columns: Iterable[str], query: VectorQuery, vector: Vectors, metric: Metric) -> pa.Table:
        """Exactly the nearest.

        By ``dot`` a vector with an infinity is the nearest of all to Lance, and is none here: more are asked for then.
        """
        count = self._wanted(query)
        while True:
            found = self._ask(columns, vector, {"k": count, "use_index": False, "metric": metric})
            best = nearest(found, self._column, vector, metric, query.limit)
            if best.num_rows == query.limit or found.num_rows < count or count == self.matching:
                return best
            count = min(count * 4, self.matching)

    def _wanted(self, query: VectorQuery) -> int:
        """Not more than there are: Lance takes memory for as many as it is asked for, or ends the process."""
        return min(query.limit, self.matching)

    @property
    def refine_first(self) -> int:
        return REFINE if self.index is None else REFINE_OF.get(self.index.kind, REFINE)

    def by_index(self, columns: Iterable[str], query: VectorQuery, vector: Vectors, metric: Metric) -> pa.Table:
        """The nearest that the index shows, by exact distances; as many as there are.

        What lies nearest may be hidden or not match, and then is found where an index's own distances differ little: unless
        few near rows are hidden, and all match, it is asked with more candidates until they show the same rows.
        """
        narrow = self._filter is not None and self.matching < NARROW * self.rows
        count = self._wanted(query)
        asked: dict[str, Any] = {"k": count, "minimum_nprobes": query.nprobes or PROBES}
        if narrow:
            asked["search_effort"] = 1.0
            del asked["minimum_nprobes"]
        refine = query.refine_factor or self.refine_first
        before: list[int] | None = None
        once = not (self._blocked or self._filter)
        if self._filter is None and self._blocked and query.refine_factor is None:
            once = self._few_hidden_near(vector, min(refine * count, self.rows), metric)
        while True:
            found = self._ask(columns, vector, {**asked, "refine_factor": min(refine, -(-self.rows // count))})
            ids = sorted(found[ROW_ID].to_pylist())
            settled = once or ids == before or refine >= REFINE_MAX
            if settled or query.refine_factor is not None:
                break
            before, refine = ids, refine * 4
        best = nearest(found, self._column, vector, metric, query.limit)
        if best.num_rows < count:
            return self.flat(columns, query, vector, metric)
        return best

    def _few_hidden_near(self, vector: Vectors, candidates: int, metric: Metric) -> bool:
        """Whether of so many rows that lie nearest by the index, hidden or not, few are hidden: then as many candidates show
        as good rows as where none is hidden."""
        kind = self._pinned.schema.field(self._column).type.value_type.to_pandas_dtype()
        how = {"k": candidates, "minimum_nprobes": NEAR_PROBES, "metric": metric}
        with self._reading():
            found = self._pinned.dataset.scanner(
                columns=[DISTANCE],
                nearest={"column": self._column, "q": vector.astype(kind), **how},
                fast_search=True,
                with_row_id=True,
            ).to_table()
        near = found[ROW_ID].to_numpy()
        at = np.minimum(np.searchsorted(self._hidden, near), len(self._hidden) - 1)
        return len(near) >= candidates and float((self._hidden[at] == near).mean()) <= FEW

    def _ask(self, columns: Iterable[str], vector: Vectors, how: dict[str, Any]) -> pa.Table:
        kind = self._pinned.schema.field(self._column).type.value_type.to_pandas_dtype()
        with self._reading():
            return (
                self._pinned.dataset.scanner(
                    columns=[*columns, DISTANCE],
                    nearest={"column": self._column, "q": vector.astype(kind), **how},
                    filter=self._filter,
                    prefilter=True,
                    with_row_id=True,
                    **self._mask(),
                )
                .to_table()
                .drop_columns([DISTANCE])
            )

    def _mask(self) -> dict[str, Any]:
        return {} if self._blocked is None else {"row_addr_blocklist": self._blocked}

    def _reading(self) -> Any:
        return reading(f"searching version {self._pinned.version}")
