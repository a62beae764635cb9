"""The benchmark of change feeds measures what it says, on a small table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from benchmarks import changes, changes_on_spark
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


def test_a_large_table_is_compared_with_a_small_one() -> None:
    figures = changes.run_large(30_000, 20_000)
    assert min(figures.values()) > 0
    assert figures.keys() == {key for _, key, _, _ in PAGE["changes-large"]}


def test_ready_rows_are_two_of_each_record_of_their_time() -> None:
    rows = changes_on_spark.ready_rows(50, 53).to_pylist()
    assert [row["a"] for row in rows] == [50, 50, 51, 51, 52, 52]
    assert [row["ts"] for row in rows] == [5_000, 5_000, 5_100, 5_100, 5_200, 5_200]
    assert [row["_change_type"] for row in rows[:2]] == ["update_preimage", "update_postimage"]


def test_ages_on_spark_are_of_rows_from_a_time_on() -> None:
    class Batch:
        def __init__(self, *rows: tuple[int, int, str]) -> None:
            self._rows = pa.table([*zip(*rows, strict=True)], names=["a", "ts", "_change_type"])

        def toArrow(self) -> pa.Table:  # noqa: N802 # as PySpark has it
            return self._rows

    ages = changes_on_spark.Ages(1_000, lambda number, _: number == 7)
    ages.see(Batch((1, 999, "insert"), (5, 1_000, "update_preimage"), (4, 1_000, "update_postimage")), 0)
    assert not ages.done.is_set()
    ages.see(Batch((7, 2_000, "insert"), (6, 2_000, "insert")), 1)
    assert ages.done.is_set()
    figures = ages.figures("some")
    assert (figures["some_unseen"], figures["some_batches"]) == (1, 2)
    assert figures["some_p50_ms"] > 0


def test_a_row_counts_for_the_way_that_shows_it_first() -> None:
    ages = Ages(3)
    for numbers, followed in (([0], False), ([0, 2], True)):
        produced = [PRODUCED_AFTER_US + 1] * len(numbers)
        ages.see(pa.table({"ts": produced, "a": numbers}), followed)
    assert ages.seen.tolist() == [True, False, True]
    assert ages.followed.tolist() == [False, False, True]
    assert (ages.us[ages.seen] > 0).all()
