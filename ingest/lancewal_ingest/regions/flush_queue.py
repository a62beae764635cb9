"""SEALED generations on their way to snapshots, oldest first, beside the loop.

What waits in memory is flushed together, as much at a time as one generation may hold; of a region one generation at a
time.  So is what is only in the log: its former owner may have flushed it by now, which one look tells of all, and a log is
read once for many.

A flush that fails is tried again after ``retry_s``, and holds up none beside it; whatever is left undone, any other process
can do from the log.  Where that is damaged the flusher names it until somebody has repaired it: what is consumed meanwhile
becomes durable.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from lancewal_core.errors import Corrupt, LancewalError, Refresh, Retry
from lancewal_core.ids import Position, Region
from lancewal_core.process.tasks import Task
from lancewal_core.region.flush import TOGETHER_BYTES, flush_from_logs, flush_generations
from lancewal_core.region.flushes.manifest import Snapshot
from lancewal_core.region.index import GenerationRecord
from lancewal_core.region.snapshot import Content, Flushable
from lancewal_core.rows.fold import fold
from lancewal_ingest.context import IngestContext
from lancewal_ingest.glibc_heap import return_free_pages
from lancewal_ingest.observer import Observer
from lancewal_ingest.regions.memtable import MemTable

_FLUSH_COPIES = 2
"""Folding a MemTable copies it once to join its batches and once to take the surviving rows."""
_TOGETHER = 256
"""Generations that are flushed together."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A generation with its rows, first as the MemTable held them, then folded; neither where they are only in the log."""

    region: Region
    record: GenerationRecord
    nbytes: int
    batches: Sequence[pa.RecordBatch] | None
    entries: Sequence[Position] = ()
    content: Content | None = None
    replay_s: float | None = None
    """Its share of what reading rows from the log and flushing them took."""

    @property
    def in_memory(self) -> bool:
        return self.batches is not None or self.content is not None


_Outcome = Snapshot | LancewalError | None


class FlushQueue:
    """Called by the loop's thread only."""

    def __init__(self, context: IngestContext, observer: Observer, retry_s: float) -> None:
        self._context = context
        self._observer = observer
        self._retry_s = retry_s
        self._waiting: deque[_Waiting] = deque()
        self._flushing: Sequence[_Waiting] = ()
        """Those of them that the task is about."""
        self._task: Task[list[_Outcome]] | None = None
        self._again_at = float("-inf")

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def of_one_region(self) -> int:
        """The most that wait of a region, one behind the other."""
        return max(Counter(w.region for w in self._waiting).values(), default=0)

    @property
    def nbytes(self) -> int:
        """Bytes that the waiting generations' rows hold, with the copies that the flush in flight makes of its own."""
        return sum(w.nbytes for w in self._waiting) + sum(w.nbytes for w in self._flushing) * _FLUSH_COPIES

    def add(self, memtable: MemTable, record: GenerationRecord) -> None:
        """A generation that this process sealed."""
        if record.next != memtable.position:
            raise RuntimeError(
                f"region {memtable.region.name}: generation {record.generation} ends at {record.next}, its rows in memory at "
                f"{memtable.position}"
            )
        self._waiting.append(_Waiting(memtable.region, record, memtable.nbytes, memtable.batches, memtable.entries))

    def add_from_log(self, region: Region, record: GenerationRecord) -> None:
        """A generation that an earlier owner left SEALED."""
        self._waiting.append(_Waiting(region, record, 0, None))

    def advance(self) -> None:
        """Take the result of a flush that is done; begin the next one."""
        if self._task is not None and self._task.done():
            self._finish()
        if self._task is None and self._waiting and self._context.clock.monotonic() >= self._again_at:
            self._flushing = items = self._next()
            self._task = self._context.tasks.start(lambda: self._flush(items))

    def wait(self, timeout_s: float) -> None:
        """Let up to that much time pass, no more than until the flush in flight is done or one may begin again."""
        if self._task is not None:
            self._task.wait(timeout_s)
        else:
            clock = self._context.clock
            clock.sleep(max(0.0, min(self._again_at - clock.monotonic(), timeout_s)))

    def _next(self) -> Sequence[_Waiting]:
        """What is flushed at a time: the oldest, and what may go beside it."""
        chosen: list[_Waiting] = []
        regions = set[Region]()
        nbytes = 0
        for item in self._waiting:
            nbytes += item.nbytes
            alike = not chosen or item.in_memory == chosen[0].in_memory
            beside = alike and item.region not in regions and nbytes <= TOGETHER_BYTES
            if chosen and (not beside or len(chosen) == _TOGETHER):
                break
            chosen.append(item)
            regions.add(item.region)
        return chosen

    def _flush(self, items: Sequence[_Waiting]) -> list[_Outcome]:
        context = self._context
        if not items[0].in_memory:
            return self._flush_from_logs(items)
        flushable = context.tasks.map(self._folded, items)
        return flush_generations(context, flushable, context.new_id)

    def _folded(self, item: _Waiting) -> Flushable:
        if item.batches is not None:
            item.content = Content(fold(item.batches, self._context.contract.rows), item.entries)
            item.batches = None
        assert item.content is not None
        return Flushable(item.region, item.record, item.content)

    def _flush_from_logs(self, items: Sequence[_Waiting]) -> list[_Outcome]:
        began = self._context.clock.monotonic()
        found = flush_from_logs(self._context, [item.region for item in items], self._context.new_id)
        for item in items:
            item.replay_s = (self._context.clock.monotonic() - began) / len(items)
        return [found[item.region] for item in items]

    def _finish(self) -> None:
        task, self._task = self._task, None
        items, self._flushing = self._flushing, ()
        if task is None:
            return
        told = set[LancewalError]()
        for item, outcome in zip(items, task.result(), strict=True):
            if isinstance(outcome, LancewalError):
                if not isinstance(outcome, Retry | Refresh | Corrupt):
                    raise outcome
                if outcome not in told:  # it may be that of a whole page
                    self._observer.failed("flush", outcome)
                told.add(outcome)
                if not isinstance(outcome, Corrupt) or item.in_memory:
                    self._again_at = self._context.clock.monotonic() + self._retry_s
                    continue
                # Its log is damaged: only the flusher goes on asking.
            self._waiting.remove(item)
            if isinstance(outcome, Snapshot):
                self._observer.flushed(item.region, outcome)
                if item.replay_s is not None:
                    self._observer.replayed(outcome.changes, item.replay_s)
        return_free_pages()
