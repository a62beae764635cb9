"""Changes as a stream of Spark: ``spark.readStream.format("lancewal").option("changes", ...)``.

Guarantees
 1. The batches adjoin: each is the feed from the receipt at which the one before it ended.  From ``earliest``, the first ones
    are the rows of one state as inserts (``first_snapshot``).
 2. A batch that is read again has the same rows, also after a restart of the query: its offsets alone say what it has.
 3. With admission control (PySpark 4.2 and later), a batch has at most ``max_rows_per_trigger`` records, or one
    commit where the log no longer has the records (``changes.follow``).  With ``availableNow`` the query ends at the
    state that was the newest when it began.
 4. With a subscription, each batch that Spark has finished is committed to it.  If the subscription is dropped after
    the query was started or restarted, the query ends with ``SubscriptionMissing``, even if another subscription has
    its name.
 5. All batches of a query have the columns of its ``load()``.  If the table gets other columns, the query ends with
    ``ContractChanged``.  A restarted query continues with the new columns.  Batches from before the change then have
    the new columns too.

An offset is a JSON object.

===================  ===============================================================================================
member               meaning
===================  ===============================================================================================
``receipt``          receipt, as text, of the state at which the batch ends
``part``, ``row``    in the first snapshot: place in the rows of the receipt's state, before which all rows are read
``from``             in the first batch from a point: receipt of the state at that point
``initial``          nothing is read yet.  The only member, since Spark asks for the first offset again after a restart
===================  ===============================================================================================

PySpark calls ``latestOffset`` and ``partitions`` in one process beside the driver.  The table stays open there.  The lag that
``reportLatestOffset`` tells is as of the last look.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from lancewal_core.errors import ContractChanged, InvalidInput, LancewalError
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.table.subscriptions.subscriptions import Subscription
from lancewal_reader.changes.feed import Feeds, PlannedFeed
from lancewal_reader.changes.follow import bounded, columns_changed, moved_columns, newest_state
from lancewal_reader.point.at import Point, point_of
from lancewal_reader.point.read_options import ReadOptions
from lancewal_reader.point.receipt import Receipt
from lancewal_reader.reading.reads import Planned, Wanted
from lancewal_reader.spark.feed_options import FeedOptions, Subscribed
from lancewal_reader.spark.feeds.first_snapshot import BEGIN, FirstSnapshot, Place
from lancewal_reader.spark.feeds.plan import bound_of, feed_errors
from lancewal_reader.spark.feeds.task import ChangesTask, FeedTask, feeds_of, run_feed_task
from lancewal_reader.spark.options import IO_THREADS, SparkOptions
from lancewal_reader.spark.source import TaskPartition, work_of
from lancewal_reader.spark.types import target_schema, to_targets
from lancewal_reader.subscriptions import Subscriptions

Json = dict[str, Any]
_CACHE_BYTES_MAX = 64 << 20
_INITIAL = "initial"
_WAY = "Restart the query"


@dataclass(frozen=True, slots=True)
class Offset:
    """The end of a batch, at which the next batch begins."""

    receipt: Receipt
    place: Place | None = None
    """Place in the first snapshot; None after its last row, or if the stream has no first snapshot."""
    began: Receipt | None = None

    def json(self) -> Json:
        place = {} if self.place is None else {"part": self.place[0], "row": self.place[1]}
        began = {} if self.began is None else {"from": str(self.began)}
        return {"receipt": str(self.receipt), **place, **began}

    @staticmethod
    def of(given: Json) -> Offset | None:
        """Parse an offset; None for the initial one.  Raises ``InvalidInput`` if it is not an offset."""
        if given.get(_INITIAL) is True:
            return None
        try:
            place = (int(given["part"]), int(given["row"])) if "part" in given else None
            began = Receipt.parse(given["from"]) if "from" in given else None
            return Offset(Receipt.parse(given["receipt"]), place, began)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidInput(
                f"the checkpoint has an offset that this release cannot read, {given!r:.200}: {error}. Use a new checkpoint"
            ) from error


class ChangeStream(DataSourceStreamReader):
    """Stream without limits on batches: each batch ends at the newest state."""

    def __init__(self, options: SparkOptions, feed: PlannedFeed, schema: StructType) -> None:
        assert options.feed is not None
        self.asked: FeedOptions = options.feed
        self._options = options
        self._feed = feed
        self._target = target_schema(schema)
        self._opened: tuple[ThreadTasks, Feeds] | None = None
        """The open table.  It is not there yet when Spark pickles this object."""
        self._first: Offset | None = None
        """Offset at which the stream begins; None: not determined yet."""
        self._snapshot: tuple[Receipt, FirstSnapshot] | None = None
        self._subscription: Subscription | None = None
        """The subscription that is followed; None: there is none, or it was not read yet."""
        self._done = False
        """Whether a batch has ended, so that no later one is the first."""

    # -- what PySpark calls ------------------------------------------------------------------------------------

    def initialOffset(self) -> Json:  # noqa: N802 # as PySpark has it
        return {_INITIAL: True}

    def latestOffset(self) -> Json:  # type: ignore[override] # noqa: N802 # before 4.2 it had no parameters
        with feed_errors(self.asked):
            newest = self.newest()
            if self._done or (isinstance(self.asked.start, str) and self.asked.start in ("now", "earliest")):
                return Offset(newest.receipt).json()
            try:
                return Offset(newest.receipt, None, self.first(newest).receipt).json()
            except LancewalError:
                return Offset(newest.receipt).json()  # ``partitions`` raises it, if this is the first batch

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        if start == end:
            return []
        with feed_errors(self.asked):
            last = Offset.of(end)
            if last is None:
                raise InvalidInput(
                    "the checkpoint is damaged: a batch ends before the stream's first state. Use a new checkpoint"
                )
            self.subscription()  # the one that this batch is committed to
            return [TaskPartition(task) for task in self._tasks(self._begin(Offset.of(start), last), last)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        task = work_of(partition)
        if task is not None:
            with feed_errors(self.asked):
                yield from to_targets(run_feed_task(self._options, task, self._feed), self._target)

    def commit(self, end: Json) -> None:
        self._done = True
        offset = Offset.of(end)
        with feed_errors(self.asked):
            followed = self.subscription()
            if followed is not None and offset is not None:
                Subscriptions(self.feeds.reads).commit(followed, offset.receipt)

    def stop(self) -> None:
        if self._opened is not None:
            self._opened[0].close()

    # -- where batches begin and end -----------------------------------------------------------------------------

    @property
    def feeds(self) -> Feeds:
        """The open table."""
        if self._opened is None:
            tasks = ThreadTasks(io_threads=IO_THREADS)
            self._opened = tasks, feeds_of(self._options, tasks, _CACHE_BYTES_MAX)
        return self._opened[1]

    def newest(self) -> Planned:
        """Plan the newest state.  Raises ``ContractChanged`` if its columns are not those of this stream."""
        had = self._feed.end.schema
        wanted = Wanted(self._options.columns, self._options.filter, ReadOptions())
        if wanted.columns is None and self._given_columns():
            wanted = replace(wanted, columns=self._feed.end.chosen.columns)
        rows = self._feed.end.chosen.rows
        try:
            found = newest_state(self.feeds, wanted, self._feed.mode, rows, _WAY)
        except InvalidInput as error:
            raise ContractChanged(columns_changed(str(error), _WAY)) from error
        if not found.schema.equals(had):
            moved = moved_columns(rows, found.chosen.rows).values()
            what = f"{_columns(had)} became {_columns(found.schema)}"
            raise ContractChanged(columns_changed(", ".join([*moved, what]), _WAY))
        return found

    def first(self, newest: Planned) -> Offset:
        """Return the offset at which the stream begins."""
        if self._first is None:
            if self.asked.start == "earliest":
                self._first = Offset(newest.receipt, BEGIN)
            elif self.asked.start == "now":
                self._first = Offset(newest.receipt)
            else:
                receipt = self.start().receipt
                self._first = Offset(receipt, None, receipt)
        return self._first

    def start(self) -> Planned:
        """Plan the state at the starting point in the options."""
        followed = self.subscription()
        point = point_of(bound_of(self.feeds, self.asked.start) if followed is None else followed.receipt)
        assert point is not None
        return self.state(point)

    def subscription(self) -> Subscription | None:
        """Return the subscription in the options, as it was when this stream first read it."""
        if self._subscription is None and isinstance(self.asked.start, Subscribed):
            self._subscription = Subscriptions(self.feeds.reads).get(self.asked.start.name)
        return self._subscription

    def state(self, point: Point) -> Planned:
        """Plan the state at a point.  The state may have any columns."""
        key = self.feeds.reads.contract.primary_key[:1]
        return self.feeds.planned(Wanted(key, None, ReadOptions()), point, self._feed.mode)

    def bounded(self, start: Receipt, newest: Planned, rows_max: int | None) -> Receipt:
        """Return the end of a batch with at most ``rows_max`` records."""
        if rows_max is None:
            return newest.receipt
        key = self.feeds.reads.contract.primary_key[:1]
        return bounded(
            self.feeds.reads, start, replace(newest, wanted=Wanted(key, None, ReadOptions())), rows_max
        ).receipt

    def snapshot(self, receipt: Receipt) -> FirstSnapshot:
        """Return the initial rows of a stream that begins at a receipt."""
        if self._snapshot is None or self._snapshot[0] != receipt:
            state = self.state(receipt)
            shown = replace(state, chosen=self._feed.end.chosen)
            self._snapshot = receipt, FirstSnapshot.of(self._options, self.feeds, shown)
        return self._snapshot[1]

    def _begin(self, start: Offset | None, end: Offset) -> Offset:
        """Return where the batch to ``end`` begins.  ``start``: None for the first batch."""
        if start is not None:
            return start
        if end.began is not None:
            return Offset(end.began)
        if self.asked.start == "earliest":
            return Offset(end.receipt, BEGIN)
        return Offset(end.receipt if self.asked.start == "now" else self.start().receipt)

    def _tasks(self, start: Offset, end: Offset) -> list[FeedTask]:
        if start.place is not None:
            if start.receipt != end.receipt:
                raise InvalidInput("the checkpoint has a batch of two states. Use a new checkpoint")
            return [*self.snapshot(end.receipt).tasks(start.place, end.place)]
        if start.receipt == end.receipt:
            return []
        feed = self.feeds.between(self.state(start.receipt), self.state(end.receipt), self._feed.mode)
        return [ChangesTask(feed.showing(self._feed.end.chosen), self.feeds.reads.context.contracts.known)]

    def _given_columns(self) -> bool:
        """Whether the user's own schema chose the columns."""
        chosen = self._feed.end.chosen
        return chosen.columns != tuple(chosen.rows.table.names)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}{'' if field.nullable else ' not null'}" for field in schema)
