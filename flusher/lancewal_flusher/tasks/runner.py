"""Where tasks run: those of a merge on one fragment each, those of a compaction on one group of fragments each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from lancewal_core.process.clock import Clock
from lancewal_core.process.tasks import Tasks
from lancewal_core.table.protocol import Table
from lancewal_flusher.event_table import FlusherEvents
from lancewal_flusher.tasks.merge_task import FragmentResult, FragmentTask, run_on
from lancewal_flusher.tasks.progress import Progress, Work
from lancewal_flusher.tasks.rewrite_task import RewriteTask, Rewritten, run_rewrite

Task = TypeVar("Task")
Result = TypeVar("Result")


class Runner(Protocol):
    """Results in the order of the tasks; the first error is raised."""

    def run(self, tasks: Sequence[FragmentTask]) -> list[FragmentResult]:
        """Tasks of a merge."""

    def rewrite(self, tasks: Sequence[RewriteTask]) -> list[Rewritten]:
        """Tasks of a compaction."""


class ThreadRunner:
    """Threads of this process.  With a clock it shows how far it is."""

    def __init__(
        self, table: Table, tasks: Tasks, clock: Clock | None = None, events: FlusherEvents | None = None
    ) -> None:
        self._table = table
        self._tasks = tasks
        self._clock = clock
        self._events = events or FlusherEvents()

    def run(self, tasks: Sequence[FragmentTask]) -> list[FragmentResult]:
        opened = {version: self._table.opened(version) for version in {task.version for task in tasks}}
        return self._run(Work.MERGE, lambda task: run_on(opened[task.version], task), tasks)

    def rewrite(self, tasks: Sequence[RewriteTask]) -> list[Rewritten]:
        return self._run(Work.COMPACTION, lambda task: run_rewrite(self._table, task), tasks)

    def _run(self, work: Work, act: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        progress = None if self._clock is None else Progress(self._clock, self._events, work, "threads", len(tasks))

        def call(task: Task) -> Result:
            result = act(task)
            if progress is not None:
                progress.one_done()
            return result

        return self._tasks.map(call, tasks)
