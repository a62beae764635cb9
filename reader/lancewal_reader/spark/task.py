"""The work of Spark's executors: one task's rows, from a pinned plan.

A process keeps what belongs to a plan (the open table version, the mask) for the plan's other tasks.  A plan never
changes, so what was read stays true.  Nothing here depends on the newest state of anything.

Folded deltas are kept for later plans too, at most ``KEPT_BYTES_MAX`` of them.  A DataFrame of the same cut then
folds nothing.  One of a later cut folds only the records after the earlier cut (``LoadedCache``).  One process of an
executor loads the keys of a whole delta for the others (``shared_keys``).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from lancewal_core.errors import ObjectMissing, PlanStale, VersionGone
from lancewal_core.process import failpoints
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.rows.projection import project
from lancewal_core.rows.schema import RowSchema
from lancewal_core.settings.executor import start_worker
from lancewal_core.table.contract import Contract
from lancewal_core.table.protocol import PinnedTable
from lancewal_reader.plan.strong import ReadPlan
from lancewal_reader.reading.lookup import KeyLookup, count_plan
from lancewal_reader.reading.scan import OpenState, base_batches, batch_rows, delta_keys, delta_rows, loaded_columns
from lancewal_reader.reading.shown_version import shown_version
from lancewal_reader.spark.options import IO_THREADS, SparkOptions
from lancewal_reader.spark.shared_keys import digest_of, folder_of_executor, shared
from lancewal_reader.unmerged.flushed import FlushCache
from lancewal_reader.unmerged.left_out import LeftOut
from lancewal_reader.unmerged.load import DeltaContext, folding_of, load
from lancewal_reader.unmerged.loaded import Loaded, LoadedCache

_PLANS_KEPT = 2
_DELTAS_KEPT = 6
KEPT_BYTES_MAX = 128 << 20
"""Largest number of bytes of folded deltas that a worker process caches.  An executor has as many of these processes as
cores."""


@dataclass(frozen=True, slots=True)
class PinnedPlan:
    """A plan as it is sent to the executors, without rows and credentials.  ``plan_id`` is new for each plan."""

    plan_id: str
    options: SparkOptions
    contract: Contract
    plan: ReadPlan
    rows: RowSchema
    """Columns of the result, and the keys."""
    contracts: tuple[Contract, ...] = ()
    """Contract versions that rows name, besides ``contract``, so that no executor reads one from the store."""


@dataclass(frozen=True, slots=True)
class BaseTask:
    """Task that reads merged rows outside the mask: whole fragments, or some physical rows of a large one."""

    fragment_ids: tuple[int, ...]
    rows: range | None = None
    """Physical rows of the only fragment; None: all rows of all fragments."""


@dataclass(frozen=True, slots=True)
class DeltaTask:
    """Task that reads the deltas of some regions, given by their indexes in the plan."""

    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CountTask:
    """Task that counts all rows of the plan."""


Task = BaseTask | DeltaTask


class _Opened:
    """A plan that this process has opened, and what the plan's tasks share."""

    def __init__(self, pinned_plan: PinnedPlan) -> None:
        options = pinned_plan.options
        address = options.address
        self._tasks = ThreadTasks(io_threads=IO_THREADS)
        opened = OpenedTable.over(address.store(), address.table(), pinned_plan.contract, self._tasks, SystemClock())
        folding = folding_of(pinned_plan.contract, options.on_conflict)
        kept = _kept_of(pinned_plan) if folding.by_regions else LoadedCache(1, choices_max=1)
        for contract in pinned_plan.contracts:
            opened.contracts.know(contract)
        self.context = DeltaContext(
            *opened.parts, None, FlushCache(0), kept, folding, options.unmerged_keys_max, shown=pinned_plan.rows
        )
        self.pinned: PinnedTable = shown_version(self.context, pinned_plan.plan.pin(opened.table), pinned_plan.rows)
        self._pinned_plan = pinned_plan
        self._plan = pinned_plan.plan
        self._keys: Loaded | None = None

    def keys(self) -> Loaded:
        """Return the keys of the plan's whole delta, loaded once."""
        if self._keys is None:
            conflicts, projected = self._plan.in_force.conflicts, project(self.context.rows, ())
            known = self.context.loaded.get(self._plan.deltas, projected.signature, conflicts)
            if known is None:
                digest = digest_of(_loads_alike(self._pinned_plan), self._plan.deltas, conflicts)
                known = shared(folder_of_executor(), digest, projected, lambda: delta_keys(self.context, self._plan))
                self.context.loaded.add(self._plan.deltas, projected.signature, known, conflicts)
            self._keys = known.of_columns(projected)
            LeftOut(0, self._keys.unmerged, self._keys.partitions).warn(self.context.contract.topic)
        return self._keys

    def close(self) -> None:
        self._tasks.close()


