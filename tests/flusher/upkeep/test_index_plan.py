"""Which secondary indexes are extended, and how their segments stay few."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lancewal_core.table.protocol import Fragment, TableIndex
from lancewal_flusher.upkeep.index_plan import IndexLimits, IndexWork, index_works

LIMITS = IndexLimits(unindexed_share=0.1, unindexed_rows=1_000)


def fragment(number: int, rows: int, deleted: int = 0) -> Fragment:
    return Fragment(number, (f"{number}.lance",), rows, deleted, 10 * rows)


def index(*segments: set[int]) -> TableIndex:
    return TableIndex("i", tuple(frozenset(s) for s in segments))


def works(found: TableIndex, *fragments: Fragment, at_once: bool = False) -> tuple[IndexWork, ...]:
    return index_works([found], fragments, LIMITS, at_once=at_once)


@pytest.mark.parametrize(("missing", "due"), [(0, False), (99, False), (100, True), (1_000, True)])
def test_a_share_of_the_rows(missing: int, due: bool) -> None:
    found = works(index({0}), fragment(0, 900), fragment(1, missing))
    assert bool(found) is due


def test_or_so_many_rows() -> None:
    assert not works(index({0}), fragment(0, 90_000), fragment(1, 999))
    assert works(index({0}), fragment(0, 90_000), fragment(1, 1_000)) == (IndexWork("i", 0, 1_000),)


def test_hidden_rows_do_not_count() -> None:
    assert not works(index({0}), fragment(0, 900), fragment(1, 500, deleted=450))


def test_at_once_only_what_misses_a_row() -> None:
    assert works(index({0}), fragment(0, 900), fragment(1, 1), at_once=True) == (IndexWork("i", 0, 1),)
    assert works(index({0}, {1}), fragment(0, 900), fragment(1, 1), at_once=True) == ()


def test_newer_segments_are_taken_in_as_long_as_they_are_no_larger() -> None:
    rows = [fragment(i, n) for i, n in enumerate([1_000, 100, 30, 20, 25])]
    assert works(index({0}, {1}, {2}, {3}), *rows, at_once=True) == (IndexWork("i", 2, 25),)
    assert works(index({0}, {1}), *rows, at_once=True) == (IndexWork("i", 0, 75),)
    # Of the oldest segment nothing lives any more.
    assert works(index({9}, {0, 1, 2, 3}), *rows, at_once=True) == (IndexWork("i", 0, 25),)
    assert works(index({9}, {3}), *rows[3:], at_once=True) == (IndexWork("i", 2, 25),)


def test_the_smallest_come_first() -> None:
    rows = [fragment(0, 100), fragment(1, 10)]
    indexes = [replace(index({0}), name=name, row_bytes=size) for name, size in (("a", 50.0), ("b", 5.0), ("c", 10.0))]
    found = index_works(indexes, rows, LIMITS, at_once=True)
    assert [(work.name, work.nbytes, work.table_bytes) for work in found] == [
        ("b", 50, 550),
        ("c", 100, 1_100),
        ("a", 500, 5_500),
    ]


def test_all_segments_are_taken_in_where_one_may_hold_what_is_missing() -> None:
    rows = [fragment(i, n) for i, n in enumerate([1_000, 10, 500])]
    (work,) = works(replace(index({0}, {2}), named=(frozenset([0]), frozenset([2]))), *rows, at_once=True)
    assert (work.merged_segments, work.unindexed_rows) == (2, 10)
    (work,) = works(replace(index({0}, {1}), named=(frozenset([0]), frozenset([1]))), *rows, at_once=True)
    assert work.merged_segments == 1


def test_a_segment_is_taken_in_where_lance_makes_none_alone() -> None:
    found = replace(index({0}), extends_alone=False)
    assert works(found, fragment(0, 900), fragment(1, 1), at_once=True) == (IndexWork("i", 1, 1),)
    assert works(replace(found, segments=()), fragment(0, 900), at_once=True) == (IndexWork("i", 1, 900),)


def test_segments_stay_few() -> None:
    """A thousand times a fragment of ten rows: segments grow with the logarithm, and so does the work."""
    fragments = [fragment(0, 1_000)]
    segments: list[frozenset[int]] = [frozenset({0})]
    indexed = most = 0
    for number in range(1, 1_001):
        fragments.append(fragment(number, 10))
        ((work),) = index_works([TableIndex("i", tuple(segments))], fragments, LIMITS, at_once=True)
        kept = len(segments) - work.merged_segments
        segments[kept:] = [frozenset({number}).union(*segments[kept:])]
        indexed += 10 * (len(segments[-1]) - (0 in segments[-1])) + 1_000 * (0 in segments[-1])
        most = max(most, len(segments))
    assert most <= 12
    assert indexed <= 12 * 11_000
