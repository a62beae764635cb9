"""Rank merged and unmerged rows by their score, before their columns are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.table.protocol import ROW_ADDRESS
from lancewal_reader.search.sides import SearchSides
from lancewal_reader.search.texts.indexed_texts import SCORE, RowIds
from lancewal_reader.search.texts.words import Scores


@dataclass(frozen=True, slots=True)
class Ranked:
    """Rows with their scores.  A merged row is identified by its address, an unmerged row by its index."""

    scores: Scores
    merged: npt.NDArray[np.bool_]
    places: RowIds

    def best(self, limit: int) -> Ranked:
        scores, merged, places = self.scores, self.merged, self.places
        if len(scores) > limit:
            high = scores >= np.partition(scores, len(scores) - limit)[len(scores) - limit]
            scores, merged, places = scores[high], merged[high], places[high]
        order = np.lexsort((places, ~merged, -scores))[:limit]
        return Ranked(scores[order], merged[order], places[order])

    def with_rows(self, other: Ranked) -> Ranked:
        return Ranked(
            np.concatenate([self.scores, other.scores]),
            np.concatenate([self.merged, other.merged]),
            np.concatenate([self.places, other.places]),
        )

    def rows(self, shown: pa.Table, sides: SearchSides, planned: pa.Schema, columns: Sequence[str]) -> pa.Table:
        """Return ``columns`` of the rows, with the score.  ``shown`` has the merged rows and their addresses."""
        schema = pa.schema([*(planned.field(n) for n in columns), pa.field(SCORE, pa.float32())], planned.metadata)
        at = pc.index_in(pa.array(self.places[self.merged]), shown[ROW_ADDRESS].combine_chunks())
        merged = shown.select(list(columns)).take(at)
        fresh = sides.fresh.select(list(columns)).take(pa.array(self.places[~self.merged]))
        both = pa.concat_tables([merged.cast(fresh.schema), fresh])
        places = np.where(self.merged, np.cumsum(self.merged), merged.num_rows + np.cumsum(~self.merged)) - 1
        rows = both.take(pa.array(places))
        return rows.append_column(SCORE, pa.array(self.scores, pa.float32())).select(schema.names).cast(schema)


def ranked_of(found: Scores, merged: bool, places: RowIds) -> Ranked:
    matching = np.isfinite(found)
    return Ranked(found[matching], np.full(int(matching.sum()), merged), places[matching])
