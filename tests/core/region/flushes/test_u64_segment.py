"""U64Segment: Lance reads the positions that were written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.names.ids import Position
from lancewal_core.region.flushes.u64_segment import encode_u64_segment
from tests.support.lance_row_ids import read_by_lance, written_by_lance

MAX = 2**63 - 1
"""Highest offset of Kafka."""


@pytest.mark.parametrize(
    "positions",
    [
        *([], [0], [MAX], [5, 6, 7], [5, 7], [0, 65_535], [0, 65_536], [7, 2**32 + 6], [7, 2**32 + 7], [0, MAX]),
        list(range(10_000)),
        list(range(0, 200_000, 7)),
    ],
    ids=str,
)
def test_lance_reads_what_is_written(positions: list[int]) -> None:
    assert read_by_lance(encode_u64_segment([Position(one) for one in positions])) == positions


@given(st.sets(st.integers(0, MAX), max_size=20) | st.sets(st.integers(2**40, 2**40 + 300)))
def test_lance_reads_any_set(positions: set[int]) -> None:
    assert read_by_lance(encode_u64_segment([Position(one) for one in sorted(positions)])) == sorted(positions)


def test_a_range_is_written_as_lance_writes_it() -> None:
    written = encode_u64_segment(range(2**40, 2**41))
    assert len(written) < 20
    assert encode_u64_segment(range(5, 25)) == encode_u64_segment([Position(one) for one in range(5, 25)])
    assert encode_u64_segment(range(5, 25)) == written_by_lance(range(5, 25))
