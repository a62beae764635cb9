"""The Spark data source: ``spark.read.format("lancewal").option("table", uri).load()``.

Guarantees
 1. One DataFrame is one state of the table.  Version and positions are pinned on the driver when the DataFrame is made
    (``load``), or are those of the point that ``at`` names.  Every action and every task reads exactly these.
 2. The driver never holds rows: it reads region states and the trailers of WAL segments, and sends a plan.
 3. The result is that of ``Table.scan``.  Base tasks read fragments without the rows whose key is anywhere in the
    delta.  Delta tasks fold the deltas of some regions and complete patches from the pinned version.  Regions share
    no keys, unless rows do not tell their partition.  Then each task finds the shared keys, and all tasks leave out
    the same records (``left_out``).  A key's base row is masked whatever task completes it.
 4. No filter is accepted from Spark, though its settings may offer filters to sources.  Spark 4.3.0 keeps a filter
    that a source accepted, and gives later actions on the same DataFrame too few rows.  The option ``filter`` applies
    after masking and folding.

A task handles about one share, at most ``TASK_BYTES``.  For a smaller table a share is a ``TASKS_MIN``-th, but not
less than ``SPLIT_BYTES_MIN``.  A fragment larger than a share is cut into equal ranges of physical rows, each a task
of its own.  Smaller fragments are put together.  A small table is still divided into ``TASKS_MIN`` tasks if it has
that many fragments.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from lancewal_core.errors import InvalidInput
from lancewal_core.open import open_at
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.store.address import place_of
from lancewal_reader.cuts import of_cut
from lancewal_reader.plan.at_point import order_not_told
from lancewal_reader.point.at import AtCut, read_by
from lancewal_reader.point.receipt import METADATA_KEY, Receipt
from lancewal_reader.reading.reads import Planned, Reads, Wanted
from lancewal_reader.reading.result_columns import know_contracts
from lancewal_reader.reading.scan import OpenState, row_bytes
from lancewal_reader.spark.options import IO_THREADS, SparkOptions, parse_options
from lancewal_reader.spark.plain_errors import plain_errors
from lancewal_reader.spark.task import BaseTask, CountTask, DeltaTask, PinnedPlan, Task, count_task, run_task
from lancewal_reader.spark.types import check_user_schema, spark_schema, target_schema, to_target, to_targets
from lancewal_reader.unmerged.flushed import FlushCache
from lancewal_reader.unmerged.load import DeltaContext, Folding, folding_of
from lancewal_reader.unmerged.loaded import LoadedCache
from lancewal_reader.unmerged.portions import records_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TASK_BYTES = 64 << 20
TASKS_MIN = 4
SPLIT_BYTES_MIN = 16 << 20
"""Fewest bytes of a share.  A task costs Spark some hundredths of a second, in which Lance reads about this much."""
APART_BYTES_MIN = 8 << 20
"""Fewest bytes of unmerged rows that may get a task of their own.  It would be the last task, and the job would wait
for it.
"""
COUNTED = pa.schema([pa.field("rows", pa.int64(), nullable=False)])
"""Result of a task that counts."""

T = TypeVar("T")
Group = tuple[Task | CountTask, ...]
"""Tasks that one of Spark's tasks reads, one after the other."""


def receipt_of_dataframe(df: DataFrame) -> Receipt:
    """Return the receipt that the first column of a ``load()`` carries.  Raises ``InvalidInput`` if that column is
    gone.

    Spark drops the receipt if the user gave a schema.
    """
    for field in df.schema.fields:
        text = (field.metadata or {}).get(METADATA_KEY.decode())
        if text is not None:
            return Receipt.from_json(text)
    raise InvalidInput(
        "this DataFrame has no receipt. A receipt is in the metadata of the first column that load() returns"
    )


def pin_read(options: Mapping[str, str]) -> PinnedRead:
    """Parse the options and pin the table's state as of now.

    Raises ``InvalidInput`` (options, columns, filter, point), ``TableMissing``, ``NotALancewalTable``, ``TableReplaced``,
    ``StoreUnavailable``, ``PlanRetriesExhausted``, ``Corrupt`` errors of region states and trailers; with ``at`` those
    of a point.
    """
    return pin_wanted(parse_options(options))


