"""Progress of a merge or a compaction, for people: a log line now and then, and a step that a terminal shows."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from enum import StrEnum

from lancewal_core.process.clock import Clock
from lancewal_core.process.progress import Step, step
from lancewal_flusher.event_table import FlusherEvents

PROGRESS_S = 5.0
"""Seconds between two log lines.  Shorter work is logged only at its end (``merge_landed``, ``compaction_landed``)."""


class Work(StrEnum):
    """Kinds of work that are divided into tasks."""

    MERGE = "merge"
    COMPACTION = "compaction"


def step_of(work: Work, tasks: int) -> AbstractContextManager[Step]:
    """Return the progress step that a terminal shows for this number of tasks."""
    what = "merging into fragments" if work is Work.MERGE else "rewriting fragments"
    return step(what, tasks, "tasks")


class TaskProgress:
    """Counter of the finished tasks of a merge or compaction.  Threads may share it.  ``shown``: the progress step to
    update.
    """

    def __init__(self, clock: Clock, events: FlusherEvents, work: Work, runner: str, total: int, shown: Step) -> None:
        self._clock = clock
        self._events = events
        self._work = work
        self._runner = runner
        self._total = total
        self._step = shown
        self._done = 0
        self._began = self._logged = clock.monotonic()
        self._lock = threading.Lock()

    def one_done(self) -> None:
        with self._lock:
            self._show(self._done + 1)

    def share_done(self, done: int, total: int) -> None:
        """Record that ``done`` of ``total`` equal parts of the work are finished."""
        with self._lock:
            self._show(max(self._done, self._total * done // max(total, 1)))

    def _show(self, done: int) -> None:
        self._done = done
        self._step.done = done
        now = self._clock.monotonic()
        if now - self._logged >= PROGRESS_S:
            self._logged = now
            self._events.tasks_progressed(
                operation=self._work,
                runner=self._runner,
                tasks=self._total,
                done_tasks=done,
                duration_s=round(now - self._began, 1),
            )
