"""Some rows of a record batch, one behind the other, as a place in it.

A slice of a batch is a dozen small objects of Arrow's, however few its rows: to make and free them takes longer than to decode
the two rows of a region, and they take 2 KB.  So rows stay where they were decoded, and what lies side by side is sliced
together.  Whoever has a range keeps its whole batch in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from operator import attrgetter
from typing import NamedTuple

import pyarrow as pa

_BEGIN = attrgetter("begin")


class RowRange(NamedTuple):
    """``row_count`` rows of ``batch`` from ``begin`` on."""

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
        """As a slice, if they are not all."""
        if self.row_count == self.batch.num_rows:
            return self.batch
        return self.batch.slice(self.begin, self.row_count)


def slices(ranges: Iterable[RowRange]) -> list[pa.RecordBatch]:
    """Their rows, in their order, with one slice for those that lie one behind the other; none of what is empty."""
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
    """Their rows in their order; a copy, unless all lie one behind the other."""
    found = slices(ranges)
    if len(found) == 1:
        return found[0]
    return pa.concat_batches(found) if found else pa.RecordBatch.from_pylist([], schema=schema)


def side_by_side(sequences: Sequence[Sequence[RowRange]]) -> list[pa.RecordBatch]:
    """All rows, those of each sequence in its order, and in few slices: batch by batch, each behind those that a sequence has
    before it.  Where two sequences have two batches in different orders, one sequence behind the other."""
    held: dict[int, list[RowRange]] = {}
    order: TopologicalSorter[int] = TopologicalSorter()
    known: set[tuple[int, int]] = set()
    for ranges in sequences:
        before: RowRange | None = None
        for one in ranges:
            here = id(one.batch)
            if before is None or before.batch is not one.batch:
                if here not in held:
                    held[here] = []
                    order.add(here)
                follows = None if before is None else (here, id(before.batch))
                if follows is not None and follows not in known:
                    known.add(follows)
                    order.add(*follows)
            elif one.begin < before.end:
                return slices(one for ranges in sequences for one in ranges)
            held[here].append(one)
            before = one
    try:
        batches = [*order.static_order()]
    except CycleError:
        return slices(one for ranges in sequences for one in ranges)
    return [found for here in batches for found in slices(sorted(held[here], key=_BEGIN))]
