"""Rows of many entries in few slices, and in which order."""

from __future__ import annotations

from hypothesis import given

from lancewal_core.rows.row_range import RowRange
from lancewal_reader.unmerged.entries import few_slices
from tests.core.rows.test_row_range import batch_of, logs, numbers_of


@given(logs())
def test_each_sequence_keeps_its_rows_in_its_order(sequences: list[list[RowRange]]) -> None:
    found = few_slices(sequences)
    assert sum(batch.num_rows for batch in found) == sum(one.row_count for ranges in sequences for one in ranges)
    for owner, ranges in enumerate(sequences):
        assert numbers_of(found, owner) == numbers_of([one.rows for one in ranges], owner)


def test_what_lies_side_by_side_is_one_slice_whatever_the_number_of_sequences() -> None:
    batches = [batch_of([owner for owner in range(100) for _ in range(2)]) for _ in range(3)]
    sequences = [[RowRange(batch, 2 * owner, 2) for batch in batches] for owner in range(100)]
    assert few_slices(sequences) == batches
