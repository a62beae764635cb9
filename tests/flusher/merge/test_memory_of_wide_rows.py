"""A backlog of wide rows is merged in steps that fit into memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lancewal_flusher.merge.plan import MergeLimits
from tests.support.flusher_tables import FlusherTable, upsert

WIDE = 40_000


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    made = FlusherTable(tmp_path, partitions=2)
    yield made
    made.close()


def _text(seed: int) -> str:
    """Text that does not compress."""
    return "".join(f"{(seed * 7919 + i * 104729) % 4294967291:08x}" for i in range(WIDE // 8))


def test_bytes_bound_what_is_combined(table: FlusherTable) -> None:
    for generation in range(6):
        for partition in range(2):
            table.generation(partition, [upsert(generation, s=_text(generation))])
    # Two generations of each region fit.
    report = table.round(MergeLimits(adopt_rows=1_000, combine_bytes=5 * WIDE))
    taken = [sorted(len(g) for g in merge.generations.values()) for merge in report.merges]
    assert taken == [[2, 2]] * 3
    table.check()


def test_what_fits_nowhere_is_adopted(table: FlusherTable) -> None:
    for generation in range(3):
        table.generation(0, [upsert(generation, s=_text(generation))])
    report = table.round(MergeLimits(adopt_rows=1_000, combine_bytes=10))
    assert [merge.rows_adopted for merge in report.merges] == [1, 1, 1]
    table.check()
