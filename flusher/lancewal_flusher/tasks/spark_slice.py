"""The work of Spark's executors in a merge or a compaction.  A *slice* is the part of a job's tasks that one Spark
task runs, one after the other.

Guarantees
 1. Every task gives one row: the task's index, and either its result or the ``LancewalError`` that the driver must
    raise.  Such an error ends the slice.  Spark retries a slice after any other failure, such as a lost process or a
    bug.
 2. Running a slice twice, at the same time or later, is harmless: a task reads one version of the table, which never
    changes, and writes files of new names, which only the driver's commit makes effective.

A Python process keeps the open table and one parcel between tasks.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias, assert_never

import pyarrow as pa

from lancewal_core.errors import LancewalError
from lancewal_core.open import Address
from lancewal_core.process.failpoints import point
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.settings.executor import start_worker, storage_options
from lancewal_core.table.lance.base_paths import BasePaths
from lancewal_core.table.protocol import StoredTable
from lancewal_flusher.tasks.merge_task import FragmentResult, FragmentTask, run_task
from lancewal_flusher.tasks.parcel import OpenParcel, Parcel
from lancewal_flusher.tasks.progress import Work
from lancewal_flusher.tasks.rewrite_task import RewriteTask, Rewritten, run_rewrite

ROWS = "place int, outcome binary"
"""Columns of the rows that a slice returns, as a schema text of Spark."""
_SCHEMA = pa.schema([("place", pa.int32()), ("outcome", pa.binary())])
_IO_THREADS = 4

Task: TypeAlias = FragmentTask | RewriteTask
Result: TypeAlias = FragmentResult | Rewritten
Outcome: TypeAlias = Result | LancewalError


@dataclass(frozen=True, slots=True)
class Job:
    """Tasks of one table for Spark executors, divided into ``slices`` slices.  The job has no credentials, and shows
    no rows in a Spark plan.
    """

    work: Work
    uri: str
    parcel: Parcel
    slices: int
    base_paths: BasePaths = "refuse"

    def places(self, slice_: int) -> range:
        """Return the indexes of the tasks of a slice."""
        return range(slice_, len(self.parcel), self.slices)


def run_slices(job: Job, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the slices whose numbers are in the first column.  Yield the outcome of each task as a row of ``ROWS``.  A
    slice ends at its first failed task.
    """
    start_worker()
    for batch in batches:
        for slice_ in batch.column(0).to_pylist():
            for place in job.places(slice_):
                outcome = _run(job, place)
                values = [pa.array([place], pa.int32()), pa.array([pickle.dumps(outcome, 5)], pa.binary())]
                yield pa.RecordBatch.from_arrays(values, schema=_SCHEMA)
                if isinstance(outcome, LancewalError):
                    break


def outcome_of(data: bytes) -> Outcome:
    """Return the result or error that a row of ``ROWS`` carries."""
    found: Outcome = pickle.loads(data)
    return found


def _run(job: Job, place: int) -> Outcome:
    try:
        with point("spark.task", kind=job.work.value, task=place):
            opened = _open(job)
            return _result(opened.table, opened.parcel.load(place))
    except LancewalError as error:
        return type(error)(f"on a Spark executor: {error}", **error.where)


def _result(table: StoredTable, task: Task) -> Result:
    match task:
        case FragmentTask():
            return run_task(table, task)
        case RewriteTask():
            return run_rewrite(table, task)
        case _:
            assert_never(task)


class _Opened:
    """An open table in an executor's process, with the parcel whose tasks the process runs."""

    def __init__(self, job: Job) -> None:
        address = Address(job.uri, storage_options(os.environ), job.base_paths)
        self.table = address.table()
        self._store = address.store()
        self._pool = ThreadTasks(io_threads=_IO_THREADS)
        self.take(job)

    def take(self, job: Job) -> None:
        self.name = job.parcel.name
        self.parcel = OpenParcel(self._store, self._pool, job.parcel)

    def close(self) -> None:
        self._pool.close()


_opened: dict[str, _Opened] = {}
"""The table that this process has open, by its address; at most one."""


def _open(job: Job) -> _Opened:
    found = _opened.get(job.uri)
    if found is None:
        while _opened:
            _opened.popitem()[1].close()
        found = _opened[job.uri] = _Opened(job)
    elif found.name != job.parcel.name:
        found.take(job)
    return found
