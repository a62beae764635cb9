"""Nearest rows of the merged table.  Rows that unmerged records replace or delete are hidden before anything is ranked.

Lance hides rows natively, by row id, in a search by an index and under a filter.  (Row ids are addresses only where
they are not stable.)  Rows are never fetched in excess and dropped.  An index is asked without the fragments that it
does not cover.

All live rows of these fragments, except hidden ones, are compared here.  Their vectors are kept from one version to
the next (``UnindexedVectors``), or are read again for each search.  If no index is asked, all rows are compared here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any, cast, get_args

import numpy as np
import pyarrow as pa

from lancewal_core.rows.schema import FieldIds
from lancewal_core.table.lance.errors import reading
from lancewal_core.table.lance.pinned import LancePinnedTable
from lancewal_core.table.protocol import ROW_ADDRESS, AllBut, Fragment, key_file
from lancewal_reader.reading.scan import batch_rows
from lancewal_reader.search.bits import KeptRows, kept_rows
from lancewal_reader.search.distance import DISTANCE, DISTANCE_FIELD, farthest
from lancewal_reader.search.options import Metric, VectorQuery, Vectors
from lancewal_reader.search.texts.indexed_texts import ROW_ID, RowIds
from lancewal_reader.unmerged.load import DeltaContext

FLAT_ROWS_MAX = 2_000
"""Up to this many rows, comparing each one is about as quick as an index, which loses some rows under a narrow filter."""
NARROW = 0.1
"""If a filter passes a smaller share of the rows, all partitions of the index are searched, since the rows may be in
any.
"""
PROBES = 20
REFINE = 20
"""Number of candidates that an index gives for each wanted row."""
REFINE_OF = {"IVF_RQ": 5, "IVF_SQ": 5, "IVF_HNSW_SQ": 5, "IVF_FLAT": 1, "IVF_HNSW_FLAT": 1}
"""Number of candidates for each wanted row, for kinds of indexes whose own distances are exact or nearly so.  They
give as good rows as 20 candidates of an index by PQ (own measurement).
"""
REFINE_MAX = REFINE * 4**3
FEW = 0.2
"""Largest share of hidden rows among the candidates at which no more candidates are asked for."""
NEAR_PROBES = 5
"""Number of partitions that are searched to find how many of the nearest rows are hidden."""
_PLACE = "_place"
_Key = tuple[FieldIds, int, tuple[str, ...], tuple[tuple[int, ...], ...]]
"""Key of cached vectors: field ids of the column, fragment id, files of the fragment, and field ids in each file.  It
has ids instead of names, since a column may be renamed.
"""


@dataclass(frozen=True, slots=True)
class VectorIndex:
    """Index of the column searched."""

    name: str
    kind: str
    metric: Metric
    covered: frozenset[int]
    """Ids of the fragments that the index covers."""
    covered_rows: int


class Unindexed:
    """Vectors of one column in rows that no index covers, in one state, by fragment."""

    def __init__(self, parts: Sequence[tuple[int, KeptRows]]) -> None:
        self._parts = parts

    def nearest(self, query: Vectors, metric: Metric, limit: int, within: float) -> tuple[RowIds, Vectors]:
        """Return the addresses of the nearest rows and their distances, nearest first.  Rows farther than ``within``
        are left out."""
        addresses, apart = np.zeros(0, np.uint64), np.zeros(0)
        for fragment_id, kept in self._parts:
            found = kept.nearest(query, metric, limit, within)
            if not found.num_rows:
                continue
            addresses = np.concatenate([addresses, np.uint64(fragment_id << 32) | found[_PLACE].to_numpy()])
            apart = np.concatenate([apart, found[DISTANCE].to_numpy().astype(np.float64)])
            order = np.argsort(apart, kind="stable")[:limit]
            addresses, apart = addresses[order], apart[order]
            within = min(within, apart[-1]) if len(apart) == limit else within
        near = apart <= within
        return addresses[near], apart[near]


class UnindexedVectors:
    """Cache of the vectors of merged rows that no index covers.  Threads may share it.

    Vectors are cached by data file, because data files never change; each version says which rows are live.  The
    cache holds at most ``bytes_max`` bytes, for fragments of the version that was searched last.  Copies of the
    vectors' first numbers (``distance``) may take a third as much in addition.  Vectors that ``FlushCache`` has from
    the time when their file was a flush are not read again.
    """

    def __init__(self, bytes_max: int = 0) -> None:
        self._bytes_max = bytes_max
        self._found: dict[_Key, KeptRows] = {}
        self._lock = Lock()

    def of(
        self,
        context: DeltaContext,
        pinned: LancePinnedTable,
        column: str,
        covered: frozenset[int],
        hidden: RowIds,
    ) -> Unindexed | None:
        """Return the rows of fragments that are not ``covered``, without those at the addresses ``hidden``, which must
        ascend.

        None if there are too many rows, or if files have an unsupported layout.
        """
        fragments = [f for f in pinned.fragments() if f.fragment_id not in covered]
        field = pinned.schema.field(column).type
        rows = sum(fragment.physical_rows for fragment in fragments)
        if rows * field.list_size * field.value_type.bit_width // 8 > self._bytes_max:
            return None
        if not all(all(fragment.file_fields) for fragment in fragments):  # values may be laid over those of a file
            return None

        def part(fragment: Fragment) -> tuple[int, KeptRows]:
            kept = self._kept(context, pinned, fragment, column)
            gone = np.zeros(fragment.physical_rows, np.bool_)
            gone[pinned.hidden_rows(fragment.fragment_id) if fragment.deleted_rows else []] = True
            first, end = np.searchsorted(
                hidden, np.array([0, 1 << 32], np.uint64) + np.uint64(fragment.fragment_id << 32)
            )
            gone[(hidden[first:end] & np.uint64(0xFFFFFFFF)).astype(np.int64)] = True
            return fragment.fragment_id, kept.without(gone[kept.rows[_PLACE].to_numpy()])

        parts = context.tasks.map(part, fragments)  # behind a merge each may have a new deletion vector to be read
        of = pinned.field_ids[column]
        wanted = {_key(fragment, of) for fragment in fragments}
        with self._lock:
            self._found = {key: kept for key, kept in self._found.items() if key[0] != of or key in wanted}
            while sum(kept.rows.nbytes for kept in self._found.values()) > self._bytes_max:
                self._found.pop(next(iter(self._found)))
        return Unindexed(parts)

    def _kept(self, context: DeltaContext, pinned: LancePinnedTable, fragment: Fragment, column: str) -> KeptRows:
        key = _key(fragment, pinned.field_ids[column])
        found = self._found.get(key)
        if found is None:
            field = pinned.schema.field(column)
            file = key_file(fragment, pinned.field_ids[column])
            (own,) = (one for one in context.rows.signature if one[0] == column)
            vectors = None if file is None else context.flushes.of_file(file, fragment.physical_rows, own)
            if vectors is None:
                batches = pinned.all_rows(fragment.fragment_id, [column])
                vectors = pa.Table.from_batches(batches, pa.schema([field]))[column]
            places = pa.array(np.arange(len(vectors), dtype=np.uint64))
            found = kept_rows(pa.table({column: vectors, _PLACE: places}).combine_chunks(), column)
            with self._lock:
                self._found[key] = found
        return found


def _key(fragment: Fragment, column: FieldIds) -> _Key:
    return column, fragment.fragment_id, fragment.files, fragment.file_fields


class MaskedVersion:
    """One table version with a mask that hides ``hidden_rows`` rows."""

    def __init__(
        self,
        pinned: LancePinnedTable,
        addresses: RowIds,
        mask: Callable[[], bytes | None],
        column: str,
        filter: str | None,
    ) -> None:
        """``addresses``: those of the hidden rows, ascending.  ``mask`` returns these rows as a mask for Lance."""
        self.hidden_rows = len(addresses)
        self._addresses = addresses
        self._pinned = pinned
        self._mask_of = mask
        self._column = column
        self._filter = filter

    @cached_property
    def rows(self) -> int:
        """Number of live rows that are not hidden."""
        return sum(f.live_rows for f in self._pinned.fragments()) - self.hidden_rows

    @cached_property
    def matching(self) -> int:
        """Number of live rows that are not hidden and pass the filter."""
        if self._filter is None:
            return self.rows
        with self._reading():
            return int(self._pinned.dataset.scanner(filter=self._filter, **self._mask()).count_rows())

    @cached_property
    def index(self) -> VectorIndex | None:
        """The column's only index with a known metric; None if there is none, or several."""
        described = [d for d in self._pinned.described_indexes() if list(d.field_names) == [self._column]]
        metrics = {d.name: str((d.details or {}).get("metric_type", "")).lower() for d in described}
        known = [d for d in described if metrics[d.name] in get_args(Metric)]
        if len(known) != 1:
            return None
        covered = frozenset[int]().union(*(frozenset(s.fragment_ids) for s in known[0].segments))
        rows = sum(f.live_rows for f in self._pinned.fragments() if f.fragment_id in covered)
        return VectorIndex(known[0].name, known[0].index_type, cast("Metric", metrics[known[0].name]), covered, rows)

    def flat(
        self,
        columns: Sequence[str],
        query: VectorQuery,
        vectors: Sequence[Vectors],
        metric: Metric,
        fragment_ids: Sequence[int] | None = None,
    ) -> list[pa.Table]:
        """Return for each query vector its exact nearest rows, among all rows or in some fragments.  Rows are read
        once, in batches.

        Lance does not compute the distances, because it uses float32.  That cannot distinguish cosine distances below
        1e-7, nor vectors whose squares float32 cannot hold.
        """
        best = [(np.zeros(0, np.uint64), np.zeros(0, np.float32)) for _ in vectors]
        field = pa.schema([self._pinned.schema.field(self._column)])
        batches = self._pinned.scan(
            field.names,
            filter=self._filter,
            fragment_ids=fragment_ids,
            rows=AllBut(self._addresses),
            with_row_address=True,
            batch_rows=batch_rows(field),
        )
        for batch in batches:
            kept = kept_rows(pa.Table.from_batches([batch]), self._column)
            for at, vector in enumerate(vectors):
                found = kept.nearest(vector, metric, query.limit)
                addresses = np.concatenate([best[at][0], found[ROW_ADDRESS].to_numpy()])
                apart = np.concatenate([best[at][1], found[DISTANCE].to_numpy()])
                order = np.lexsort((addresses, apart))[: query.limit]
                best[at] = addresses[order], apart[order]
        shown = [self._pinned.take(pa.array(addresses), columns) for addresses, _ in best]
        return [
            rows.append_column(DISTANCE_FIELD, pa.array(apart)) for rows, (_, apart) in zip(shown, best, strict=True)
        ]

    def _wanted(self, query: VectorQuery) -> int:
        """Return the number of rows to ask for, at most as many as exist.  Lance takes memory for all rows asked for, or ends
        the process."""
        return min(query.limit, self.matching)

    @property
    def refine_first(self) -> int:
        return REFINE if self.index is None else REFINE_OF.get(self.index.kind, REFINE)

    def by_index(
        self,
        columns: Sequence[str],
        query: VectorQuery,
        vector: Vectors,
        metric: Metric,
        beside: Unindexed | None = None,
    ) -> pa.Table:
        """Return the nearest rows found by the index, ranked by exact distances.  There are fewer than the limit only
        if no more exist.

        Rows that the index does not cover come from ``beside``.  Without ``beside`` they are read and compared here.
        Lance would compare them in float32, and rank rows whose squares are lost in float32 first.

        The nearest rows may be hidden or may not pass the filter.  The search then depends on the index's own
        distances, which may differ slightly.  Unless few near rows are hidden and all pass, the index is asked for more
        candidates.  This ends when two answers have the same rows, or at ``REFINE_MAX``.
        """
        found = self._asked(columns, query, vector, metric)
        best = kept_rows(found, self._column).nearest(vector, metric, query.limit)
        if beside is not None:
            addresses, _ = beside.nearest(vector, metric, query.limit, farthest(best, query.limit))
            if len(addresses):
                more = self._pinned.take(pa.array(addresses), columns).cast(found.select(columns).schema)
                both = pa.concat_tables([best.select(columns), more])
                best = kept_rows(both, self._column).nearest(vector, metric, query.limit)
        elif uncovered := self._uncovered:
            (more,) = self.flat(columns, query, [vector], metric, uncovered)
            both = pa.concat_tables([best.select(more.column_names).cast(more.schema), more])
            best = both.take(pa.array(np.argsort(both[DISTANCE].to_numpy(), kind="stable")[: query.limit]))
        if best.num_rows < self._wanted(query):
            return self.flat(columns, query, [vector], metric)[0]
        return best

    @cached_property
    def _uncovered(self) -> Sequence[int]:
        """Fragments that the index does not cover."""
        covered = frozenset[int]() if self.index is None else self.index.covered
        return [f.fragment_id for f in self._pinned.fragments() if f.fragment_id not in covered]

    def _asked(self, columns: Sequence[str], query: VectorQuery, vector: Vectors, metric: Metric) -> pa.Table:
        """Return the rows that the index finds, without hidden ones.  Lance is asked for more candidates until its
        answer stays the same."""
        narrow = self._filter is not None and self.matching < NARROW * self.rows
        count = self._wanted(query)
        # Where no row that the index has is left, Lance compares all: by ``l2``, were it not told.
        asked: dict[str, Any] = {"k": count, "metric": metric, "minimum_nprobes": query.nprobes or PROBES}
        if narrow:
            asked["search_effort"] = 1.0
            del asked["minimum_nprobes"]
        refine = query.refine_factor or self.refine_first
        before: list[int] | None = None
        once = not (self.hidden_rows or self._filter)
        if self._filter is None and self.hidden_rows and query.refine_factor is None:
            once = self._few_hidden_near(vector, min(refine * count, self.rows), metric)
        while True:
            how = {**asked, "refine_factor": min(refine, -(-self.rows // count))}
            shown = {"filter": self._filter, "prefilter": True, "with_row_id": True, **self._mask()}
            found = self._nearest([*columns, DISTANCE], vector, how, **shown).drop_columns([DISTANCE])
            ids = sorted(found[ROW_ID].to_pylist())
            settled = once or ids == before or refine >= REFINE_MAX
            if settled or query.refine_factor is not None:
                return found
            before, refine = ids, refine * 4

    def _few_hidden_near(self, vector: Vectors, candidates: int, metric: Metric) -> bool:
        """Return whether few rows are hidden among this many candidates, the nearest by the index, hidden or not.  If
        so, as many candidates show as good rows as if none were hidden."""
        how = {"k": candidates, "minimum_nprobes": NEAR_PROBES, "metric": metric}
        found = self._nearest([DISTANCE], vector, how, with_row_address=True)
        near = found[ROW_ADDRESS].to_numpy()
        at = np.minimum(np.searchsorted(self._addresses, near), len(self._addresses) - 1)
        return len(near) >= candidates and float((self._addresses[at] == near).mean()) <= FEW

    def _nearest(self, columns: Sequence[str], vector: Vectors, how: dict[str, Any], **more: Any) -> pa.Table:
        """Return the nearest rows of the fragments that the index covers.  ``how``: options of the search for vectors,
        ``more``: those of the scan."""
        kind = self._pinned.schema.field(self._column).type.value_type.to_pandas_dtype()
        nearest = {"column": self._column, "q": vector.astype(kind), **how}
        with self._reading():
            return self._pinned.dataset.scanner(columns=columns, nearest=nearest, fast_search=True, **more).to_table()

    def _mask(self) -> dict[str, Any]:
        blocked = self._mask_of()
        return {} if blocked is None else {"row_addr_blocklist": blocked}

    def _reading(self) -> Any:
        return reading(f"searching version {self._pinned.version}")
