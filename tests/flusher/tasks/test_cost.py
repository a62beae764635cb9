"""The cost model: when which strategy is chosen, and what it says that it costs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lancewal_core.table.protocol import Fragment
from lancewal_flusher.tasks.cost import FragmentChange, Strategy, costs, least, vector_bytes
from lancewal_flusher.upkeep.compaction_plan import CompactionLimits, Reason, next_round

ROWS = 250_000
BYTES = 100 * ROWS


def chosen(change: FragmentChange, deleted_share: float = 0.2) -> Strategy:
    return least(costs(change, deleted_share)).strategy


def updated(rows: int, deleted: int = 0) -> FragmentChange:
    return FragmentChange(1, ROWS, deleted, BYTES, rows)


def patched(rows: int, column_bytes: int, others: int = 0) -> FragmentChange:
    return FragmentChange(1, ROWS, 0, BYTES, rows + others, rows, column_bytes)


@pytest.mark.parametrize(
    ("change", "strategy"),
    [
        (updated(100), Strategy.HIDE),
        (updated(ROWS // 20), Strategy.HIDE),
        (updated(ROWS // 4), Strategy.REWRITE),
        (updated(ROWS // 20, deleted=ROWS // 5), Strategy.REWRITE),
        (updated(ROWS), Strategy.HIDE),  # nothing is left of it
        (patched(ROWS // 2, 8 * ROWS), Strategy.COLUMNS),
        (patched(ROWS // 20, 8 * ROWS), Strategy.COLUMNS),
        (patched(ROWS // 1000, 8 * ROWS), Strategy.HIDE),
        (patched(ROWS // 20, 95 * ROWS), Strategy.HIDE),  # nearly all columns of few rows
        (patched(ROWS // 20, 8 * ROWS, others=ROWS // 2), Strategy.REWRITE),
    ],
)
def test_what_is_chosen(change: FragmentChange, strategy: Strategy) -> None:
    assert chosen(change) is strategy


def test_columns_under_an_index_are_not_considered() -> None:
    change = patched(ROWS // 20, 8 * ROWS)
    assert chosen(change) is Strategy.COLUMNS
    found = costs(replace(change, indexed_by=("a_idx",)), 0.2)
    assert [cost.strategy for cost in found] == [Strategy.HIDE]


def test_an_index_of_another_column_speaks_for_writing_columns() -> None:
    """The rows stay where that index knows them."""
    few = patched(ROWS // 200, 8 * ROWS)
    assert chosen(few) is Strategy.HIDE
    assert chosen(replace(few, index_row_bytes=5_000.0)) is Strategy.COLUMNS


def test_without_a_way_to_write_columns_they_are_not_considered() -> None:
    change = FragmentChange(1, ROWS, 0, BYTES, ROWS // 20, ROWS // 20, None)
    assert [cost.strategy for cost in costs(change, 0.2)] == [Strategy.HIDE]


def test_a_fragment_that_compaction_leaves_alone_is_only_hidden() -> None:
    change = FragmentChange(1, ROWS, 0, BYTES, ROWS // 2, rewritable=False)
    assert [cost.strategy for cost in costs(change, 0.2)] == [Strategy.HIDE]


@example(deleted=0, replaced=2_000, share=0.2, row_bytes=100, index_row_bytes=0.0)
@example(deleted=0, replaced=1_999, share=0.2, row_bytes=100, index_row_bytes=0.0)
@given(
    deleted=st.integers(0, 5_000), replaced=st.integers(1, 4_999), share=st.sampled_from([0.05, 0.2, 0.5, 0.9]),
    row_bytes=st.integers(1, 5_000), index_row_bytes=st.sampled_from([0.0, 8.0, 5_000.0]),
)  # fmt: skip
def test_rewrite_is_chosen_where_compaction_would_take_the_fragment(
    deleted: int, replaced: int, share: float, row_bytes: int, index_row_bytes: float
) -> None:
    rows = 10_000
    change = FragmentChange(1, rows, deleted, rows * row_bytes, replaced, index_row_bytes=index_row_bytes)
    limits = CompactionLimits(target_rows=1, target_bytes=1 << 40, round_bytes=1 << 40, deleted_share=share)
    taken = next_round([Fragment(1, (), rows, deleted + replaced, rows * row_bytes)], limits, ())
    assert (chosen(change, share) is Strategy.REWRITE) == (taken is not None and taken.reason is Reason.DELETED)


@given(
    rows=st.integers(1, 10**7), deleted=st.floats(0, 1), replaced=st.floats(0, 1), patches=st.floats(0, 1),
    row_bytes=st.integers(1, 10**4), column=st.floats(0, 1),
)  # fmt: skip
def test_costs_are_sane(
    rows: int, deleted: float, replaced: float, patches: float, row_bytes: int, column: float
) -> None:
    before = int(deleted * (rows - 1))
    hit = max(1, int(replaced * (rows - before)))
    change = FragmentChange(
        1, rows, before, rows * row_bytes, hit, int(patches * hit), int(column * rows * row_bytes)
    )  # fmt: skip
    found = costs(change, 0.2)
    assert [cost.strategy is Strategy.COLUMNS for cost in found] == ([False, True] if change.patched else [False])
    for cost in found:
        assert cost.bytes_written >= 0
        assert cost.bytes_owed >= 0
        assert cost.seconds >= 0
    assert least(found).weight == min(cost.weight for cost in found)


def test_deletion_vectors_do_not_grow_without_end() -> None:
    assert vector_bytes(ROWS, 500) < 2_500
    assert vector_bytes(ROWS, ROWS // 2) == vector_bytes(ROWS, ROWS // 3) < 40_000
