"""One search by vector, by text, or by both, of one state.

Guarantees
 1. In a search by both, the rankings are those of ``vectors`` and ``text`` over all rows of the state, under the same
    filter.  Each has ``DEPTH`` times the wanted number of rows.  These two rankings are fused, never a ranking of
    merged rows with one of unmerged rows.
 2. A row's score is the reciprocal rank fusion (``RRF``) of its ranks; a row in neither ranking is not found.  Among
    rows with equal scores, those of the ranking by vector come first, nearest first.  The others follow by their text
    score.
 3. ``rerank`` gets the rows of rankings with ``DEPTH`` times the wanted number of rows.  The rows with its highest
    numbers are returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from lancewal_core.errors import InvalidInput, SearchUnsupported
from lancewal_core.process.tasks import together
from lancewal_core.table.lance.pinned import LancePinnedTable
from lancewal_core.table.lance.text_index import text_indexes
from lancewal_reader.plan.kept import Kept
from lancewal_reader.plan.strong import ReadPlan
from lancewal_reader.reading.reads import Planned, Reads, Wanted
from lancewal_reader.reading.scan import OpenState
from lancewal_reader.search.distance import DISTANCE
from lancewal_reader.search.found import SearchCoverage, SearchRows
from lancewal_reader.search.merged import UnindexedVectors
from lancewal_reader.search.options import RRF, Rerank, Sought
from lancewal_reader.search.sides import SearchState, sides_of
from lancewal_reader.search.text import TextCache, text_rows
from lancewal_reader.search.text_columns import with_text_columns
from lancewal_reader.search.texts.indexed_texts import SCORE
from lancewal_reader.search.vectors import QUERY, vector_rows

DEPTH = 4
RELEVANCE = "_relevance_score"


class SearchCaches:
    """Caches that the searches of an open table share."""

    def __init__(self, vectors: UnindexedVectors) -> None:
        self.vectors = vectors
        self.sides = Kept()
        self.texts = TextCache()
        self._opened = Kept(2)

    def opened(self, pinned: LancePinnedTable, plan: ReadPlan) -> LancePinnedTable:
        """Return the same version as an earlier search opened it, with its known fragments and indexes.

        A version of a branch is returned unchanged.  Branches come and go, and their versions may have the same numbers
        as the table's.
        """
        return pinned if plan.branch is not None else self._opened.get(pinned.version, lambda: pinned)


def search(reads: Reads, caches: SearchCaches, wanted: Wanted, sought_of: Callable[[pa.Schema], Sought]) -> SearchRows:
    """Run a search.  Return the requested columns, and the distances or scores.

    ``sought_of`` gets the schema of all columns of the state, requested or not.  It checks the search against them,
    and returns it.
    """
    return reads.at_once(wanted, lambda planned: _search(reads, caches, planned, sought_of(planned.chosen.rows.table)))


def _search(reads: Reads, caches: SearchCaches, planned: Planned, sought: Sought) -> SearchRows:
    wanted = planned.chosen.columns
    key = reads.contract.primary_key if sought.vector is not None and sought.text is not None else ()
    given = tuple(dict.fromkeys((*wanted, *key)))
    if sought.vector is not None and sought.vector.many and QUERY in given:
        raise InvalidInput(
            f"column {QUERY!r} of the table has the name of the column that numbers the queries: name other columns"
        )
    more = () if sought.vector is None else (sought.vector.column,)
    planned = planned.with_columns(tuple(dict.fromkeys((*given, *more))))
    deep = sought if not key and sought.rerank is None else _deeper(sought)

    def found(opened: OpenState) -> SearchRows:
        context, pinned, plan = opened.context, opened.pinned, opened.plan
        if not isinstance(pinned, LancePinnedTable):
            raise SearchUnsupported(
                f"unmerged records at this point have columns that table version {pinned.version} does not have yet. Search "
                f"at version:{pinned.version}, or the newest state"
            )
        pinned = caches.opened(pinned, plan)
        state = SearchState(context, pinned, plan, opened.find, planned.chosen, planned.schema)
        by_vector, by_text = deep.vector, None
        if deep.text is not None:
            indexes = caches.texts.indexes(pinned) if plan.branch is None else text_indexes(pinned, {})
            by_text = with_text_columns(context.rows, indexes, deep.text)
        sides = sides_of(caches.sides, state, () if by_text is None else by_text.columns)
        if by_text is None:
            assert by_vector is not None
            return vector_rows(sides, caches.vectors, state, by_vector, given)
        if by_vector is None:
            return text_rows(sides, caches.texts, state, by_text, given)
        near, told = together(
            context.tasks,
            lambda: vector_rows(sides, caches.vectors, state, by_vector, given),
            lambda: text_rows(sides, caches.texts, state, by_text, given),
        )
        fused = _fused(near.to_arrow(), told.to_arrow(), key, sought.fusion)
        return SearchRows(fused, _both(near.coverage, told.coverage))

    best = reads.using(planned, found, now=True)
    rows = best.to_arrow()
    if sought.rerank is not None:
        rows = _reranked(rows.drop_columns([n for n in given if n not in wanted]), sought.rerank)
    kept = rows if sought.vector is not None and sought.vector.many else rows.slice(0, sought.limit)
    ranked_by = [name for name in kept.column_names if name not in given]
    return SearchRows(kept.select([*wanted, *ranked_by]), best.coverage)


def _deeper(sought: Sought) -> Sought:
    limit = sought.limit * DEPTH
    return replace(
        sought,
        vector=None if sought.vector is None else replace(sought.vector, limit=limit),
        text=None if sought.text is None else replace(sought.text, limit=limit),
    )


def _fused(near: pa.Table, told: pa.Table, key: tuple[str, ...], fusion: RRF) -> pa.Table:
    """Return the rows of both rankings, each once, with its distance and score, if it has them."""
    worth: dict[tuple[object, ...], float] = {}
    places: dict[tuple[object, ...], int] = {}
    ranks = []
    for rows, weight in zip((near, told), fusion.weights, strict=True):
        keys = list(zip(*(rows[name].to_pylist() for name in key), strict=True))
        ranks.append({of: rank for rank, of in enumerate(keys)})
        for rank, of in enumerate(keys, 1):
            worth[of] = worth.get(of, 0.0) + weight / (fusion.k + rank)
            places.setdefault(of, len(places))
    order = sorted(worth, key=lambda of: (-worth[of], places[of]))
    columns = [name for name in near.column_names if name != DISTANCE]
    both = pa.concat_tables([near.select(columns), told.select(columns)])
    at = [ranks[0][of] if of in ranks[0] else near.num_rows + ranks[1][of] for of in order]
    rows = both.take(pa.array(at, pa.int64()))
    for name, side, of_side in ((DISTANCE, near, ranks[0]), (SCORE, told, ranks[1])):
        values = side[name].take(pa.array([of_side.get(of) for of in order], pa.int64()))
        rows = rows.append_column(pa.field(name, pa.float32()), values)
    return rows.append_column(
        pa.field(RELEVANCE, pa.float32()), pa.array([worth[of] for of in order], pa.float32())
    ).replace_schema_metadata(near.schema.metadata)


def _both(near: SearchCoverage, told: SearchCoverage) -> SearchCoverage:
    """Return the coverage of both searches: a row counts as indexed only if neither search compared it by itself."""
    return replace(
        near,
        indexed_rows=min(near.indexed_rows, told.indexed_rows),
        flat_rows=max(near.flat_rows, told.flat_rows),
    )


def _reranked(rows: pa.Table, rerank: Rerank) -> pa.Table:
    told = rerank(rows)
    try:
        worth = [float(value) for value in told]
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"rerank: expected a number for each row: {error}") from error
    if len(worth) != rows.num_rows or any(map(math.isnan, worth)):
        raise InvalidInput(
            f"rerank gave {len(worth)} numbers for {rows.num_rows} rows: expected one for each row, and no NaN"
        )
    if RELEVANCE in rows.column_names:
        rows = rows.drop_columns([RELEVANCE])
    rows = rows.append_column(pa.field(RELEVANCE, pa.float32()), pa.array(worth, pa.float32()))
    order = sorted(range(len(worth)), key=lambda at: -worth[at])
    return rows.take(pa.array(order, pa.int64()))
