"""Seal or re-anchor the generations that are due by ``policy``, and report when that is late.

The swap runs in a task, and no append waits for it.  Meanwhile the MemTable of the ended generation is put aside, and
the region's next entries go into the MemTable of the following generation (``seal``).

Guarantees
 1. ``advance`` is called only while no segment is unsettled; the ends of generations are fixed at that moment.
 2. Generations due in a turn go to the store at once, those of a page in one swap.  Generations that fall due meanwhile
    are in the next swap.  Each page has a task of its own, so a page that does not answer delays no other page.
 3. A seal without an answer is repeated unchanged.  Until the answer, its region is neither sealed again nor handed
    over.  A re-anchoring without an answer is forgotten, and decided again.  A seal of a region that was given up
    meanwhile is forgotten too.  The process that opens that region next makes one generation of the MemTable that was
    put aside and of later entries.
 4. A region that another owner has claimed is dropped.  A region whose state is damaged, or has no room for a further
    generation, is closed and tried again later.  Other regions go on.
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
from lancewal_ingest.regions.partitions import OpenRegion, Partitions
from lancewal_ingest.regions.policy import MemoryPolicy, SealDecision, SealPolicy
from lancewal_ingest.regions.seal import Answer, Fixed, seal_and_reanchor, to_move, to_seal

_SEALING_MAX_S = 5.0
"""Seconds after which a seal counts as late: longer than a seal that is merely slow."""
_AGAIN_S = 0.1
_LITTLE_S = 0.01
"""Seconds to wait for one of several pages, because another may answer first."""


@dataclass(frozen=True, slots=True, eq=False)
class _Ending:
    """A generation whose seal or re-anchoring has no answer yet."""

    of: OpenRegion
    fixed: Fixed
    sealed: bool
    """True for a seal, False for a re-anchoring."""

    @property
    def region(self) -> Region:
        return self.fixed.memtable.region


@dataclass(slots=True, eq=False)
class _OfPage:
    """Seals and re-anchorings of one page that have no answer yet."""

    endings: list[_Ending] = field(default_factory=list)
    """Generations that were sent, or are to be sent again."""
    trying: bool = False
    """Whether a swap is running.  True even before ``Tasks.start`` returns, which may run the whole swap, and other
    turns of the loop, first."""
    task: Task[dict[Region, Answer]] | None = None
    again_at: float = float("-inf")
    """Monotonic seconds from which on the page may be tried again."""
    since: float | None = None
    """Monotonic time in seconds since when a generation of the page is due and its swap has no answer; None if none is
    due.  One try may take half a minute."""

    def takes_more(self, now: float) -> bool:
        """Return whether the page can be swapped now.  If not, due generations of the page stay undecided, and none is
        put aside.

        A re-anchoring that waited would be outdated: its generation could have entries by then, and be due to be
        sealed.
        """
        return not self.trying and now >= self.again_at


@dataclass(slots=True, eq=False)
class Sealing:
    """Runner of seals and re-anchorings.  Sealed generations go to ``flushes``."""

    context: IngestContext
    observer: Observer
    partitions: Partitions
    flushes: FlushQueue
    policy: SealPolicy
    memory: MemoryPolicy
    _pages: dict[Page, _OfPage] = field(default_factory=dict)
    """Pages that have, or had, seals or re-anchorings under way."""
    _since: float | None = None
    """Earliest ``since`` of all pages; None if no page has a generation that is due."""

    @property
    def late(self) -> bool:
        """Whether some generation should have been sealed ``_SEALING_MAX_S`` ago.  Any thread may call."""
        since = self._since
        return since is not None and self._now() - since >= _SEALING_MAX_S

    @property
    def busy(self) -> bool:
        """Whether some seal or re-anchoring has no result yet."""
        return any(page.endings for page in self._pages.values())

    @property
    def running(self) -> bool:
        """Whether a swap is running.  False while all swaps wait for their next try."""
        return any(page.trying for page in self._pages.values())

    @property
    def unsettled(self) -> set[Region]:
        """Regions whose seal or re-anchoring has no result yet."""
        return {ending.region for page in self._pages.values() for ending in page.endings}

    @property
    def nbytes(self) -> int:
        """Bytes of the MemTables whose seals have no result yet."""
        endings = (ending for page in self._pages.values() for ending in page.endings)
        return sum(ending.fixed.memtable.nbytes for ending in endings if ending.sealed)

    def advance(self, writer: LogWriter) -> None:
        """Take results, and begin the seals and re-anchorings that are due among the open regions.  ``writer`` is the
        log of these regions.
        """
        self.settle()
        self._begin(writer)
        self._try_due()

    def go_on(self) -> None:
        """Take results, and retry swaps that are due.  Begin no further seals."""
        self.settle()
        self._try_due()

    def settle(self) -> None:
        """Take the results that have arrived.  Never waits."""
        for page in list(self._pages.values()):
            self._settle(page)
        self._note_since()

    def wait(self, timeout_s: float) -> None:
        """Wait at most ``timeout_s`` until an answer may have come or a swap may be tried again."""
        pages = list(self._pages.values())
        running = [page.task for page in pages if page.task is not None]
        again_at = [page.again_at for page in pages if page.endings and not page.trying]
        if again_at or not running:
            timeout_s = min(timeout_s, max(min(again_at, default=0.0) - self._now(), _LITTLE_S))
        if not running:
            self.context.clock.sleep(timeout_s)
        else:
            running[0].wait(timeout_s if len(running) == 1 else min(timeout_s, _LITTLE_S))

    def _settle(self, page: _OfPage) -> None:
        if page.task is None:
            # Forget regions given up while they wait for a repeated swap: the next opening, even ours, takes their rows.
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
        for error in dict.fromkeys(failed):  # several regions of the page may have the same error
            if not isinstance(error, Refresh | Retry):
                raise error
            self.observer.failed("seal", error)
        if failed:
            page.again_at = self._now() + _AGAIN_S
        if not any(isinstance(error, Retry) for error in failed):
            page.since = None

    def _begin(self, writer: LogWriter) -> None:
        """Choose the generations to seal or re-anchor now, and fix their ends.  They wait if their page cannot be
        swapped now.  The MemTable of a sealed generation is put aside, and an empty one takes its place.

        If memory is short, the largest generation is sealed before it is due."""
        now = self._now()
        full_up = {page.number for page, under_way in self._pages.items() if not under_way.takes_more(now)}
        open_ = [region for region in self.partitions.open.values() if region.sealing is None]
        total = sum(r.memtable.nbytes for r in open_)
        open_ = [
            r for r in open_ if not full_up or self.context.contract.page_of(r.memtable.region).number not in full_up
        ]
        largest = max(open_, key=lambda r: r.memtable.nbytes, default=None)
        early = largest if largest is not None and self.memory.seal_largest(total) else None
        full, empty = list[OpenRegion](), list[OpenRegion]()
        for region in open_:
            decision = self.policy.decide(region.memtable, now, writer.length)
            if decision is SealDecision.SEAL or (region is early and region.memtable.entries):
                full.append(region)
            elif decision is SealDecision.REANCHOR:
                empty.append(region)
        sealed = to_seal(self.context, writer, [region.memtable for region in full])
        moved = to_move(self.context, writer, [region.memtable for region in empty])
        for region, fixed in zip(full, sealed, strict=True):
            region.sealing, region.memtable = fixed.memtable, fixed.following(self._now())
            self._put_aside(_Ending(region, fixed, sealed=True))
        for region, fixed in zip(empty, moved, strict=True):
            self._put_aside(_Ending(region, fixed, sealed=False))

    def _put_aside(self, ending: _Ending) -> None:
        self._pages.setdefault(self.context.contract.page_of(ending.region), _OfPage()).endings.append(ending)

    def _try_due(self) -> None:
        """Send the swaps of all pages that are due, in parallel."""
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
        page.task = self.context.tasks.start(partial(seal_and_reanchor, self.context, full, empty))

    def _note_since(self) -> None:
        self._since = min((page.since for page in self._pages.values() if page.since is not None), default=None)

    def _take(self, ending: _Ending, answer: Answer) -> LancewalError | None:
        """Take the answer for one generation; return the error that is left to report."""
        match answer:
            case GenerationRecord() as record if ending.sealed:
                ending.of.sealing = None
                self.flushes.add(ending.fixed.memtable, record)
                self.observer.sealed(ending.region, record)
            case GenerationRecord() as record:
                moved = ending.fixed.memtable
                moved.first_sequence, moved.first_length = record.first_sequence, ending.fixed.length
            case _ if not self._is_open(ending):  # given up meanwhile: the next opening goes on from the stored state
                pass
            case OwnershipLost() as error:
                self.partitions.drop(ending.region, error)
            case Corrupt() as error:
                self.partitions.put_off(ending.region, error)
            case error:
                return error
        return None

    def _is_open(self, ending: _Ending) -> bool:
        """Return whether the region of ``ending`` is still open since then; False also if it was opened again."""
        return self.partitions.open.get(ending.region) is ending.of

    def _now(self) -> float:
        return self.context.clock.monotonic()
