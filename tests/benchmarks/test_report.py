"""The page of figures names only what the benchmarks measure, and every kept result has each of its rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import BENCHMARKS
from benchmarks.report import ROWS

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
_KEPT = [name for name in ROWS if (RESULTS / f"{name}.json").exists()]
_ONLY_WITH_SOME_PLANS = {"indexed_from_flushed_times_faster_than_by_index"}


@pytest.mark.parametrize("name", _KEPT)
def test_kept_results_have_a_figure_for_each_row_of_the_page(name: str) -> None:
    figures = json.loads((RESULTS / f"{name}.json").read_text())["figures"]
    wanted = {key for _, key, _, _ in ROWS[name]} - _ONLY_WITH_SOME_PLANS
    assert wanted <= set(figures)


def test_each_benchmark_has_rows() -> None:
    assert ROWS.keys() == BENCHMARKS.keys()
