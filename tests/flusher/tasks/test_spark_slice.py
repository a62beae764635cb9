"""How many tasks of Spark's a job has: each of them costs more than a small fragment's work."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lancewal_core.keys.index import RowsOfKeys
from lancewal_core.names.ids import TableVersion
from lancewal_core.rows.key_set import KeySet
from lancewal_core.table.protocol import RewriteBounds
from lancewal_flusher.tasks.merge_task import Candidates, FragmentTask, KeyScan
from lancewal_flusher.tasks.rewrite_task import RewriteTask
from lancewal_flusher.tasks.spark_runner import SLICE_ROWS, SLICES_MAX, slices_of
from lancewal_flusher.tasks.spark_slice import Task

SCAN = KeyScan(KeySet(pa.table({"id": [1, 2]})))
KNOWN = Candidates(RowsOfKeys(np.arange(2), np.arange(2)), live_rows=10, doubtful=False)


def merge_task(rows: int, source: KeyScan | Candidates, partial_keys: int = 0) -> FragmentTask:
    return FragmentTask(TableVersion(1), 0, rows, source, partial_keys, ("id",))


REWRITE = RewriteTask(TableVersion(1), (0, 1), RewriteBounds(10, 10, 10, 10, copy=False))


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        ([merge_task(10, SCAN)], 1),
        ([merge_task(250_000, SCAN)] * 20, 5),
        ([merge_task(1_000_000, SCAN)] * 20, 20),
        ([merge_task(1_000_000, KNOWN)] * 20, 2),  # however large the fragment is
        ([merge_task(1_000_000, KNOWN, partial_keys=5)] * 20, 20),  # rows are read, or columns written anew
        ([merge_task(50_000_000, SCAN), *[merge_task(10, SCAN)] * 9], 1),  # the others go with the large one
        ([merge_task(1_000_000, SCAN)] * 1_000, SLICES_MAX),
        ([REWRITE] * 8, 8),
        ([REWRITE], 1),
    ],
)
def test_slices(tasks: list[Task], expected: int) -> None:
    assert slices_of(tasks, SLICE_ROWS, SLICES_MAX) == expected


def test_small_slices_are_never_more_than_tasks() -> None:
    assert slices_of([merge_task(10, SCAN)] * 3, 1, SLICES_MAX) == 3
