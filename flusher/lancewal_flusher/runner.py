"""Where fragment tasks run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lancewal_core.table import Table
from lancewal_core.tasks import Tasks
from lancewal_flusher.fragment_task import FragmentResult, FragmentTask, run_on


class Runner(Protocol):
    def run(self, tasks: Sequence[FragmentTask]) -> list[FragmentResult]:
        """Results in the order of the tasks; the first error is raised."""


class ThreadRunner:
    """Threads of this process."""

    def __init__(self, table: Table, tasks: Tasks) -> None:
        self._table = table
        self._tasks = tasks

    def run(self, tasks: Sequence[FragmentTask]) -> list[FragmentResult]:
        opened = {version: self._table.at(version) for version in {task.version for task in tasks}}
        return self._tasks.map(lambda task: run_on(opened[task.version], task), tasks)