_opened: OrderedDict[str, _Opened] = OrderedDict()
_kept: tuple[object, LoadedCache] | None = None
"""Cache of the folded deltas of the most recently read table, and the terms on which they depend."""


def _loads_alike(pinned_plan: PinnedPlan) -> tuple[object, ...]:
    """Return everything except the deltas that decides what is loaded, or refused.  Policies of the contract do not
    matter."""
    contract, rows, options = pinned_plan.contract, pinned_plan.rows, pinned_plan.options
    columns = tuple(tuple(map(str, column)) for column in rows.signature)
    of_table = contract.table_uuid, contract.topic_id, contract.partitions, contract.rows_tell_partition
    asked = options.base_paths, options.on_conflict, options.unmerged_keys_max
    return options.table, *of_table, columns, rows.primary_key, rows.region_key, *asked


def _kept_of(pinned_plan: PinnedPlan) -> LoadedCache:
    global _kept
    wanted = _loads_alike(pinned_plan)
    if _kept is None or _kept[0] != wanted:
        _kept = wanted, LoadedCache(_DELTAS_KEPT, KEPT_BYTES_MAX, choices_max=1)
    return _kept[1]


def count_task(pinned_plan: PinnedPlan, task: Task | CountTask, filter: str | None) -> int:
    """Return the number of rows of the task."""
    if isinstance(task, CountTask):
        with _running(pinned_plan, task) as opened:
            opened.keys()  # says what is left out
            # Not kept: a process of Spark may be killed, and what of the index lies in a temporary folder goes with this.
            find = KeyLookup(opened.context, pinned_plan.options.table).addresses
            return count_plan(OpenState(opened.context, opened.pinned, pinned_plan.plan, find))
    columns = [pinned_plan.contract.primary_key[0]]
    return sum(batch.num_rows for batch in run_task(pinned_plan, task, columns, filter))


def run_task(pinned_plan: PinnedPlan, task: Task, columns: list[str], filter: str | None) -> Iterator[pa.RecordBatch]:
    """Return the task's rows with the types of the result.  Raises ``PlanStale`` if objects of the plan are gone."""
    with _running(pinned_plan, task) as opened:
        match task:
            case BaseTask(fragment_ids=ids, rows=some):
                scan = partial(opened.pinned.scan, filter=filter, fragment_ids=ids, rows=some)
                # Without a delta no key is looked for, and none is read.
                mask = (lambda: opened.keys().mask) if pinned_plan.plan.has_delta else None
                yield from base_batches(opened.context.tasks, scan, mask, opened.context.rows, columns)
            case DeltaTask(places=places):
                # A key that is in another task's regions too is in conflict.
                met = opened.context.folding.met(opened.keys)
                conflicts, whole = pinned_plan.plan.in_force.conflicts, opened.context.rows
                projected, deltas = (
                    loaded_columns(whole, columns, filter),
                    [pinned_plan.plan.deltas[at] for at in places],
                )
                # Not named: what was loaded goes before the rows that came of it are given.
                found = delta_rows(
                    opened.pinned, whole, load(opened.context, deltas, projected, conflicts, met), columns, filter
                )
                yield from found.to_batches(max_chunksize=batch_rows(found.schema))


@contextmanager
def _running(pinned_plan: PinnedPlan, task: Task | CountTask) -> Iterator[_Opened]:
    """Open the plan.  If it is no longer whole, ``PlanStale`` says what to do."""
    start_worker()
    try:
        with failpoints.point("spark.task", **_about(task)):
            yield _open(pinned_plan)
    except (PlanStale, ObjectMissing, VersionGone) as error:
        raise PlanStale(
            f"{pinned_plan.options.table}: the state that this DataFrame was made from (table version "
            f"{pinned_plan.plan.version}) is no longer whole: {error}. Make the DataFrame again by spark.read...load(); "
            "a longer grace period of the table (grace_s) keeps states for slower jobs",
            **error.where,
        ) from error


def _open(pinned_plan: PinnedPlan) -> _Opened:
    found = _opened.get(pinned_plan.plan_id)
    if found is None:
        found = _opened[pinned_plan.plan_id] = _Opened(pinned_plan)
        while len(_opened) > _PLANS_KEPT:
            _opened.popitem(last=False)[1].close()
    return found


def _about(task: Task | CountTask) -> dict[str, object]:
    match task:
        case BaseTask(fragment_ids=ids, rows=rows):
            some = {} if rows is None else {"rows": [rows.start, rows.stop]}
            return {"kind": "base", "fragments": list(ids), **some}
        case DeltaTask(places=places):
            return {"kind": "delta", "regions": list(places)}
        case CountTask():
            return {"kind": "count"}
