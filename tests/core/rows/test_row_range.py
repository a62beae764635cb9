"""Rows as a place in a batch: what is sliced together, and in which order."""

from __future__ import annotations

from itertools import accumulate, count

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.rows.row_range import RowRange, joined, side_by_side, slices

SCHEMA = pa.schema({"sequence": pa.int64(), "number": pa.int64()})
NUMBERS = count()


def batch_of(owners: list[int]) -> pa.RecordBatch:
    """A row for each: whose it is, and a number that no other batch's rows have."""
    return pa.RecordBatch.from_pylist([{"sequence": owner, "number": next(NUMBERS)} for owner in owners], schema=SCHEMA)


def numbers_of(batches: list[pa.RecordBatch], sequence: int) -> list[int]:
    return [row["number"] for batch in batches for row in batch.to_pylist() if row["sequence"] == sequence]


@st.composite
def logs(draw: st.DrawFn) -> list[list[RowRange]]:
    """Some sequences, each with a range in some of the batches, in the order of its own."""
    sequences: list[list[RowRange]] = [[] for _ in range(draw(st.integers(1, 4)))]
    for _ in range(draw(st.integers(0, 5))):
        counts = [draw(st.integers(0, 3)) for _ in sequences]
        batch = batch_of([owner for owner, rows in enumerate(counts) for _ in range(rows)])
        for owner, (end, rows) in enumerate(zip(accumulate(counts), counts, strict=True)):
            if draw(st.booleans()):
                sequences[owner].append(RowRange(batch, end - rows, rows))
    if draw(st.booleans()):
        sequences[draw(st.integers(0, len(sequences) - 1))].reverse()
    return sequences


@given(logs())
def test_each_sequence_keeps_its_rows_in_its_order(sequences: list[list[RowRange]]) -> None:
    found = side_by_side(sequences)
    assert sum(batch.num_rows for batch in found) == sum(one.row_count for ranges in sequences for one in ranges)
    for owner, ranges in enumerate(sequences):
        assert numbers_of(found, owner) == numbers_of([one.rows for one in ranges], owner)


def test_what_lies_side_by_side_is_one_slice_whatever_the_number_of_sequences() -> None:
    batches = [batch_of([owner for owner in range(100) for _ in range(2)]) for _ in range(3)]
    sequences = [[RowRange(batch, 2 * owner, 2) for batch in batches] for owner in range(100)]
    assert side_by_side(sequences) == batches


@given(logs())
def test_joined_rows_are_in_the_order_given(sequences: list[list[RowRange]]) -> None:
    for owner, ranges in enumerate(sequences):
        expected = numbers_of([one.batch.slice(one.begin, one.row_count) for one in ranges], owner)
        assert numbers_of([joined(ranges, SCHEMA)], owner) == numbers_of(slices(ranges), owner) == expected
