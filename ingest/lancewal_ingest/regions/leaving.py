"""Hand over open regions to their next owners, page by page, as soon as running seals of a page's regions have answers.

Guarantees
 1. A page that does not answer delays only its own regions.  Regions of other pages are handed over meanwhile, each
    page in one swap in a task beside the caller.  The generations that become SEALED go to the flush queue.
 2. A region that is not handed over in time stays as it is, and its next owner fences.  A hand-over still under way may
    then land later.  It changes nothing of a region that any process, even this one, has claimed since.

The caller has settled the log, and appends nothing until this returns.

Rounds of requests to the store (docs/reference/requests.md), as counted: 3 ("hand over and flush all partitions").
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

from lancewal_core.errors import StoreUnavailable
from lancewal_core.names.ids import Page, Region
from lancewal_core.process.tasks import Task
from lancewal_core.wal.writer import LogWriter
from lancewal_ingest.context import IngestContext
from lancewal_ingest.observer import Observer
from lancewal_ingest.regions.memtable import MemTable
from lancewal_ingest.regions.partitions import Partitions
from lancewal_ingest.regions.seal import Answer, hand_over, to_seal
from lancewal_ingest.regions.sealing import Sealing

_LITTLE_S = 0.01
"""Seconds to wait for one of several tasks, because another page or a flush may answer first."""


@dataclass(frozen=True, slots=True, eq=False)
class _HandOver:
    """Hand-over of the regions of one page, under way."""

    memtables: list[MemTable]
    task: Task[dict[Region, Answer]]


class Leaving:
    """Hand-over of open regions to their next owners."""

    def __init__(self, context: IngestContext, observer: Observer, partitions: Partitions, sealing: Sealing) -> None:
        self._context = context
        self._observer = observer
        self._partitions = partitions
        self._sealing = sealing

    def give_up(
        self,
        regions: Collection[Region],
        writer: LogWriter,
        until: float,
        beside: Callable[[], object] = lambda: None,
    ) -> bool:
        """Hand over ``regions``, at most until the monotonic time ``until``.  Afterwards none of them is open.

        Return False if some could not be handed over.  ``writer`` is the log of the regions.  ``beside`` is called
        repeatedly during the wait.
        """
        waiting: dict[Page, list[Region]] = {}
        for region in regions:
            waiting.setdefault(self._context.contract.page_of(region), []).append(region)
        under_way: list[_HandOver] = []
        all_done = True
        while True:
            self._sealing.go_on()
            unsettled = self._sealing.unsettled
            for page in [page for page, of_page in waiting.items() if unsettled.isdisjoint(of_page)]:
                # A seal may have found that another owner has a region, which then is not open any more.
                under_way += self._begin([r for r in waiting.pop(page) if r in self._partitions.open], writer)
            for done in [one for one in under_way if one.task.done()]:
                under_way.remove(done)
                all_done &= self._partitions.handed_over(done.memtables, done.task.result())
            beside()
            if not (waiting or under_way):
                return all_done
            if self._now() >= until:
                break
            self._wait([one.task for one in under_way], until - self._now())
        left = [r for of_page in waiting.values() for r in of_page if self._partitions.open.pop(r, None) is not None]
        left += [memtable.region for one in under_way for memtable in one.memtables]
        if left:
            numbers = sorted(region.partition for region in left)
            self._observer.failed(
                "hand-over", StoreUnavailable(f"partitions {numbers}: no answer of the store in time")
            )
        return all_done and not left

    def _begin(self, regions: Collection[Region], writer: LogWriter) -> list[_HandOver]:
        if not regions:
            return []
        memtables = [self._partitions.open.pop(region).memtable for region in regions]
        fixed = to_seal(self._context, writer, memtables)
        return [_HandOver(memtables, self._context.tasks.start(partial(hand_over, self._context, fixed)))]

    def _wait(self, under_way: list[Task[dict[Region, Answer]]], timeout_s: float) -> None:
        timeout_s = min(timeout_s, _LITTLE_S)
        if under_way:
            under_way[0].wait(timeout_s)
        else:
            self._sealing.wait(timeout_s)

    def _now(self) -> float:
        return self._context.clock.monotonic()
