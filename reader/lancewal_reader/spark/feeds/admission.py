"""A stream with admission control, which PySpark offers from 4.2 on: bounded batches, ``availableNow``, lag."""

from __future__ import annotations

from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from lancewal_reader.changes.feed import PlannedFeed
from lancewal_reader.point.receipt import Receipt
from lancewal_reader.reading.reads import Planned
from lancewal_reader.spark.feeds.plan import feed_errors
from lancewal_reader.spark.feeds.stream import ChangeStream, Json, Offset
from lancewal_reader.spark.options import SparkOptions


class LimitedChangeStream(ChangeStream, SupportsTriggerAvailableNow):
    """Stream whose batches have a limited size."""

    def __init__(self, options: SparkOptions, feed: PlannedFeed, schema: StructType) -> None:
        super().__init__(options, feed, schema)
        self._target_state: Planned | None = None
        """State at which ``availableNow`` ends."""
        self._seen: tuple[Receipt, Receipt] | None = None
        """Receipts as of the last look: of the newest state, and of the state at which the batch ends."""
        self._level_s: float | None = None
        """Monotonic time of the last look whose batch ended at the newest state; before that, time of the first
        look.
        """

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 # as PySpark has it
        return ReadMaxRows(self.asked.rows_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 # as PySpark has it
        with feed_errors(self.asked):
            self._target_state = self.newest()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # type: ignore[override] # noqa: N802 # as PySpark has it
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        with feed_errors(self.asked):
            newest = self._target_state or self.newest()
            given = Offset.of(start)
            end = self._next(given, newest, rows_max)
            self._look(newest.receipt, end.receipt)
            same = given is not None and (given.receipt, given.place) == (end.receipt, end.place)
            return start if same else end.json()

    def reportLatestOffset(self) -> Json | None:  # noqa: N802 # as PySpark has it
        """Return the newest state as of the last look, and how far batches lag behind that state."""
        if self._seen is None or self._level_s is None:
            return None
        newest, reached = self._seen
        behind = sum(at - reached.positions.get(region, 0) for region, at in newest.positions.items())
        seconds = 0.0 if newest == reached else self.feeds.reads.context.clock.monotonic() - self._level_s
        return {"receipt": str(newest), "records_behind": behind, "seconds_behind": round(seconds, 3)}

    def _next(self, given: Offset | None, newest: Planned, rows_max: int | None) -> Offset:
        begin = self.first(newest) if given is None else given
        if begin.place is not None:
            return Offset(begin.receipt, self.snapshot(begin.receipt).next_place(begin.place, rows_max))
        if given is None and begin.began is None:
            return begin  # from now on
        return Offset(self.bounded(begin.receipt, newest, rows_max), None, begin.began if given is None else None)

    def _look(self, newest: Receipt, reached: Receipt) -> None:
        self._seen = newest, reached
        if newest == reached or self._level_s is None:
            self._level_s = self.feeds.reads.context.clock.monotonic()
