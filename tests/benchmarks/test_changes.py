"""The benchmark of change feeds measures what it says, on a small table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from benchmarks import changes
from benchmarks.changes_reader import Ages
from benchmarks.freshness_reader import PRODUCED_AFTER_US
from benchmarks.keyed_rows import Base
from benchmarks.report import ROWS as PAGE


def test_feeds_have_what_was_upserted(tmp_path: Path) -> None:
    base = Base(tmp_path / "base", 20_000)
    figures = changes._merge(base, tmp_path) | changes._unmerged(base, tmp_path)
    assert figures["old_rows"] == 1_800
    assert min(figures.values()) > 0
    assert figures.keys() < {key for _, key, _, _ in PAGE["changes"]}


def test_a_row_counts_for_the_way_that_shows_it_first() -> None:
    ages = Ages(3)
    for numbers, followed in (([0], False), ([0, 2], True)):
        produced = [PRODUCED_AFTER_US + 1] * len(numbers)
        ages.see(pa.table({"ts": produced, "a": numbers}), followed)
    assert ages.seen.tolist() == [True, False, True]
    assert ages.followed.tolist() == [False, False, True]
    assert (ages.us[ages.seen] > 0).all()
