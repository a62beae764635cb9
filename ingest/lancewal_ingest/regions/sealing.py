"""Seal or re-anchor the MemTables for which it is time (``policy``), and tell when that is late.

The swap runs beside the loop, and no append waits for it.  The MemTable is put aside as it is, and the region's next
entries go into that of the following generation (``seal``).

Guarantees
 1. ``advance`` is called while no segment is unsettled: what a generation ends with is fixed then.
 2. What is due in a turn goes to the store at once, each page in one swap; what falls due meanwhile is in the next
    one.  Each page is a task of its own: one that is silent holds up no region of another.
 3. A seal without a verdict is tried again as it is.  Until it has one, its region is neither sealed further nor
    handed over.  A move without a verdict is forgotten, and decided again.  So is a seal of a region that was given
    up meanwhile: whoever opens that region makes one generation of what was put aside and what came after it.
 4. A region that another owner has claimed is dropped.  A region whose index has no room for a further generation, or
    is damaged, is put off.  The others go on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from lancewal_core.errors import Corrupt, LancewalError, OwnershipLost, Refresh, Retry
from lancewal_core.names.ids import Page, Region
from lancewal_core.process.tasks import Task
from lancewal_core.region.state import GenerationRecord
from lancewal_core.wal.writer import LogWriter
from lancewal_ingest.context import IngestContext
from lancewal_ingest.observer import Observer
from lancewal_ingest.regions.flush_queue import FlushQueue
from lancewal_ingest.regions.memtable import MemTable
from lancewal_ingest.regions.partitions import OpenRegion, Partitions
from lancewal_ingest.regions.policy import GenerationStats, MemoryPolicy, SealDecision, SealPolicy
from lancewal_ingest.regions.seal import Answer, Fixed, seal_and_reanchor, to_move, to_seal

_SEALING_MAX_S = 5.0
"""Longer than any seal that is merely slow."""
_AGAIN_S = 0.1
_LITTLE_S = 0.01
"""Seconds to wait for one of several pages: any may be the next to have a verdict."""


@dataclass(frozen=True, slots=True, eq=False)
class _Ending:
    """A generation whose seal, or move, has no verdict yet."""

    of: OpenRegion
    fixed: Fixed
    sealed: bool
    """Not where it is only moved."""

    @property
    def region(self) -> Region:
        return self.fixed.memtable.region


@dataclass(slots=True, eq=False)
class _OfPage:
    """Swaps of one page that are under way."""

    endings: list[_Ending] = field(default_factory=list)
    """Sent, or to be tried again."""
    trying: bool = False
    """Also while ``start`` has not returned yet: it may run the whole call, and more turns meanwhile."""
    task: Task[dict[Region, Answer]] | None = None
    again_at: float = float("-inf")
    since: float | None = None
    """Since when something should be sealed, or re-anchored; a try alone may take half a minute."""

    def takes_more(self, now: float) -> bool:
        """Whether what falls due now goes out at once.  A move that waited would be of a generation that has got entries
        meanwhile, and may be due to be sealed too."""
        return not self.trying and now >= self.again_at


class Sealing:
    """See the module docstring; what is sealed goes to ``flushes``."""

    def __init__(
        self,
        context: IngestContext,
        observer: Observer,
        partitions: Partitions,
        flushes: FlushQueue,
        policy: SealPolicy,
        memory: MemoryPolicy,
    ) -> None:
        self._context = context
        self._observer = observer
        self._partitions = partitions
        self._flushes = flushes
        self._policy = policy
        self._memory = memory
        self._pages: dict[Page, _OfPage] = {}
        """Pages that something was under way of."""
        self._since: float | None = None
        """The earliest among theirs."""

    @property
    def late(self) -> bool:
        """Whether no generation could be sealed for a while.  May be asked from any thread."""
        since = self._since
        return since is not None and self._now() - since >= _SEALING_MAX_S

    @property
    def busy(self) -> bool:
        """Something has no verdict yet."""
        return any(page.endings for page in self._pages.values())

    @property
    def running(self) -> bool:
        """Not while it only waits to be tried again."""
        return any(page.trying for page in self._pages.values())

    @property
    def unsettled(self) -> set[Region]:
        """Partitions that something has no verdict of."""
        return {ending.region for page in self._pages.values() for ending in page.endings}

    @property
    def nbytes(self) -> int:
        """Bytes of MemTables that are put aside."""
        endings = (ending for page in self._pages.values() for ending in page.endings)
        return sum(ending.fixed.memtable.nbytes for ending in endings if ending.sealed)

    def advance(self, writer: LogWriter) -> None:
        """One turn over the open regions, whose entries go to ``writer``."""
        self.settle()
        self._begin(writer)
        self._try_due()

    def go_on(self) -> None:
        """A turn that begins nothing new."""
        self.settle()
        self._try_due()

    def settle(self) -> None:
        """Take the verdicts, if they are there."""
        for page in list(self._pages.values()):
            self._settle(page)
        self._note_since()

    def wait(self, timeout_s: float) -> None:
        """Let up to that much time pass, no more than until there are verdicts or it is time to try again."""
        pages = list(self._pages.values())
        running = [page.task for page in pages if page.task is not None]
        again_at = [page.again_at for page in pages if page.endings and not page.trying]
        if again_at or not running:
            timeout_s = min(timeout_s, max(min(again_at, default=0.0) - self._now(), _LITTLE_S))
        if not running:
            self._context.clock.sleep(timeout_s)
        else:
            running[0].wait(timeout_s if len(running) == 1 else min(timeout_s, _LITTLE_S))

    def _settle(self, page: _OfPage) -> None:
        if page.task is None:
            # What was given up while it waits to be tried again is part of what the next opening finds, be it ours.
            page.endings = [ending for ending in page.endings if self._is_open(ending)]
            return
        if not page.task.done():
            return
        task, page.task, page.trying = page.task, None, False
        endings, page.endings = page.endings, []
        answers = task.result()
        failed: list[LancewalError] = []
        for ending in endings:
            error = self._take(ending, answers[ending.region])
            if error is not None:
                failed.append(error)
                if ending.sealed and isinstance(error, Refresh | Retry):
                    page.endings.append(ending)
        for error in dict.fromkeys(failed):  # one may be that of the whole page
            if not isinstance(error, Refresh | Retry):
                raise error
            self._observer.failed("seal", error)
        if failed:
            page.again_at = self._now() + _AGAIN_S
        if not any(isinstance(error, Retry) for error in failed):
            page.since = None

    def _begin(self, writer: LogWriter) -> None:
        """Put aside what is due, of pages that take it."""
        now = self._now()
        full_up = {page.number for page, under_way in self._pages.items() if not under_way.takes_more(now)}
        open_ = [region for region in self._partitions.open.values() if region.sealing is None]
        total = sum(r.memtable.nbytes for r in open_)
        open_ = [
            r for r in open_ if not full_up or self._context.contract.page_of(r.memtable.region).number not in full_up
        ]
        largest = max(open_, key=lambda r: r.memtable.nbytes, default=None)
        early = largest if largest is not None and self._memory.seal_largest(total) else None
        full, empty = list[OpenRegion](), list[OpenRegion]()
        for region in open_:
            decision = self._decide(region.memtable, writer.length, now, early=region is early)
            if decision is SealDecision.SEAL:
                full.append(region)
            elif decision is SealDecision.REANCHOR:
                empty.append(region)
        sealed = to_seal(self._context, writer, [region.memtable for region in full])
        moved = to_move(self._context, writer, [region.memtable for region in empty])
        for region, fixed in zip(full, sealed, strict=True):
            region.sealing, region.memtable = fixed.memtable, fixed.following(self._now())
            self._put_aside(_Ending(region, fixed, sealed=True))
        for region, fixed in zip(empty, moved, strict=True):
            self._put_aside(_Ending(region, fixed, sealed=False))

    def _put_aside(self, ending: _Ending) -> None:
        self._pages.setdefault(self._context.contract.page_of(ending.region), _OfPage()).endings.append(ending)

    def _try_due(self) -> None:
        """All that can go out, the pages side by side."""
        now = self._now()
        due = [page for page in self._pages.values() if page.takes_more(now)]
        for page in due:
            if not page.endings:
                page.since = None
            elif page.since is None:
                page.since = now
        self._note_since()
        for page in due:
            if page.endings and not page.trying:
                self._try(page)
        self.settle()

    def _try(self, page: _OfPage) -> None:
        full = [ending.fixed for ending in page.endings if ending.sealed]
        empty = [ending.fixed for ending in page.endings if not ending.sealed]
        page.trying = True
        page.task = self._context.tasks.start(partial(seal_and_reanchor, self._context, full, empty))

    def _note_since(self) -> None:
        self._since = min((page.since for page in self._pages.values() if page.since is not None), default=None)

    def _take(self, ending: _Ending, answer: Answer) -> LancewalError | None:
        """Take the answer for one generation; return the error that is left to report."""
        match answer:
            case GenerationRecord() as record if ending.sealed:
                ending.of.sealing = None
                self._flushes.add(ending.fixed.memtable, record)
                self._observer.sealed(ending.region, record)
            case GenerationRecord() as record:
                moved = ending.fixed.memtable
                moved.first_sequence, moved.first_length = record.first_sequence, ending.fixed.length
            case _ if not self._is_open(ending):  # whoever opens it next goes on from what the store has
                pass
            case OwnershipLost() as error:
                self._partitions.drop(ending.region, error)
            case Corrupt() as error:
                self._partitions.put_off(ending.region, error)
            case error:
                return error
        return None

    def _is_open(self, ending: _Ending) -> bool:
        """Not where it was given up, though it may have been opened anew."""
        return self._partitions.open.get(ending.region) is ending.of

    def _decide(self, memtable: MemTable, length: float, now: float, *, early: bool) -> SealDecision:
        stats = GenerationStats(
            memtable.entries,
            memtable.rows,
            memtable.nbytes,
            now - memtable.opened_at,
            memtable.first_length,
            length,
            memtable.region,
        )
        decision = self._policy.decide(stats)
        return SealDecision.SEAL if early and memtable.entries else decision

    def _now(self) -> float:
        return self._context.clock.monotonic()
