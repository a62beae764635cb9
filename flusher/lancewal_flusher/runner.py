"""Where fragment tasks run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lancewal_core.clock import Clock
from lancewal_core.table import Table
from lancewal_core.tasks import Tasks
from lancewal_flusher.fragment_task import FragmentResult, FragmentTask, run_on
from lancewal_flusher.progress import Progress


class Runner(Protocol):
    def run(self, tasks: Sequence[FragmentTask]) -> list[FragmentResult]:
        """Results in the order of the tasks; the first error is raised."""


class ThreadRunner:
    """Threads of this process.  With a clock it shows how far it is."""

    def __init__(self, table: Table, tasks: Tasks, clock: Clock | None = None) -> None:
        self._table = table
        self._tasks = tasks
        self._clock = clock

    def run(self, tasks: Sequence[FragmentTask]) -> list[FragmentResult]:
        opened = {version: self._table.at(version) for version in {task.version for task in tasks}}
        progress = None if self._clock is None else Progress(self._clock, "threads", len(tasks))

        def call(task: FragmentTask) -> FragmentResult:
            result = run_on(opened[task.version], task)
            if progress is not None:
                progress.one_done()
            return result

        return self._tasks.map(call, tasks)
