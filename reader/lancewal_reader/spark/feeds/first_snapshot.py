"""The first snapshot of a stream: the rows of one state as inserts, in batches.

The state has parts in an order that its receipt fixes: the fragments of its version, then the unmerged rows of each
partition.  A *place* is a part and a row of it.  A batch goes from one place to another, so it has the same rows when it is
read again.  Only a fragment is cut, between physical rows; unmerged rows of a partition are in one batch.

All this holds for the version of the receipt alone.  If that is gone, so is the order, and ``VersionGone`` says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from lancewal_core.errors import VersionGone
from lancewal_reader.changes.feed import AddedValues, Feeds
from lancewal_reader.reading.reads import Planned
from lancewal_reader.spark.feeds.plan import inserts_of
from lancewal_reader.spark.feeds.task import InsertsTask
from lancewal_reader.spark.options import SparkOptions
from lancewal_reader.spark.source import LiveFragment, PinnedRead, base_tasks
from lancewal_reader.spark.task import BaseTask, DeltaTask
from lancewal_reader.unmerged.portions import records_of

Place = tuple[int, int]
"""A part and a row of it, which is the next to read."""
BEGIN: Place = (0, 0)


@dataclass(frozen=True, slots=True)
class FirstSnapshot:
    """The rows of a stream's initial state, divided into parts, with the size of each part."""

    read: PinnedRead
    added: AddedValues
    rows: tuple[int, ...]
    """Rows of each part: physical rows of a fragment, records of a partition."""

    @staticmethod
    def of(options: SparkOptions, feeds: Feeds, state: Planned) -> FirstSnapshot:
        """Divide a state into parts.  Raises ``VersionGone`` if the receipt's version is gone and another version is
        used in its place.
        """
        read, version = inserts_of(options, feeds, state), state.receipt.version
        plan = read.pinned_plan.plan
        if plan.version != version:
            raise VersionGone(
                f"table version {version} is gone, and with it the order in which the stream reads its first snapshot. "
                "Begin with a new checkpoint; let clean-ups keep versions for as long as that takes",
                version=version,
            )
        fragments = plan.pin(feeds.reads.context.table).fragments()
        deltas = [sum(map(records_of, delta.sources)) for delta in plan.deltas]
        return FirstSnapshot(read, feeds.added(state), (*(f.physical_rows for f in fragments), *deltas))

    def next_place(self, place: Place, rows_max: int | None) -> Place | None:
        """Return the place after the next ``rows_max`` rows; None at the end.

        A first part that cannot be divided is passed whole, even if it has more rows.
        """
        part, row = place
        left = rows_max
        while left is not None and part < len(self.rows):
            rest = self.rows[part] - row
            first = (part, row) == place
            if rest > left and self._may_be_cut(part) and left > 0:
                return part, row + left
            if rest > left and not first:
                return part, row
            part, row, left = part + 1, 0, left - rest
        return None

    def tasks(self, start: Place, end: Place | None) -> list[InsertsTask]:
        """Return the tasks that read the rows between two places.  ``end`` = None means to the end."""
        last, rest = end or (len(self.rows), 0)
        whole: list[LiveFragment] = []
        cut: list[BaseTask] = []
        for part, fragment in enumerate(self.read.fragments):
            begin = start[1] if part == start[0] else 0
            stop = rest if part == last else self.rows[part]
            if start[0] <= part <= last and begin < stop:
                if stop - begin == self.rows[part]:
                    whole.append(fragment)
                else:
                    cut.append(BaseTask((fragment.fragment_id,), range(begin, stop)))
        count = len(self.read.fragments)
        unmerged = self.read.delta_tasks(range(max(start[0] - count, 0), max(last - count, 0)))
        tasks: list[BaseTask | DeltaTask] = [*(base_tasks(whole) if whole else []), *cut, *unmerged]
        return [InsertsTask((task,), self.added, self.read.pinned_plan) for task in tasks]

    def _may_be_cut(self, part: int) -> bool:
        return part < len(self.read.fragments) and self.read.fragments[part].rows > 1
