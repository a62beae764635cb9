"""Queue of SEALED generations to flush, oldest first.  Flushes run in tasks beside the loop.

Generations in memory are flushed together, up to the size of one generation, but only one of a region at a time.
Generations that are only in the log are flushed together too.  One request shows which of them their former owner has
flushed by now, and a log is read once for many.

Guarantees
 1. One flush of each kind, from memory and from logs, is read and written at a time.  When it is written, the next one
    begins, while the state pages are swapped, each in a request of its own.  When a page has answered, the rows of its
    regions are freed, and the flush is reported.
 2. A page that does not answer delays only its own regions: no flush that begins meanwhile includes them.  A read or
    write that does not answer delays all flushes from memory, or all from logs.
 3. A flush that fails is tried again after ``retry_s``, and does not delay other regions.
 4. Any other process can do the flushes that are left undone, from the log.  If the log is damaged, the flusher names
    the log until somebody has repaired it.  Meanwhile consumed records still become durable.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from lancewal_core.errors import ContractChanged, Corrupt, LancewalError, Refresh, Retry
from lancewal_core.names.ids import Page, Region
from lancewal_core.process.tasks import Task
from lancewal_core.region.flush import (
    TOGETHER_BYTES,
    Answer,
    Flushing,
    begin_flushes,
    begin_flushes_from_logs,
    folded_content,
)
from lancewal_core.region.flush_files import Content, Flushable
from lancewal_core.region.flushes.manifest import FlushedGeneration
from lancewal_core.region.state import GenerationRecord
from lancewal_ingest.context import IngestContext
from lancewal_ingest.glibc_heap import return_free_pages
from lancewal_ingest.observer import Observer
from lancewal_ingest.regions.memtable import MemTable

_FLUSH_COPIES = 2
"""Folding a MemTable copies it once to join its batches and once to take the surviving rows."""
_TOGETHER = 256
"""Largest number of generations that are flushed together."""
_LITTLE_S = 0.01
"""Seconds to wait for one of several tasks, because another one may end first."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A generation to flush, with its rows: first the MemTable's batches, then the folded ``content``.  Both are None
    if the rows are only in the log."""

    region: Region
    record: GenerationRecord
    nbytes: int
    batches: Sequence[tuple[pa.RecordBatch, int]] | None
    """Batches of rows, each with its contract version."""
    contract_version: int = 0
    """The newest contract version that an entry of the generation names; 0 without entries, or if the rows are only in
    the log."""
    content: Content | None = None
    again_at: float = float("-inf")
    """Monotonic seconds from which on it may be tried again after a failure."""

    @property
    def in_memory(self) -> bool:
        return self.batches is not None or self.content is not None


@dataclass(slots=True, eq=False)
class _Flight:
    """A flush under way, of one or several generations."""

    items: dict[Region, _Waiting]
    """Generations whose flush has no answer yet."""
    in_memory: bool
    began: float
    task: Task[Flushing] | None = None
    """The task that reads and writes the flush.  None before ``Tasks.start`` returns, which may run the whole task, and
    other turns of the loop, first."""
    swaps: list[Task[dict[Region, Answer]]] | None = None
    """Swaps of state pages without an answer; None before the flush is written."""
    share_s: float = 0.0
    """Seconds of reading and writing, divided by the number of the flush's generations."""


