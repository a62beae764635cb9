"""Nearest rows by a vector.

Guarantees
 1. Rows of the state that the plan says, and no others: merged rows with the key of any unmerged record are hidden before
    anything is ranked, and unmerged rows are all compared.  A filter comes before ranking, and is Lance's SQL on both.
 2. As many rows as are asked for come back where so many match and have a vector.
 3. All distances that are compared were computed from the stored vectors, by the same lines.  Approximate is only which merged
    rows an index shows as candidates, and the coverage says so; ``exact`` asks no index.
 4. Nothing is written.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from lancewal_reader.search import merged
from lancewal_reader.search.distance import DISTANCE
from lancewal_reader.search.found import SearchCoverage, SearchRows
from lancewal_reader.search.merged import Merged
from lancewal_reader.search.options import Metric, VectorQuery
from lancewal_reader.search.sides import Sides, SidesCache, State

QUERY = "query_index"


def vector_rows(cache: SidesCache, state: State, query: VectorQuery, columns: tuple[str, ...]) -> SearchRows:
    """``state`` reads the column of vectors and ``columns``, which are those to be given."""
    sides = cache.get(state)
    mask = sides.mask(state.pinned)
    base = Merged(state.pinned, len(sides.hidden), mask, query.column, state.wanted.filter)
    return _search(base, sides, state.schema, query, columns)


def _search(base: Merged, sides: Sides, planned: pa.Schema, query: VectorQuery, columns: tuple[str, ...]) -> SearchRows:
    metric: Metric = query.metric or (base.index.metric if base.index is not None else "l2")
    few = base.matching <= merged.FLAT_ROWS_MAX
    index = None if query.exact or few or base.index is None or base.index.metric != metric else base.index
    schema = _schema(planned, columns, query.many)
    seek = base.flat if index is None else base.by_index
    parts = []
    wanted = pa.schema([*planned.remove_metadata(), pa.field(DISTANCE, pa.float32())])
    for number, vector in enumerate(query.vectors):
        rows = sides.vectors(query.column).nearest(vector, metric, query.limit).select(wanted.names).cast(wanted)
        if base.matching:
            shown = seek(planned.names, query, vector, metric).select(rows.column_names).cast(rows.schema)
            rows = pa.concat_tables([rows, shown])
        order = np.argsort(rows[DISTANCE].to_numpy(), kind="stable")[: query.limit]
        rows = rows.take(pa.array(order))
        if query.many:
            rows = rows.append_column(QUERY, pa.array([number] * rows.num_rows, pa.int32()))
        parts.append(rows.select(schema.names).cast(schema))
    by_index = 0 if index is None else index.covered_rows
    approximate = (
        None
        if index is None
        else f"index {index.name} ({index.kind}) chose the candidates among merged rows, of at least "
        f"{query.nprobes or merged.PROBES} partitions and {query.refine_factor or base.refine_first} times the rows asked for"
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
