"""Which threads run which tasks of a merge."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lancewal_core.keys.index import RowsOfKeys
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.rows.key_set import KeySet
from lancewal_flusher.open import waiting_tasks
from lancewal_flusher.tasks import runner
from lancewal_flusher.tasks.merge_task import Candidates, FragmentTask, KeyScan
from lancewal_flusher.tasks.runner import ThreadRunner

KNOWN = Candidates(RowsOfKeys(np.zeros(1, np.int64), np.zeros(1, np.int64)), 1, doubtful=False)
SOUGHT = KeyScan(KeySet(pa.table({"id": [1]})))
DEADLINE_S = 60.0


def task(fragment_id: int, source: KeyScan | Candidates, in_place: Any = None) -> FragmentTask:
    return FragmentTask(1, fragment_id, 1, source, 0, ("id",), in_place)  # type: ignore[arg-type]


def test_only_tasks_that_compute_are_bounded_by_the_threads_that_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(3)
    caller = threading.current_thread()  # the one thread of those that compute

    def run(_: object, task: FragmentTask) -> int:
        if task.fragment_id < 10:
            together.wait(DEADLINE_S)
        else:
            assert threading.current_thread() is caller
        return task.fragment_id

    monkeypatch.setattr(runner, "run_on", run)
    table: Any = SimpleNamespace(opened=lambda _: None)
    tasks = [
        task(0, KNOWN),
        task(10, SOUGHT),
        task(1, KNOWN),
        task(11, KNOWN, in_place=object()),
        task(2, KNOWN),
        task(12, SOUGHT),
    ]
    computing, waiting = ThreadTasks(io_threads=1, caller_helps=True), ThreadTasks(io_threads=3)
    try:
        results: Any = ThreadRunner(table, computing, waiting=waiting).run(tasks)
    finally:
        computing.close()
        waiting.close()
    assert results == [0, 10, 1, 11, 2, 12]


def test_at_a_local_folder_nothing_waits(tmp_path: Path) -> None:
    tasks, computing = ThreadTasks(), ThreadTasks()
    try:
        assert waiting_tasks("s3://bucket/trips", tasks, computing) is tasks
        assert waiting_tasks(str(tmp_path), tasks, computing) is computing
    finally:
        tasks.close()
        computing.close()
