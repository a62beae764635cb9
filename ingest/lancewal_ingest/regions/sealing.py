"""Seals or re-anchors the MemTables for which it is time (``policy``), and tells when that is late.

The swap runs beside the loop, and no append waits for it: the MemTable is put aside as it is, and the region's next entries go
into that of the following generation (``seal``).

Guarantees
 1. ``advance`` is called while no segment is unsettled: what a generation ends with is fixed then.
 2. What is due in a turn goes to the store at once, each page in one swap; what falls due meanwhile is in the next one.
 3. A seal without a verdict is tried again as it is, and until it has one, that region is neither sealed further nor handed
    over.  What was to be moved only is forgotten, and decided anew; so is a seal of a region that was given up meanwhile, for
    whoever opens that makes one generation of what was put aside and what came behind it.
 4. A region that another owner has claimed is dropped, one whose index has no room for a further generation, or is damaged,
    put off; the others go on.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial

from lancewal_core.errors import Corrupt, LancewalError, OwnershipLost, Refresh, Retry
from lancewal_core.ids import Region
from lancewal_core.process.tasks import Task
from lancewal_core.region.index import GenerationRecord
from lancewal_core.wal.writer import LogWriter
from lancewal_ingest.context import IngestContext
from lancewal_ingest.observer import Observer
from lancewal_ingest.regions.flush_queue import FlushQueue
from lancewal_ingest.regions.partitions import OpenRegion, Partitions
from lancewal_ingest.regions.policy import GenerationStats, MemoryPolicy, SealDecision, SealPolicy
from lancewal_ingest.regions.seal import Answer, Fixed, seal_and_reanchor, to_move, to_seal

_SEALING_MAX_S = 5.0
"""Longer than any seal that is merely slow."""
_AGAIN_S = 0.1


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
        self._since: float | None = None
        """Since when something should be sealed, or re-anchored; a try alone may take half a minute."""

        self._endings: list[_Ending] = []
        """Under way, or to be tried again."""
        self._trying = False
        """Also while ``start`` has not returned yet: it may run the whole call, and more turns meanwhile."""
        self._task: Task[dict[Region, Answer]] | None = None
        self._again_at = float("-inf")

    @property
    def late(self) -> bool:
        """Whether no generation could be sealed for a while.  May be asked from any thread."""
        since = self._since
        return since is not None and self._now() - since >= _SEALING_MAX_S

    @property
    def busy(self) -> bool:
        """Something has no verdict yet."""
        return bool(self._endings)

    @property
    def running(self) -> bool:
        """Not while it only waits to be tried again."""
        return self._trying

    @property
    def nbytes(self) -> int:
        """Of MemTables that are put aside."""
        return sum(ending.fixed.memtable.nbytes for ending in self._endings if ending.sealed)

    def advance(self, writer: LogWriter) -> None:
        """One turn over the open regions, whose entries go to ``writer``."""
        self.settle()
        if self._trying or (self._endings and self._now() < self._again_at):
            return
        self._begin(writer)
        if not self._endings:
            self._since = None
            return
        if self._since is None:
            self._since = self._now()
        self._try()

    def settle(self) -> None:
        """Take the verdicts, if they are there."""
        if self._task is None:
            # What was given up while it waits to be tried again is part of what the next opening finds, be it ours.
            self._endings = [ending for ending in self._endings if self._is_open(ending)]
            return
        if not self._task.done():
            return
        task, self._task, self._trying = self._task, None, False
        endings, self._endings = self._endings, []
        answers = task.result()
        failed = [error for ending in endings if (error := self._take(ending, answers[ending.region])) is not None]
        for error in dict.fromkeys(failed):  # one may be that of a whole page
            if not isinstance(error, Refresh | Retry):
                raise error
            self._observer.failed("seal", error)
        if failed:
            self._again_at = self._now() + _AGAIN_S
        if not any(isinstance(error, Retry) for error in failed):
            self._since = None

    def wait(self, timeout_s: float) -> None:
        """Let up to that much time pass, no more than until there are verdicts or it is time to try again."""
        if self._task is not None:
            self._task.wait(timeout_s)
        else:
            self._context.clock.sleep(min(max(self._again_at - self._now(), _AGAIN_S / 10), timeout_s))

    def finish(self, partitions: Collection[int], until: float) -> set[int]:
        """Wait until these have verdicts, and begin nothing new; those that have none by then."""
        while True:
            self.settle()
            left = {p for ending in self._endings if (p := ending.region.partition) in partitions}
            if not left or self._now() >= until:
                return left
            if not self._trying and self._now() >= self._again_at:
                self._try()
            else:
                self.wait(until - self._now())

    def _begin(self, writer: LogWriter) -> None:
        """Put aside what is due."""
        open_ = [region for region in self._partitions.open.values() if region.sealing is None]
        largest = max(open_, key=lambda r: r.memtable.nbytes, default=None)
        total = sum(r.memtable.nbytes for r in open_)
        early = largest if largest is not None and self._memory.seal_largest(total) else None
        due: dict[SealDecision, list[OpenRegion]] = {decision: [] for decision in SealDecision}
        for region in open_:
            due[self._decide(region, writer, early=region is early)].append(region)
        full, empty = due[SealDecision.SEAL], due[SealDecision.REANCHOR]
        sealed = to_seal(self._context, writer, [region.memtable for region in full])
        moved = to_move(self._context, writer, [region.memtable for region in empty])
        for region, fixed in zip(full, sealed, strict=True):
            region.sealing, region.memtable = fixed.memtable, fixed.following(self._now())
            self._endings.append(_Ending(region, fixed, sealed=True))
        self._endings += [_Ending(region, fixed, sealed=False) for region, fixed in zip(empty, moved, strict=True)]

    def _try(self) -> None:
        full = [ending.fixed for ending in self._endings if ending.sealed]
        empty = [ending.fixed for ending in self._endings if not ending.sealed]
        self._trying = True
        self._task = self._context.tasks.start(partial(seal_and_reanchor, self._context, full, empty))
        self.settle()

    def _take(self, ending: _Ending, answer: Answer) -> LancewalError | None:
        """What is left to say of it."""
        partition = ending.region.partition
        match answer:
            case GenerationRecord() as record if ending.sealed:
                ending.of.sealing = None
                self._flushes.add(ending.fixed.memtable, record)
                self._observer.sealed(ending.region, record)
            case GenerationRecord() as record:
                ending.fixed.memtable.first_sequence = record.first_sequence
            case _ if not self._is_open(ending):  # whoever opens it next goes on from what the store has
                pass
            case OwnershipLost() as error:
                self._partitions.drop(partition, error)
            case Corrupt() as error:
                self._partitions.put_off(partition, error)
            case error:
                if ending.sealed:
                    self._endings.append(ending)
                return error
        return None

    def _is_open(self, ending: _Ending) -> bool:
        """Not where it was given up, though it may have been opened anew."""
        return self._partitions.open.get(ending.region.partition) is ending.of

    def _decide(self, region: OpenRegion, writer: LogWriter, *, early: bool) -> SealDecision:
        memtable = region.memtable
        stats = GenerationStats(
            len(memtable.entries),
            memtable.rows,
            memtable.nbytes,
            self._now() - memtable.opened_at,
            writer.next_unsent - memtable.first_sequence,
        )
        decision = self._policy.decide(stats)
        return SealDecision.SEAL if early and memtable.entries else decision

    def _now(self) -> float:
        return self._context.clock.monotonic()
