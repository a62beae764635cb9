"""Nearest rows by a vector.

Guarantees
 1. The result has only rows of the plan's state.  Merged rows with the key of any unmerged record are hidden before
    anything is ranked, and unmerged rows are all compared.  A filter comes before ranking, and is Lance's SQL on
    both.
 2. As many rows as are asked for are returned, if so many match and have a finite distance.
 3. All distances that are compared were computed from the stored vectors, by the same code.  Only the candidates of an index
    are approximate, and the coverage says so.  With ``exact`` no index is asked.
 4. Nothing is written.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from lancewal_reader.search import merged
from lancewal_reader.search.distance import DISTANCE, farthest, of_length_one
from lancewal_reader.search.found import SearchCoverage, SearchRows
from lancewal_reader.search.merged import MaskedVersion, UnindexedVectors
from lancewal_reader.search.options import Metric, VectorQuery
from lancewal_reader.search.sides import SearchSides, SearchState

QUERY = "query_index"
_ASKED_MAX = float(np.finfo(np.float32).max)
"""Largest number in a query to an index.  A larger one would become infinite, so such a query is compared with every
row."""


def vector_rows(
    sides: SearchSides, unindexed: UnindexedVectors, state: SearchState, query: VectorQuery, columns: tuple[str, ...]
) -> SearchRows:
    """Return the nearest rows, with ``columns``.  ``sides`` must have these columns and the vector column."""
    pinned = state.pinned
    base = MaskedVersion(pinned, sides.hidden, lambda: sides.mask(pinned), query.column, state.chosen.filter)
    metric: Metric = query.metric or (base.index.metric if base.index is not None else "l2")
    vectors = [of_length_one(vector) if metric == "cosine" else vector for vector in query.vectors]
    each = query.exact or bool(np.abs(vectors).max() > _ASKED_MAX)
    few = base.matching <= merged.FLAT_ROWS_MAX
    index = None if each or few or base.index is None or base.index.metric != metric else base.index
    planned, kept = state.schema, sides.vectors(query.column)
    schema = _schema(planned, columns, query.many)
    beside = None
    if index is not None and state.chosen.filter is None and state.plan.branch is None:
        beside = sides.unindexed(unindexed, state, query.column, index.covered)
    if index is not None and not index.covered_rows and beside is None:
        index = None  # it has no candidates, and Lance would compare all rows itself, by float32
    flat = base.flat(planned.names, query, vectors, metric) if index is None and base.matching else []
    parts = []
    wanted = pa.schema([*planned.remove_metadata(), pa.field(DISTANCE, pa.float32())])
    for number, vector in enumerate(vectors):
        shown, within = None, np.inf
        if base.matching:
            shown = flat[number] if index is None else base.by_index(planned.names, query, vector, metric, beside)
            within = farthest(shown, query.limit)
        found = kept.nearest(vector, metric, query.limit, within)
        rows = found.select(wanted.names).cast(wanted)
        if shown is not None:
            rows = pa.concat_tables([rows, shown.select(rows.column_names).cast(rows.schema)])
        order = np.argsort(rows[DISTANCE].to_numpy(), kind="stable")[: query.limit]
        rows = rows.take(pa.array(order))
        if query.many:
            rows = rows.append_column(QUERY, pa.array([number] * rows.num_rows, pa.int32()))
        parts.append(rows.select(schema.names).cast(schema))
    by_index = 0 if index is None else index.covered_rows
    approximate = None
    if index is not None and by_index:
        approximate = (
            f"index {index.name} ({index.kind}) chose the candidates among merged rows, from at least "
            f"{query.nprobes or merged.PROBES} partitions, {query.refine_factor or base.refine_first} times the rows "
            "asked for"
        )
    live = base.rows + base.hidden_rows
    coverage = SearchCoverage(by_index, live - by_index, sides.matching.num_rows, base.hidden_rows, approximate)
    return SearchRows(pa.concat_tables(parts), coverage)


def _schema(planned: pa.Schema, columns: tuple[str, ...], many: bool) -> pa.Schema:
    fields: list[Any] = [planned.field(name) for name in columns]
    fields.append(pa.field(DISTANCE, pa.float32()))
    if many:
        fields.append(pa.field(QUERY, pa.int32()))
    return pa.schema(fields, planned.metadata)
