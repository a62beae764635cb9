"""Which fragments a round of compaction takes: bounds that always hold, and what comes first."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancewal_core.table.protocol import Fragment
from lancewal_flusher.upkeep.compaction_plan import Choice, CompactionLimits, Reason, live_bytes, next_round

MB = 1 << 20
LIMITS = CompactionLimits(target_rows=1_000, target_bytes=256 * MB, round_bytes=256 * MB, fragments_min=2)


def fragment(fragment_id: int, rows: int, deleted: int, nbytes: int) -> Fragment:
    return Fragment(fragment_id, (), rows, deleted, nbytes)


def sized(*megabytes: int, rows: int = 10, deleted: int = 0) -> list[Fragment]:
    return [fragment(i, rows, deleted, size * MB) for i, size in enumerate(megabytes)]


def taken(fragments: list[Fragment], limits: CompactionLimits = LIMITS, *excluded: int) -> list[int] | None:
    chosen = next_round(fragments, limits, excluded)
    return None if chosen is None else sorted(f.fragment_id for f in chosen.fragments)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], None),
        ([1], None),
        ([1, 1], [0, 1]),
        ([1, 200, 1], [0, 2]),  # whatever lies between them
        ([100, 1, 1], [1, 2]),  # a large one is not written anew for two small ones
        ([100, 100, 1], [0, 1, 2]),
        ([1, 2, 4, 8], None),  # each as large as all smaller ones and more
        ([100, 100, 100], [0, 1]),  # as many as fit into one
        ([128, 128], None),  # half of the target is not small
        ([0, 0, 0], [0, 1, 2]),
    ],
)
def test_small_fragments_are_bundled(sizes: list[int], expected: list[int] | None) -> None:
    assert taken(sized(*sizes)) == expected


def test_wide_rows_are_small_by_bytes_and_narrow_ones_by_rows() -> None:
    assert taken(sized(200, 200, rows=10)) is None
    assert taken(sized(1, 1, rows=500)) is None
    assert taken(sized(1, 1, 1, rows=499)) == [0, 1]


def test_what_is_left_of_a_fragment_counts() -> None:
    worn = sized(200, 200, rows=100, deleted=90)
    assert taken(worn, replace(LIMITS, round_bytes=400 * MB)) == [0, 1]
    chosen = next_round(worn, LIMITS, ())  # but a round counts what it reads
    assert chosen is not None
    assert (chosen.reason, [f.fragment_id for f in chosen.fragments]) == (Reason.DELETED, [0])


def test_too_few_wait_for_more() -> None:
    limits = replace(LIMITS, fragments_min=4)
    assert taken(sized(1, 1, 1), limits) is None
    assert taken(sized(1, 1, 1, 1), limits) == [0, 1, 2, 3]
    assert taken(sized(1, 1, 1), limits.to_the_end()) == [0, 1, 2]
    assert taken(sized(1, 2, 4, 8), limits.to_the_end()) == [0, 1, 2, 3]


def test_the_most_worn_come_first_behind_small_ones() -> None:
    large = [fragment(i, 1_000, deleted, 130 * MB) for i, deleted in enumerate([199, 300, 200, 400])]
    assert taken(large) == [3]
    assert taken(large, replace(LIMITS, round_bytes=400 * MB, target_rows=10_000)) == [1, 3]
    assert taken([*large, *(fragment(i, 1, 0, MB) for i in (7, 8))]) == [7, 8]
    assert taken(large[:1]) is None


def test_spared_fragments_stay() -> None:
    assert taken(sized(1, 1, 1), LIMITS, 1) == [0, 2]
    assert taken(sized(1, 1), LIMITS, 1) is None
    assert taken(sized(200, deleted=9), LIMITS, 0) is None


def test_a_fragment_larger_than_a_round() -> None:
    worn = sized(1_000, deleted=9, rows=10)
    assert taken(worn) is None
    assert taken(worn, LIMITS.to_the_end()) == [0]
    assert taken(sized(1_000), LIMITS.to_the_end()) is None
    assert taken([*worn, fragment(1, 1_000, 900, 200 * MB)], LIMITS.to_the_end()) == [1]


def foreseen(
    fragments: list[Fragment], limits: CompactionLimits, with_sentinel: bool, *left_alone: int
) -> list[Fragment]:
    choice = Choice(tuple(fragments), frozenset(left_alone), with_sentinel)
    while chosen := choice.next_round(limits):
        choice = choice.after(chosen, limits)
    return list(choice.fragments)


def test_who_only_looks_foresees_what_rounds_leave() -> None:
    small = [*sized(1, 1, 1), fragment(3, 10, 10, MB)]
    assert foreseen(small, LIMITS, True) == [fragment(4, 30, 0, 3 * MB)]
    assert foreseen(small, LIMITS, False) == [fragment(0, 10, 0, MB), fragment(4, 20, 0, 2 * MB)]
    assert foreseen(small, LIMITS, True, 0, 2) == sized(1, 1, 1)
    # One larger than a fragment should be becomes several; no row left, none.
    wide = [
        fragment(0, 10, 0, MB),
        fragment(1, 5_000, 2_500, 400 * MB),
        fragment(2, 50, 50, 400 * MB),
    ]
    left = foreseen(wide, LIMITS.to_the_end(), False)
    assert [(f.physical_rows, f.nbytes // MB) for f in left] == [(10, 1), (1_000, 80), (1_000, 80), (500, 40)]


def test_whoever_is_the_sentinel_by_now_is_taken_only_in_a_bounded_round() -> None:
    """The small one has been, and is written anew with another; the worn one behind it is larger than a round."""
    fragments = [fragment(0, 10, 0, MB), fragment(1, 1_000, 900, 800 * MB), fragment(2, 10, 0, MB)]
    assert [f.fragment_id for f in foreseen(fragments, LIMITS.to_the_end(), True)] == [1, 3]


def test_groups_of_a_round_share_no_fragment_and_have_one_reason() -> None:
    limits = replace(LIMITS, groups_max=3)
    many = [*sized(*[100] * 9), *(fragment(i, 1_000, 400, 130 * MB) for i in (20, 21))]
    chosen = next_round(many, limits, ())
    assert chosen is not None
    assert chosen.reason is Reason.SMALL
    assert [[f.fragment_id for f in group] for group in chosen.groups] == [[0, 1], [2, 3], [4, 5]]
    worn = next_round(many[8:], limits, ())  # one small fragment is none
    assert worn is not None
    assert worn.reason is Reason.DELETED
    assert [[f.fragment_id for f in group] for group in worn.groups] == [[20], [21]]


def test_halved_limits_have_fewer_bytes_and_groups() -> None:
    limits = replace(LIMITS, groups_max=8)
    assert [limits.halved(times, 100 * MB).groups_max for times in (0, 1, 2, 3, 4)] == [8, 4, 2, 1, 1]
    assert [limits.halved(times, 100 * MB).round_bytes // MB for times in (0, 1, 2)] == [256, 128, 100]


FRAGMENTS = st.lists(
    st.builds(
        lambda rows, deleted, size: (rows, min(deleted, rows - 1), size),
        st.integers(1, 2_000),
        st.integers(0, 2_000),
        st.integers(1, 600 * MB),
    ),
    max_size=40,
).map(lambda found: [fragment(i, *values) for i, values in enumerate(found)])
BOUNDS = st.builds(
    CompactionLimits,
    target_rows=st.integers(1, 3_000),
    target_bytes=st.integers(1, 512 * MB),
    deleted_share=st.floats(0.01, 1.0),
    round_bytes=st.integers(1, 512 * MB),
    fragments_min=st.integers(1, 6),
    fragments_max=st.integers(1, 20),
    groups_max=st.integers(1, 4),
    growth=st.floats(1.0, 4.0),
    oversize=st.booleans(),
)


@settings(deadline=None, max_examples=100)
@given(FRAGMENTS, BOUNDS, st.sets(st.integers(0, 39)))
def test_a_round_keeps_its_bounds_and_rounds_end(
    fragments: list[Fragment], limits: CompactionLimits, excluded: set[int]
) -> None:
    """Simulated to the end: bytes, fragments and growth of each round, and fewer fragments or hidden rows by each."""
    kept_rows = sum(f.live_rows for f in fragments)
    written: list[Fragment] = []
    for _ in range(1_000):
        chosen = next_round(fragments, limits, excluded)
        if chosen is None:
            break
        ids = {f.fragment_id for f in chosen.fragments}
        assert not ids & excluded
        assert len(ids) == len(chosen.fragments)
        assert 1 <= len(chosen.groups) <= limits.groups_max
        for group in chosen.groups:
            alone = len(group) == 1
            assert len(group) <= max(limits.fragments_max, 1)
            assert sum(f.nbytes for f in group) <= limits.round_bytes or (alone and limits.oversize)
            live = [live_bytes(f) for f in group]
            if chosen.reason is Reason.SMALL:
                assert len(group) >= 2
                assert max(live) * limits.growth <= sum(live)
                assert sum(f.live_rows for f in group) <= limits.target_rows
            else:
                assert all(f.deleted_rows / f.physical_rows >= limits.deleted_share for f in group)
            written.append(fragment(100 + len(written), sum(f.live_rows for f in group), 0, max(sum(live), 1)))
            fragments = [*(f for f in fragments if f not in group), written[-1]]
    else:
        pytest.fail("rounds without end")
    assert sum(f.live_rows for f in fragments) == kept_rows


def test_how_often_a_byte_is_written_anew() -> None:
    """A thousand adopted fragments of 1 MB, a round whenever one is due: about log2(256), not a thousand times."""
    fragments: list[Fragment] = []
    written = 0
    for number in range(1_000):
        fragments.append(fragment(number, 100, 0, MB))
        while chosen := next_round(fragments, replace(CompactionLimits(), target_rows=1_000_000), ()):
            ids = {f.fragment_id for f in chosen.fragments}
            written += chosen.nbytes
            fragments = [f for f in fragments if f.fragment_id not in ids]
            fragments.append(fragment(10_000 + number, chosen.live_rows, 0, chosen.nbytes))
    assert written <= 6 * 1_000 * MB
    assert len(fragments) < 30
