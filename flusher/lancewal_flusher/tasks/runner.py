"""Runners of tasks.  A task of a merge works on one fragment, a task of a compaction on one group of fragments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from lancewal_core.process.clock import Clock, SystemClock
from lancewal_core.process.progress import Step
from lancewal_core.process.tasks import Tasks
from lancewal_core.table.protocol import StoredTable
from lancewal_flusher.event_table import FlusherEvents
from lancewal_flusher.tasks.merge_task import FragmentResult, FragmentTask, run_on, waits
from lancewal_flusher.tasks.progress import TaskProgress, Work, step_of
from lancewal_flusher.tasks.rewrite_task import RewriteTask, Rewritten, run_rewrite

Task = TypeVar("Task")
Result = TypeVar("Result")


class Runner(Protocol):
    """Runner of tasks.  It returns the results in the order of the tasks, or raises the first error."""

    def run(self, tasks: Sequence[FragmentTask]) -> list[FragmentResult]:
        """Run tasks of a merge."""

    def rewrite(self, tasks: Sequence[RewriteTask]) -> list[Rewritten]:
        """Run tasks of a compaction."""


class ThreadRunner:
    """Runner on threads of this process.

    ``computing``: pool for tasks that scan a fragment or write its columns.  Its number of threads limits memory.
    ``waiting``: pool for the other tasks, which mostly wait for the store and need little memory.  None:
    ``computing`` runs them too.
    """

    def __init__(
        self,
        table: StoredTable,
        computing: Tasks,
        clock: Clock | None = None,
        events: FlusherEvents | None = None,
        waiting: Tasks | None = None,
    ) -> None:
        self._table = table
        self._computing = computing
        self._waiting = waiting or computing
        self._clock = clock or SystemClock()
        self._events = events or FlusherEvents()

    def run(self, tasks: Sequence[FragmentTask]) -> list[FragmentResult]:
        opened = {version: self._table.opened(version) for version in {task.version for task in tasks}}

        def act(task: FragmentTask) -> FragmentResult:
            return run_on(opened[task.version], task)

        waiting = [at for at, task in enumerate(tasks) if waits(task)]
        computing = [at for at, task in enumerate(tasks) if not waits(task)]
        results: dict[int, FragmentResult] = {}
        with step_of(Work.MERGE, len(tasks)) as step:
            shown = self._shown(Work.MERGE, act, len(tasks), step)
            for places, by in ((waiting, self._waiting), (computing, self._computing)):
                results.update(zip(places, by.map(shown, [tasks[at] for at in places]), strict=True))
        return [results[at] for at in range(len(tasks))]

    def rewrite(self, tasks: Sequence[RewriteTask]) -> list[Rewritten]:
        with step_of(Work.COMPACTION, len(tasks)) as step:
            return self._computing.map(
                self._shown(Work.COMPACTION, lambda task: run_rewrite(self._table, task), len(tasks), step), tasks
            )

    def _shown(self, work: Work, act: Callable[[Task], Result], count: int, step: Step) -> Callable[[Task], Result]:
        """Return a function that calls ``act`` and counts its finished tasks as progress."""
        progress = TaskProgress(self._clock, self._events, work, "threads", count, step)

        def call(task: Task) -> Result:
            result = act(task)
            progress.one_done()
            return result

        return call
