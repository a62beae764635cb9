"""SEALED generations on their way to snapshots: one flush at a time, oldest first, beside the loop.

A flush that fails is tried again after ``retry_s``; whatever is left undone, any other process can do from the log.  Where
that is damaged the flusher names it until somebody has repaired it: what is consumed meanwhile becomes durable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from lancewal_core.errors import Corrupt, Refresh, Retry
from lancewal_core.ids import Position, Region
from lancewal_core.process.tasks import Task
from lancewal_core.region.flush import flush_from_log, flush_generation
from lancewal_core.region.index import GenerationRecord
from lancewal_core.region.snapshot import Content, Snapshot
from lancewal_core.rows.fold import fold
from lancewal_ingest.context import IngestContext
from lancewal_ingest.glibc_heap import return_free_pages
from lancewal_ingest.observer import Observer
from lancewal_ingest.regions.memtable import MemTable

_FLUSH_COPIES = 2
"""Folding a MemTable copies it once to join its batches and once to take the surviving rows."""


@dataclass(slots=True)
class _Waiting:
    """A generation with its rows, first as the MemTable held them, then folded; neither where they are only in the log."""

    region: Region
    record: GenerationRecord
    nbytes: int
    batches: Sequence[pa.RecordBatch] | None
    entries: Sequence[Position] = ()
    content: Content | None = None
    replay_s: float | None = None
    """What reading its rows from the log and flushing them took."""


class FlushQueue:
    """Called by the loop's thread only."""

    def __init__(self, context: IngestContext, observer: Observer, retry_s: float) -> None:
        self._context = context
        self._observer = observer
        self._retry_s = retry_s
        self._waiting: deque[_Waiting] = deque()
        self._task: Task[Snapshot | None] | None = None
        self._again_at = float("-inf")

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def nbytes(self) -> int:
        """Bytes that the waiting generations' rows hold, with the copies that the flush in flight makes of its own."""
        flushing = self._waiting[0].nbytes if self._task is not None else 0
        return sum(w.nbytes for w in self._waiting) + flushing * _FLUSH_COPIES

    def add(self, memtable: MemTable, record: GenerationRecord) -> None:
        """A generation that this process sealed."""
        self._waiting.append(_Waiting(memtable.region, record, memtable.nbytes, memtable.batches, memtable.entries))

    def add_from_log(self, region: Region, record: GenerationRecord) -> None:
        """A generation that an earlier owner left SEALED."""
        self._waiting.append(_Waiting(region, record, 0, None))

    def advance(self) -> None:
        """Take the result of a flush that is done; begin the next one."""
        if self._task is not None and self._task.done():
            self._finish()
        if self._task is None and self._waiting and self._context.clock.monotonic() >= self._again_at:
            item = self._waiting[0]
            self._task = self._context.tasks.start(lambda: self._flush(item))

    def wait(self, timeout_s: float) -> None:
        """Let up to that much time pass, no more than until the flush in flight is done or one may begin again."""
        if self._task is not None:
            self._task.wait(timeout_s)
        else:
            clock = self._context.clock
            clock.sleep(max(0.0, min(self._again_at - clock.monotonic(), timeout_s)))

    def _flush(self, item: _Waiting) -> Snapshot | None:
        context = self._context
        if item.batches is not None:
            item.content = Content(fold(item.batches, context.contract.rows), item.entries)
            item.batches = None
        if item.content is None:
            began = context.clock.monotonic()
            snapshot = flush_from_log(context, item.region, context.new_id)
            item.replay_s = context.clock.monotonic() - began
            return snapshot
        return flush_generation(context, item.region, item.record, item.content, context.new_id)

    def _finish(self) -> None:
        task, self._task = self._task, None
        if task is None:
            return
        try:
            snapshot = task.result()
        except (Retry, Refresh, Corrupt) as error:
            self._observer.failed("flush", error)
            if isinstance(error, Corrupt) and self._waiting[0].content is None:
                self._waiting.popleft()  # its log is damaged: only the flusher goes on asking
            else:
                self._again_at = self._context.clock.monotonic() + self._retry_s
            return
        item = self._waiting.popleft()
        return_free_pages()
        if snapshot is not None:
            self._observer.flushed(item.region, snapshot)
            if item.replay_s is not None:
                self._observer.replayed(snapshot.changes, item.replay_s)
