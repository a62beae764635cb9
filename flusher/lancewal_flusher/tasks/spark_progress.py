"""Show the progress of the Spark job of a merge or a compaction.  The job gets a name for Spark's web pages, and its
finished slices are counted for the log.

A thread asks classic Spark now and then; Spark Connect calls back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lancewal_flusher.tasks.progress import TaskProgress
from lancewal_flusher.tasks.spark_session import is_remote, spark_errors
from lancewal_flusher.tasks.spark_slice import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ASK_S = 1.0


@contextmanager
def followed(session: SparkSession, progress: TaskProgress, job: Job, description: str) -> Iterator[None]:
    """Name the Spark job that this thread starts inside the ``with`` block, and report its finished slices to
    ``progress``.
    """
    tag = f"lancewal-{job.work}-{job.parcel.name}"
    with _called_back(session, progress, tag) if is_remote(session) else _asked(session, progress, tag, description):
        yield


@contextmanager
def _called_back(session: Any, progress: TaskProgress, tag: str) -> Iterator[None]:
    def tell(stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        known = list(stages or ())
        progress.share_done(sum(s.num_completed_tasks for s in known), sum(s.num_tasks for s in known))

    session.addTag(tag)
    session.registerProgressHandler(tell)
    try:
        yield
    finally:
        session.removeProgressHandler(tell)
        session.removeTag(tag)


@contextmanager
def _asked(session: Any, progress: TaskProgress, tag: str, description: str) -> Iterator[None]:
    context = session.sparkContext
    context.setJobGroup(tag, description)
    over = threading.Event()
    thread = threading.Thread(target=_ask, args=(context.statusTracker(), progress, tag, over.wait), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        for name in ("spark.jobGroup.id", "spark.job.description"):
            context.setLocalProperty(name, None)


def _ask(tracker: Any, progress: TaskProgress, tag: str, over: Callable[[float], bool]) -> None:
    while not over(_ASK_S):
        try:
            jobs = [job for i in tracker.getJobIdsForGroup(tag) if (job := tracker.getJobInfo(i)) is not None]
            stages = [stage for job in jobs for i in job.stageIds if (stage := tracker.getStageInfo(i)) is not None]
        except spark_errors():
            return  # the job's own thread meets it too, and says so
        progress.share_done(sum(s.numCompletedTasks for s in stages), sum(s.numTasks for s in stages))
