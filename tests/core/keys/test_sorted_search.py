"""Searching sorted numbers, beside numpy's search."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.keys.sorted_search import STEP, every_step, first_places

LIMITS = np.iinfo(np.int64)
NUMBERS = st.one_of(
    st.integers(-5, 5), st.integers(-300, 300), st.sampled_from([LIMITS.min, LIMITS.max]), st.integers(-(2**40), 2**40)
)


def check(ascending: list[int], sought: list[int]) -> None:
    held, asked = np.sort(np.array(ascending, np.int64)), np.array(sought, np.int64)
    assert first_places(asked, held, every_step(held)).tolist() == np.searchsorted(held, asked).tolist()


@given(st.lists(NUMBERS, max_size=4 * STEP), st.lists(NUMBERS, max_size=50))
def test_places_are_numpys(ascending: list[int], sought: list[int]) -> None:
    check(ascending, sought)
    check(ascending, [n + d for n in ascending for d in (-1, 0, 1) if LIMITS.min <= n + d <= LIMITS.max])


@pytest.mark.parametrize("length", [1, STEP - 1, STEP, STEP + 1, 2 * STEP - 1, 2 * STEP, 2 * STEP + 1, 7 * STEP + 3])
@pytest.mark.parametrize("each", [1, 3, STEP, 1_000])
def test_every_length_around_a_step(length: int, each: int) -> None:
    """``each`` equal numbers one after the other."""
    ascending = [2 * (i // each) for i in range(length)]
    check(ascending, list(range(-1, ascending[-1] + 3)))
