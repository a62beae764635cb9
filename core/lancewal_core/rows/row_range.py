"""Consecutive rows of a record batch, given by their place in the batch.

A slice of a batch is a dozen small Arrow objects, however few its rows.  To make and free these objects takes longer
than to decode the two rows of a region, and for eleven columns they take 5 KB.  So rows stay where they were decoded,
and ranges that follow each other in a batch are sliced together.  A range keeps its whole batch in memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa


class RowRange(NamedTuple):
    """A range of ``row_count`` rows of ``batch``, starting at ``begin``."""

    batch: pa.RecordBatch
    begin: int
    row_count: int

    @classmethod
    def whole(cls, batch: pa.RecordBatch) -> RowRange:
        return cls(batch, 0, batch.num_rows)

    @property
    def end(self) -> int:
        return self.begin + self.row_count

    @property
    def rows(self) -> pa.RecordBatch:
        """Rows of the range: the batch itself if the range has all its rows, else a slice."""
        if self.row_count == self.batch.num_rows:
            return self.batch
        return self.batch.slice(self.begin, self.row_count)


def slices(ranges: Iterable[RowRange]) -> list[pa.RecordBatch]:
    """Return the rows of all ranges in their order.  Ranges that follow each other share one slice; empty ranges have
    no slice."""
    runs: list[RowRange] = []
    for one in ranges:
        if not one.row_count:
            continue
        if runs and runs[-1].batch is one.batch and runs[-1].end == one.begin:
            runs[-1] = RowRange(one.batch, runs[-1].begin, runs[-1].row_count + one.row_count)
        else:
            runs.append(one)
    return [run.rows for run in runs]


def joined(ranges: Iterable[RowRange], schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of all ranges in their order as one batch.  It is a copy, unless the ranges follow each other in
    one batch."""
    found = slices(ranges)
    if len(found) == 1:
        return found[0]
    return pa.concat_batches(found) if found else pa.RecordBatch.from_pylist([], schema=schema)