class FlushQueue:
    """Queue of the generations to flush.  Only the loop's thread may call."""

    def __init__(self, context: IngestContext, observer: Observer, retry_s: float) -> None:
        self.context = context
        """The open table with the contract version that this process follows; the loop replaces it.  A flush under way
        keeps the one with which it began."""
        self.outdated = False
        """Whether a flush has failed because entries name a newer contract version.  The loop must follow that version
        before the flush is tried again, and resets this."""
        self._observer = observer
        self._retry_s = retry_s
        self._waiting: deque[_Waiting] = deque()
        self._flights: list[_Flight] = []

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def of_one_region(self) -> int:
        """Largest number of waiting generations of one region."""
        return max(Counter(w.region for w in self._waiting).values(), default=0)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows of waiting generations, plus the copies made of generations that are being folded and
        written.
        """
        writing = (item for flight in self._flights if flight.swaps is None for item in flight.items.values())
        return sum(w.nbytes for w in self._waiting) + sum(w.nbytes for w in writing) * _FLUSH_COPIES

    def add(self, memtable: MemTable, record: GenerationRecord) -> None:
        """Add a generation that this process sealed, with the rows in its MemTable."""
        if record.next != memtable.position:
            raise RuntimeError(
                f"region {memtable.region.name}: generation {record.generation} ends at {record.next}, its rows in memory at "
                f"{memtable.position}"
            )
        batches = list(zip(memtable.batches, memtable.versions, strict=True))
        self._waiting.append(_Waiting(memtable.region, record, memtable.nbytes, batches, memtable.contract_version))

    def add_from_log(self, region: Region, record: GenerationRecord) -> None:
        """Add a generation that an earlier owner left SEALED; its rows are read from the log."""
        self._waiting.append(_Waiting(region, record, 0, None))

    def advance(self) -> None:
        """Take the results of flushes that have ended, and begin the next ones.  Never waits."""
        for flight in list(self._flights):
            self._settle(flight)
        for in_memory in (True, False):
            self._begin(in_memory=in_memory)

    def wait(self, timeout_s: float) -> None:
        """Wait at most ``timeout_s`` until a task may have ended or a flush may be tried again."""
        running: list[Task[object]] = []
        for flight in self._flights:
            running += flight.swaps or ([] if flight.task is None else [flight.task])
        in_flight = {region for flight in self._flights for region in flight.items}
        now = self._now()
        later = [w.again_at - now for w in self._waiting if w.again_at > now and w.region not in in_flight]
        if later or not running:
            timeout_s = min(timeout_s, max(0.0, min(later, default=0.0)))
        if not running:
            self.context.clock.sleep(timeout_s)
        else:
            running[0].wait(timeout_s if len(running) == 1 else min(timeout_s, _LITTLE_S))

    def _begin(self, *, in_memory: bool) -> None:
        if any(flight.in_memory is in_memory and flight.swaps is None for flight in self._flights):
            return
        items = self._next(in_memory)
        if not items:
            return
        flight = _Flight({item.region: item for item in items}, in_memory, self._now())
        self._flights.append(flight)
        flight.task = self.context.tasks.start(partial(self._flush, items))

    def _next(self, in_memory: bool) -> Sequence[_Waiting]:
        """Return the generations to flush now: the oldest that may be flushed, and others that fit in with it."""
        now = self._now()
        chosen: list[_Waiting] = []
        held = {region for flight in self._flights for region in flight.items}
        pages = {self._page(r) for flight in self._flights if flight.swaps is not None for r in flight.items}
        nbytes = 0
        for item in self._waiting:
            if item.region in held:
                continue
            held.add(item.region)  # later generations of the region wait for this one
            if item.in_memory is not in_memory or item.again_at > now or (pages and self._page(item.region) in pages):
                continue
            nbytes += item.nbytes
            if chosen and (nbytes > TOGETHER_BYTES or len(chosen) == _TOGETHER):
                break
            chosen.append(item)
        return chosen

    def _flush(self, items: Sequence[_Waiting]) -> Flushing:
        context = self.context
        if not items[0].in_memory:
            return begin_flushes_from_logs(context, [item.region for item in items], context.new_id)
        return begin_flushes(context, context.tasks.map(partial(_folded, context), items), context.new_id)

    def _settle(self, flight: _Flight) -> None:
        """Take the answers that one flush has so far."""
        if flight.swaps is None:
            if flight.task is None or not flight.task.done():
                return
            written = flight.task.result()
            flight.swaps, flight.share_s = list(written.swaps), (self._now() - flight.began) / len(flight.items)
            self._take(flight, written.answers)
        for swap in [swap for swap in flight.swaps if swap.done()]:
            flight.swaps.remove(swap)
            self._take(flight, swap.result())
        if not flight.swaps:
            self._flights.remove(flight)

    def _take(self, flight: _Flight, answers: Mapping[Region, Answer]) -> None:
        told = set[LancewalError]()
        for region, answer in answers.items():
            item = flight.items.pop(region)
            if isinstance(answer, LancewalError):
                if not isinstance(answer, Retry | Refresh | Corrupt):
                    raise answer
                self.outdated |= isinstance(answer, ContractChanged)
                if answer not in told:  # several regions of a page may have the same error
                    self._observer.failed("flush", answer)
                told.add(answer)
                if not isinstance(answer, Corrupt) or item.in_memory:
                    item.again_at = self._now() + self._retry_s
                    continue
                # The log of the generation is damaged: from now on only the flusher tries to read it.
            self._waiting.remove(item)
            if isinstance(answer, FlushedGeneration):
                self._observer.flushed(region, answer)
                if not flight.in_memory:
                    self._observer.replayed(answer.changes, flight.share_s)
        if answers:
            return_free_pages()

    def _page(self, region: Region) -> Page:
        return self.context.contract.page_of(region)

    def _now(self) -> float:
        return self.context.clock.monotonic()


def _folded(context: IngestContext, item: _Waiting) -> Flushable:
    """Return a generation in memory, folded, with the columns of its newest entry."""
    if item.batches is not None:
        rows, versions = [rows for rows, _ in item.batches], [version for _, version in item.batches]
        newest = item.contract_version or context.contract.version
        item.content = folded_content(context, rows, versions, newest)
        item.batches = None
    assert item.content is not None
    return Flushable(item.region, item.record, item.content)