def pin_wanted(wanted: SparkOptions) -> PinnedRead:
    """Plan the state that the options ask for, as ``pin_read`` does."""
    tasks, at = ThreadTasks(io_threads=IO_THREADS), wanted.read.at

    def open_table(uri: str) -> OpenedTable:
        return open_at(wanted.address, tasks, SystemClock())

    with closing(tasks):
        opened = of_cut(at, wanted.table, open_table) if isinstance(at, AtCut) else open_table(wanted.table)
        # Only tasks load rows, so only they know which unmerged records they leave out.
        folding = Folding(wanted.on_conflict)
        context = DeltaContext(*opened.parts, None, FlushCache(0), LoadedCache(), folding, wanted.unmerged_keys_max)
        reads = Reads(wanted.table, place_of(wanted.table), context)
        planned = reads.plan(Wanted(wanted.columns, wanted.filter, wanted.read))
        return pinned_read(replace(wanted, filter=planned.chosen.filter), reads, planned)


def pinned_read(wanted: SparkOptions, reads: Reads, planned: Planned) -> PinnedRead:
    """Return the read of a planned state.  ``wanted`` has the filter in the form for Lance.

    Raises ``VersionGone`` if the plan uses another version than the receipt asked for, which does not tell which
    records tasks leave out."""

    def made(state: OpenState) -> PinnedRead:
        context, pinned, plan = state.context, state.pinned, state.plan
        know_contracts(context, plan)
        # An allow list of a table with stable row ids holds ids, which say nothing of places: its fragments stay whole.
        whole = pinned.stable_row_ids
        sizes = tuple(
            LiveFragment(f.fragment_id, f.nbytes or 100 * f.physical_rows, 1 if whole else f.physical_rows)
            for f in pinned.fragments()
        )
        contract, known = context.contract, context.contracts.known
        return PinnedRead(PinnedPlan(uuid.uuid4().hex, wanted, contract, plan, planned.chosen.rows, known), sizes)

    found = reads.using(planned, made, now=True)
    at, plan = read_by(wanted.read.at), found.pinned_plan.plan
    # Not in ``made``: it would be called for plan after plan, each at the same version.
    if isinstance(at, Receipt) and plan.version != at.version and found._may_leave_out:
        raise order_not_told(at, plan)
    return found


@dataclass(frozen=True, slots=True)
class LiveFragment:
    """A fragment with live rows.  ``rows``: its physical rows, between which it may be divided; 1 if it must stay
    whole.
    """

    fragment_id: int
    nbytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class PinnedRead:
    """A pinned state of a table, and its fragments; a value that pickles."""

    pinned_plan: PinnedPlan
    fragments: tuple[LiveFragment, ...]

    @property
    def options(self) -> SparkOptions:
        return self.pinned_plan.options

    @property
    def receipt(self) -> Receipt:
        plan = self.pinned_plan.plan
        return Receipt(
            self.pinned_plan.contract.uuid, plan.version, plan.cut, place_of(self.options.table), self._may_leave_out
        )

    @property
    def _may_leave_out(self) -> int:
        """Value of the receipt's ``left_out``.  For a snapshot: the number of keys that it left out.  Otherwise: 1 if
        tasks may leave out keys, which only the tasks find, else 0.  Above 0, no other version may replace this one.
        """
        if self.pinned_plan.plan.branch is not None:
            return self.pinned_plan.plan.branch.unmerged
        return int(folding_of(self.pinned_plan.contract).may_leave_out(self.pinned_plan.plan))

    def schema(self) -> StructType:
        """Return the wanted columns in their order, with the receipt in the metadata of the first one."""
        whole = self.pinned_plan.rows.table
        if self.options.count:
            return spark_schema(COUNTED)
        schema = spark_schema(pa.schema([whole.field(name) for name in self.options.columns or whole.names]))
        schema.fields[0].metadata = {METADATA_KEY.decode(): self.receipt.to_json()}
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for ``schema``: either the result of ``schema()``, or a schema that the user gave."""
        if self.options.count:
            groups: Sequence[Group] = [(CountTask(),)] if self.options.filter is None else self.groups()
            return CountReader(self.pinned_plan, groups, schema)
        check_user_schema(schema, self.pinned_plan.rows.table)
        if self.options.columns is not None and set(self.options.columns) != set(schema.names):
            raise InvalidInput(
                f"option columns names {list(self.options.columns)}, the schema given has {schema.names}: give one of them"
            )
        return PlainReader(self.pinned_plan, self.groups(), schema)

    def stream_reader(self, schema: StructType) -> NoReturn:
        """Raise ``InvalidInput``, because only changes can be streamed."""
        raise InvalidInput(
            "a stream reads changes: give the option changes=net or changes=all, and start=earliest, now or a point"
        )

    def groups(self) -> list[tuple[Task, ...]]:
        """Return the work of each Spark task: a base task, a delta task, or, if the delta is small, both."""
        base = base_tasks(self.fragments)
        delta = self.delta_tasks()
        sizes = self._delta_sizes()
        if not base or len(delta) != 1 or sum(size for _, size in sizes) > APART_BYTES_MIN:
            return [*((task,) for task in base), *((task,) for task in delta)]
        *others, lightest = sorted(base, key=self._bytes_of, reverse=True)
        groups: list[tuple[Task, ...]] = [(task,) for task in others]
        return [*groups, (lightest, *delta)]

    def tasks(self) -> list[Task]:
        """Return the tasks of all groups."""
        return [task for group in self.groups() for task in group]

    def _bytes_of(self, task: BaseTask) -> float:
        ids = set(task.fragment_ids)
        whole = [f for f in self.fragments if f.fragment_id in ids]
        return sum(f.nbytes * (1.0 if task.rows is None else len(task.rows) / f.rows) for f in whole)

    def delta_tasks(self, among: range | None = None) -> list[DeltaTask]:
        """Return tasks for the deltas of all regions, or of the regions at these indexes of the plan."""
        sizes = [size for size in self._delta_sizes() if among is None or size[0] in among]
        # Each with patches scans the table's keys, so there are no more of them than size asks for.
        count = -(-sum(size for _, size in sizes) // TASK_BYTES)
        return [DeltaTask(tuple(sorted(places))) for places in balanced(sizes, count)]

    def _delta_sizes(self) -> list[tuple[int, int]]:
        """Return the index of each delta that has records, with its estimated size in bytes."""
        width = row_bytes(self.pinned_plan.rows.table)
        records = [sum(map(records_of, delta.sources)) for delta in self.pinned_plan.plan.deltas]
        return [(place, number * width) for place, number in enumerate(records) if number]


class PlainReader(DataSourceReader):
    """Reader of a planned state.  It keeps Spark's ``pushFilters``, which accepts no filter (guarantee 4)."""

    def __init__(self, pinned_plan: PinnedPlan, groups: Sequence[Group], schema: StructType) -> None:
        self._filter = pinned_plan.options.filter
        self._pinned_plan = pinned_plan
        self._partitions = [TaskPartition(group) for group in groups]
        self._columns = list(schema.names)
        self._target = target_schema(schema)

    def partitions(self) -> Sequence[InputPartition]:
        return self._partitions

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with plain_errors():
            for task in work_of(partition) or ():
                yield from to_targets(run_task(self._pinned_plan, task, self._columns, self._filter), self._target)


