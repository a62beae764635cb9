"""The benchmark of cuts measures what its page says: the ages of rows, and catalogs of many entries."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.cuts import SMALL, _entries
from benchmarks.fresh_reads import Fresh, p99
from benchmarks.report import ROWS
from tests.support.small_s3.child import SmallS3Process


def test_ages_are_those_of_rows_of_the_time() -> None:
    one = Fresh(np.array([1.0, 2.0, 3.0]), np.array([10.0, 20.0, -1.0]), {})
    other = Fresh(np.array([1.5, 9.0]), np.array([30.0, 40.0]), {})
    assert p99([one, other], 1.0, 2.0) == pytest.approx(np.percentile([10.0, 30.0], 99))
    assert one.p99(2.0, 2.5) == 20.0
    assert one.p99(2.0, 4.0) == math.inf  # a row that was never seen
    assert one.p99(4.0, 5.0) == math.inf
    assert (one.unseen, other.unseen) == (1, 0)


def test_nothing_new_costs_one_question(tmp_path: Path) -> None:
    with SmallS3Process(0.0, tmp_path / "s3.log") as store:
        figures = _entries(store, SMALL.entries)
    assert (figures["folder_requests"], figures["postgres_queries"]) == (1, 1)
    assert figures.keys() < {key for _, key, _, _ in ROWS["cuts"]}
