"""The work of Spark's executors for changes: one task's rows of a planned feed.

A process keeps the table open for later tasks, with what it has read of flushes and WAL.  The feed names its states, so a
table that is kept gives the same rows as one that is opened anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from lancewal_core.open import open_at
from lancewal_core.process import failpoints
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.settings.executor import start_worker
from lancewal_core.table.contract import Contract
from lancewal_reader.changes.feed import AddedValues, Feeds, PlannedFeed, with_all
from lancewal_reader.spark.options import IO_THREADS, SparkOptions
from lancewal_reader.spark.task import BaseTask, DeltaTask, PinnedPlan, run_task
from lancewal_reader.table import reads_of

CACHE_BYTES_MAX = 128 << 20
"""Largest number of bytes of flushes and WAL segments that a worker process caches.  An executor has as many of these
processes as cores.
"""


@dataclass(frozen=True, slots=True)
class ChangesTask:
    """Task that reads a feed."""

    feed: PlannedFeed
    contracts: tuple[Contract, ...]
    """Contract versions that rows name, besides the newest."""


@dataclass(frozen=True, slots=True)
class InsertsTask:
    """Task that reads rows of a state as inserts."""

    group: tuple[BaseTask | DeltaTask, ...]
    added: AddedValues
    plan: PinnedPlan | None = None
    """Plan of this task.  None: it uses the plan that all tasks of the reader share."""


FeedTask = ChangesTask | InsertsTask


_opened: tuple[object, ThreadTasks, Feeds] | None = None


def feeds_of(options: SparkOptions, tasks: ThreadTasks, cache_bytes_max: int = CACHE_BYTES_MAX) -> Feeds:
    """Open the table that the options name, for reads of changes."""
    opened = open_at(options.address, tasks, SystemClock())
    return Feeds(reads_of(opened, options.table, cache_bytes_max, options.on_conflict, options.unmerged_keys_max))


def run_feed_task(
    options: SparkOptions, task: FeedTask, shown: PlannedFeed, shared: PinnedPlan | None = None
) -> Iterator[pa.RecordBatch]:
    """Return the task's rows, with all columns of the feed ``shown``.  ``shared``: the plan for tasks of inserts that
    have no plan of their own.
    """
    match task:
        case InsertsTask(group=group, added=added, plan=own):
            plan = own or shared
            assert plan is not None
            columns = list(shown.end.chosen.columns)
            for part in group:
                for batch in run_task(plan, part, columns, plan.options.filter):
                    yield from with_all(added.to(pa.Table.from_batches([batch])), shown.schema).to_batches()
        case ChangesTask(feed=feed, contracts=contracts):
            start_worker()
            start, end = 0 if feed.start is None else feed.start.receipt.version, feed.end.receipt.version
            with failpoints.point("spark.task", kind="changes", versions=[start, end]):
                feeds = _kept(options)
                for contract in contracts:
                    feeds.reads.context.contracts.know(contract)
                yield from feeds.again(feed)[1]


def _kept(options: SparkOptions) -> Feeds:
    global _opened
    wanted = options.table, options.base_paths, options.on_conflict, options.unmerged_keys_max
    if _opened is None or _opened[0] != wanted:
        if _opened is not None:
            _opened[1].close()
        tasks = ThreadTasks(io_threads=IO_THREADS)
        _opened = wanted, tasks, feeds_of(options, tasks)
    return _opened[2]
