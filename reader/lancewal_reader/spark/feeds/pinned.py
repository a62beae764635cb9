"""Changes in the Spark data source: ``spark.read.format("lancewal").option("changes", ...)``.

Guarantees
 1. One DataFrame is one feed.  Both ends become receipts on the driver when the DataFrame is made, and every action and every
    task reads the feed between them.  The receipt of the end is in the metadata of the first column.
 2. The rows are those of ``Table.changes``, with the same types and nullability.

A feed from ``earliest`` in the mode ``net`` is the state at its end: the tasks of a state read it, as inserts.  In the mode
``commits`` a task reads the steps between some versions.  Any other feed is one task.

Spark makes a source for a stream as it does for a batch.  A stream that begins at its checkpoint does not need the start any
more.  So an error of the start alone is raised when rows are asked for.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from lancewal_core.errors import InvalidInput, LancewalError
from lancewal_core.process.tasks import ThreadTasks
from lancewal_reader.changes.feed import Feeds, PlannedFeed
from lancewal_reader.point.read_options import ReadOptions
from lancewal_reader.point.receipt import METADATA_KEY
from lancewal_reader.reading.reads import Wanted
from lancewal_reader.spark.feed_options import FeedOptions
from lancewal_reader.spark.feeds.plan import bound_of, feed_errors, inserts_of
from lancewal_reader.spark.feeds.stream import ChangeStream
from lancewal_reader.spark.feeds.task import ChangesTask, FeedTask, InsertsTask, feeds_of, run_feed_task
from lancewal_reader.spark.options import IO_THREADS, SparkOptions, parse_options
from lancewal_reader.spark.source import PinnedRead, TaskPartition, pin_wanted, work_of
from lancewal_reader.spark.task import PinnedPlan
from lancewal_reader.spark.types import check_user_schema, spark_schema, target_schema, to_targets

_LIMITS = importlib.util.find_spec("pyspark.sql.streaming.datasource") is not None
"""Whether PySpark has admission control."""
TASKS_MAX = 200
"""Largest number of tasks of the mode ``commits``: with more steps, a task reads several of them."""


def pin(options: Mapping[str, str]) -> PinnedRead | PinnedFeed:
    """Plan the state or the changes that the options ask for, as of now.

    Raises the errors of ``pin_read`` and of ``Table.changes``.
    """
    parsed = parse_options(options)
    asked = parsed.feed
    if asked is None:
        return pin_wanted(parsed)
    return _pin_feed(parsed, asked, of_batch=asked.of_batch is not None or asked.changes == "commits")


def _pin_feed(options: SparkOptions, asked: FeedOptions, *, of_batch: bool) -> PinnedFeed:
    with feed_errors(asked), closing(ThreadTasks(io_threads=IO_THREADS)) as tasks:
        feeds = feeds_of(options, tasks, 0)
        wanted = Wanted(options.columns, options.filter, ReadOptions())
        end = bound_of(feeds, asked.end)
        try:
            feed = feeds.plan(wanted, bound_of(feeds, asked.start, start=True), end, asked.changes)
        except LancewalError:
            if of_batch:
                raise
            return PinnedFeed(options, feeds.plan(wanted, "now", "now", asked.changes), None)
        return PinnedFeed(options, feed, *_work_of(options, feeds, feed))


def _work_of(options: SparkOptions, feeds: Feeds, feed: PlannedFeed) -> tuple[tuple[FeedTask, ...], PinnedPlan | None]:
    """Return the tasks of a feed, and the plan that tasks of inserts share."""
    known = feeds.reads.context.contracts.known
    if feed.mode == "commits":
        return tuple(ChangesTask(part, known) for part in feeds.divided(feed, TASKS_MAX)), None
    if feed.start is not None:
        return (ChangesTask(feed, known),), None
    read = inserts_of(options, feeds, feed.end)
    added = feeds.added(feed.end)
    return tuple(InsertsTask(group, added) for group in read.groups()), read.pinned_plan


@dataclass(frozen=True, slots=True)
class PinnedFeed:
    """A planned feed and its tasks; a value that pickles."""

    options: SparkOptions
    feed: PlannedFeed
    tasks: tuple[FeedTask, ...] | None
    """Tasks of the feed.  None: the feed's start could not be planned, but a stream may not need it."""
    plan: PinnedPlan | None = None
    """Plan that all tasks of inserts share; None: there are no such tasks."""

    def schema(self) -> StructType:
        """Return the columns of the feed, with the receipt of its end in the metadata of the first one."""
        schema = spark_schema(self.feed.schema)
        schema.fields[0].metadata = {METADATA_KEY.decode(): self.feed.receipt.to_json()}
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for ``schema``: either the result of ``schema()``, or a schema that the user gave."""
        asked = self.options.feed
        assert asked is not None
        if asked.of_stream is not None:
            raise InvalidInput(f"option {asked.of_stream} is for streams only: use spark.readStream, or leave it out")
        pinned = self if self.tasks is not None else _pin_feed(self.options, asked, of_batch=True)
        return FeedReader(pinned, pinned._of_schema(schema), schema)

    def stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a stream of ``schema``."""
        asked = self.options.feed
        assert asked is not None
        if asked.of_batch is not None:
            raise InvalidInput(f"option {asked.of_batch} is for batches only, since a stream has no end: leave it out")
        if asked.changes == "commits":
            raise InvalidInput("changes=commits is for batches only: a stream takes changes=net or changes=all")
        feed = self._of_schema(schema)
        if not _LIMITS:
            return ChangeStream(self.options, feed, schema)
        from lancewal_reader.spark.feeds.admission import LimitedChangeStream  # PySpark 4.2 and later

        return LimitedChangeStream(self.options, feed, schema)

    def _of_schema(self, schema: StructType) -> PlannedFeed:
        """Return the feed of the columns that ``schema`` names."""
        feed, columns = self.feed, self.options.columns
        check_user_schema(schema, feed.schema)
        names = tuple(name for name in schema.names if name in feed.end.schema.names)
        if columns is not None and set(columns) != set(names):
            raise InvalidInput(
                f"option columns names {list(columns)}, the schema given has {schema.names}: give one of them"
            )
        return feed.showing(replace(feed.end.chosen, columns=names or feed.end.chosen.columns[:1]))


class FeedReader(DataSourceReader):
    """Reader of a planned feed."""

    def __init__(self, pinned: PinnedFeed, feed: PlannedFeed, schema: StructType) -> None:
        """``feed``: the pinned feed with the columns of ``schema``."""
        assert pinned.tasks is not None
        self._options = pinned.options
        self._plan = pinned.plan
        self._feed = feed
        self._target = target_schema(schema)
        self._tasks = [
            replace(task, feed=task.feed.showing(feed.end.chosen)) if isinstance(task, ChangesTask) else task
            for task in pinned.tasks
        ]

    def partitions(self) -> Sequence[InputPartition]:
        return [TaskPartition(task) for task in self._tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        task = work_of(partition)
        if task is not None:
            assert self._options.feed is not None
            with feed_errors(self._options.feed):
                yield from to_targets(run_feed_task(self._options, task, self._feed, self._plan), self._target)