class CountReader(PlainReader):
    """A reader whose tasks return only their number of rows."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with plain_errors():
            rows = sum(count_task(self._pinned_plan, task, self._filter) for task in work_of(partition) or ())
            yield to_target(pa.record_batch([pa.array([rows], pa.int64())], COUNTED), self._target)


class TaskPartition(InputPartition):
    """Work of one of Spark's tasks, on its way to an executor."""

    def __init__(self, work: object) -> None:
        super().__init__(None)
        self.work: Any = work


def work_of(partition: InputPartition) -> Any:
    """Return the work of a partition; None if Spark has made the partition itself, since there was no task."""
    return partition.work if isinstance(partition, TaskPartition) else None


def base_tasks(fragments: Sequence[LiveFragment]) -> list[BaseTask]:
    """Return tasks that together read each row of each fragment once.  A task reads at most one share of the rows, or
    one fragment that cannot be divided.
    """
    total = sum(f.nbytes for f in fragments)
    share = min(TASK_BYTES, max(SPLIT_BYTES_MIN, -(-total // TASKS_MIN)))
    cut = [f for f in fragments if f.nbytes > share and f.rows > 1]
    ranges = [task for f in cut for task in _cut(f, -(-f.nbytes // share))]
    others = [(f.fragment_id, f.nbytes) for f in fragments if f not in cut]
    count = max(min(len(others), TASKS_MIN - len(ranges)), -(-sum(size for _, size in others) // share))
    return [*ranges, *(BaseTask(tuple(sorted(ids))) for ids in balanced(others, count))]


def _cut(fragment: LiveFragment, count: int) -> list[BaseTask]:
    """Return tasks for ranges of about equal length of a fragment's rows."""
    count = min(count, fragment.rows)
    cuts = [fragment.rows * at // count for at in range(count + 1)]
    return [BaseTask((fragment.fragment_id,), range(*cut)) for cut in pairwise(cuts)]


def balanced(sizes: Sequence[tuple[T, int]], count: int) -> list[list[T]]:
    """Distribute items over at most ``count`` groups of about equal size.  The largest items are placed first, each
    into the smallest group.
    """
    groups: list[list[T]] = [[] for _ in range(min(max(count, 1), len(sizes)))]
    weights = [0] * len(groups)
    for item, size in sorted(sizes, key=lambda pair: pair[1], reverse=True):
        lightest = min(range(len(groups)), key=lambda i: (weights[i], len(groups[i])))
        groups[lightest].append(item)
        weights[lightest] += size
    return groups
