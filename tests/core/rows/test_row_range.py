"""Rows as a place in a batch: what is sliced together."""

from __future__ import annotations

from itertools import accumulate, count

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.rows.row_range import RowRange, joined, slices

SCHEMA = pa.schema({"sequence": pa.int64(), "number": pa.int64()})
NUMBERS = count()


def batch_of(owners: list[int]) -> pa.RecordBatch:
    """A row for each: whose it is, and a number that no other batch's rows have."""
    return pa.RecordBatch.from_pylist([{"sequence": owner, "number": next(NUMBERS)} for owner in owners], schema=SCHEMA)


def numbers_of(batches: list[pa.RecordBatch], sequence: int) -> list[int]:
    return [row["number"] for batch in batches for row in batch.to_pylist() if row["sequence"] == sequence]


@st.composite
def logs(draw: st.DrawFn) -> list[list[RowRange]]:
    """Some sequences, each with a range in some of the batches, or two, in the order of its own."""
    sequences: list[list[RowRange]] = [[] for _ in range(draw(st.integers(1, 4)))]
    for _ in range(draw(st.integers(0, 5))):
        counts = [draw(st.integers(0, 3)) for _ in sequences]
        batch = batch_of([owner for owner, rows in enumerate(counts) for _ in range(rows)])
        for owner, (end, rows) in enumerate(zip(accumulate(counts), counts, strict=True)):
            if draw(st.booleans()):
                first = draw(st.integers(0, rows))
                sequences[owner] += [
                    RowRange(batch, end - rows, first),
                    RowRange(batch, end - rows + first, rows - first),
                ]
    if draw(st.booleans()):
        sequences[draw(st.integers(0, len(sequences) - 1))].reverse()
    return sequences


@given(logs())
def test_joined_rows_are_in_the_order_given(sequences: list[list[RowRange]]) -> None:
    for owner, ranges in enumerate(sequences):
        expected = numbers_of([one.batch.slice(one.begin, one.row_count) for one in ranges], owner)
        assert numbers_of([joined(ranges, SCHEMA)], owner) == numbers_of(slices(ranges), owner) == expected
