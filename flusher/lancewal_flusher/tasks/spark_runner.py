"""The runner on Spark: executors run the tasks of a merge or a compaction.  Only DataFrames are used, so classic Spark
and Spark Connect both do.

Guarantees
 1. ``SparkRunner`` runs the same tasks as ``ThreadRunner``, and returns the same results in the same order.  The
    first error in that order is raised, with a text that names a Spark executor.
 2. A lost executor, retries and speculative execution are harmless (``spark_slice``).  If Spark gives up a job,
    ``SparkJobFailed`` is raised.  The merge or the round of compaction is then planned again.  No version names the
    files that the job's tasks have written.
 3. No plan, job description or log line contains a credential or a row.

Steps of ``run`` and ``rewrite``
 1. Pack the tasks.
 2. One Spark job of one stage: a row for each slice, which an executor turns into a row for each of the slice's tasks.
 3. Discard the parcel, even if the job failed.  If that is impossible, garbage collection deletes the parcel.
"""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lancewal_core.errors import LancewalError, SparkJobFailed, SparkStopped, StoreUnavailable, or_raised
from lancewal_core.process.clock import Clock
from lancewal_core.process.library_errors import first_line, without_secrets
from lancewal_core.process.tasks import Tasks
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.lance.base_paths import BasePaths
from lancewal_flusher.event_table import FlusherEvents
from lancewal_flusher.tasks.merge_task import Candidates, FragmentResult, FragmentTask
from lancewal_flusher.tasks.parcel import Parcel, discard, send
from lancewal_flusher.tasks.progress import TaskProgress, Work, step_of
from lancewal_flusher.tasks.rewrite_task import RewriteTask, Rewritten
from lancewal_flusher.tasks.spark_progress import followed
from lancewal_flusher.tasks.spark_session import is_remote, is_stopped, spark_errors
from lancewal_flusher.tasks.spark_slice import ROWS, Job, Outcome, Task, outcome_of, run_slices

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLICES_MAX = 200
"""Upper bound of the Spark tasks of a job: as many as Spark itself divides a shuffle into.  If a table needs more,
each Spark task runs several tasks."""
SLICE_ROWS = 1_000_000
"""Number of rows, about, that one Spark task scans: 0.1 s of work.  Starting a Spark task alone takes 0.02 to 0.1 s
(Spark 4.3)."""
_HIDDEN_AS_ROWS = 100_000
"""Cost of a task that hides known rows, as a number of scanned rows.  In an object store such a task needs one or two
requests."""
_PYTHON_ERROR = re.compile(r"(?!org\.|java\.)[\w.]*(Error|Exception|Exit|Interrupt)(: |$)")
_REASON_MAX = 400


@dataclass(slots=True)
class SparkRunner:
    """Runner on Spark.  ``session`` returns the session to use, and is called for each job."""

    session: Callable[[], SparkSession]
    uri: str
    store: ObjectStore
    pool: Tasks
    clock: Clock
    base_paths: BasePaths = "refuse"
    slices_max: int = SLICES_MAX
    slice_rows: int = SLICE_ROWS
    events: FlusherEvents = field(default_factory=FlusherEvents)

    def run(self, tasks: Sequence[FragmentTask]) -> list[FragmentResult]:
        return self._run(Work.MERGE, f"lancewal: merge into {self.uri}", tasks)

    def rewrite(self, tasks: Sequence[RewriteTask]) -> list[Rewritten]:
        return self._run(Work.COMPACTION, f"lancewal: compaction of {self.uri}", tasks)

    def _run(self, work: Work, description: str, tasks: Sequence[Task]) -> list[Any]:
        if not tasks:
            return []
        # Step 1
        parcel = send(self.store, self.pool, tasks, uuid.uuid4().hex)
        try:
            # Step 2
            slices = slices_of(tasks, self.slice_rows, self.slices_max)
            outcomes = self._outcomes(Job(work, self.uri, parcel, slices, self.base_paths), description)
        finally:
            # Step 3
            self._discard(parcel)
        results = [or_raised(outcome) for _, outcome in sorted(outcomes.items())]
        if len(results) != len(tasks):
            raise SparkJobFailed(f"Spark gave {len(results)} results for {len(tasks)} tasks of a {work}")
        return results

    def _outcomes(self, job: Job, description: str) -> dict[int, Outcome]:
        """Run the job, and return the result or error of each task, by the task's index.  Tasks after an error in
        their slice are left out."""

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return run_slices(job, batches)

        session = self.session()
        try:
            with step_of(job.work, len(job.parcel)) as shown:
                progress = TaskProgress(self.clock, self.events, job.work, "spark", len(job.parcel), shown)
                with followed(session, progress, job, description):
                    numbers = session.range(0, job.slices, 1, job.slices)
                    rows = numbers.mapInArrow(run, ROWS).collect()
        except spark_errors() as error:
            raise _failed(session, job.work, error) from error
        return {row.place: outcome_of(row.outcome) for row in rows}

    def _discard(self, parcel: Parcel) -> None:
        try:
            discard(self.store, parcel)
        except StoreUnavailable as error:
            self.events.parcel_abandoned(parcel=parcel.name, kind=error.kind, error=str(error))


def slices_of(tasks: Sequence[Task], slice_rows: int, slices_max: int) -> int:
    """Return the number of Spark tasks for ``tasks``.  A slice should do enough work to justify the overhead of a Spark
    task.
    """
    slices = sum(min(_as_rows(task) / slice_rows, 1.0) for task in tasks)
    return min(slices_max, max(round(slices), 1))


def _as_rows(task: Task) -> float:
    """Return the cost of a task, as the number of rows that are scanned in the same time."""
    match task:
        case FragmentTask(source=Candidates(), partial_keys=0, in_place=None):
            return _HIDDEN_AS_ROWS
        case FragmentTask(physical_rows=rows):
            return rows
        case _:
            return math.inf  # it writes fragments anew


def _failed(session: SparkSession, work: Work, error: Exception) -> LancewalError:
    """Return the error to raise for a failed job.  A Connect session is stopped first, so that the next job takes a
    new one."""
    reason = _reason(error)
    if is_remote(session):
        session.stop()  # the server may have forgotten it: the next job takes a new one
    elif is_stopped(session):
        return SparkStopped(
            f"the Spark context of this process has ended: {reason}. See the log of its Java process (memory?), and start "
            "the flusher again"
        )
    return SparkJobFailed(f"Spark gave up the tasks of a {work}: {reason}")


def _reason(error: Exception) -> str:
    """Return the last line of a Python error in a task, else Spark's first line."""
    raised = [line.strip() for line in str(error).splitlines() if _PYTHON_ERROR.match(line.strip())]
    return without_secrets(raised[-1])[:_REASON_MAX] if raised else first_line(error)
